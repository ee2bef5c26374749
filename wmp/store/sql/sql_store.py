"""A store in an SQL database: what is equal in all databases of a batch and a transaction."""

from __future__ import annotations

import builtins
import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from wmp.duration import Duration, in_seconds
from wmp.errors import InstanceEnded
from wmp.store.contract import JobFilter, QueuedKind, StoreInstance, SubmitterNews
from wmp.store.sql.sql_reader import LinkT, SqlReader
from wmp.store.sql.sql_transaction import SqlTransaction
from wmp.store.sql.sql_writer import SqlWriter
from wmp.store.store_settings import BY_CALLERS, RARELY, ROW, VALIDITY
from wmp.store.stored_job import StoredJobState
from wmp.store.transaction import StoreTransaction
from wmp.store.write_batch import (
    AddAnswer,
    BatchAnswer,
    ChangeAnswer,
    NewJobs,
    SweptJob,
    WriteBatch,
)

_JUMP: Final = 1.0
"""Seconds by which the clock of the store and the monotonic clock may part."""

_T = TypeVar("_T")
_Writer = TypeVar("_Writer", bound=SqlWriter)


class SqlStore(SqlReader[LinkT], Generic[LinkT, _Writer]):
    """Stored jobs in a database. See :class:`~wmp.store.contract.Store` for the methods.

    Args:
        link: The connection.
        max_bytes: Bytes in use above which no new jobs are taken.
        grace: Seconds after which the reserved jobs of an ended instance are queued again.
        clock: Seconds since 1970; None if the subclass reads another clock.
        monotonic: Seconds of a clock that never jumps.
    """

    TRANSACTION: ClassVar[type[SqlTransaction]]
    END: ClassVar[str]
    """Set the end of an instance that has not ended, by its number."""
    ENDS: ClassVar[str]
    """Select the ended jobs of a submitter, with a limit."""
    CANCELS: ClassVar[str]
    """Select the jobs that an instance holds and that are cancelled, with a limit."""
    AHEAD: ClassVar[str]
    """Select 1 if an instance is valid longer than a time, or ended after another time."""
    CAUSE_OF_END: ClassVar[str]
    """Why instances are ended, in words."""

    def __init__(
        self,
        link: LinkT,
        *,
        max_bytes: int,
        grace: Duration,
        clock: Callable[[], float] | None,
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(link)
        self._clock, self._monotonic = clock, monotonic
        self._max_bytes = max_bytes
        self._grace = round(in_seconds(grace) * 1000)
        self._offset: float | None = None
        self._trusted_from = 0.0
        self._checks_clock = True
        """Whether the next sweep looks for instances that wrote later than now."""
        self._set_back = False
        """Whether the clock of the store was set back since the last sweep."""

    # -- what differs ---------------------------------------------------------------------------

    @abstractmethod
    def _instance(self, connection: Any, me: StoreInstance) -> tuple[Any, int, int, int] | None:
        """Return end, last batch, begin and validity of an instance, and lock it."""

    @abstractmethod
    def _writer(self, connection: Any, me: StoreInstance, now: int, begun: int) -> _Writer:
        """Return what makes the changes of an instance."""

    @abstractmethod
    def _leave(self, number: int) -> None:
        """Release what this object has for an instance that has ended."""

    @abstractmethod
    def _end_instances(self, writer: _Writer, *, by_validity: bool) -> None:
        """End dead instances; ``by_validity``: also those whose validity has passed."""

    @abstractmethod
    def _used_bytes(self, writer: _Writer, wanted: int) -> int:
        """Return the bytes in use; an estimate above them will do if ``wanted`` bytes fit."""

    @abstractmethod
    def _renew_until(self, writer: _Writer, until: int, batch: int) -> None:
        """Set the validity and the last batch of the instance, not later than the commit."""

    def _write(
        self,
        me: StoreInstance,
        batch: WriteBatch | None,
        work: Callable[[Any], tuple[_Writer, _T]],
    ) -> tuple[_Writer, _T]:
        """Run a function in one transaction of an instance; without a batch, in one that is
        alone in the store."""
        return self._link.write(work, alone=batch is None)

    def _begin_not_after(self, now: int) -> None:
        """Move the begins of instances that this object keeps: the clock was set back."""

    def _make_records(self, connection: Any) -> None:
        """Make the table of records, if the store may be without one."""

    def _committed(self, writer: _Writer) -> None:
        """Report changes to other processes, if the database does not."""

    def _read_clock(self, connection: Any) -> tuple[float, int]:
        """Return a monotonic time before the look at the clock, and milliseconds since 1970."""
        assert self._clock is not None
        before = self._monotonic()
        return before, int(self._clock() * 1000)

    def _now(self, connection: Any) -> int:
        """Return the time of the store in milliseconds, and notice a jump of its clock."""
        before, now = self._read_clock(connection)
        after = self._monotonic()
        wall = now / 1000
        if self._offset is None:
            self._offset = wall - after
        elif not before - _JUMP <= wall - self._offset <= after + _JUMP:
            self._set_back = self._set_back or wall - self._offset < before
            self._offset = wall - after
            self._trusted_from = after + VALIDITY
        return now

    # -- writing --------------------------------------------------------------------------------

    def end(self, me: StoreInstance) -> None:
        """End an instance; see :class:`~wmp.store.contract.Store`."""
        self._link.write(
            lambda connection: connection.execute(self.END, (self._now(connection), me.number))
        )
        self._leave(me.number)

    def apply(self, me: StoreInstance, number: int, batch: WriteBatch) -> BatchAnswer:
        """Apply a batch; see :class:`~wmp.store.contract.Store`."""
        for changes in batch.changes:
            if changes.input not in BY_CALLERS:
                raise ValueError(f"{changes.input.name} is not a change that a batch can have")

        def work(connection: Any) -> tuple[_Writer, BatchAnswer]:
            last, writer = self._renew(connection, me, number)
            if number == last:
                answer = self._repeated(writer, batch)
            else:
                answer = self._applied(writer, batch)
            writer.finish()
            return writer, answer

        writer, answer = self._write(me, batch, work)
        if batch.sweep and not answer.repeated:
            self._checks_clock = self._set_back = False
        self._committed(writer)
        return answer

    def transact(self, me: StoreInstance, work: Callable[[StoreTransaction], _T]) -> _T:
        """Run a function in a transaction; see :mod:`wmp.store.transaction`."""

        def run(connection: Any) -> tuple[_Writer, _T]:
            _, writer = self._renew(connection, me, None)
            self._make_records(connection)
            sweep = functools.partial(self._sweep, writer)
            answer = work(self.TRANSACTION(writer, sweep, lambda new: self._add(writer, [new])[0]))
            writer.resolve()
            writer.finish()
            return writer, answer

        writer, answer = self._write(me, None, run)
        self._committed(writer)
        return answer

    def _renew(self, connection: Any, me: StoreInstance, number: int | None) -> tuple[int, _Writer]:
        """Renew the validity of an instance.

        Args:
            connection: The connection.
            me: The instance.
            number: The number of the batch; None for a transaction. A transaction renews once a
                second: one that changes nothing then writes nothing, and wakes no other process.

        Returns:
            The number of the last batch of the instance, and what makes its changes.

        Raises:
            InstanceEnded: The instance has ended.
        """
        row = self._instance(connection, me)
        if row is None or row[0] is not None:
            self._leave(me.number)
            raise InstanceEnded(
                f"instance {me.number} of the store {self.name} has ended, because "
                f"{self.CAUSE_OF_END}; begin a new one"
            )
        _, last, begun, valid_until = row
        if number not in (None, last, last + 1):
            raise ValueError(f"the batch has number {number}; expected {last} again, or {last + 1}")
        now = self._now(connection)
        until = now + round(VALIDITY * 1000)
        writer = self._writer(connection, me, now, begun)
        if number is not None or not until - RARELY <= valid_until <= until:
            self._renew_until(writer, until, last if number is None else number)
        return last, writer

    def _applied(self, writer: _Writer, batch: WriteBatch) -> BatchAnswer:
        adds = self._add(writer, batch.adds)
        writer.lock(batch.changes, batch.receipts)
        changes = [writer.change(change) for change in batch.changes]
        writer.receive(batch.receipts)
        writer.watch(batch.watch)
        swept = self._sweep(writer, batch.sweep) if batch.sweep else []
        writer.resolve()
        reserved = [writer.reserve(reservation) for reservation in batch.reservations]
        block = writer.block() if batch.block else None
        stirred = writer.waiting.stirred
        return BatchAnswer(writer.now, False, adds, changes, swept, reserved, block, stirred)

    def _repeated(self, writer: _Writer, batch: WriteBatch) -> BatchAnswer:
        """Answer a batch that was applied before, from the jobs as they are now."""
        adds = [writer.find(new) for new in batch.adds]
        changes = []
        for change in batch.changes:
            states = self._rows.states(writer.connection, change.ids)
            changes.append(
                ChangeAnswer(
                    [states[id][0] for id in change.ids], [states[id][1] for id in change.ids]
                )
            )
        return BatchAnswer(writer.now, True, adds, changes, (), (), None)

    def _sweep(self, writer: _Writer, limit: int) -> builtins.list[SweptJob]:
        ahead = self.AHEAD, (writer.now + round((VALIDITY + _JUMP) * 1000), writer.now)
        if self._set_back or (
            self._checks_clock and writer.connection.execute(*ahead).fetchone() is not None
        ):
            writer.set_back()  # STORE-4.6
            self._begin_not_after(writer.now)
        self._end_instances(writer, by_validity=self._monotonic() >= self._trusted_from)
        return writer.sweep(limit)

    def _add(self, writer: _Writer, adds: Sequence[NewJobs]) -> builtins.list[AddAnswer]:
        """Add jobs, unless the store is full."""
        if not adds:
            return []
        sizes = [sum(map(len, new.payloads)) + ROW * len(new.ids) for new in adds]
        free = self._max_bytes - self._used_bytes(writer, sum(sizes))
        answers = []
        for new, size in zip(adds, sizes, strict=True):
            free -= size
            answers.append(writer.add(new) if free >= 0 else refused(new))
        return answers

    # -- reading --------------------------------------------------------------------------------

    def news(self, me: StoreInstance, limit: int = 1000) -> SubmitterNews:
        """Return what others did; see :class:`~wmp.store.contract.Store`."""
        with self._link.reading() as connection:
            ended, cancelling = (
                [id for (id,) in connection.execute(statement, (me.number, limit)).fetchall()]
                for statement in (self.ENDS, self.CANCELS)
            )
            jobs = []
            if ended:
                where = JobFilter(ids=ended)
                jobs = self._rows.jobs(connection, where, after=-1, limit=len(ended), payloads=True)
        return SubmitterNews(jobs, cancelling)

    def kinds(self, *, counted: bool = False) -> builtins.list[QueuedKind]:
        """Return the kinds of queued jobs; see :class:`~wmp.store.contract.Store`."""
        with self._link.reading() as connection:
            return self._rows.kinds(connection, self._now(connection), counted=counted)


def refused(new: NewJobs) -> AddAnswer:
    """Return the answer for jobs that a full store does not take."""
    return AddAnswer([0] * len(new.ids), [StoredJobState.ABSENT] * len(new.ids))
