"""The records of a dispatcher beside the jobs of a store: workers, dispatches, callbacks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Self

import attrs
from attrs import frozen

from wmp.store.transaction import StoreRecord, StoreTransaction

_BITS: Final = 63
_LONGEST_PAUSE: Final = 60_000
"""Milliseconds that a worker is out of turn at most, unless the setting is longer."""


def worker_number(hostname: str, port: int) -> int:
    """Return the number of a worker, which follows from hostname and port (DSP-1.3)."""
    return _digest(f"{hostname}:{port}")


def crew_number(label: str) -> int:
    """Return the number of a WMP worker, which follows from its label (DSP-5.13)."""
    return _digest(f"wmp {label}")


def http_url(hostname: str, port: int) -> str:
    """Return the URL of a server at a name or an address."""
    host = f"[{hostname}]" if ":" in hostname else hostname
    return f"http://{host}:{port}"


def _digest(text: str) -> int:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) >> (64 - _BITS)


@frozen
class _Record:
    """A record whose fields are the attributes."""

    SORT = ""

    id: int

    @property
    def open(self) -> bool:
        """Whether the record still matters."""
        return True

    @classmethod
    def of(cls, record: StoreRecord) -> Self:
        """Return the value of a record; unknown fields, of a later version, are ignored."""
        known = {attribute.name for attribute in attrs.fields(cls)}
        return cls(record.id, **{name: v for name, v in record.body.items() if name in known})

    @classmethod
    def read(cls, store: StoreTransaction, id: int) -> Self | None:
        """Return the record of a number."""
        record = store.record(cls.SORT, id)
        return None if record is None else cls.of(record)

    @classmethod
    def all(cls, store: StoreTransaction) -> list[Self]:
        """Return all open records."""
        return [cls.of(record) for record in store.records(cls.SORT)]

    def write(self, store: StoreTransaction) -> None:
        """Write the record."""
        body = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in attrs.asdict(self, recurse=False).items()
            if name != "id"
        }
        store.put(self.SORT, StoreRecord(self.id, self.open, body))


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(values)


def _mappings(values: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(values)


@frozen
class WorkerRecord(_Record):
    """An HTTP worker as the dispatchers know it. Times are milliseconds since 1970."""

    SORT = "worker"

    hostname: str
    port: int
    max_jobs: int
    handlers: Mapping[str, Any] = {}
    jobs: tuple[int, ...] = attrs.field(default=(), converter=_numbers)
    """Numbers of the jobs that the worker has."""
    last_pinged: int = 0
    failed_pings: int = 0
    last_error: str | None = None
    resigned: bool = False
    dead: bool = False
    next_ping: int = 0
    """When a health check is due; for a worker that resigned: when the entry is removed."""
    pause_until: int = 0
    """Until when the worker gets no job, because it refused one."""
    refusals: int = 0
    """Pauses running for which the worker was out of turn; 0 after it accepted a job."""
    refusal: str | None = None
    """Why the worker was last out of turn; None after it accepted a job."""
    suspect: bool = False
    """Whether the worker gets one job at a time, until it completes one (DSP-3.15)."""
    unnamed: bool = False
    """Whether its last health check was answered without the names of its jobs (DSP-4.8)."""
    address: str | None = None
    """The address that the hostname had at the registration; None for the hostname as it is."""
    host: str | None = None
    """The host whose loopback the address is; None for an address of the network."""
    peer: str | None = None
    """The network address from which the worker was registered."""
    trusted: bool = True
    """Whether the worker need not prove itself (DSP-3.16)."""
    token: str | None = None
    """Name of the token with which the worker registered."""
    secret: str | None = attrs.field(default=None, repr=False)
    """Digest of the secret of the registration; None if there is no secret."""
    shown: bool = False
    """Whether the worker has shown its secret."""
    answered: bool = True
    """Whether the worker has answered a health check since it was registered (DSP-10.5)."""
    credit: int = 0
    """Jobs that the worker has completed, halved by each that it lost (DSP-3.16)."""
    registered: int = 0
    """When the worker was first registered."""

    @property
    def label(self) -> str:
        """Name of the worker in documents of jobs."""
        return f"{self.hostname}:{self.port}"

    @property
    def living(self) -> bool:
        """Whether the worker is neither given up nor resigned."""
        return not (self.dead or self.resigned)

    def free(self, now: int) -> int:
        """Return the number of jobs that the worker may get."""
        if not self.living or not self.answered or self.pause_until > now:
            return 0
        places = 1 if self.suspect else self.max_jobs
        return max(0, places - len(self.jobs))

    def proven_places(self, now: int) -> int:
        """Return the number of jobs that the worker may get within what it has proven."""
        free = self.free(now)
        return free if self.trusted else max(0, min(free, self.credit - len(self.jobs)))

    @property
    def unproven(self) -> int:
        """Number of jobs that the worker has beyond what it has proven."""
        return 0 if self.trusted else max(0, len(self.jobs) - self.credit)

    def out_of_turn(
        self, now: int, pause: int, cause: str, *, suspect: bool, doubled: bool
    ) -> WorkerRecord:
        """Return the worker without a turn for a while (DSP-3.15).

        Args:
            now: The time.
            pause: Milliseconds of the first pause.
            cause: Why, for people.
            suspect: Whether the worker gets one job at a time afterwards.
            doubled: Whether the next pause is twice as long.
        """
        worker = attrs.evolve(self, refusal=cause, suspect=self.suspect or suspect)
        if self.pause_until > now:
            return worker  # jobs that were sent together are refused together
        wait = min(max(pause, _LONGEST_PAUSE), pause << min(self.refusals, 16))
        return attrs.evolve(worker, refusals=self.refusals + doubled, pause_until=now + wait)

    def without(self, job: int) -> WorkerRecord:
        """Return the worker without a job."""
        return attrs.evolve(self, jobs=tuple(id for id in self.jobs if id != job))


@frozen
class DispatchRecord(_Record):
    """A job that was given to an HTTP worker, or is about to be given; ``id`` is the job's."""

    SORT = "dispatch"

    attempt: int
    instance: int
    """Number of the dispatcher."""
    since: int
    """When the job was saved as `d`."""
    worker: int | None = None
    """Number of the worker; None: the job is `d`."""
    started: int | None = None
    expiry: int | None = None
    """When the execution is ended."""
    unknown: int = 0
    """Health checks running in which the worker did not name the job."""
    listed: bool = False
    """Whether the worker named the job in its last health check."""
    refusals: int = 0
    """Refusals of the job that count (DSP-3.14), of this dispatch and of those before."""
    closed: bool = False
    """Whether the dispatch is over; the record is then history."""

    @property
    def open(self) -> bool:
        """Whether the dispatch is not over."""
        return not self.closed


@frozen
class CrewRecord(_Record):
    """The WMP workers that are connected to one dispatcher; ``id`` is the dispatcher's number."""

    SORT = "crew"

    workers: tuple[Mapping[str, Any], ...] = attrs.field(default=(), converter=_mappings)
    """The fields of each :class:`CrewMember`."""


@frozen
class CallbackRecord(_Record):
    """The callback of a job; ``id`` is the job's."""

    SORT = "callback"

    hostname: str
    port: int
    path: str
    method: str
    headers: Mapping[str, str] = {}
    address: str | None = None
    """The address that the hostname had when the job was created."""
    host: str | None = None
    """The host whose loopback the address is; None for an address of the network."""
    depth: int = 0
    """How many callbacks led to the job, one after the other (DSP-7.4)."""
    job: int | None = None
    """Number of the stored job that does the callback; None before the end of the job."""

    @property
    def open(self) -> bool:
        """Whether the stored job is still to be added."""
        return self.job is None
