"""The store in a database of PostgreSQL, for the processes of many hosts."""

from __future__ import annotations

import builtins
import functools
import select
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from wmp.errors import InstanceEnded, StoreUnavailable
from wmp.store.contract import JobFilter, QueuedKind, StoreInstance, SubmitterNews
from wmp.store.postgres import tables
from wmp.store.postgres.driver import StoreUrl
from wmp.store.postgres.pg_connection import PostgresConnection
from wmp.store.postgres.pg_rows import find_states, read_kinds, select_jobs
from wmp.store.postgres.pg_sweep import end_instances, sweep
from wmp.store.postgres.pg_terms import as_bytes
from wmp.store.postgres.pg_transaction import PostgresTransaction, next_block
from wmp.store.postgres.pg_writer import JobWriter
from wmp.store.postgres.postgres_reader import PostgresReader
from wmp.store.store_settings import (
    BLOCK,
    BY_CALLERS,
    GRACE,
    MAX_BYTES,
    NUMBERS_FROM,
    NUMBERS_SHIFT,
    RARELY,
    ROW,
    VALIDITY,
)
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
"""Seconds by which the clock of the server and the monotonic clock may part."""

_TOGETHER: Final = 0.01
"""Seconds in which one notification for each kind and instance is sent."""

_POLL: Final = 2.0
"""Seconds after which a process looks for writes of others without a notification."""

_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

_T = TypeVar("_T")


