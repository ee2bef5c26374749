"""The requests of Titanic in a store: each step is one transaction, so a process may end at any.

A request is a stored job. Its role is the service, its key begins with ``titanic`` and has the id
of the request. The id is drawn at random and is what its client knows.
"""

from __future__ import annotations

import secrets
import string
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from attrs import field, frozen

from wmp.actions import End, Note, Resolve
from wmp.codec import pack_frames, unpack_frames
from wmp.duration import in_seconds
from wmp.errors import InstanceEnded, StoreFull, WMPError
from wmp.events import Cancelled, InstanceBegun, Leased, Returned, Submitted, Ticked
from wmp.foreign import Frames
from wmp.gateways.common.body import FRAMES_CODEC
from wmp.gateways.titanic.quotas import NO_WORKERS, StoredQuotas
from wmp.message import Kind, Outcome
from wmp.runtime.common.checks import check_count, check_seconds
from wmp.store.contract import JobFilter, Store, StoredJob
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import (
    BatchAnswer,
    JobChanges,
    NewJobs,
    Reservation,
    WriteBatch,
)

_GIVEN_UP_MS: Final = 3_600_000
"""Milliseconds for which a request that was given up is kept, so that its client learns this."""

_WEEK: Final = 7 * 24 * 3600.0
_PREFIX: Final = "titanic "
_NEVER: Final = 1 << 62
_HEX: Final = frozenset(string.hexdigits)
_BYTES: Final = 64 << 20
"""Maximum number of bytes of the bodies that one step takes."""
_SWEPT: Final = 1000
_LOOK: Final = 60
"""Number of renewals from one look for all closed requests to the next: it reads the whole store.
"""

_CANCEL: Final = StoredJobInput.CANCEL
_FORGET: Final = StoredJobInput.FORGET
_S = StoredJobState
_CLOSED: Final = (_S.CANCELLED, _S.CANCELLING)
"""States of requests that were closed before their end."""
_OPEN: Final = (_S.QUEUED, _S.RESERVED)
_UNFINISHED: Final = (*_OPEN, _S.CANCELLING)
_BROKER: Final = (b"majordomo", 0)
"""The worker in the journal: the broker, whose workers Titanic does not know."""


@frozen(kw_only=True)
class TitanicLimits:
    """Limits of the stored requests of one server: number, bytes and lifetimes.

    Args:
        request_ttl: Seconds for which a request waits for its reply; then it is given up.
        reply_ttl: Seconds for which a reply waits for ``titanic.close``; then it is purged.
        limit: Maximum number of stored requests, replied or not.
        limit_bytes: Maximum number of bytes of their bodies and replies, as far as this server
            stored them since its start.

    Raises:
        ConfigError: A limit is wrong.
    """

    request_ttl: float = field(default=_WEEK, converter=in_seconds)
    reply_ttl: float = field(default=_WEEK, converter=in_seconds)
    limit: int = 100_000
    limit_bytes: int = 1 << 30

    def __attrs_post_init__(self) -> None:
        check_seconds("request_ttl", self.request_ttl, zero=False)
        check_seconds("reply_ttl", self.reply_ttl, zero=False)
        check_count("limit", self.limit, 1)
        check_count("limit_bytes", self.limit_bytes, 1)


class RequestRefused(WMPError):
    """A request is not stored, because its client or its service has its share (MDP-8.11)."""


class TakenRequest(NamedTuple):
    """A request that this process does."""

    id: int
    attempt: int
    body: Frames


