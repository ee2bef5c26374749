"""The connection to the file of a store: opening, transactions, and errors in words."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from wmp.errors import StoreFull, StoreUnavailable, StoreUnusable, WMPError
from wmp.store.sql.sql_reader import too_old
from wmp.store.sqlite import copies, schema
from wmp.store.sqlite.file_access import FileAccess, warn_if_open
from wmp.store.sqlite.file_lock import TransactionLock
from wmp.store.sqlite.new_file import make_if_new
from wmp.store.sqlite.replaced_file import FileInPlace, FileMark, bare_meta
from wmp.store.sqlite.space_reserve import SpaceReserve
from wmp.store.sqlite.sqlite_errors import BUSY, DATABASE_ERRORS, in_words, unreadable
from wmp.store.sqlite.sqlite_terms import SqliteTerms

MIN_SQLITE: Final = (3, 34, 0)
"""The oldest SQLite with which the store is tested."""

_LOG_PAGES: Final = 4096
"""Pages of the log after which a commit copies them into the database."""

_SHORT: Final = 100
"""Milliseconds for which readers may keep the log of a full disk from being emptied."""

_CACHE: Final = -65_536
"""Limit of the page cache, in KiB as a negative number."""

_Answer = TypeVar("_Answer")


class StoreFile:
    """The file of a store, its connection and its lock.

    A connection is opened when it is needed. After an error it is closed, and the next call opens
    another one, because SQLite states nothing about a connection after an error of the disk.

    Args:
        path: The file.
        full: Whether a commit waits for the disk.
        read_only: Whether the file is only read.
        group: Number of the group that may use a new store; None for nobody but the user.
        reserve: Bytes on the disk that are kept for ends and purges.
    """

    def __init__(
        self,
        path: Path,
        *,
        full: bool,
        read_only: bool = False,
        group: int | None = None,
        reserve: int = 0,
    ) -> None:
        self.path = path
        self.terms = SqliteTerms()
        self.expected: tuple[bytes, int] | None = None
        """Identity and generation of the store that was opened first."""
        self.file = FileInPlace(path)
        """The file and its log, with their sizes before the last transaction: at least those in
        use.
        """
        self.reserve = SpaceReserve(path, reserve)
        self.adds = False
        """Whether the transaction has new jobs, which must not use the reserve."""
        self.made_space = False
        """Whether the log was emptied for this transaction already."""
        self._version = schema.VERSION
        """The version of the schema that was read last."""
        self._full = full
        self._read_only = read_only
        self._mark = FileMark(path)
        self._group = group
        self._lock = TransactionLock(path, BUSY, group)
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._forked = False
        _of_this_process.add(self)

    @property
    def name(self) -> str:
        """The path, for people."""
        return str(self.path)

    # -- use ----------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read a consistent state.

        Raises:
            StoreError: See the class.
        """
        connection = self._open()
        if not self._read_only:
            self._check_in_place()
        try:
            connection.execute("BEGIN")
            try:
                self._check_same(connection)
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except DATABASE_ERRORS as error:
            self.reset()
            raise in_words(error, self.name) from error
        except WMPError:
            raise
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            # SQLite finds no damage inside of a value.
            raise unreadable(error, self.name) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Make one transaction under the lock of all processes; an exception rolls it back.

        Raises:
            StoreError: The transaction may have been committed only if COMMIT itself failed.
        """
        self._check_usable()
        self._lock.acquire()
        try:
            connection = self._open()
            self._check_in_place()
            try:
                connection.execute("BEGIN IMMEDIATE")
                self._check_same(connection)
                yield connection
                self.commit(connection)
            except BaseException as error:
                self._roll_back(connection)
                if isinstance(error, sqlite3.Error):
                    self.reset()
                    raise in_words(error, self.name) from error
                raise
            self._check_in_place()
        finally:
            self._lock.release()

    def write(
        self, work: Callable[[sqlite3.Connection], _Answer], *, alone: bool = False
    ) -> _Answer:
        """Run a function in one transaction; an exception rolls it back.

        Args:
            work: Gets the connection.
            alone: Every transaction is alone in the store, whatever this is.

        Raises:
            StoreError: See :meth:`writing`.
        """
        self.made_space = False
        while True:
            self.adds = False
            try:
                with self.writing() as connection:
                    return work(connection)
            except StoreFull:
                self.terms.clear()
                if not self._make_space():
                    raise
            except BaseException:
                self.terms.clear()  # its numbers may be those of a transaction rolled back
                raise

    def _make_space(self) -> bool:
        """Empty the log, or give up a part of the reserve; return whether a new try is due."""
        self._lock.acquire()
        try:
            first, self.made_space = not self.made_space, True
            if first and self._empty_log():
                return True
            if self.adds or not self.reserve.give():  # new jobs must not use the reserve up
                return False
            self._empty_log()
            return True
        finally:
            self._lock.release()

    def _empty_log(self) -> bool:
        """Copy the log into the file; return whether the space of the log is free now."""
        with suppress(StoreUnavailable, sqlite3.Error):
            connection = self._open()
            connection.execute(f"PRAGMA busy_timeout = {_SHORT}")
            try:
                row = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                return not row[0]
            finally:
                connection.execute(f"PRAGMA busy_timeout = {round(BUSY * 1000)}")
        return False

    def commit(self, connection: sqlite3.Connection) -> None:
        """Commit; a test replaces this method by one that fails."""
        connection.execute("COMMIT")

    def check_columns(self) -> None:
        """Check that the store has all columns of jobs, after the version was read.

        Raises:
            StoreUnusable: A reader opened a store of an older version.
        """
        if self._read_only and self._version < schema.VERSION:
            raise too_old(self.name, self._version, schema.VERSION)

    def changes(self) -> int:
        """Return a number that changes when another connection has written.

        Raises:
            StoreError: The store cannot be read.
        """
        try:
            (version,) = self._open().execute("PRAGMA data_version").fetchone()
        except DATABASE_ERRORS as error:
            self.reset()
            raise in_words(error, self.name) from error
        return int(version)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.reset()

    # -- life ---------------------------------------------------------------------------------

    def create(self, identity: bytes, now: int) -> None:
        """Make the store if there is no file, and migrate an older one.

        Args:
            identity: Identity of a new store.
            now: Milliseconds since 1970.

        Raises:
            StoreError: The file is not a store, or cannot be opened.
        """
        self._lock.acquire()
        try:
            access = FileAccess.of(self.path, self._group)
            if not make_if_new(self.path, access, identity, now):
                warn_if_open(self.path, self._group)
            self._mark.check()
            while True:
                try:
                    with closing(self._connect()) as connection:
                        self._prepare(connection, now)
                    break
                except (sqlite3.Error, OSError, StoreFull) as error:
                    full = isinstance(in_words(error, self.name), StoreFull)
                    if not full or not self.reserve.give():
                        raise
        except (sqlite3.Error, OSError) as error:
            raise in_words(error, self.name) from error
        finally:
            self._lock.release()

    def _prepare(self, connection: sqlite3.Connection, now: int) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != schema.APPLICATION:
            raise StoreUnusable(
                f"{self.name} is a database of another program, not a store of wmp; give the store "
                "another path"
            )
        inode = os.stat(self.path).st_ino
        meta = bare_meta(self.path)
        if meta is not None and meta.copied:
            # The file must not state that it is a copy while it has a log: FileMark.check.
            connection.execute("PRAGMA journal_mode = DELETE")
            self._migrate(connection, now, inode)
        (identity,) = connection.execute("SELECT identity FROM meta").fetchone()
        self._mark.renew(identity, inode)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreUnusable(
                f"SQLite cannot use a write-ahead log for {self.name} (mode {mode}); put the store "
                "on a disk of this host"
            )
        self._migrate(connection, now, inode)

    def _migrate(self, connection: sqlite3.Connection, now: int, inode: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        schema.check_version(version, self.name)
        schema.migrate(connection, version, self.name)
        copies.notice(connection, now, inode)
        connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection and the lock. Idempotent."""
        if self._forked:
            return
        self._closed = True
        if self._connection is not None and self._read_only:
            self.reset()
        elif self._connection is not None:
            # The last connection copies the log into the database, which needs the lock.
            try:
                self._lock.acquire()
            except StoreUnavailable:
                pass
            self.reset()
        self._lock.close()

    def reset(self) -> None:
        """Close the connection after an error; the next call opens another one."""
        if not self._read_only and self._connection is not None:
            with suppress(StoreUnusable):
                if not self._in_place():
                    self._abandon()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass

    def forget(self) -> None:
        """In a forked child: never touch the parent's connection again.

        SQLite forbids to use the connection here, and even to close it. So it must not be collected
        either.
        """
        self._forked = True
        self._abandon()

    def _abandon(self) -> None:
        """Never touch the connection again.

        To close the last connection copies the log into the file, and removes whatever log is at
        the path: that of another store, when the file was replaced.
        """
        if self._connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            self._connection = None

    def _check_usable(self) -> None:
        if self._forked:
            raise StoreUnusable(
                f"the store {self.name} was opened in the parent process, not in this fork; open "
                "it again in this process"
            )
        if self._closed:
            raise StoreUnusable(f"the store {self.name} is closed; open it again")

    def _open(self) -> sqlite3.Connection:
        """Return the connection; open it if there is none.

        Raises:
            StoreError: The file is gone, or is another store.
        """
        self._check_usable()
        if self._connection is not None:
            return self._connection
        try:
            inode = self.file.check_reopened()
            self._mark.check()
            connection = self._connect()
        except OSError as error:
            raise in_words(error, self.name) from error
        try:
            identity, generation, known, copied = connection.execute(
                "SELECT identity, generation, inode, copied FROM meta"
            ).fetchone()
            identity = bytes(identity)
        except DATABASE_ERRORS as error:
            connection.close()
            raise in_words(error, self.name) from error
        except TypeError as error:
            connection.close()
            raise unreadable(error, self.name) from error
        replaced = not self._read_only and (copied or inode != known)
        if self.expected is not None and (replaced or (identity, generation) != self.expected):
            connection.close()
            raise self._other_store()
        self._connection = connection
        self.file.opened(inode)
        if not self._read_only:
            access = FileAccess.of(self.path)
            access.share(Path(f"{self.path}-wal"))
            access.share(Path(f"{self.path}-shm"))
        return connection

    def _connect(self) -> sqlite3.Connection:
        # Never "rwc": a store that is gone must not become a new empty one.
        mode = "ro" if self._read_only else "rw"
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=BUSY,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._full else 'NORMAL'}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
            connection.execute(f"PRAGMA cache_size = {_CACHE}")
            connection.execute("PRAGMA trusted_schema = OFF")
            # Savepoints stay out of temporary files.
            connection.execute("PRAGMA temp_store = MEMORY")
            if sys.platform == "darwin":
                # Without it, macOS leaves the bytes in the memory of the disk.
                connection.execute(f"PRAGMA fullfsync = {int(self._full)}")
        except DATABASE_ERRORS as error:
            raise in_words(error, self.name) from error
        return connection

    def _check_same(self, connection: sqlite3.Connection) -> None:
        """Check that no other program has migrated or restored the store meanwhile."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        schema.check_version(version, self.name)
        self._version = version
        identity = connection.execute("SELECT identity, generation FROM meta").fetchone()
        if self.expected is not None and identity != self.expected:
            raise self._other_store()

    def _other_store(self) -> StoreUnusable:
        return StoreUnusable(
            f"{self.name} is another store, or a restored copy, since this process opened it; "
            "start the process again"
        )

    def _check_in_place(self) -> None:
        """Check that the file was not removed or replaced: SQLite goes on with a removed file.

        Raises:
            StoreUnavailable: File or log is gone. The connection is used again when they are back.
            StoreUnusable: Another file or log is there.
        """
        if not self._in_place():
            raise StoreUnavailable(
                f"the file of the store {self.name} is gone; put the file and its -wal file back"
            )

    def _in_place(self) -> bool:
        try:
            return self.file.look()
        except StoreUnusable:
            self._abandon()
            raise


def check_sqlite() -> None:
    """Check the version of SQLite.

    Raises:
        StoreUnusable: SQLite is too old.
    """
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        minimum = ".".join(map(str, MIN_SQLITE))
        raise StoreUnusable(
            f"this Python has SQLite {sqlite3.sqlite_version}; a store needs {minimum} or newer"
        )


def _forked() -> None:
    for file in list(_of_this_process):
        file.forget()


_of_this_process: Final[weakref.WeakSet[StoreFile]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
