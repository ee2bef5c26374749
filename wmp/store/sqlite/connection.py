"""The connection to the file of a store: opening, transactions, and errors in words."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from wmp.errors import StoreError, StoreFull, StoreUnavailable, StoreUnusable
from wmp.store.sqlite import copies, schema
from wmp.store.sqlite.file_lock import TransactionLock
from wmp.store.sqlite.sqlite_terms import SqliteTerms

MIN_SQLITE: Final = (3, 34, 0)
"""The oldest SQLite with which the store is tested."""

_BUSY: Final = 5.0
"""Seconds to wait for another process, of this library or a foreign one."""

_LOG_PAGES: Final = 4096
"""Pages of the log after which a commit copies them into the database."""

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
    """

    def __init__(self, path: Path, *, full: bool, read_only: bool = False) -> None:
        self.path = path
        self.terms = SqliteTerms()
        self.expected: tuple[bytes, int] | None = None
        """Identity and generation of the store that was opened first."""
        self.size = 0
        """Bytes of the file and its log before the last transaction: at least those in use."""
        self._full = full
        self._read_only = read_only
        self._log = f"{path}-wal"
        self._lock = TransactionLock(path, _BUSY)
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
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
        try:
            connection.execute("BEGIN")
            try:
                self._check_same(connection)
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self.reset()
            raise in_words(error, self.name) from error

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
        try:
            with self.writing() as connection:
                return work(connection)
        except BaseException:
            self.terms.clear()  # its numbers may be those of a transaction that was rolled back
            raise

    def commit(self, connection: sqlite3.Connection) -> None:
        """Commit; a test replaces this method by one that fails."""
        connection.execute("COMMIT")

    def changes(self) -> int:
        """Return a number that changes when another connection has written.

        Raises:
            StoreError: The store cannot be read.
        """
        try:
            (version,) = self._open().execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
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

        Raises:
            StoreError: The file is no store, or cannot be opened.
        """
        self._lock.acquire()
        try:
            if not self.path.exists() and os.path.exists(f"{self.path}-wal"):
                raise StoreUnusable(
                    f"the store {self.name} is gone, and its log {self.path.name}-wal is there; "
                    "put the file back, or remove the log to begin an empty store"
                )
            try:
                # Only a new file: to close any descriptor of an open database would release the
                # locks that SQLite has on it in this process.
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(self.path, flags, 0o666))
            except FileExistsError:
                pass
            except OSError as error:
                raise StoreUnavailable(
                    f"the store {self.name} cannot be opened: {error.strerror}; check the folder "
                    "and its permissions"
                ) from error
            connection = self._connect()
            try:
                self._prepare(connection, identity, now)
            except sqlite3.Error as error:
                raise in_words(error, self.name) from error
            finally:
                connection.close()
        finally:
            self._lock.release()

    def _prepare(self, connection: sqlite3.Connection, identity: bytes, now: int) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if pages and application != schema.APPLICATION:
            raise StoreUnusable(
                f"{self.name} is a database of another program, not a store of wmp; give the store "
                "another path"
            )
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreUnusable(
                f"SQLite cannot use a write-ahead log for {self.name} (mode {mode}); put the store "
                "on a disk of this host"
            )
        connection.execute("BEGIN IMMEDIATE")
        inode = os.stat(self.path).st_ino
        (pages,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not pages:
            schema.create(connection, identity, now, inode)
        else:
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
        connection = self._connect()
        try:
            identity, generation, inode, copied = connection.execute(
                "SELECT identity, generation, inode, copied FROM meta"
            ).fetchone()
            self._inode = os.stat(self.path).st_ino
        except (sqlite3.Error, OSError) as error:
            connection.close()
            raise in_words(error, self.name) from error
        replaced = not self._read_only and (copied or inode != self._inode)
        if self.expected is not None and (replaced or (identity, generation) != self.expected):
            connection.close()
            raise self._other_store()
        self._connection = connection
        return connection

    def _connect(self) -> sqlite3.Connection:
        # Never "rwc": a store that is gone must not become a new empty one.
        mode = "ro" if self._read_only else "rw"
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=_BUSY,
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
        except sqlite3.Error as error:
            raise in_words(error, self.name) from error
        return connection

    def _check_same(self, connection: sqlite3.Connection) -> None:
        """Check that no other program has migrated or restored the store meanwhile."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        schema.check_version(version, self.name)
        found = connection.execute("SELECT identity, generation FROM meta").fetchone()
        if self.expected is not None and found != self.expected:
            raise self._other_store()

    def _other_store(self) -> StoreUnusable:
        return StoreUnusable(
            f"{self.name} is another store, or a restored copy, since this process opened it; "
            "start the process again"
        )

    def _check_in_place(self) -> None:
        """Check that the file was not removed or replaced: SQLite goes on with a removed file."""
        try:
            file, log = os.stat(self.path), os.stat(self._log)
            found = file.st_ino
            self.size = file.st_size + log.st_size
        except OSError:
            found = 0
        if found != self._inode:
            self.reset()
            raise StoreUnavailable(
                f"the file of the store {self.name} is gone, or was replaced while it was in use; "
                "put the file and its -wal file back"
            )


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


def in_words(error: Exception, name: str) -> StoreError:
    """Return the error of the library for an error of SQLite or of the system."""
    if isinstance(error, StoreError):
        return error
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(
            f"there is no space for the store {name}: the disk is full, or the file has its "
            "maximum size; make space, purge ended jobs, or keep results for a shorter time"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(
            f"another program has locked the store {name} for {_BUSY:g} s; end its transaction"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreUnavailable(
            f"the store {name} is read-only; make the file and its folder writable"
        )
    if code in (sqlite3.SQLITE_CANTOPEN,) or isinstance(error, FileNotFoundError):
        return StoreUnavailable(
            f"the store {name} cannot be opened ({error}); put the file back, or check the "
            "permissions of its folder"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreUnusable(f"the store {name} is corrupted ({error}); restore a backup")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailable(
            f"the store {name} cannot be read or written ({error}); check the disk, its quotas and "
            "limits of file sizes; the outcome of the last write is not known, and the same write "
            "can be made again"
        )
    if "no such table" in str(error) or "no such column" in str(error):
        return StoreUnusable(f"{name} is not a store of wmp ({error}); restore a backup")
    return StoreUnavailable(
        f"the store {name} failed: {error}; the outcome of the last write is not known, and the "
        "same write can be made again"
    )


def _forked() -> None:
    for one in list(_of_this_process):
        one.forget()


_of_this_process: Final[weakref.WeakSet[StoreFile]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
