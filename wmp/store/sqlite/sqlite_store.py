"""The store in one file of SQLite, for the processes of one host."""

from __future__ import annotations

import os
import secrets
import select
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from wmp.duration import Duration
from wmp.errors import ConfigError, StoreFull, StoreUnavailable
from wmp.store.contract import StoreInstance
from wmp.store.sql.sql_store import SqlStore, refused
from wmp.store.sqlite import copies
from wmp.store.sqlite.batch_writer import BatchWriter
from wmp.store.sqlite.connection import StoreFile, check_sqlite
from wmp.store.sqlite.file_access import FileAccess, group_number
from wmp.store.sqlite.file_lock import FileLock, is_locked
from wmp.store.sqlite.file_system import check_file_system
from wmp.store.sqlite.sqlite_errors import in_words
from wmp.store.sqlite.sqlite_reader import SqliteReader
from wmp.store.sqlite.sqlite_transaction import SqliteTransaction, make_records
from wmp.store.store_settings import BLOCK, GRACE, MAX_BYTES, RESERVE, VALIDITY
from wmp.store.transaction import StoreTransaction
from wmp.store.write_batch import AddAnswer, NewJobs

_POLL: Final = 0.01
_POLL_ALONE: Final = 0.25
"""Seconds between two looks for writes of other processes, with other instances and without."""

_T = TypeVar("_T")


