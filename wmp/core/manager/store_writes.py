"""Changes of stored jobs that wait for the store, in columns, and the write that is under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

from attrs import define, evolve, field, frozen

from wmp.core.manager.job_lifecycle import JobRecord
from wmp.events import Submitted
from wmp.message import Frame
from wmp.store.stored_job import Effect, Guard, StoredJobInput, rows_of
from wmp.store.write_batch import JobChanges, NewJobs, Reservation, StoredFailure, WriteBatch

FIRST_UNSTORED: Final = 1 << 62
"""The first number of a job that is not stored, at a manager with a store (STORE-5.1)."""

_MAX_ADDED: Final = 8192
"""Number of new jobs at which a batch is full, because a transaction must stay short."""

_MAX_BYTES: Final = 16 << 20
"""Bytes of payloads at which a batch takes no further new jobs."""

_SWEPT: Final = 1000
"""Limit of the changes of each sort that one sweep makes."""

_In = StoredJobInput

# A job is adopted before it is changed, and a cancellation comes before the release that ends it.
_ORDER: Final = (
    _In.ADOPT,
    _In.BEGIN,
    _In.CANCEL,
    _In.SUCCEED,
    _In.FAIL,
    _In.OVERRUN,
    _In.SPEND,
    _In.AGAIN,
    _In.REPEAT,
    _In.RELEASE,
)


def _has(what: StoredJobInput, *marks: Guard | Effect) -> bool:
    return any(mark in (*row.guards, *row.effects) for row in rows_of(what) for mark in marks)


_FENCED: Final = frozenset(what for what in _ORDER if _has(what, Guard.ATTEMPT))
_KEPT: Final = frozenset(what for what in _ORDER if _has(what, Effect.KEEP_RESULT))
_COSTLY: Final = frozenset(what for what in _ORDER if _has(what, Effect.COUNT_LOST))
_UNBEGUN: Final = frozenset(what for what in _ORDER if _has(what, Effect.COUNT_UNBEGUN))
_DELAYED: Final = frozenset(what for what in _ORDER if _has(what, Effect.WAIT))

_FAILING: Final = frozenset(what for what in _ORDER if _has(what, Effect.KEEP_FAILURE))

_RUNNING: Final = frozenset(what for what in _ORDER if _has(what, Effect.KEEP_RUN))
_PROGRESSING: Final = frozenset(what for what in _ORDER if _has(what, Effect.KEEP_PROGRESS))

_MINE: Final = frozenset(what for what in _ORDER if _has(what, Guard.MINE))
"""Inputs that count only while this instance has reserved the job."""


def _age(run: tuple[str, float | None] | None, now: float) -> int | None:
    """Return the milliseconds since a worker got an attempt; None if that is not known."""
    if run is None or run[1] is None:
        return None
    return max(0, round((now - run[1]) * 1000))


@define(eq=False)
class ChangeColumns:
    """Changes by one input. Each column contains one entry for each job."""

    ids: list[int] = field(factory=list)
    attempts: list[int] = field(factory=list)
    payloads: list[Frame] = field(factory=list)
    costs: list[int] = field(factory=list)
    waits_ms: list[int] = field(factory=list)
    jobs: list[JobRecord | None] = field(factory=list)
    """Records of the jobs, for changes after which the job goes on; else None."""
    failures: list[StoredFailure | None] = field(factory=list)
    """The attempts that failed or were lost; else None."""
    runs: list[tuple[str, float | None] | None] = field(factory=list)
    """Label of the worker of each attempt, and when it got the attempt; else None."""
    progress: list[tuple[float | None, str | None] | None] = field(factory=list)
    """Fraction and text of the progress; else None."""
    unbegun: list[int] = field(factory=list)

    def add(
        self,
        id: int,
        attempt: int,
        payload: Frame = b"",
        cost: int = 0,
        wait_ms: int = 0,
        job: JobRecord | None = None,
        failure: StoredFailure | None = None,
        run: tuple[str, float | None] | None = None,
        progress: tuple[float | None, str | None] | None = None,
        unbegun: int = 0,
    ) -> None:
        """Add the change of one job."""
        self.ids.append(id)
        self.attempts.append(attempt)
        self.payloads.append(payload)
        self.costs.append(cost)
        self.waits_ms.append(wait_ms)
        self.jobs.append(job)
        self.failures.append(failure)
        self.runs.append(run)
        self.progress.append(progress)
        self.unbegun.append(unbegun)

    def extend(
        self,
        ids: Sequence[int],
        attempts: Sequence[int],
        payloads: Sequence[Frame],
        runs: Sequence[tuple[str, float | None] | None],
    ) -> None:
        """Add the ends of several jobs."""
        self.ids += ids
        self.attempts += attempts
        self.payloads += payloads
        self.costs += repeat(0, len(ids))
        self.waits_ms += repeat(0, len(ids))
        self.jobs += repeat(None, len(ids))
        self.failures += repeat(None, len(ids))
        self.runs += runs
        self.progress += repeat(None, len(ids))
        self.unbegun += repeat(0, len(ids))

    def changes(self, what: StoredJobInput, now: float) -> JobChanges:
        """Return the columns as a part of a batch."""
        runs = self.runs if what in _RUNNING and any(self.runs) else None
        progress = self.progress if what in _PROGRESSING else None
        return JobChanges(
            what,
            self.ids,
            self.attempts if what in _FENCED else None,
            self.payloads if what in _KEPT else None,
            self.costs if what in _COSTLY and any(self.costs) else None,
            self.waits_ms if what in _DELAYED and any(self.waits_ms) else None,
            self.failures if what in _FAILING and any(self.failures) else None,
            None if runs is None else [run and run[0] for run in runs],
            None if runs is None else [_age(run, now) for run in runs],
            None if progress is None else [report and report[0] for report in progress],
            None if progress is None else [report and report[1] for report in progress],
            self.unbegun if what in _UNBEGUN and any(self.unbegun) else None,
        )

    def put_before(self, later: ChangeColumns) -> None:
        """Put these changes before later ones."""
        for mine, theirs in (
            (self.ids, later.ids),
            (self.attempts, later.attempts),
            (self.payloads, later.payloads),
            (self.costs, later.costs),
            (self.waits_ms, later.waits_ms),
            (self.jobs, later.jobs),
            (self.failures, later.failures),
            (self.unbegun, later.unbegun),
            (self.runs, later.runs),
            (self.progress, later.progress),
        ):
            theirs[:0] = mine  # type: ignore[assignment]


@frozen
class NewStoredJobs:
    """Jobs to add, and the submission from which they come."""

    new: NewJobs
    event: Submitted
    again: bool = False
    """Whether an earlier instance may have stored the jobs; then no news reports their ends."""


@define(eq=False)
class WriteUnderWay:
    """The batch of a ``Write`` without an answer, and what the answer is about."""

    step: int
    sent_at: float
    adds: Sequence[NewStoredJobs]
    changes: Sequence[tuple[StoredJobInput, ChangeColumns]]
    reservations: Sequence[Reservation]
    look: Sequence[int]


@define(eq=False)
class PendingWrites:
    """The contents of the next batch."""

    verify: bool = False
    """Whether the next answer must contain the jobs that the instance has reserved."""
    _adds: deque[NewStoredJobs] = field(factory=deque)
    _changes: dict[StoredJobInput, ChangeColumns] = field(factory=dict)
    _receipts: list[int] = field(factory=list)
    _watch: list[int] = field(factory=list)

    def __bool__(self) -> bool:
        return bool(
            self._adds
            or self._receipts
            or self._watch
            or self.verify
            or any(columns.ids for columns in self._changes.values())
        )

    def add(self, new: NewJobs, event: Submitted) -> None:
        """Add new jobs."""
        self._adds.append(NewStoredJobs(new, event))

    def refuse_adds(self) -> list[NewStoredJobs]:
        """Take out the new jobs that no batch had yet."""
        refused = [add for add in self._adds if not add.again]
        self._adds = deque(add for add in self._adds if add.again)
        return refused

    def of(self, what: StoredJobInput) -> ChangeColumns:
        """Return the columns of an input."""
        columns = self._changes.get(what)
        if columns is None:
            columns = self._changes[what] = ChangeColumns()
        return columns

    def changed(self) -> set[int]:
        """Return the numbers of the jobs that have changes."""
        return {id for columns in self._changes.values() for id in columns.ids}

    def receive(self, id: int) -> None:
        """Add the receipt for the end of a job."""
        self._receipts.append(id)

    def watch(self, ids: Iterable[int]) -> None:
        """Keep jobs until this instance has learned of their ends."""
        self._watch += ids

    def take(
        self,
        step: int,
        now: float,
        *,
        sweep: bool,
        reservations: Sequence[Reservation],
        look: Sequence[int],
        whole: bool = False,
    ) -> tuple[WriteUnderWay, WriteBatch]:
        """Take out the next batch; with ``whole`` the batch contains all new jobs, however many."""
        adds: list[NewStoredJobs] = []
        count = size = 0
        cancelled = set(self._changes[_In.CANCEL].ids) if _In.CANCEL in self._changes else set()
        left = {id for add in self._adds for id in add.new.ids} if cancelled else set()
        while self._adds and (whole or (count < _MAX_ADDED and size < _MAX_BYTES)):
            keyed = self._adds[0].new.keys is not None
            if keyed and not whole and not cancelled <= left:
                break  # adds come before changes: the job could join one that the batch cancels
            add = self._adds.popleft()
            left.difference_update(add.new.ids)
            adds.append(add)
            count += len(add.new.ids)
            size += sum(map(len, add.new.payloads))
        changes = [
            (what, columns)
            for what in _ORDER
            if (columns := self._changes.get(what)) is not None and columns.ids
        ]
        self._changes = {}
        if early := cancelled & left:
            changes = [
                (what, self._held_back(columns, early) if what is _In.CANCEL else columns)
                for what, columns in changes
            ]
            changes = [(what, columns) for what, columns in changes if columns.ids]
        receipts, self._receipts = self._receipts, []
        watch, self._watch = self._watch, []
        batch = WriteBatch(
            adds=[add.new for add in adds],
            changes=[columns.changes(what, now) for what, columns in changes],
            receipts=receipts,
            watch=watch,
            sweep=_SWEPT if sweep else 0,
            reservations=reservations,
        )
        return WriteUnderWay(step, now, adds, changes, reservations, look), batch

    def _held_back(self, cancels: ChangeColumns, ids: set[int]) -> ChangeColumns:
        """Keep the cancellations of jobs whose adds wait for a later batch; return the others."""
        now = ChangeColumns()
        for id in cancels.ids:
            (self.of(_In.CANCEL) if id in ids else now).add(id, 0)
        return now

    def begin_anew(self, lost: WriteUnderWay | None) -> None:
        """Prepare the first batch of a new instance.

        Results, further attempts and cancellations count whoever has reserved the job. Changes
        that only the old instance could make are dropped: its jobs lapse.

        Args:
            lost: A write whose answer will not come; it may have been applied.
        """
        if lost is not None:
            self._adds.extendleft(evolve(add, again=True) for add in reversed(lost.adds))
            for what, columns in lost.changes:
                columns.put_before(self.of(what))
        self._receipts.clear()
        self._watch.clear()
        for what in (*_MINE, _In.ADOPT, _In.BEGIN):
            self._changes.pop(what, None)
        self.verify = True
