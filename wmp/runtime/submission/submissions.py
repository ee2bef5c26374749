"""The jobs of one manager from payload to result: their numbers, their owners and their limits.

A job has no object here. When the job ends, its owner (the user's job, or a running ``map``) is
found by the number of the job. Submitted jobs are collected in columns until the driver takes them.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Final, TypeVar

from wmp.actions import Acknowledge, Decline, End, Notify, Resolve
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.errors import ClosedError, OnStandby, QueueFull, StoreFull, WorkersEnded
from wmp.events import Cancelled
from wmp.message import Frame
from wmp.runtime.driver.inbox import JobTerms, OpenSubmission
from wmp.runtime.submission.job_owner import JobOwner, give_up, settle_each
from wmp.runtime.submission.job_states import JobStates
from wmp.runtime.submission.job_table import FEW_BYTES, JobTable
from wmp.runtime.submission.results import Ended, Status, with_history
from wmp.runtime.submission.stored_numbers import StoredNumbers

_BUNDLE = 4096
"""Maximum number of jobs in one Submitted, so that a turn of the driver stays short."""

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

    Attributes:
        states: The states of these jobs in the manager's machine.
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
        self.codec = codec
        self._post = post
        self._lock = threading.Lock()
        self._table = JobTable()
        self._jobs = self._table.jobs
        self._has_store = stored
        self._next = FIRST_UNSTORED if stored else 1
        self._numbers = StoredNumbers()
        self._open: OpenSubmission | None = None
        self.stopping: set[int] = set()
        """Jobs that their submitters have stopped since the last check of the stopped jobs, which
        empties this set every few seconds. Some of these jobs may have ended."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._error: Exception | None = None
        self.states = JobStates(self._table, self.cancel, stored=stored)
        self._elsewhere = False
        """Whether this process is a fork of the process in which the manager was started."""
        _of_this_process.add(self)

    def __len__(self) -> int:
        """Return the number of jobs that have not ended."""
        return len(self._jobs)

    @property
    def free(self) -> int:
        """Return the number of jobs that may be added now."""
        return self.limit - len(self._jobs) if self._table.bytes < self._max_bytes else 0

    def add(
        self,
        owner: _Owner,
        payloads: Sequence[Frame],
        terms: JobTerms,
        *,
        key: str | None = None,
        called: float | None = None,
    ) -> _Owner:
        """Submit jobs; consecutive jobs with equal terms share an event.

        Args:
            owner: Takes the ends of the jobs.
            payloads: One for each job.
            terms: Terms of the jobs.
            key: Key of a single job. The job is not submitted while another job with this role and
                key has not ended.
            called: When the submitter called, on the clock ``time.monotonic``; None for now.

        Returns:
            ``owner``, or the owner of the job in progress under ``key``.

        Raises:
            QueueFull: The manager cannot accept all jobs; none was added.
            ClosedError: The manager accepts no more jobs.
            OnStandby: The manager is on standby.
        """
        count = len(payloads)
        if called is None:
            called = time.monotonic()
        with self._lock:
            if self._error is not None:
                raise self._closed()
            jobs, table = self._jobs, self._table
            name = None if key is None else (terms.kind.role, key)  # a key belongs to a role
            if name is not None and name in table.keys:
                in_progress = table.keys[name]
                assert isinstance(in_progress, type(owner)), (
                    "a key names one job; it cannot be given to several jobs"
                )
                return in_progress
            if len(jobs) + count > self.limit:
                raise QueueFull(self.limit)
            if table.bytes >= self._max_bytes:
                raise QueueFull(self._max_bytes, "bytes")
            stored = terms.stored is not None
            if stored:
                first = self._numbers.take(count)
            else:
                first = self._next
                self._next = first + count
            owner._given(first, count)
            if count == 1 and key is None and not stored:
                # Almost all single jobs need no entry, and this saves the calls of the method.
                jobs[first] = owner
                length = len(payloads[0])
                if length > FEW_BYTES:
                    table.sizes[first] = length
                    table.bytes += length
            else:
                table.add(owner, first, payloads, name, stored=stored)
            open_ = self._open
            if (
                open_ is not None
                and not open_.sealed
                and (open_.terms is terms or open_.terms == terms)
                and len(open_.payloads) + count <= _BUNDLE
                and (not stored or _continues(open_, first, key))
            ):
                open_.payloads.extend(payloads)
                open_.called.extend(repeat(called, count))
                if open_.keys is not None and key is not None:
                    open_.keys.append(key)
                return owner
            open_ = self._open = OpenSubmission(self._lock, terms, first)
            open_.payloads.extend(payloads)
            open_.called.extend(repeat(called, count))
            if key is not None and stored:
                open_.keys = [key]
            # Under the lock, because the machine expects growing numbers in the order of the inbox.
            self._post(open_)
            return owner

    def cancel(self, ids: Sequence[int], *, unstarted: bool = False) -> bool:
        """Request the cancellation of jobs; return whether any of them had not ended.

        ``unstarted``: jobs that their workers have begun go on.
        """
        open_ids = [id for id in ids if id in self._jobs]
        if not open_ids:
            return False
        with self._lock:
            # Jobs that are submitted after this line come after the cancellation.
            self._open = None
            if not unstarted:
                self._table.free_keys(open_ids)  # nobody joins a job that is being cancelled
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
        open_ids = [id for id in ids if id in self._jobs]
        if open_ids:
            with self._lock:
                self._open = None
                self._table.free_keys(open_ids)
                self._post(Cancelled(open_ids))
            self._end(open_ids, lambda id: make_error())

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
        return self._table.waits(id)

    def when_stored(self, id: int, wake: Callable[[], object]) -> bool:
        """Call ``wake`` once when a job is stored or has ended; return False if it is already."""
        with self._lock:
            return self._table.waits(id) and self._table.when_answered(id, wake)

    def when_answered(self, id: int, wake: Callable[[], object]) -> bool:
        """Call ``wake`` once when the store has answered the cancellation of a job, or the job has
        ended; return False if the job has ended already or is not stored."""
        with self._lock:
            return self.is_stored(id) and self._table.when_answered(id, wake)

    def open_stored(self) -> list[int]:
        """Return the confirmed stored jobs whose ends were not reported, from any thread."""
        with self._lock:
            waits = self._table.waits
            return [id for id in self._jobs if id < FIRST_UNSTORED and not waits(id)]

    def has_unkept(self) -> bool:
        """Return whether a job has not ended that would end with the manager: one that the store
        does not have, or has not confirmed. From any thread."""
        with self._lock:
            waits = self._table.waits
            return any(not self.is_stored(id) or waits(id) for id in self._jobs)

    def acknowledge(self, action: Acknowledge) -> None:
        """Report that jobs are stored; jobs that joined another job get its number."""
        wakes: list[Callable[[], object]] = []
        with self._lock:
            for id, stored in (action.joined or {}).items():
                wakes += self._table.join(id, stored)
            wakes += self._table.confirm(action.ids)
        for wake in wakes:
            wake()

    def decline(self, action: Decline) -> None:
        """End jobs that the store does not take."""
        error = StoreFull(action.text)
        self._end(action.ids, lambda id: error)

    # -- from the driver --------------------------------------------------------------------

    def resolve(self, action: Resolve) -> None:
        """Deliver the ends of jobs to their owners.

        Jobs whose delivery raises an error end with this error, which is raised at last.
        """
        owners: list[JobOwner | None] = []
        wakes: Sequence[Callable[[], object]] = ()
        problem: BaseException | None = None
        try:
            if self._table.tracked or self._table.sizes:
                with self._lock:
                    owners, others, wakes = self._table.forget(action.ids)
                if others:
                    self._settle_others(action, others)
            else:
                # Without entries the jobs have only owners, and the call of a method would cost
                # more.
                owners = list(map(self._jobs.pop, action.ids, repeat(None)))  # type: ignore[arg-type]
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
                histories = action.histories
                rows = [
                    with_history(row, histories[row[0]]) if row[0] in histories else row
                    for row in rows
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
                    owners, _, wakes = self._table.forget(action.ids)
            for id, owner in zip(action.ids, owners, strict=True):
                if owner is not None:
                    give_up(owner, [id], error)
            self._wake(len(action.ids))
            raise
        finally:
            for wake in wakes:
                wake()
        if problem is not None:
            raise problem

    def _settle_others(self, action: Resolve, others: Mapping[int, Iterable[JobOwner]]) -> None:
        """Deliver the ends of jobs to their further owners."""
        rows = zip(action.ids, action.ends, action.payloads, action.attempts, strict=True)
        settle_each([(owner, row) for row in rows for owner in others.get(row[0], ())])

    def _end(self, ids: Sequence[int], make_error: Callable[[int], Exception]) -> None:
        """End jobs here with errors, at all their owners."""
        with self._lock:
            owners, others, wakes = self._table.forget(ids)
        try:
            settle_each(
                (owner, (id, make_error(id), b"", 0))
                for id, first in zip(ids, owners, strict=True)
                for owner in (first, *others.get(id, ()))
                if owner is not None
            )
        finally:
            for wake in wakes:
                wake()
        self._wake(len(ids))

    def notify(self, action: Notify) -> None:
        """Deliver a job's progress to its owner."""
        owner = self._table.owner_of(action.id)
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
            ids = list(self._jobs)
            waits = self._table.waits
            unstored = {id for id in ids if not self.is_stored(id) or waits(id)}
        self._end(ids, lambda id: self._closed(id, stored=id not in unstored))
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
        # Each job has an exception of its own.
        kind = WorkersEnded if isinstance(cause, WorkersEnded) else ClosedError
        error = kind(f"{what}: {cause}" if cause is not None else what)
        if cause is not None and not isinstance(cause, ClosedError):
            error.__cause__ = cause
        return error


def _continues(open_: OpenSubmission, first: int, key: str | None) -> bool:
    """Return whether a stored job may join others: the next number, and keys as theirs."""
    follows = open_.first + len(open_.payloads) == first
    return follows and (open_.keys is None) == (key is None)


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
        if submissions.states.attached:
            submissions._elsewhere = True
            submissions._error = ClosedError(_ELSEWHERE)


_of_this_process: Final[weakref.WeakSet[Submissions]] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

_OWNER: Final = itemgetter(0)
_ROW: Final = itemgetter(1)