class SqliteStore(SqliteReader, SqlStore[StoreFile, BatchWriter]):
    """Stored jobs in one file. See :class:`~wmp.store.contract.Store` for the methods.

    Args:
        path: The file, which is made if it is missing. Its folder must exist.
        durability: ``"power"``: an acknowledged batch survives a loss of power. ``"process"``: it
            survives the end of every process, and costs no wait for the disk.
        max_bytes: Bytes in use above which no new jobs are taken.
        grace: Seconds after which the reserved jobs of an ended instance are queued again.
        group: Name or number of the group that may use a new store, too; None for nobody but the
            user.
        reserve: Bytes on the disk that the store keeps for the ends of reserved jobs and for
            purges. When they cannot be kept, no new jobs are taken. 0 for no reserve.
        clock: Seconds since 1970; for tests.
        monotonic: Seconds of a clock that never jumps; for tests.

    Raises:
        ConfigError: A setting is wrong, or the file system is not fit for a store.
        StoreUnavailable: The file cannot be opened.
        StoreUnusable: The file is not a store, or of a version that is not known.
    """

    TRANSACTION = SqliteTransaction
    END = "UPDATE instances SET ended = ? WHERE instance = ? AND ended IS NULL"
    ENDS = (
        "SELECT id FROM jobs WHERE state >= 3 AND submitter IS NOT NULL AND submitter = ?"
        " ORDER BY id LIMIT ?"
    )
    CANCELS = (
        "SELECT id FROM jobs WHERE state IN (1, 2) AND state = 2 AND instance = ?"
        " ORDER BY id LIMIT ?"
    )
    AHEAD = "SELECT 1 FROM instances WHERE valid_until > ? OR ended > ? LIMIT 1"
    CAUSE_OF_END = f"it had not written for {VALIDITY:g} s or its lock was free"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["power", "process"] = "power",
        max_bytes: int = MAX_BYTES,
        grace: Duration = GRACE,
        group: str | int | None = None,
        reserve: int = RESERVE,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if durability not in ("power", "process"):
            raise ConfigError(f"durability is {durability!r}; expected 'power' or 'process'")
        check_sqlite()
        real_path = Path(os.path.realpath(path))  # SQLite names the log after the real file
        if not real_path.parent.is_dir():
            raise ConfigError(f"there is no folder {real_path.parent} for the store; make it first")
        check_file_system(real_path)
        super().__init__(
            StoreFile(
                real_path,
                full=durability == "power",
                group=group_number(group),
                reserve=reserve,
            ),
            max_bytes=max_bytes,
            grace=grace,
            clock=clock,
            monotonic=monotonic,
        )
        self._begun: dict[int, int] = {}
        """When the instances of this object began, in milliseconds."""
        self._locks: dict[int, FileLock] = {}
        self._others = 0
        self._has_records = False
        self._seen = 0
        try:
            self._link.create(secrets.token_bytes(16), int(clock() * 1000))
            self._identify()
        except BaseException:
            self._link.close()
            raise

    # -- instances ------------------------------------------------------------------------------

    def begin(self, identity: bytes, label: str) -> StoreInstance:
        """Begin an instance; see :class:`~wmp.store.contract.Store`."""
        locks: list[FileLock] = []

        def work(connection: sqlite3.Connection) -> StoreInstance:
            now = self._now(connection)
            number, first, last_epoch = connection.execute(
                "SELECT next_instance, next_id, last_epoch FROM meta"
            ).fetchone()
            epoch = max(now, last_epoch + 1)
            connection.execute(
                "UPDATE meta SET next_instance = ?, next_id = ?, last_epoch = ?",
                (number + 1, first + BLOCK, epoch),
            )
            connection.execute(
                "INSERT INTO instances(instance, identity, epoch, label, valid_until, batch)"
                " VALUES(?, ?, ?, ?, ?, 0)",
                (number, identity, epoch, label, now + round(VALIDITY * 1000)),
            )
            while locks:  # of a try that a full disk ended
                locks.pop().close()
            locks.append(self._lock_of(number))
            if not self._is_taken(locks[0]):
                raise StoreUnavailable(
                    f"another process holds the lock file {locks[0].path} of a new instance; "
                    "remove the file if no process uses the store"
                )
            self._begun[number] = now
            self._count_others(connection)
            return StoreInstance(number, identity, epoch, label, range(first, first + BLOCK))

        try:
            me = self._link.write(work)
        except BaseException:
            for lock in locks:
                lock.close()
            raise
        self._locks[me.number] = locks[0]
        return me

    def _lock_of(self, number: int) -> FileLock:
        folder = self.path.with_name(self.path.name + "-instances")
        try:
            FileAccess.of(self.path).make_folder(folder)
        except OSError as error:
            raise in_words(error, self.name) from error
        return FileLock(folder / str(number), self.path)

    def _is_taken(self, lock: FileLock) -> bool:
        try:
            return lock.try_acquire()
        except OSError as error:
            raise in_words(error, self.name) from error

    def _leave(self, number: int) -> None:
        if (lock := self._locks.pop(number, None)) is not None:
            if lock.held:  # in a forked child the lock is the parent's
                lock.path.unlink(missing_ok=True)
            lock.close()

    def _is_alive(self, number: int) -> bool:
        """Return whether the process of an instance lives; remove the lock file of a dead one."""
        path = self._lock_of(number).path
        if is_locked(path):
            return True
        path.unlink(missing_ok=True)
        return False

    # -- writing --------------------------------------------------------------------------------

    def transact(self, me: StoreInstance, work: Callable[[StoreTransaction], _T]) -> _T:
        """Run a function in a transaction; see :mod:`wmp.store.transaction`."""
        answer = super().transact(me, work)
        self._has_records = True
        return answer

    def _make_records(self, connection: sqlite3.Connection) -> None:
        if not self._has_records:
            make_records(connection)

    def _instance(
        self, connection: sqlite3.Connection, me: StoreInstance
    ) -> tuple[Any, int, int, int] | None:
        row: tuple[Any, int, int] | None = connection.execute(
            "SELECT ended, batch, valid_until FROM instances WHERE instance = ? AND epoch = ?",
            (me.number, me.epoch),
        ).fetchone()
        return row and (row[0], row[1], self._begun.get(me.number, 0), row[2])

    def _writer(
        self, connection: sqlite3.Connection, me: StoreInstance, now: int, begun: int
    ) -> BatchWriter:
        return BatchWriter(connection, self._rows, me.number, now, self._grace, begun)

    def _begin_not_after(self, now: int) -> None:
        self._begun = {number: min(begun, now) for number, begun in self._begun.items()}

    def _renew_until(self, writer: BatchWriter, until: int, batch: int) -> None:
        writer.connection.execute(
            "UPDATE instances SET valid_until = ?, batch = ? WHERE instance = ?",
            (until, batch, writer.me),
        )

    def _end_instances(self, writer: BatchWriter, *, by_validity: bool) -> None:
        writer.end_instances(self._is_alive, by_validity=by_validity)
        self._count_others(writer.connection)

    def _add(self, writer: BatchWriter, adds: Sequence[NewJobs]) -> list[AddAnswer]:
        """Add jobs, unless the store or the disk is full (STORE-8.4)."""
        link = self._link
        if not adds:
            return []
        link.adds = True
        (reserved,) = writer.connection.execute(
            "SELECT count(*) FROM jobs WHERE state IN (1, 2)"
        ).fetchone()
        try:
            kept = link.reserve.keep(link.file.log_size, reserved)
        except OSError as error:
            raise in_words(error, self.name) from error
        if kept:
            return super()._add(writer, adds)
        if not link.made_space:
            raise StoreFull(f"the disk of the store {self.name} is full; make space")
        return [refused(new) for new in adds]

    def _used_bytes(self, writer: BatchWriter, wanted: int) -> int:
        if self._link.file.size + wanted <= self._max_bytes:
            return self._link.file.size
        pages, unused, size = (  # there may be unused pages in the file
            int(writer.connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - unused) * size

    # -- reading --------------------------------------------------------------------------------

    def wait(self, descriptor: int, timeout: float) -> bool:
        """Wait for a write of another process; see :class:`~wmp.store.contract.Store`."""
        until = time.monotonic() + timeout
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(descriptor, select.POLLIN)
        while True:
            version = self._link.changes()
            if version != self._seen:
                self._seen = version
                return True
            left = until - time.monotonic()
            pause = min(left, _POLL if self._others else _POLL_ALONE)
            if left <= 0 or poll.poll(pause * 1000):
                return False

    def _count_others(self, connection: sqlite3.Connection) -> None:
        """Remember whether other instances live: then writes of others are looked for often."""
        (living,) = connection.execute(
            "SELECT count(*) FROM instances WHERE ended IS NULL"
        ).fetchone()
        self._others = living - len(self._locks)

    # -- copies and life ------------------------------------------------------------------------

    def restored(self) -> None:
        """Begin a new generation, because the content of the file was replaced by an old copy.

        A copy that :meth:`backup` wrote, and every copy under a new inode, is noticed without this.
        """
        with self._link.writing() as connection:
            copies.raise_generation(connection, self._now(connection), os.stat(self.path).st_ino)
        self._link.expected = None
        self._identify()

    def close(self) -> None:
        """End the instances of this object and release all resources. Idempotent."""
        for number in tuple(self._locks):
            self._leave(number)
        super().close()