class TitanicRequests:
    """The requests in one store. Any thread may call it; each call may wait for the disk.

    Every call may raise :class:`~wmp.errors.StoreError`.

    Args:
        store: The store. Nothing else may use its file.
        name: Returns a new id of 32 hexadecimal digits.
        limits: Limits of the requests: number, bytes and lifetimes.
        record: Called with an event and its actions, as the journal has them, after each commit
            that changed a request.
    """

    def __init__(
        self,
        store: Store,
        name: Callable[[], str] = lambda: secrets.token_hex(16),
        limits: TitanicLimits = TitanicLimits(),
        record: Callable[..., object] = lambda event, *actions: None,
    ) -> None:
        self._store = store
        self._name = name
        self._limits = limits
        self._record = record
        self._tries: dict[int, int] = {}
        """Number of times that this process took each request that has no reply."""
        self._reply_ms = round(limits.reply_ttl * 1000)
        self._request_ms = round(limits.request_ttl * 1000)
        self._terms = StoredTerms(keep_ms=self._reply_ms, keep_dead_ms=_GIVEN_UP_MS)
        self.quotas = StoredQuotas(limits.limit, limits.limit_bytes)
        self._lock = threading.RLock()
        self._renewals = 0
        self._closing: set[int] = set()
        """Requests that were closed while a process did them."""
        self._begin()
        self._count_stored()

    def _count_stored(self) -> None:
        """Count the requests of earlier servers: their clients and sizes are not known."""
        after = 0
        while page := self._store.list(after=after, limit=_SWEPT):
            for job in page:
                ends = [end for end in (job.purge, job.expires_at_ms) if end is not None]
                replied = job.state not in _UNFINISHED
                until = max(ends, default=_NEVER)
                self.quotas.add(job.id, b"", job.kind.role, 0, until, replied=replied)
            after = page[-1].id

    def _begin(self) -> None:
        self._me = self._store.begin(b"titanic", "titanic")
        self._numbers = [self._me.block.start, self._me.block.stop]
        self._batches = 0
        self._record(InstanceBegun(store=(self._store.identity, self._store.generation)))

    def _apply(self, make: Callable[[], WriteBatch]) -> BatchAnswer:
        """Apply a batch; as another instance if this one was ended, after a long stop."""
        while True:
            number = self._batches + 1
            try:
                answer = self._store.apply(self._me, number, make())
                if answer.repeated:
                    # The last batch took effect, although its COMMIT failed, and this batch did
                    # not. Only the store knows the requests that the last one reserved.
                    self._store.end(self._me)
            except InstanceEnded:
                self._begin()
                continue
            if answer.repeated:
                self._begin()
                continue
            self._batches = number
            if answer.block is not None:
                self._numbers = [answer.block.start, answer.block.stop]
            return answer

    # -- the three services

    def request(
        self,
        service: str,
        body: Frames,
        client: bytes = b"",
        served: Callable[[], bool] = lambda: False,
    ) -> str:
        """Store a request; return its id.

        Args:
            service: The service.
            body: The body.
            client: The connection of the client; empty if the broker does not show it.
            served: Asks whether the service has a worker, where this decides.

        Raises:
            RequestRefused: The client or the service has its share of the store (MDP-8.11).
            StoreFull: The store has its maximum size.
        """
        try:
            return self._request(service, body, client)
        except RequestRefused as error:
            # The lookup waits for the broker, so no lock is held.
            if str(error) != NO_WORKERS or not served():
                raise
        with self._lock:
            self.quotas.staffed.add(service)
        return self._request(service, body, client)

    def _request(self, service: str, body: Frames, client: bytes) -> str:
        id, called = self._name(), time.monotonic()
        kind, payload = Kind(service, codec=FRAMES_CODEC), pack_frames(body)
        size = len(payload)

        def make() -> WriteBatch:
            first, last = self._numbers
            new = NewJobs(
                kind,
                self._terms,
                [first],
                [payload],
                expires_in_ms=self._request_ms,
                keys=[_PREFIX + id],
            )
            return WriteBatch(adds=[new], block=first + 2 >= last)

        with self._lock:
            why = self.quotas.refusal(client, service, size)
            if why:
                raise RequestRefused(why)
            answer = self._apply(make)
            ((number,),) = (added.ids for added in answer.adds)
            if not number:
                raise StoreFull(
                    "the store has its maximum size; close requests whose replies were read, or "
                    "open the store with a larger max_bytes"
                )
            self._numbers[0] += 1
            until = answer.now + self._request_ms + _GIVEN_UP_MS
            self.quotas.add(number, client, service, size, until)
            self._record(Submitted([number], [b""], kind, called=[called]))
        return id

    def reply(self, id: str) -> tuple[bytes, Frames]:
        """Return the status of a request, and the reply if there is one."""
        with self._lock:
            job = self._find(id)
        if job is None or job.state in _CLOSED:
            return b"400", ()
        if job.state in _OPEN:
            return b"300", ()
        if job.state is _S.OK and job.result is not None:
            return b"200", unpack_frames(job.result)
        if job.state is _S.TIMEOUT:
            return b"500 the request got no reply in time", ()
        return b"500", ()

    def close_request(self, id: str) -> None:
        """Forget a request and its reply. A request that is not known is forgotten already."""
        with self._lock:
            job = self._find(id)
            if job is None:
                return
            changes = [JobChanges(job_input, [job.id]) for job_input in (_CANCEL, _FORGET)]
            answer = self._apply(lambda: WriteBatch(changes=changes))
            self.quotas.remove(job.id)
            forgotten = answer.changes[-1].states[0] is _S.ABSENT
            if not forgotten:
                self._closing.add(job.id)
            if job.state in _OPEN:
                self._record(Cancelled([job.id]), *(self._ends(job.id) if forgotten else ()))

    def _find(self, id: str) -> StoredJob | None:
        if len(id) != 32 or not _HEX.issuperset(id):
            return None
        jobs = self._store.list(JobFilter(key=_PREFIX + id.lower()), payloads=True)
        return jobs[-1] if jobs else None

    # -- the requests that wait

    def waiting(self) -> list[str]:
        """Return the services of the requests that wait and are due."""
        with self._lock:
            kinds = self._store.kinds()
        return [
            queued.kind.role
            for queued in kinds
            if not queued.wait and queued.kind.codec == FRAMES_CODEC
        ]

    def take(self, service: str, count: int) -> list[TakenRequest]:
        """Take requests of a service to do them; no other process gets them meanwhile."""
        wanted = [Reservation(Kind(service, codec=FRAMES_CODEC), count, _BYTES)]
        with self._lock:
            (reserved,) = self._apply(lambda: WriteBatch(reservations=wanted)).reserved or (None,)
            if reserved is None or not reserved.ids:
                return []
            for id in reserved.ids:
                self._tries[id] = self._tries.get(id, 0) + 1
            tries = [self._tries[id] for id in reserved.ids]
            self._record(Leased(service, reserved.ids, tries, _BROKER))
        rows = zip(reserved.ids, reserved.attempts, reserved.payloads, strict=True)
        return [TakenRequest(id, attempt, unpack_frames(body)) for id, attempt, body in rows]

    def finish(self, taken: TakenRequest, reply: Frames) -> None:
        """Store the reply to a request; the reply to a closed request is forgotten."""
        payload = pack_frames(reply)
        end = JobChanges(StoredJobInput.SUCCEED, [taken.id], [taken.attempt], [payload])
        with self._lock:
            if self._forget_if_closed(taken):
                return
            answer = self._apply(lambda: WriteBatch(changes=[end]))
            self.quotas.reply(taken.id, len(payload), answer.now + self._reply_ms)
            if answer.changes[0].states[0] is _S.OK:
                tries = self._tries.get(taken.id, 1)
                returned = Returned([taken.id], [tries], [Outcome.OK], _BROKER)
                self._record(returned, *self._ends(taken.id, End.OK))

    def give_back(self, taken: TakenRequest, wait: float) -> bool:
        """Let a request wait again, because it got no reply; return False if it was closed."""
        back = JobChanges(
            StoredJobInput.RELEASE, [taken.id], [taken.attempt], waits_ms=[round(wait * 1000)]
        )
        with self._lock:
            if self._forget_if_closed(taken):
                return False
            self._apply(lambda: WriteBatch(changes=[back]))
            owner, tries = (self._store.identity, self._store.generation), self._tries[taken.id]
            note = Note("no reply", _BROKER, owner=owner, ids=[taken.id], attempts=[tries])
            self._record(Ticked(), note)
            return True

    def _forget_if_closed(self, taken: TakenRequest) -> bool:
        """Forget a request that was closed while it was done; return whether it was."""
        (job,) = self._store.list(JobFilter(ids=[taken.id])) or (None,)
        if job is not None and job.state is not _S.CANCELLING:
            return False
        if job is not None:
            release = JobChanges(StoredJobInput.RELEASE, [taken.id], [taken.attempt])
            changes = [release, JobChanges(_FORGET, [taken.id])]
            self._apply(lambda: WriteBatch(changes=changes))
            self._record(Ticked(), *self._ends(taken.id))
        return True

    def _ends(self, id: int, end: End = End.CANCELLED) -> Sequence[Resolve]:
        """Return the action that reports the end of a request, and forget its tries."""
        return [Resolve([id], [end], [b""], [self._tries.pop(id, 0)])]

    # -- upkeep

    def renew(self) -> None:
        """Keep the requests that were taken; let those of ended processes wait again.

        Call this each second.
        """
        with self._lock:
            self.quotas.expire(self._apply(lambda: WriteBatch(sweep=_SWEPT)).now)
            ended: set[int] = set()
            looked = sorted(self._closing)[:_SWEPT]
            if looked:
                # Another process may have stored the reply at the moment of the close.
                jobs = self._store.list(JobFilter(ids=looked), limit=_SWEPT)
                ended.update(job.id for job in jobs if job.state not in _UNFINISHED)
                looked = sorted({*looked}.difference(job.id for job in jobs))
            page: Sequence[StoredJob] = ()
            if self._renewals % _LOOK == 0:
                page = self._store.list(JobFilter(states=[_S.CANCELLED]), limit=_SWEPT)
                ended.update(job.id for job in page)
            if ended:
                change = JobChanges(_FORGET, sorted(ended))
                self._apply(lambda: WriteBatch(changes=[change]))
            self._closing.difference_update(ended, looked)
            self._renewals += len(page) < _SWEPT

    def close(self) -> None:
        """End in good order. Idempotent."""
        with self._lock:
            self._store.end(self._me)
            self._store.close()
