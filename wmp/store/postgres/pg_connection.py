"""The connection of one process to the store, which is opened anew after every error."""

from __future__ import annotations

import ctypes
import os
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from wmp.errors import StoreUnavailable, StoreUnusable
from wmp.store.postgres.driver import StoreUrl, in_words, load_driver, unreachable
from wmp.store.postgres.pg_terms import PostgresTerms
from wmp.store.postgres.tables import (
    VERSION,
    check_version,
    creation_lock,
    instance_locks,
    store_lock,
)
from wmp.store.sql.sql_reader import too_old

_CONNECT: Final = 5
"""Seconds for which a connection is tried."""

_TURNS: Final = 8
"""How often a transaction is tried when others are in its way."""

_MIN: Final = 130_000
"""The oldest server with which the store is tested: PostgreSQL 13."""

# Rows are always found by an index: statistics of a queue are out of date at once. A process that
# is stopped inside a transaction must not stop the others for long.
SEARCH_PATH: Final = "SET search_path = {schema}, pg_catalog"
_SETTINGS: Final = f"""
{SEARCH_PATH};
SET lock_timeout = '5s';
SET idle_in_transaction_session_timeout = '5s';
SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SET enable_bitmapscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan;
SET client_min_messages = warning;
"""
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)

_META: Final = "SELECT version, identity, generation FROM meta; "

_Answer = TypeVar("_Answer")


def _rows(cursor: Any) -> list[tuple[Any, ...] | None]:
    """Return the first row of each of several statements; None for one without a row."""
    rows = []
    while True:
        rows.append(None if cursor.description is None else cursor.fetchone())
        if not cursor.nextset():
            return rows


