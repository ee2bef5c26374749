"""One write batch, inside a transaction of an SQL database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from wmp.store.sql.dependents import Dependents
from wmp.store.sql.sql_rows import SqlRows
from wmp.store.stored_job import ENDED, TABLE, TRANSITIONS, StoredJobInput, StoredJobState
from wmp.store.write_batch import (
    AddAnswer,
    ChangeAnswer,
    JobChanges,
    NewJobs,
    Reservation,
    ReservedJobs,
    SweptJob,
)

_ADD: Final = TRANSITIONS[StoredJobState.ABSENT, StoredJobInput.ADD]
_ADD_RESERVED: Final = TRANSITIONS[StoredJobState.ABSENT, StoredJobInput.ADD_RESERVED]
_ADD_WAITING: Final = TRANSITIONS[StoredJobState.ABSENT, StoredJobInput.ADD_WAITING]

_ENDING: Final = frozenset(
    row.input for row in TABLE if row.target in ENDED or row.target is StoredJobState.ABSENT
)
"""Inputs that may end or remove a job."""


class SqlWriter(ABC):
    """Makes the changes of a batch.

    Args:
        connection: A connection inside a transaction.
        rows: Reads the rows of jobs.
        me: Number of the instance that writes.
        now: Time of the transaction, in milliseconds.
        grace: Milliseconds after which the jobs of an ended instance lapse.
        begun: When this instance began, in milliseconds.
    """

    # Each selects number, instance and submitter of jobs, for the values now, me, grace and limit.
    LAPSING: ClassVar[str]
    """Jobs that an instance holds that ended long ago."""
    OVERDUE: ClassVar[str]
    """Open jobs after their deadline."""
    EXPIRED: ClassVar[str]
    """Queued jobs that may not be begun any more."""
    OUTLIVED: ClassVar[str]
    """Ended jobs that are kept no longer."""
    SET_BACK: ClassVar[str] = (
        "UPDATE jobs SET due = due - (created - {now}), deadline = deadline - (created - {now}),"
        " expires = expires - (created - {now}), created = {now}"
        " WHERE state < 3 AND created > {now}"
    )
    """Move the times of open jobs that were added later than now."""
    ENDED_AHEAD: ClassVar[str] = "UPDATE instances SET ended = {now} WHERE ended > {now}"
    """Move the ends of instances that ended later than now: else their jobs would lapse late."""

    def __init__(
        self, connection: Any, rows: SqlRows, me: int, now: int, grace: int, begun: int
    ) -> None:
        self.connection = connection
        self.rows = rows
        self.me = me
        self.now = now
        self._terms = rows.terms
        self.waiting = self._dependents()
        self._maybe_ended: list[int] = []
        """Jobs with inputs that may have ended them, since the waiting jobs were visited."""
        self._may_lapse = begun <= now - grace
        """STORE-1.5: workers may hold the jobs, and need time to reach an instance that began
        late."""
        self._shared: dict[str, Any] = {"me": me, "now": now, "grace": grace}
        """The values that all jobs of a statement share."""

    # -- adds -----------------------------------------------------------------------------------

    def add(self, new: NewJobs) -> AddAnswer:
        """Add jobs; a job whose number or key the store has is not added again."""
        if not new.ids:
            return AddAnswer([], [])
        kind = self._terms.number_of_kind(self.connection, new.kind)
        due = self.now + new.delay_ms
        waits = bool(new.after)
        reserved = new.reserve and not new.delay_ms and not waits and not self._is_due(kind)
        state = _ADD_WAITING if waits else _ADD_RESERVED if reserved else _ADD
        shared = {
            "state": int(state),
            "kind": kind,
            "priority": new.priority,
            "due": due,
            "attempt": int(reserved),
            "terms": self._terms.number_of_terms(self.connection, new.terms),
            "instance": self.me if reserved else None,
            "submitter": self.me,
            "deadline": None if waits or new.timeout_ms is None else due + new.timeout_ms,
            "expires": None if waits or new.expires_in_ms is None else due + new.expires_in_ms,
            "created": self.now,
        }
        if new.keys is None or not any(key is not None for key in new.keys):
            answer = self._add_plain(new, shared, state)
        else:
            answer = self._add_keyed(new, new.keys, shared, state)
        return self._add_waiting(new, answer) if waits else answer

    @abstractmethod
    def _dependents(self) -> Dependents:
        """Return the statements for jobs that wait for other jobs."""

    def _add_waiting(self, new: NewJobs, answer: AddAnswer) -> AddAnswer:
        """Let new jobs wait for others; return their states after that."""
        if set(new.after) & set(new.ids):
            raise ValueError("a job cannot wait for itself")
        both = zip(new.ids, answer.ids, answer.states, strict=True)
        self.waiting.add(
            new, [id for id, added, state in both if id == added and state is _ADD_WAITING]
        )
        states = self.rows.states(self.connection, answer.ids)
        return AddAnswer(answer.ids, [states[id][0] for id in answer.ids])

    @abstractmethod
    def _is_due(self, kind: int) -> bool:
        """Return whether a job of a kind could be reserved now (NOTHING_WAITS)."""

    @abstractmethod
    def _add_plain(self, new: NewJobs, shared: dict[str, Any], state: StoredJobState) -> AddAnswer:
        """Add jobs without keys. ``shared``: the columns that are equal in all jobs."""

    @abstractmethod
    def _add_keyed(
        self,
        new: NewJobs,
        keys: Sequence[str | None],
        shared: dict[str, Any],
        state: StoredJobState,
    ) -> AddAnswer:
        """Add jobs some of which have keys."""

    @abstractmethod
    def find(self, new: NewJobs) -> AddAnswer:
        """Return the answer for jobs of a batch that was applied before."""

    @abstractmethod
    def block(self) -> range:
        """Return a new block of numbers for jobs."""

    # -- changes --------------------------------------------------------------------------------

    def may_end(self, what: StoredJobInput, ids: Sequence[int]) -> None:
        """Note an input that may end jobs for which others wait."""
        if what in _ENDING:
            self._maybe_ended += ids

    def resolve(self) -> None:
        """Release or end the jobs that waited for jobs which this transaction ended."""
        ids, self._maybe_ended = self._maybe_ended, []
        if ids:
            self.waiting.resolve(ids)

    @abstractmethod
    def lock(self, changes: Iterable[JobChanges], receipts: Sequence[int]) -> None:
        """Lock all jobs of a batch, if the database has no lock for all writers."""

    @abstractmethod
    def change(self, changes: JobChanges) -> ChangeAnswer:
        """Make changes; a change whose guards do not hold has no effect."""

    @abstractmethod
    def receive(self, ids: Sequence[int]) -> None:
        """Write receipts: this instance knows the ends of these jobs."""

    @abstractmethod
    def watch(self, ids: Sequence[int]) -> None:
        """Keep jobs until this instance has learned of their ends."""

    @abstractmethod
    def finish(self) -> None:
        """Write what the database keeps of the transaction itself, after all changes."""

    # -- the sweep ------------------------------------------------------------------------------

    def set_back(self) -> None:
        """Treat open jobs that were added later than now as if they were added now, and instances
        that ended later as if they ended now: the clock was set back. This reads all jobs."""
        for statement in (self.SET_BACK, self.ENDED_AHEAD):
            self.connection.execute(statement, {"now": self.now})

    def sweep(self, limit: int) -> list[SweptJob]:
        """Make the changes of jobs that time alone causes, at most ``limit`` of each sort."""
        swept = []
        if self._may_lapse:
            swept += self._sweep(StoredJobInput.LAPSE, self.LAPSING, limit)
        swept += self._sweep(StoredJobInput.EXPIRE, self.OVERDUE, limit)
        swept += self._sweep(StoredJobInput.EXPIRE, self.EXPIRED, limit)
        self._sweep(StoredJobInput.PURGE, self.OUTLIVED, limit)
        return swept

    def _sweep(self, what: StoredJobInput, query: str, limit: int) -> list[SweptJob]:
        """Change the jobs that a query finds; return the ended ones that concern this instance."""
        rows = self.connection.execute(query, {**self._shared, "limit": limit}).fetchall()
        if not rows:
            return []
        mine = [id for id, instance, submitter in rows if self.me in (instance, submitter)]
        self.may_end(what, [row[0] for row in rows])
        states = self._change_swept(what, [row[0] for row in rows], mine)
        return [SweptJob(id, *states[id]) for id in mine if id in states and states[id][0] in ENDED]

    @abstractmethod
    def _change_swept(
        self, what: StoredJobInput, ids: Sequence[int], mine: Sequence[int]
    ) -> dict[int, tuple[StoredJobState, int]]:
        """Change jobs; return state and attempt of at least those of ``mine`` that changed."""

    # -- reservations ---------------------------------------------------------------------------

    @abstractmethod
    def reserve(self, wanted: Reservation) -> ReservedJobs:
        """Reserve due jobs of a kind, in their order."""

    def _reserved(
        self,
        rows: Sequence[tuple[Any, ...]],
        payloads: Sequence[bytes],
        *,
        more: bool,
        next_due: int | None,
    ) -> ReservedJobs:
        """Return the answer of a reservation.

        Args:
            rows: Number, new attempt, priority, lost, failed, unbegun, number of the terms,
                deadline and expiry of each job.
            payloads: The payload of each job.
            more: Whether further jobs are due.
            next_due: When the next job is due; None if unknown or without such a job.
        """
        return ReservedJobs(
            ids=[row[0] for row in rows],
            attempts=[row[1] for row in rows],
            payloads=payloads,
            priorities=[row[2] for row in rows],
            lost=[row[3] for row in rows],
            failed=[row[4] for row in rows],
            unbegun=[row[5] for row in rows],
            terms=[self._terms.terms(self.connection, row[6]) for row in rows],
            deadlines_ms=[row[7] for row in rows],
            expires_at_ms=[row[8] for row in rows],
            more=more,
            next_due=next_due,
            histories=self.rows.failures(self.connection, [row[0] for row in rows if row[1] > 1]),
        )
