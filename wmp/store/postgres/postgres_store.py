"""The store in a database of PostgreSQL, for the processes of many hosts."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from wmp.duration import Duration
from wmp.errors import StoreUnavailable
from wmp.store.contract import StoreInstance
from wmp.store.postgres import tables
from wmp.store.postgres.driver import StoreUrl
from wmp.store.postgres.pg_connection import SEARCH_PATH, PostgresConnection
from wmp.store.postgres.pg_terms import as_bytes
from wmp.store.postgres.pg_transaction import PostgresTransaction
from wmp.store.postgres.pg_writer import JobWriter, locking
from wmp.store.postgres.postgres_reader import PostgresReader
from wmp.store.sql.sql_store import SqlStore
from wmp.store.store_settings import (
    BLOCK,
    GRACE,
    MAX_BYTES,
    NUMBERS_FROM,
    NUMBERS_SHIFT,
    VALIDITY,
)
from wmp.store.write_batch import WriteBatch

_TOGETHER: Final = 0.01
"""Seconds in which one notification for each kind and instance is sent."""

_POLL: Final = 2.0
"""Seconds after which a process looks for writes of others without a notification."""

_SILENT: Final = 3.0
"""Seconds without a write after which an instance without a session is ended."""

_RECONNECTED: Final = 5.0
"""Seconds after the start of a session for which other processes may still open theirs again."""

_NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint; "

_USED: Final = "SELECT coalesce(sum(bytes), 0)::bigint FROM instances; "

# The lock also waits for a transaction of this instance over a connection that was lost.
_INSTANCE: Final = (
    "SELECT ended, batch, begun, valid_until FROM instances"
    " WHERE instance = {:d} AND epoch = {:d} FOR UPDATE; "
)

_T = TypeVar("_T")


class PostgresStore(PostgresReader, SqlStore[PostgresConnection, JobWriter]):
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

    TRANSACTION = PostgresTransaction
    END = "UPDATE instances SET ended = %s WHERE instance = %s AND ended IS NULL"
    ENDS = (
        "SELECT id FROM jobs WHERE state >= 3 AND submitter IS NOT NULL AND submitter = %s"
        " ORDER BY id LIMIT %s"
    )
    CANCELS = (
        "SELECT id FROM jobs WHERE state IN (1, 2) AND state = 2 AND instance = %s"
        " ORDER BY id LIMIT %s"
    )
    AHEAD = "SELECT 1 FROM instances WHERE valid_until > %s OR ended > %s LIMIT 1"
    CAUSE_OF_END = f"it had not written for {VALIDITY:g} s, or for {_SILENT:g} s without a session"

    def __init__(
        self,
        url: str,
        *,
        max_bytes: int = MAX_BYTES,
        grace: Duration = GRACE,
        clock: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            PostgresConnection(StoreUrl.of(url)),
            max_bytes=max_bytes,
            grace=grace,
            clock=clock,
            monotonic=monotonic,
        )
        # The rows that the first round trip of the transaction returned:
        self._row: tuple[Any, int, int, int] | None = None
        self._used = 0
        self._asked_at = 0.0
        self._asked_now: int | None = None
        self._session = 0
        self._session_since = 0.0
        """The session that swept last, and the time of its first sweep."""
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
            # The server may have computed the search path of this session before another process
            # made the schema. It computes the path anew after SET: else the tables would be looked
            # for, and made, in the next schema of the path.
            connection.execute(SEARCH_PATH.format(schema=schema))
            has_schema, has_tables = connection.execute(
                "SELECT to_regnamespace(%s) IS NOT NULL, to_regclass('meta') IS NOT NULL", (schema,)
            ).fetchone()
            if not has_schema:
                connection.execute(f"CREATE SCHEMA {schema}")
            if not has_tables:
                tables.make_tables(connection, self._now(connection))
                return
            (version,) = connection.execute("SELECT version FROM meta").fetchone()
            if version < tables.VERSION:
                # No transaction of a program of the older version may run meanwhile.
                lock = tables.store_lock(schema)
                connection.execute(f"SELECT pg_advisory_xact_lock({lock})")
                tables.migrate(connection, version)
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

    def _read_clock(self, connection: Any) -> tuple[float, int]:
        if self._clock is not None:
            return super()._read_clock(connection)
        before, now = self._monotonic(), self._asked_now
        if now is not None:
            self._asked_now = None
            return self._asked_at, now
        (now,) = connection.execute(_NOW, prepare=False).fetchone()
        return before, int(now)

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
            self._link.hold(connection, number)
            return StoreInstance(number, identity, epoch, label, range(first, first + BLOCK))

        me = self._link.write(work)
        self._link.instances.add(me.number)
        return me

    def end(self, me: StoreInstance) -> None:
        """End an instance; see :class:`~wmp.store.contract.Store`."""
        super().end(me)
        self._send_notifications(early=True)

    def _leave(self, number: int) -> None:
        self._link.instances.discard(number)

    # -- writing --------------------------------------------------------------------------------

    def _write(
        self,
        me: StoreInstance,
        batch: WriteBatch | None,
        work: Callable[[Any], tuple[JobWriter, _T]],
    ) -> tuple[JobWriter, _T]:
        # A lone job costs three round trips: this one, its own statement, and the commit.
        locks = "" if batch is None else locking(batch)

        def ask() -> str:
            self._asked_at = self._monotonic()
            return f"{_INSTANCE.format(me.number, me.epoch)}{locks}{_USED}{_NOW}"

        def run(connection: Any) -> tuple[JobWriter, _T]:
            self._row, *_, used, now = self._link.answers
            assert used is not None
            assert now is not None
            self._used, self._asked_now = used[0], now[0]
            writer, answer = work(connection)
            self._link.last = writer.last
            return writer, answer

        return self._link.write(run, ask=ask, alone=batch is None)

    def _instance(self, connection: Any, me: StoreInstance) -> tuple[Any, int, int, int] | None:
        return self._row

    def _renew_until(self, writer: JobWriter, until: int, batch: int) -> None:
        writer.renewal = until, batch

    def _writer(self, connection: Any, me: StoreInstance, now: int, begun: int) -> JobWriter:
        return JobWriter(connection, self._rows, me.number, now, self._grace, begun)

    def _end_instances(self, writer: JobWriter, *, by_validity: bool) -> None:
        if self._session != self._link.sessions:
            self._session, self._session_since = self._link.sessions, self._monotonic()
        if by_validity:
            # Sessions that the server ended are opened again: the others get time for that.
            trusted = self._monotonic() - self._session_since >= _RECONNECTED
            silent = writer.now + round((VALIDITY - _SILENT) * 1000) if trusted else None
            locks = tables.instance_locks(self._link.url.schema)
            writer.end_instances(silent, locks, self._link.instances)

    def _used_bytes(self, writer: JobWriter, wanted: int) -> int:
        return self._used + writer.growth

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
            ready = [fd for fd, _ in poll.poll(max(0.0, pause) * 1000)]
            if descriptor in ready or (not ready and time.monotonic() >= until):
                return False

    def _is_concerned(self, payloads: Sequence[str]) -> bool:
        """Return whether a notification is about kinds, or about an instance of this object."""
        mine = {f"i{number}" for number in self._link.instances}
        return any(payload.startswith("k") or payload in mine for payload in payloads)

    def _committed(self, writer: JobWriter) -> None:
        """Notify others of committed changes: one notification a kind and 10 ms.

        The caller gets the answer first. The notifications of this write leave at the next
        ``wait``, after the next write, or at the end of the instance.
        """
        self._send_notifications()
        payloads = [f"k{kind}" for kind in writer.queued]
        payloads += [f"i{number}" for number in writer.touched]
        now = time.monotonic()
        for payload in payloads:
            self._waiting.setdefault(
                payload, max(now, self._notified.get(payload, 0.0) + _TOGETHER)
            )

    def _send_notifications(self, *, early: bool = False) -> None:
        """Send the notifications whose time has come; ``early``: all of them."""
        now = time.monotonic()
        due = [payload for payload, at in self._waiting.items() if early or at <= now]
        if not due:
            return
        for payload in due:
            del self._waiting[payload]
            self._notified[payload] = now
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
        self._link.instances.clear()
        super().close()
