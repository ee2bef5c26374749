"""The records of a dispatcher beside the jobs of a store: workers, dispatches, callbacks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Self

import attrs
from attrs import frozen

from wmp.store.transaction import StoreRecord, StoreTransaction

_BITS: Final = 63


def worker_number(hostname: str, port: int) -> int:
    """Return the number of a worker, which follows from hostname and port (DSP-1.3)."""
    digest = hashlib.sha256(f"{hostname}:{port}".encode()).digest()
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

    @property
    def url(self) -> str:
        """Address of the worker's HTTP server."""
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"http://{host}:{self.port}"

    @property
    def living(self) -> bool:
        """Whether the worker is neither given up nor resigned."""
        return not (self.dead or self.resigned)

    def free(self, now: int) -> int:
        """Return the number of jobs that the worker may get."""
        if not self.living or self.pause_until > now:
            return 0
        return max(0, self.max_jobs - len(self.jobs))

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
    closed: bool = False
    """Whether the dispatch is over; the record is then history."""

    @property
    def open(self) -> bool:
        """Whether the dispatch is not over."""
        return not self.closed


@frozen
class CallbackRecord(_Record):
    """The callback of a job; ``id`` is the job's."""

    SORT = "callback"

    hostname: str
    port: int
    path: str
    method: str
    headers: Mapping[str, str] = {}
    job: int | None = None
    """Number of the stored job that does the callback; None before the end of the job."""

    @property
    def open(self) -> bool:
        """Whether the stored job is still to be added."""
        return self.job is None