class PostgresConnection:
    """A connection to the store. After an error it is closed, and the next call opens another one.

    Args:
        url: Where the store is.
        read_only: Whether the store is only read.
    """

    def __init__(self, url: StoreUrl, *, read_only: bool = False) -> None:
        self._psycopg = load_driver()
        self.url = url
        self.name = url.name
        self.terms = PostgresTerms()
        self.expected: tuple[bytes, int] | None = None
        """Identity and generation of the store that was opened first."""
        self.channel = f"wmp_{zlib.crc32(url.schema.encode()):08x}"
        """Where instances of the store notify each other."""
        self._version = VERSION
        """The version of the tables that was read last."""
        self._read_only = read_only
        self._connection: Any = None
        self.answers: list[tuple[Any, ...] | None] = []
        """The first rows of the further statements with which the transaction began."""
        self.last = ""
        """Statements that are sent with COMMIT."""
        self.instances: set[int] = set()
        """The living instances of this process."""
        self.sessions = 0
        """Number of the sessions that were opened."""
        self._notices: list[str] = []
        """Notifications that arrived during other statements."""
        self._closed = False
        self._forked = False
        _of_this_process.add(self)

    # -- use ----------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Read a consistent state.

        Raises:
            StoreError: The store cannot be read.
        """
        connection = self.open()
        try:
            begun = connection.execute(
                f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_META}", prepare=False
            )
            try:
                self._check_same(_rows(begun)[-1])
                yield connection
            finally:
                if not connection.broken:
                    connection.execute("ROLLBACK")
        except self._psycopg.Error as error:
            self.reset()
            raise in_words(error, self.name) from error

    def write(
        self,
        work: Callable[[Any], _Answer],
        *,
        ask: Callable[[], str] = str,
        alone: bool = False,
        new: bool = False,
    ) -> _Answer:
        """Run a function in one transaction; an exception rolls it back.

        BEGIN, the checks of the store and ``ask`` are one round trip.

        Args:
            work: Gets the connection. It may run again when other transactions were in its way.
            ask: Returns further statements, each with a semicolon at its end. ``work`` finds their
                first rows in ``answers``.
            alone: Whether no other transaction of the store may run meanwhile.
            new: Whether the store may still be missing.

        Raises:
            StoreError: The transaction may have been committed only if COMMIT itself failed.
        """
        errors = self._psycopg.errors
        in_the_way = (errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation)
        lock = creation_lock(self.url.schema) if new else store_lock(self.url.schema)
        shared = "" if alone or new else "_shared"
        for _ in range(_TURNS):
            connection = self.open(new=new)
            self.last = ""
            try:
                begin = f"BEGIN; SELECT pg_advisory_xact_lock{shared}({lock}); "
                begin = begin if new else begin + _META + ask()
                begun = connection.execute(begin, prepare=False)
                if not new:
                    _, _, meta, *self.answers = _rows(begun)
                    self._check_same(meta)
                answer = work(connection)
                self.commit(connection)
                return answer
            except in_the_way:
                self._roll_back(connection)
            except BaseException as error:
                self._roll_back(connection)
                if isinstance(error, self._psycopg.Error):
                    self.reset()
                    raise in_words(error, self.name) from error
                raise
        raise StoreUnavailable(
            f"other transactions were in the way of a write to the store {self.name} {_TURNS} "
            "times; make the same write again"
        )

    def check_columns(self) -> None:
        """Check that the store has all columns of jobs, after the version was read.

        Raises:
            StoreUnusable: A reader opened a store of an older version.
        """
        if self._read_only and self._version < VERSION:
            raise too_old(self.name, self._version, VERSION)

    def commit(self, connection: Any) -> None:
        """Commit; a test replaces this method by one that fails."""
        connection.execute(f"{self.last}COMMIT", prepare=False)

    def notify(self, payloads: list[str]) -> None:
        """Notify other instances, in no transaction that others wait for.

        Raises:
            StoreError: The server does not answer.
        """
        try:
            # A transaction that notifies is written to the log. It need not wait for the disk.
            self.open().execute(
                "SELECT set_config('synchronous_commit', 'off', true), (SELECT"
                " count(pg_notify(%s, payload)) FROM unnest(%s::text[]) AS payload)",
                (self.channel, payloads),
            )
        except self._psycopg.Error as error:
            self.reset()
            raise in_words(error, self.name) from error

    def notifications(self) -> list[str]:
        """Return what other instances notified since the last call.

        Raises:
            StoreError: The server closed the connection.
        """
        connection = self.open()
        low, payloads = connection.pgconn, []
        try:
            low.consume_input()
            while (notice := low.notifies()) is not None:
                if notice.be_pid != low.backend_pid:
                    payloads.append(notice.extra.decode())
        except self._psycopg.Error as error:
            self.reset()
            raise in_words(error, self.name) from error
        payloads, self._notices = [*self._notices, *payloads], []
        return payloads

    def descriptor(self) -> int:
        """Return the descriptor that is readable when there may be notifications."""
        return int(self.open().fileno())

    def _roll_back(self, connection: Any) -> None:
        self.terms.clear()  # its numbers may be those of a transaction that was rolled back
        try:
            if not connection.closed:
                connection.execute("ROLLBACK")
        except self._psycopg.Error:
            self.reset()

    # -- life ---------------------------------------------------------------------------------

    def open(self, *, new: bool = False) -> Any:
        """Return the connection; open it if there is none.

        Raises:
            StoreError: The server does not answer.
        """
        if self._forked:
            raise StoreUnusable(
                f"the store {self.name} was opened in the parent process, not in this fork; open "
                "it again in this process"
            )
        if self._closed:
            raise StoreUnusable(f"the store {self.name} is closed; open it again")
        if self._connection is not None and not self._connection.closed:
            return self._connection
        try:
            connection = self._psycopg.connect(
                self.url.conninfo,
                autocommit=True,
                prepare_threshold=2,
                connect_timeout=_CONNECT,
                client_encoding="utf8",
                fallback_application_name="wmp",
                tcp_user_timeout=10_000,
                keepalives_idle=5,
                keepalives_interval=2,
            )
        except self._psycopg.Error as error:
            raise unreachable(error, self.name) from error
        try:
            self._prepare(connection)
        except self._psycopg.Error as error:
            connection.close()
            raise in_words(error, self.name) from error
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _prepare(self, connection: Any) -> None:
        if connection.info.server_version < _MIN:
            raise StoreUnusable(
                f"the server of the store {self.name} is PostgreSQL "
                f"{connection.info.server_version // 10_000}; a store needs {_MIN // 10_000} or "
                "newer"
            )
        connection.execute(_SETTINGS.format(schema=self.url.schema))
        connection.execute(_DURABLE)
        if not self._read_only:
            self._notices = []
            own = connection.info.backend_pid
            connection.add_notify_handler(
                lambda notice: self._notices.append(notice.payload) if notice.pid != own else None
            )
            connection.execute(f"LISTEN {self.channel}")
            for number in self.instances:
                self.hold(connection, number)
            self.sessions += 1

    def hold(self, connection: Any, number: int) -> None:
        """Hold the lock of an instance until the session ends: while it is held, a process lives.

        The lock is shared, because the server may notice the end of an earlier session late.
        """
        connection.execute(
            "SELECT pg_advisory_lock_shared(%s, %s)",
            (instance_locks(self.url.schema), lock_number(number)),
        )

    def reset(self) -> None:
        """Close the connection after an error; the next call opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if not self._forked:
            self._closed = True
            self.reset()

    def forget(self) -> None:
        """In a forked child: never touch the parent's connection again, and never collect it.

        Its end would close the parent's session.
        """
        self._forked = True
        if self._connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            self._connection = None

    def _check_same(self, row: tuple[Any, ...] | None) -> None:
        """Check that the store was not migrated, restored or replaced meanwhile."""
        if row is None:
            raise StoreUnusable(f"{self.name} is not a store of wmp; restore a backup")
        version, *identity = row
        self._version = version
        # A reader needs few columns but those of jobs: see check_columns.
        if version != VERSION and not (self._read_only and version < VERSION):
            check_version(version, self.name)
        if self.expected is not None and tuple(identity) != self.expected:
            raise StoreUnusable(
                f"{self.name} is another store, or a restored copy, since this process opened it; "
                "start the process again"
            )


def lock_number(instance: int) -> int:
    """Return the second number of the lock of an instance: the number in 31 bits."""
    return instance & 0x7FFF_FFFF


def _forked() -> None:
    for connection in list(_of_this_process):
        connection.forget()


_of_this_process: Final[weakref.WeakSet[PostgresConnection]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
