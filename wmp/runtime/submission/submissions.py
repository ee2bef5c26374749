"""The jobs of one manager from payload to result: their numbers, their owners and their limits.

A job has no object here. When the job ends, its owner (the user's job, or a running ``map``) is
found by the number of the job. Submitted jobs are collected in columns until the driver takes them.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Final, TypeVar

from wmp.actions import Acknowledge, Decline, End, Notify, Resolve
from wmp.core.manager.job_lifecycle import JobState
from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.errors import ClosedError, ConfigError, JobFailed, OnStandby, QueueFull, StoreFull
from wmp.events import Cancelled
from wmp.message import Frame, Limits
from wmp.runtime.codecs.payload_codecs import PLAIN, payload_codec
from wmp.runtime.driver.inbox import JobTerms, OpenSubmission
from wmp.runtime.submission.job_owner import JobOwner, give_up, settle_each
from wmp.runtime.submission.results import Ended, Status, error_of, with_history
from wmp.runtime.submission.stored_numbers import StoredNumbers

_BUNDLE = 4096
"""Maximum number of jobs in one Submitted, so that a turn of the driver stays short."""

_FEW_BYTES: Final = 512
"""Payloads of at most this many bytes do not count against the limit of bytes."""


_Owner = TypeVar("_Owner", bound=JobOwner)


class Submissions:
    """Numbers jobs, finds the owner of a job that ends, and bounds the number of jobs.

    Any thread may call ``add`` and ``cancel``. Only the driver's thread may call ``resolve``,
    ``notify`` and ``fail``.

    Args:
        post: Puts an entry into the driver's inbox.
        limit: Maximum number of jobs that have not ended.
        max_bytes: Payload bytes of these jobs at which no further job is added.
        codec: Name of the codec of payloads and results.
        stored: Whether the manager has a store. Its store numbers the jobs that are stored.
    """

    def __init__(
        self,
        post: Callable[[OpenSubmission | Cancelled], None],
        limit: int,
        codec: str = "bytes",
        *,
        max_bytes: int = 2**63,
        stored: bool = False,
    ) -> None:
        self.limit = limit
        self._max_bytes = max_bytes
        self._bytes = 0
        self._sizes: dict[int, int] = {}
        """Number of payload bytes of the jobs with more than ``_FEW_BYTES``, by the job's number.
        """
        self.codec = codec
        self._post = post
        self._lock = threading.Lock()
        self._owners: dict[int, JobOwner] = {}
        self._keys: dict[str, JobOwner] = {}
        """Jobs in progress that were submitted under a key, by that key."""
        self._key_of: dict[int, str] = {}
        self._has_store = stored
        self._next = FIRST_UNSTORED if stored else 1
        self._numbers = StoredNumbers()
        self._shares: dict[int, list[JobOwner]] = {}
        """Further owners of stored jobs that several submissions joined by key."""
        self._open: OpenSubmission | None = None
        self.stopping: set[int] = set()
        """Jobs that their submitters have stopped since the last check of the stopped jobs."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._error: Exception | None = None
        self._machine: ManagerMachine | None = None
        self._take_posted: Callable[[], None] = _nothing
        self.has_unserved = False
        """Whether there are jobs that no connected worker can do."""
        self._elsewhere = False
        """Whether this process is a fork of the process in which the manager was started."""
        _of_this_process.add(self)

    def __len__(self) -> int:
        """Return the number of jobs that have not ended."""
        return len(self._owners)

    @property
    def free(self) -> int:
        """Return the number of jobs that may be added now."""
        return self.limit - len(self._owners) if self._bytes < self._max_bytes else 0

    def add(
        self,
        owner: _Owner,
        payloads: Sequence[Frame],
        terms: JobTerms,
        *,
        key: str | None = None,
    ) -> _Owner:
        """Submit jobs; consecutive jobs with equal terms share an event.

        Args:
            owner: Takes the ends of the jobs.
            payloads: One for each job.
            terms: Terms of the jobs.
            key: Key of a single job. The job is not submitted while another job with this key has
                not ended.

        Returns:
            ``owner``, or the owner of the job in progress under ``key``.

        Raises:
            QueueFull: The manager cannot accept all jobs; none was added.
            ClosedError: The manager accepts no more jobs.
            OnStandby: The manager is on standby.
        """
        count = len(payloads)
        with self._lock:
            if self._error is not None:
                raise self._closed()
            if key is not None and key in self._keys:
                found = self._keys[key]
                assert isinstance(found, type(owner)), (
                    "a key names one job; it cannot be given to several jobs"
                )
                return found
            owners = self._owners
            if len(owners) + count > self.limit:
                raise QueueFull(self.limit)
            if self._bytes >= self._max_bytes:
                raise QueueFull(self._max_bytes, "bytes")
            if terms.stored is None:
                first = self._next
                self._next = first + count
            else:
                first = self._numbers.take(count)
            owner._given(first, count)
            if key is not None:
                self._keys[key] = owner
                self._key_of[first] = key
            if count == 1:
                owners[first] = owner
                length = len(payloads[0])
                if length > _FEW_BYTES:
                    self._sizes[first] = length
                    self._bytes += length
            else:
                owners.update(dict.fromkeys(range(first, first + count), owner))
                lengths = list(map(len, payloads))
                if lengths and max(lengths) > _FEW_BYTES:
                    self._sizes.update(zip(range(first, first + count), lengths, strict=True))
                    self._bytes += sum(lengths)
            open_ = self._open
            if (
                open_ is not None
                and not open_.sealed
                and (open_.terms is terms or open_.terms == terms)
                and len(open_.payloads) + count <= _BUNDLE
                and (terms.stored is None or _continues(open_, first, key))
            ):
                open_.payloads.extend(payloads)
                if open_.keys is not None and key is not None:
                    open_.keys.append(key)
                return owner
            open_ = self._open = OpenSubmission(self._lock, terms, first)
            open_.payloads.extend(payloads)
            if key is not None and terms.stored is not None:
                open_.keys = [key]
            # Under the lock, because the machine expects growing numbers in the order of the inbox.
            self._post(open_)
            return owner

    def cancel(self, ids: Sequence[int], *, unstarted: bool = False) -> bool:
        """Request the cancellation of jobs; return whether any of them had not ended.

        ``unstarted``: jobs that their workers have begun go on.
        """
        open_ids = [id for id in ids if id in self._owners]
        if not open_ids:
            return False
        with self._lock:
            # Jobs that are submitted after this line come after the cancellation.
            self._open = None
            self._post(Cancelled(open_ids, unstarted))
        return True

    def stop(self, id: int) -> bool:
        """Request the end of a job, even if a worker has it; return whether it had not ended."""
        if not self.cancel([id]):
            return False
        self.stopping.add(id)
        return True

    def abandon(self, ids: Sequence[int], make_error: Callable[[], Exception]) -> None:
        """End jobs here with an error, on the driver's thread, and cancel them at their workers."""
        open_ids = [id for id in ids if id in self._owners]
        if open_ids:
            with self._lock:
                self._open = None
                self._post(Cancelled(open_ids))
            self._end(open_ids, make_error)

    def check_process(self) -> None:
        """Raise ClosedError in a fork of the manager's process: no job ends here."""
        if self._elsewhere:
            raise ClosedError(_ELSEWHERE)

    def check_open(self) -> None:
        """Raise ClosedError or OnStandby when no jobs are accepted."""
        if self._error is not None:
            raise self._closed()

    def when_free(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once, from any thread, when jobs may be added or are refused."""
        with self._lock:
            if self._error is None and self.free <= 0:
                self._waiting.append(wake)
                return
        wake()

    def forget_waiter(self, wake: Callable[[], None]) -> None:
        """Undo ``when_free``. If ``wake`` was called already, wake the next waiter instead."""
        with self._lock:
            try:
                self._waiting.remove(wake)
            except ValueError:
                pass
            else:
                return
        self._wake(1)

    def _wake(self, count: int) -> None:
        # Under the lock, as in when_free, so that no waiter is added in between and missed.
        with self._lock:
            count = len(self._waiting) if self._error is not None else min(count, self.free)
            wakes = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        for wake in wakes:
            wake()

    # -- one job, on the driver's loop ------------------------------------------------------

    def attach(self, machine: ManagerMachine, take_posted: Callable[[], None]) -> None:
        """Connect this object to the machine that has the jobs.

        Args:
            machine: The manager's machine.
            take_posted: Lets the machine take the posted events at once.
        """
        self._machine, self._take_posted = machine, take_posted

    def runs(self, id: int) -> bool:
        """Return whether a worker has the job: its TAKE was sent, and the job has not ended."""
        machine = self._machine
        return machine is not None and machine.state(id) in (JobState.LEASED, JobState.CANCELLING)

    def cancel_waiting(self, id: int) -> None:
        """Cancel a job that no worker has, at once; do nothing to a job that a worker has."""
        self._take_posted()
        if id in self._owners and not self.runs(id):
            self.cancel([id])
            self._take_posted()

    def cancel_all_waiting(self, ids: Sequence[int]) -> None:
        """Cancel the jobs that no worker has, at once; do nothing to the other jobs."""
        self._take_posted()
        if waiting := [id for id in ids if not self.runs(id)]:
            self.cancel(waiting)
            self._take_posted()

    def unserved(self, id: int) -> str:
        """Return the reason why no connected worker can do a waiting job; empty for other jobs."""
        machine = self._machine
        return "" if machine is None or not self.has_unserved else machine.unserved(id)

    def waiting_place(self, id: int) -> str:
        """Return where a stored job waits; empty for other jobs, and while a worker has the job."""
        machine = self._machine
        if machine is None or not self.is_stored(id) or id not in self._owners:
            return ""
        if self._numbers.waits(id):
            return "the job is not stored yet"
        match machine.state(id):
            case JobState.QUEUED:
                return "this manager has reserved the job; no worker has it yet"
            case JobState.ENDED:  # of a job that has no record here
                return "the job is in the store; no worker of this manager has it"
            case _:
                return ""

    def waits_for(self, id: int) -> str:
        """Return what an open job waits for; empty if that is not known."""
        if self._machine is None or id not in self._owners:
            return ""
        if self.runs(id):
            return "a worker has the job"
        why = self._machine.unserved(id) or self.waiting_place(id)
        return why or "the job waits for a worker with free capacity"

    # -- stored jobs ------------------------------------------------------------------------

    @property
    def wants_numbers(self) -> bool:
        """Whether another block of numbers for stored jobs is wanted."""
        return self._numbers.low

    def provide(self, block: range) -> None:
        """Take a block of numbers for stored jobs, from any thread."""
        with self._lock:
            self._numbers.provide(block)

    def is_stored(self, id: int) -> bool:
        """Return whether a number is one of a stored job."""
        return self._has_store and id < FIRST_UNSTORED

    def is_unconfirmed(self, id: int) -> bool:
        """Return whether a stored job is not stored yet, and has not ended."""
        return self._numbers.waits(id)

    def when_stored(self, id: int, wake: Callable[[], object]) -> bool:
        """Call ``wake`` once when a job is stored or has ended; return False if it is already."""
        with self._lock:
            return self._numbers.when_stored(id, wake)

    def open_stored(self) -> list[int]:
        """Return the confirmed stored jobs whose ends were not reported, from any thread."""
        with self._lock:
            waits = self._numbers.waits
            return [id for id in list(self._owners) if id < FIRST_UNSTORED and not waits(id)]

    def acknowledge(self, action: Acknowledge) -> None:
        """Report that jobs are stored; jobs that joined another job get its number."""
        for id, found in (action.joined or {}).items():
            with self._lock:
                key = self._key_of.get(id)
                (owner,), _ = self._forget([id])
                if owner is None:
                    continue
                owner._given(found, 1)
                if found in self._owners:
                    self._shares.setdefault(found, []).append(owner)
                else:
                    self._owners[found] = owner
                if key is not None:
                    self._keys[key] = owner
                    self._key_of[found] = key
        self._confirm(action.ids)

    def decline(self, action: Decline) -> None:
        """End jobs that the store does not take."""
        error = StoreFull(action.text)
        self._end(action.ids, lambda: error)
        self._confirm(action.ids)

    def _confirm(self, ids: Sequence[int]) -> None:
        with self._lock:
            wakes = self._numbers.confirm(ids)
        for wake in wakes:
            wake()

    # -- from the driver --------------------------------------------------------------------

    def resolve(self, action: Resolve) -> None:
        """Deliver the ends of jobs to their owners.

        Jobs whose delivery raises an error end with this error, which is raised at last.
        """
        owners: list[JobOwner | None] = []
        problem: BaseException | None = None
        try:
            if self._key_of or self._sizes or self._shares or self.stopping:
                with self._lock:
                    owners, shares = self._forget(action.ids)
                if shares:
                    self._settle_shares(action, shares)
            else:
                # Almost all jobs are in this table only, and the call of a method would cost more.
                owners = list(map(self._owners.pop, action.ids, repeat(None)))
            count = len(owners)
            first = owners[0]
            if (
                first is not None
                and action.ends.count(End.OK) == count
                and owners.count(first) == count
            ):
                first._succeed(action.ids, action.payloads)  # in almost all cases
                self._wake(count)
                return
            rows: Iterable[Ended] = zip(
                action.ids, action.ends, action.payloads, action.attempts, strict=True
            )
            if action.histories is not None:
                found = action.histories
                rows = [
                    with_history(row, found[row[0]]) if row[0] in found else row for row in rows
                ]
            freed = 0
            # The jobs of one map end in groups of hundreds, one after the other: one call serves a
            # group.
            for owner, group in groupby(zip(owners, rows, strict=True), _OWNER):
                if owner is not None:
                    ended = list(map(_ROW, group))
                    freed += len(ended)
                    try:
                        owner._settle(ended)
                    except BaseException as error:  # noqa: BLE001 - raised after the other groups
                        problem = error
                        give_up(owner, [row[0] for row in ended], error)
            if freed:
                self._wake(freed)
        except BaseException as error:
            if not owners:
                with self._lock:
                    owners, _ = self._forget(action.ids)
            for id, owner in zip(action.ids, owners, strict=True):
                if owner is not None:
                    give_up(owner, [id], error)
            self._wake(len(action.ids))
            raise
        if problem is not None:
            raise problem

    def _forget(
        self, ids: Sequence[int]
    ) -> tuple[list[JobOwner | None], dict[int, list[JobOwner]]]:
        """Remove jobs from all tables; call this method under the lock.

        Returns:
            The owner of each job, None for a job that has ended, and the further owners of the
            jobs that several submissions joined.
        """
        owners = list(map(self._owners.pop, ids, repeat(None)))
        if self._key_of:
            for id in ids:
                key = self._key_of.pop(id, None)
                if key is not None:
                    self._keys.pop(key, None)
        if self._sizes:
            self._bytes -= sum(map(self._sizes.pop, ids, repeat(0)))
        shares = {}
        if self._shares:
            shares = {id: self._shares.pop(id) for id in ids if id in self._shares}
        if self.stopping:
            self.stopping.difference_update(ids)
        return owners, shares

    def _end(self, ids: Sequence[int], make_error: Callable[[], Exception]) -> None:
        """End jobs here with errors, at all their owners."""
        with self._lock:
            owners, shares = self._forget(ids)
        settle_each(
            (owner, (id, make_error(), b"", 0))
            for id, first in zip(ids, owners, strict=True)
            for owner in (first, *shares.get(id, ()))
            if owner is not None
        )
        self._wake(len(ids))

    def _settle_shares(self, action: Resolve, shares: dict[int, list[JobOwner]]) -> None:
        """Deliver the ends of jobs to their further owners."""
        rows = zip(action.ids, action.ends, action.payloads, action.attempts, strict=True)
        settle_each([(owner, row) for row in rows for owner in shares.get(row[0], ())])

    def notify(self, action: Notify) -> None:
        """Deliver a job's progress to its owner."""
        owner = self._owners.get(action.id)
        if owner is not None:
            owner._progress(action.id, Status(action.fraction, action.text))

    def refuse(self, error: Exception) -> None:
        """Accept no more jobs; waiting submitters get ``error``."""
        with self._lock:
            if self._error is None or isinstance(self._error, OnStandby):
                self._error = error
        self._wake(0)

    def admit(self) -> None:
        """Accept jobs from now on: the standby of the manager is over."""
        with self._lock:
            if isinstance(self._error, OnStandby):
                self._error = None

    def fail(self, error: Exception) -> list[int]:
        """End every job that has not ended here, with ``error``.

        Returns:
            The numbers of the jobs that end with the manager: those that are not stored.
        """
        self.refuse(error)
        with self._lock:
            ids = list(self._owners)
            waits = self._numbers.waits
            unstored = {id for id in ids if not self.is_stored(id) or waits(id)}
            owners, shares = self._forget(ids)
            wakes = self._numbers.confirm_all()
        try:
            settle_each(
                (owner, (id, self._closed(id, stored=id not in unstored), b"", 0))
                for id, first in zip(ids, owners, strict=True)
                for owner in (first, *shares.get(id, ()))
                if owner is not None
            )
        finally:
            for wake in wakes:
                wake()
        return [id for id in ids if not self.is_stored(id)]

    def _closed(self, id: int = 0, *, stored: bool = False) -> ClosedError | OnStandby:
        cause = self._error
        if isinstance(cause, OnStandby):
            return OnStandby(str(cause))
        if not id:
            what = "the manager accepts no more jobs"
        elif stored:
            what = (
                f"the manager ended before the end of job {id}, which stays in the store; "
                "wmp.results reads its result"
            )
        else:
            what = f"the manager ended before the end of job {id}"
        error = ClosedError(f"{what}: {cause}" if cause is not None else what)
        if cause is not None and not isinstance(cause, ClosedError):
            error.__cause__ = cause
        return error


def _continues(open_: OpenSubmission, first: int, key: str | None) -> bool:
    """Return whether a stored job may join others: the next number, and keys as theirs."""
    follows = open_.first + len(open_.payloads) == first
    return follows and (open_.keys is None) == (key is None)


def _nothing() -> None:
    """Do nothing: before the start there is no machine that takes jobs."""


_ELSEWHERE: Final = (
    "the manager runs in the parent process, not in this fork; make a manager in this process"
)


def _forked() -> None:
    """In a forked child: refuse jobs, because no thread of the parent's managers runs here.

    A manager that the parent made and did not start may be started here.
    """
    for submissions in list(_of_this_process):
        # The thread that held the lock does not exist in this process.
        submissions._lock = threading.Lock()
        submissions._waiting.clear()
        if submissions._machine is not None:
            submissions._elsewhere = True
            submissions._error = ClosedError(_ELSEWHERE)


_of_this_process: Final[weakref.WeakSet[Submissions]] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

_OWNER: Final = itemgetter(0)
_ROW: Final = itemgetter(1)


# -- payloads in, results out ------------------------------------------------------------------

_PLAIN_NAMES: Final = (PLAIN, "")


def pack(payload: object, codec_name: str, limit: int = Limits.PAYLOAD) -> Frame:
    """Encode a user's payload as bytes.

    Args:
        payload: Bytes or text for the codec ``bytes``, else a value that the codec encodes.
        codec_name: Name of the codec.
        limit: Maximum number of bytes.

    Raises:
        TypeError: The payload cannot be encoded.
        ConfigError: The payload has too many bytes, and no connection would carry it.
    """
    if codec_name != PLAIN:
        try:
            data = payload_codec(codec_name).encode(payload)
        except Exception as error:
            # Errors of codecs have several base classes, and here all of them mean the same.
            raise TypeError(
                f"a payload of type {type(payload).__name__} cannot be encoded by codec "
                f"{codec_name!r}: {error}"
            ) from error
    elif type(payload) is bytes:
        data = payload
    elif isinstance(payload, str):
        data = payload.encode()
    elif isinstance(payload, bytes | bytearray | memoryview):
        data = bytes(payload)
    else:
        raise TypeError(
            f"a payload is of type {type(payload).__name__}; codec='bytes' expects bytes or str; "
            "encode it, or use codec='cbor' for numbers, lists and dicts"
        )
    if len(data) > limit:
        raise ConfigError(
            f"a payload of {len(data)} bytes is too large; the limit is {limit} "
            "(Transport.max_frame, and 256 MiB in any case); split it into several jobs, or "
            "store the data elsewhere and send its address"
        )
    return data


def result_of(id: int, ended: Frame | Ended, codec_name: str) -> tuple[Any, Exception | None]:
    """Return (value, None) or (None, error) for a job.

    Args:
        id: The job's number.
        ended: The payload of the result if the job ended with a result, else the job's end.
        codec_name: Name of the codec; empty for ``bytes``.
    """
    if isinstance(ended, tuple):
        _, end, payload, attempts = ended
        if isinstance(end, Exception):
            return None, end
        if end is not End.OK:
            return None, error_of(id, end, payload, attempts)
    else:
        payload = ended
    if codec_name in _PLAIN_NAMES:
        return payload if type(payload) is bytes else bytes(payload), None
    try:
        return payload_codec(codec_name).decode(payload), None  # type: ignore[misc]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - code of the application's codec
        broken = JobFailed(
            "DecodeError", f"the result of the job cannot be decoded: {error}", job_id=id
        )
        broken.__cause__ = error
        return None, broken
