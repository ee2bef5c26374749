"""Jobs that wait for the results of other jobs, inside a transaction of an SQL database.

``waits`` has a row for each job that has not got its results: where the results go into its
payload, and its times. ``parents`` has the jobs for which a job waits, in their order; its rows
stay until the job is removed. The transaction that ends a job visits the jobs that wait for it, so
that none of them depends on a process, or on jobs that are removed later.

A visit reads one other job that is open still, and then knows that the job goes on waiting. The
next visit looks at this other job first, so that the visits of a job which waits for n others read
about 2 n states together, in whatever order the others end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Sequence
from typing import Any, ClassVar, Final

from attrs import frozen

from wmp.message import Limits
from wmp.store.sql.sql_rows import SqlRows
from wmp.store.stored_job import INHERITED, TRANSITIONS, StoredJobInput, StoredJobState
from wmp.store.write_batch import NewJobs

_State = StoredJobState

_QUEUED: Final = TRANSITIONS[_State.WAITING, StoredJobInput.PROCEED]

_MAX_LOOKS: Final = 10_000
"""Number of waiting jobs of which a process remembers where it looked last."""

_ABSENT: Final = b"the store does not have job %d, for whose result this job waits"
_TOO_LARGE: Final = (
    b"the results for which this job waited make a payload of %d bytes; the limit is %d"
)


@frozen
class ReleasedJob:
    """A job that has all results for which it waited."""

    id: int
    kind: int
    due: int
    deadline: int | None
    expires: int | None
    payload: bytes
    growth: int
    """Bytes of the results in the payload."""


class Dependents(ABC):
    """Releases and ends waiting jobs.

    Args:
        connection: A connection inside a transaction.
        rows: Reads the rows of jobs.
        now: Time of the transaction, in milliseconds.

    Attributes:
        stirred: Whether a waiting job was queued or ended.
    """

    # The statements of each database.
    ADD_WAIT: ClassVar[str]
    """Insert number, place of the results in the payload, delay, timeout and expiry of a job."""
    ADD_PARENT: ClassVar[str]
    """Insert number, place and other job; a row that exists stays."""
    PARENTS: ClassVar[str] = (
        "SELECT parents.id, parents.parent, jobs.state FROM parents"
        " LEFT JOIN jobs ON jobs.id = parents.parent WHERE parents.id = {} ORDER BY parents.place"
    )
    """Select the other jobs of a job and their states, in order."""
    OPEN_PARENT: ClassVar[str] = (
        "SELECT parents.place, jobs.state FROM parents"
        " LEFT JOIN jobs ON jobs.id = parents.parent WHERE parents.id = {0}"
        " AND parents.place >= {0} AND (jobs.state IS NULL OR jobs.state != 3)"
        " ORDER BY parents.place LIMIT 1"
    )
    """Select place and state of the first of the other jobs, from a place on, without a result."""
    RESULTS: ClassVar[str] = (
        "SELECT results.payload FROM parents JOIN results ON results.id = parents.parent"
        " WHERE parents.id = {} ORDER BY parents.place"
    )
    """Select the results of the other jobs of a job, in order."""
    WAIT: ClassVar[str]
    """Select kind, payload, place of the results, delay, timeout and expiry of a job."""
    END_WAIT: ClassVar[str]
    """Delete the row of a job in ``waits``."""
    INHERIT: ClassVar[str]
    """Update state, end and time of removal of a waiting job: state, now, now, state, number."""
    KEEP: ClassVar[str]
    """Insert a result: number and payload."""
    RESULT: ClassVar[str]
    """Select the result of a job."""

    def __init__(self, connection: Any, rows: SqlRows, now: int) -> None:
        self.connection = connection
        self.rows = rows
        self.now = now
        self.stirred = False

    # -- what differs ---------------------------------------------------------------------------

    @abstractmethod
    def _lock(self, ids: Sequence[int]) -> list[int]:
        """Lock those of the jobs that wait; return their numbers in order."""

    @abstractmethod
    def _lock_parents(self, ids: Sequence[int]) -> None:
        """Let no other transaction end these jobs before this one is over."""

    @abstractmethod
    def _children(self, ids: Sequence[int]) -> list[int]:
        """Return the numbers of the jobs that wait for one of these jobs."""

    @abstractmethod
    def _release(self, job: ReleasedJob) -> None:
        """Queue a job with its whole payload."""

    @abstractmethod
    def _ended(self, id: int, size: int) -> None:
        """Note that a waiting job ended with a result of ``size`` bytes."""

    # -- adds -----------------------------------------------------------------------------------

    def add(self, new: NewJobs, ids: Iterable[int]) -> None:
        """Let new jobs wait for others; release or end those whose others have ended."""
        added = []
        self._lock_parents(new.after)
        for id in ids:
            times = (new.delay_ms, new.timeout_ms, new.expires_in_ms)
            wait = self.connection.execute(self.ADD_WAIT, (id, new.splice, *times))
            if not wait.rowcount:
                continue  # the same add came twice
            added.append(id)
            for position, parent in enumerate(new.after):
                self.connection.execute(self.ADD_PARENT, (id, position, parent))
        self.resolve(self._decide(added, set(added)))

    # -- ends of other jobs ---------------------------------------------------------------------

    def resolve(self, ended: Sequence[int]) -> None:
        """Release or end the jobs that wait for ended jobs, and those that wait for them."""
        while ended:
            waiting = self._children(ended)
            if not waiting:
                return
            states = self.rows.states(self.connection, ended)
            failed = [id for id, (state, _) in states.items() if state in INHERITED]
            ended = self._decide(waiting, set(self._children(failed)) if failed else set())

    def _decide(self, waiting: Sequence[int], doomed: Container[int]) -> list[int]:
        """Release or end jobs if they need not wait any more; return those that ended.

        Args:
            waiting: The jobs.
            doomed: Those of which one of the other jobs may have ended without a result.
        """
        ended = []
        for id in self._lock(waiting) if waiting else ():
            state = None if id in doomed else self._unfinished(id)
            if state in INHERITED or id in doomed:
                parents = self.connection.execute(self.PARENTS, (id,)).fetchall()
                others = [
                    (parent, _State.ABSENT if found is None else _State(found))
                    for _, parent, found in parents
                ]
                failed = next((other for other in others if other[1] in INHERITED), None)
                if failed is not None:
                    self._inherit(id, *failed)
                    ended.append(id)
                    continue
                state = self._unfinished(id)
            if state is None and not self._fill(id):
                ended.append(id)
        return ended

    def _unfinished(self, id: int) -> _State | None:
        """Return the state of a job for which another job still waits; None if all have results.

        ``rows.looks`` has the place of the job that was returned last. It is only a hint: nothing
        depends on it but the number of rows that are read.
        """
        looks = self.rows.looks
        start = looks.pop(id, 0)
        row = None
        for first in (start, 0) if start else (0,):
            row = self.connection.execute(self.OPEN_PARENT, (id, first)).fetchone()
            if row is not None:
                break
        if row is None:
            return None
        place, state = row
        looks[id] = place
        if len(looks) > _MAX_LOOKS:
            del looks[next(iter(looks))]
        return _State.ABSENT if state is None else _State(state)

    def _inherit(self, id: int, parent: int, state: StoredJobState) -> None:
        """End a waiting job as another job ended."""
        payload: bytes | None
        if state is _State.ABSENT:
            payload = _ABSENT % parent
        else:
            row = self.connection.execute(self.RESULT, (parent,)).fetchone()
            payload = None if row is None else bytes(row[0])
        self._end(id, INHERITED[state], payload)

    def _end(self, id: int, what: StoredJobInput, payload: bytes | None) -> None:
        self.stirred = True
        target = TRANSITIONS[_State.WAITING, what]
        self.connection.execute(self.INHERIT, (int(target), self.now, self.now, int(target), id))
        if payload is not None:
            self.connection.execute(self.KEEP, (id, payload))
        self._ended(id, 0 if payload is None else len(payload))

    def _fill(self, id: int) -> bool:
        """Queue a job with the results in its payload; return False if that is too large."""
        kind, payload, splice, delay, timeout, expires = self.connection.execute(
            self.WAIT, (id,)
        ).fetchone()
        payload, growth = bytes(payload), 0
        if splice is not None:
            results = [
                bytes(result)
                for (result,) in self.connection.execute(self.RESULTS, (id,)).fetchall()
            ]
            growth = sum(map(len, results))
            payload = b"".join([payload[:splice], *results, payload[splice:]])
        if len(payload) > Limits.PAYLOAD:
            text = _TOO_LARGE % (len(payload), Limits.PAYLOAD)
            self._end(id, StoredJobInput.INHERIT_LOSS, text)
            return False
        self.stirred = True
        due = self.now + delay
        self._release(
            ReleasedJob(
                id,
                kind,
                due,
                None if timeout is None else due + timeout,
                None if expires is None else due + expires,
                payload,
                growth,
            )
        )
        self.connection.execute(self.END_WAIT, (id,))
        return True


QUEUED: Final = int(_QUEUED)
"""The state of a job that need not wait any more."""