class PostgresStore(PostgresReader):
    """Stored jobs in PostgreSQL. See :class:`~wmp.store.contract.Store` for the methods.

    Args:
        url: ``postgresql://USER@HOST:PORT/DATABASE``. The parameter ``schema`` names the schema
            with the tables of the store, ``wmp`` by default. Both are made if they are missing.
            The database must exist.
        max_bytes: Bytes in use above which no new jobs are taken.
        grace: Seconds after which the reserved jobs of an ended instance are queued again.
        clock: Seconds since 1970, for tests; None for the clock of the server.
        monotonic: Seconds of a clock that never jumps; for tests.

    Raises:
        ConfigError: The URL is wrong, or the extra ``postgres`` is not installed.
        StoreUnavailable: The server cannot be reached.
        StoreUnusable: The store is of a version that is not known, or the role may not use it.
    """

    def __init__(
        self,
        url: str,
        *,
        max_bytes: int = MAX_BYTES,
        grace: float = GRACE,
        clock: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(PostgresConnection(StoreUrl.of(url)))
        self._clock, self._monotonic = clock, monotonic
        self._max_bytes = max_bytes
        self._grace = round(grace * 1000)
        self._mine: set[int] = set()
        """The instances of this object."""
        self._offset: float | None = None
        self._trusted_from = 0.0
        self._notified: dict[str, float] = {}
        """When each notification was sent, in seconds of the monotonic clock."""
        self._waiting: dict[str, float] = {}
        """When each further notification will be sent."""
        self._looked_at = 0.0
        try:
            self._create()
            self._identify()
        except BaseException:
            self._link.close()
            raise

    def _create(self) -> None:
        """Make the store if there is none, and notice a copy."""
        schema = self._link.url.schema

        def make(connection: Any) -> None:
            found = connection.execute(
                "SELECT to_regnamespace(%s) IS NOT NULL, to_regclass('meta') IS NOT NULL", (schema,)
            ).fetchone()
            if not found[0]:
                connection.execute(f"CREATE SCHEMA {schema}")
            if not found[1]:
                tables.make_tables(connection, self._now(connection))
                return
            (version,) = connection.execute("SELECT version FROM meta").fetchone()
            tables.check_version(version, self._link.name)
            (same,) = connection.execute(
                f"SELECT home = {tables.HOME} FROM meta FOR UPDATE"
            ).fetchone()
            if not same:
                self._raise_generation(connection)

        self._link.write(make, new=True)

    def _raise_generation(self, connection: Any) -> None:
        now = self._now(connection)
        first = max(now // 1000 - NUMBERS_FROM, 0) << NUMBERS_SHIFT
        tables.raise_generation(connection, now, first)

    def _now(self, connection: Any) -> int:
        """Return the time of the store in milliseconds, and notice a jump of its clock."""
        before = self._monotonic()
        if self._clock is not None:
            now = int(self._clock() * 1000)
        else:
            (now,) = connection.execute(f"SELECT {_NOW}").fetchone()
        after = self._monotonic()
        wall = now / 1000
        if self._offset is None:
            self._offset = wall - after
        elif not before - _JUMP <= wall - self._offset <= after + _JUMP:
            self._offset = wall - after
            self._trusted_from = after + VALIDITY
        return int(now)

    # -- instances ------------------------------------------------------------------------------

    def begin(self, identity: bytes, label: str) -> StoreInstance:
        """Begin an instance; see :class:`~wmp.store.contract.Store`."""

        def work(connection: Any) -> StoreInstance:
            now = self._now(connection)
            number, first, epoch = connection.execute(
                "UPDATE meta SET next_instance = next_instance + 1, next_id = next_id + %s,"
                " last_epoch = greatest(%s, last_epoch + 1)"
                " RETURNING next_instance - 1, next_id - %s, last_epoch",
                (BLOCK, now, BLOCK),
            ).fetchone()
            connection.execute(
                "INSERT INTO instances(instance, identity, epoch, label, begun, valid_until, batch,"
                " bytes) VALUES(%s, %s, %s, %s, %s, %s, 0, 0)",
                (number, identity, epoch, as_bytes(label), now, now + round(VALIDITY * 1000)),
            )
            return StoreInstance(number, identity, epoch, label, range(first, first + BLOCK))

        me = self._link.write(work)
        self._mine.add(me.number)
        return me

    def end(self, me: StoreInstance) -> None:
        """End an instance; see :class:`~wmp.store.contract.Store`."""
        self._link.write(
            lambda connection: connection.execute(
                "UPDATE instances SET ended = %s WHERE instance = %s AND ended IS NULL",
                (self._now(connection), me.number),
            )
        )
        self._mine.discard(me.number)

    # -- writing --------------------------------------------------------------------------------

    def apply(self, me: StoreInstance, number: int, batch: WriteBatch) -> BatchAnswer:
        """Apply a batch; see :class:`~wmp.store.contract.Store`."""
        for changes in batch.changes:
            if changes.input not in BY_CALLERS:
                raise ValueError(f"{changes.input.name} is no change that a batch can have")

        def work(connection: Any) -> tuple[JobWriter, BatchAnswer]:
            last, writer, begun = self._renew(connection, me, number)
            if number == last:
                return writer, self._repeated(writer, batch)
            answer = self._applied(writer, batch, begun)
            self._grow(writer)
            return writer, answer

        writer, answer = self._link.write(work)
        self._notify_soon(writer)
        return answer

    def transact(self, me: StoreInstance, work: Callable[[StoreTransaction], _T]) -> _T:
        """Run a function in a transaction; see :mod:`wmp.store.transaction`."""

        def run(connection: Any) -> tuple[JobWriter, _T]:
            _, writer, begun = self._renew(connection, me, None)
            answer = work(
                PostgresTransaction(
                    writer,
                    self._terms,
                    functools.partial(self._sweep, writer, begun=begun),
                    lambda new: self._add(writer, [new])[0],
                )
            )
            self._grow(writer)
            return writer, answer

        writer, answer = self._link.write(run, alone=True)
        self._notify_soon(writer)
        return answer

    def _renew(
        self, connection: Any, me: StoreInstance, number: int | None
    ) -> tuple[int, JobWriter, int]:
        """Renew the validity of an instance.

        ``number``: the number of the batch; None for a transaction, which renews once a second.

        Returns:
            The number of its last batch, what makes its changes, and when it began.

        Raises:
            InstanceEnded: The instance has ended.
        """
        # The lock also waits for a transaction of this instance over a connection that was lost.
        found = connection.execute(
            "SELECT ended, batch, begun, valid_until FROM instances"
            " WHERE instance = %s AND epoch = %s FOR UPDATE",
            (me.number, me.epoch),
        ).fetchone()
        if found is None or found[0] is not None:
            self._mine.discard(me.number)
            raise InstanceEnded(
                f"instance {me.number} of the store {self.place} has ended, because it had not "
                f"written for {VALIDITY:g} s; begin a new one"
            )
        _, last, begun, valid_until = found
        if number not in (None, last, last + 1):
            raise ValueError(f"the batch has number {number}; expected {last} again, or {last + 1}")
        now = self._now(connection)
        until = now + round(VALIDITY * 1000)
        if number is not None or not until - RARELY <= valid_until <= until:
            connection.execute(
                "UPDATE instances SET valid_until = %s, batch = %s WHERE instance = %s",
                (until, last if number is None else number, me.number),
            )
        return last, JobWriter(connection, self._terms, me.number, now, self._grace), begun

    def _applied(self, writer: JobWriter, batch: WriteBatch, begun: int) -> BatchAnswer:
        adds = self._add(writer, batch.adds)
        writer.lock(batch.changes, batch.receipts)
        changes = [writer.change(one) for one in batch.changes]
        writer.receive(batch.receipts)
        swept = self._sweep(writer, batch.sweep, begun=begun) if batch.sweep else []
        reserved = [writer.reserve(one) for one in batch.reservations]
        block = next_block(writer.connection) if batch.block else None
        return BatchAnswer(writer.now, False, adds, changes, swept, reserved, block)

    def _sweep(self, writer: JobWriter, limit: int, *, begun: int) -> builtins.list[SweptJob]:
        if self._monotonic() >= self._trusted_from:
            end_instances(writer)
        return sweep(writer, limit, late=begun <= writer.now - self._grace)

    def _repeated(self, writer: JobWriter, batch: WriteBatch) -> BatchAnswer:
        """Answer a batch that was applied before, from the jobs as they are now."""
        changes = []
        for one in batch.changes:
            found = find_states(writer.connection, one.ids)
            changes.append(
                ChangeAnswer([found[id][0] for id in one.ids], [found[id][1] for id in one.ids])
            )
        adds = [writer.find(new) for new in batch.adds]
        return BatchAnswer(writer.now, True, adds, changes, (), (), None)

    def _add(self, writer: JobWriter, adds: Sequence[NewJobs]) -> builtins.list[AddAnswer]:
        if not adds:
            return []
        (used,) = writer.connection.execute(
            "SELECT coalesce(sum(bytes), 0)::bigint FROM instances"
        ).fetchone()
        free = self._max_bytes - used - writer.growth
        answers = []
        for new in adds:
            free -= sum(map(len, new.payloads)) + ROW * len(new.ids)
            answers.append(writer.add(new) if free >= 0 else _refused(new))
        return answers

    def _grow(self, writer: JobWriter) -> None:
        """Count the bytes that the changes of an instance need or free."""
        if writer.growth:
            writer.connection.execute(
                "UPDATE instances SET bytes = bytes + %s WHERE instance = %s",
                (writer.growth, writer.me),
            )

    # -- reading --------------------------------------------------------------------------------

    def news(self, me: StoreInstance, limit: int = 1000) -> SubmitterNews:
        """Return what others did; see :class:`~wmp.store.contract.Store`."""
        with self._link.reading() as connection:
            ended = connection.execute(
                "SELECT id FROM jobs WHERE state >= 3 AND submitter IS NOT NULL AND submitter = %s"
                " ORDER BY id LIMIT %s",
                (me.number, limit),
            ).fetchall()
            cancelling = connection.execute(
                "SELECT id FROM jobs WHERE state IN (1, 2) AND state = 2 AND instance = %s"
                " ORDER BY id LIMIT %s",
                (me.number, limit),
            ).fetchall()
            ids = [id for (id,) in ended]
            jobs = []
            if ids:
                where = JobFilter(ids=ids)
                jobs = select_jobs(
                    connection, self._terms, where, after=-1, limit=len(ids), payloads=True
                )
        return SubmitterNews(jobs, [id for (id,) in cancelling])

    def kinds(self, *, counted: bool = False) -> builtins.list[QueuedKind]:
        """Return the kinds of queued jobs; see :class:`~wmp.store.contract.Store`."""
        with self._link.reading() as connection:
            return read_kinds(connection, self._terms, self._now(connection), counted=counted)

    # -- notifications --------------------------------------------------------------------------

    def wait(self, descriptor: int, timeout: float) -> bool:
        """Wait for a write of another process; see :class:`~wmp.store.contract.Store`."""
        until = time.monotonic() + timeout
        while True:
            self._send_notifications()
            now = time.monotonic()
            if self._is_concerned(self._link.notifications()) or now - self._looked_at >= _POLL:
                self._looked_at = now
                return True
            poll = select.poll()  # select() takes no descriptor above 1023
            poll.register(descriptor, select.POLLIN)
            poll.register(self._link.descriptor(), select.POLLIN)
            pause = min([until, self._looked_at + _POLL, *self._waiting.values()]) - now
            ready = [one for one, _ in poll.poll(max(0.0, pause) * 1000)]
            if descriptor in ready or (not ready and time.monotonic() >= until):
                return False

    def _is_concerned(self, payloads: Sequence[str]) -> bool:
        """Return whether a notification is about kinds, or about an instance of this object."""
        mine = {f"i{number}" for number in self._mine}
        return any(one.startswith("k") or one in mine for one in payloads)

    def _notify_soon(self, writer: JobWriter) -> None:
        """Notify others of committed changes: one notification a kind and 10 ms."""
        payloads = [f"k{kind}" for kind in writer.queued]
        payloads += [f"i{number}" for number in writer.touched]
        now = time.monotonic()
        for one in payloads:
            self._waiting.setdefault(one, max(now, self._notified.get(one, 0.0) + _TOGETHER))
        self._send_notifications()

    def _send_notifications(self) -> None:
        now = time.monotonic()
        due = [one for one, at in self._waiting.items() if at <= now]
        if not due:
            return
        for one in due:
            del self._waiting[one]
            self._notified[one] = now
        if len(self._notified) > 10_000:
            self._notified.clear()
        try:
            self._link.notify(due)
        except StoreUnavailable:
            pass  # the others look every two seconds

    # -- copies and life ------------------------------------------------------------------------

    def restored(self) -> None:
        """Begin a new generation, because the content of the database was replaced by an old copy.

        A copy of the tables in another database or server is noticed without this.
        """
        self._link.expected = None
        self._link.write(self._raise_generation, alone=True)
        self._identify()

    def close(self) -> None:
        """Release all resources. Idempotent. Instances that did not end, end by their validity."""
        self._mine.clear()
        super().close()


def _refused(new: NewJobs) -> AddAnswer:
    """Return the answer for jobs that a full store does not take."""
    return AddAnswer([0] * len(new.ids), [StoredJobState.ABSENT] * len(new.ids))
