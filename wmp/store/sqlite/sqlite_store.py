"""The store in one file of SQLite, for the processes of one host."""

from __future__ import annotations

import builtins
import functools
import os
import secrets
import select
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, TypeVar

from wmp.errors import ConfigError, InstanceEnded, StoreUnavailable
from wmp.store.contract import JobFilter, QueuedKind, StoreInstance, SubmitterNews
from wmp.store.sqlite import copies
from wmp.store.sqlite.batch_writer import BatchWriter
from wmp.store.sqlite.connection import StoreFile, check_sqlite
from wmp.store.sqlite.file_lock import FileLock, is_locked
from wmp.store.sqlite.file_system import check_file_system
from wmp.store.sqlite.row_reader import queued_kinds, read_jobs, states_of
from wmp.store.sqlite.sqlite_reader import SqliteReader
from wmp.store.sqlite.sqlite_transaction import SqliteTransaction, make_records
from wmp.store.store_settings import (
    BLOCK,
    BY_CALLERS,
    GRACE,
    MAX_BYTES,
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
"""Seconds by which the wall clock and the monotonic clock may part."""

_POLL: Final = 0.01
_POLL_ALONE: Final = 0.25
"""Seconds between two looks for writes of other processes, with other instances and without."""

_T = TypeVar("_T")


class SqliteStore(SqliteReader):
    """Stored jobs in one file. See :class:`~wmp.store.contract.Store` for the methods.

    Args:
        path: The file, which is made if it is missing. Its folder must exist.
        durability: ``"power"``: an acknowledged batch survives a loss of power. ``"process"``: it
            survives the end of every process, and costs no wait for the disk.
        max_bytes: Bytes in use above which no new jobs are taken.
        grace: Seconds after which the reserved jobs of an ended instance are queued again.
        clock: Seconds since 1970; for tests.
        monotonic: Seconds of a clock that never jumps; for tests.

    Raises:
        ConfigError: A setting is wrong, or the file system is not fit for a store.
        StoreUnavailable: The file cannot be opened.
        StoreUnusable: The file is no store, or of a version that is not known.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["power", "process"] = "power",
        max_bytes: int = MAX_BYTES,
        grace: float = GRACE,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if durability not in ("power", "process"):
            raise ConfigError(f"durability is {durability!r}; expected 'power' or 'process'")
        check_sqlite()
        place = Path(path).absolute()
        if not place.parent.is_dir():
            raise ConfigError(f"there is no folder {place.parent} for the store; make it first")
        check_file_system(place)
        super().__init__(StoreFile(place, full=durability == "power"))
        self._clock, self._monotonic = clock, monotonic
        self._max_bytes = max_bytes
        self._grace = round(grace * 1000)
        self._begun: dict[int, int] = {}
        """When the instances of this object began, in milliseconds."""
        self._locks: dict[int, FileLock] = {}
        self._others = 0
        self._has_records = False
        self._seen = 0
        self._offset = clock() - monotonic()
        self._trusted_from = 0.0
        try:
            self._file.create(secrets.token_bytes(16), self._now())
            self._identify()
        except BaseException:
            self._file.close()
            raise

    def _now(self) -> int:
        """Return the time in milliseconds, and notice a jump of the clock."""
        wall, monotonic = self._clock(), self._monotonic()
        offset = wall - monotonic
        if abs(offset - self._offset) > _JUMP:
            self._offset = offset
            self._trusted_from = monotonic + VALIDITY
        return int(wall * 1000)

    # -- instances ------------------------------------------------------------------------------

    def begin(self, identity: bytes, label: str) -> StoreInstance:
        """Begin an instance; see :class:`~wmp.store.contract.Store`."""
        lock = None
        try:
            with self._file.writing() as connection:
                now = self._now()
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
                lock = self._lock_of(number)
                if not lock.try_acquire():
                    raise StoreUnavailable(
                        f"another process holds the lock file {lock.path} of a new instance; "
                        "remove the file if no process uses the store"
                    )
                self._count_others(connection)
        except BaseException:
            if lock is not None:
                lock.close()
            raise
        self._locks[number] = lock
        self._begun[number] = now
        return StoreInstance(number, identity, epoch, label, range(first, first + BLOCK))

    def end(self, me: StoreInstance) -> None:
        """End an instance; see :class:`~wmp.store.contract.Store`."""
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE instances SET ended = ? WHERE instance = ? AND ended IS NULL",
                (self._now(), me.number),
            )
        self._unlock(me.number)

    def _lock_of(self, number: int) -> FileLock:
        folder = self.path.with_name(self.path.name + "-instances")
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(
                f"the folder {folder} for locks cannot be made: {error.strerror}; check the "
                "permissions of its parent"
            ) from error
        return FileLock(folder / str(number))

    def _unlock(self, number: int) -> None:
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

    def apply(self, me: StoreInstance, number: int, batch: WriteBatch) -> BatchAnswer:
        """Apply a batch; see :class:`~wmp.store.contract.Store`."""
        for changes in batch.changes:
            if changes.input not in BY_CALLERS:
                raise ValueError(f"{changes.input.name} is no change that a batch can have")
        try:
            with self._file.writing() as connection:
                now = self._now()
                last = self._check_living(connection, me)
                if number not in (last, last + 1):
                    raise ValueError(
                        f"the batch has number {number}; expected {last} again, or {last + 1}"
                    )
                writer = self._renew(connection, me, number, now)
                if number == last:
                    return self._repeated(writer, batch, now)
                return self._applied(writer, batch, now)
        except BaseException:
            self._terms.clear()  # its numbers may be those of a transaction that was rolled back
            raise

    def transact(self, me: StoreInstance, work: Callable[[StoreTransaction], _T]) -> _T:
        """Run a function in a transaction; see :mod:`wmp.store.transaction`."""
        try:
            with self._file.writing() as connection:
                now = self._now()
                last = self._check_living(connection, me)
                if not self._has_records:
                    make_records(connection)
                writer = self._renew(connection, me, last, now, rarely=True)
                answer = work(
                    SqliteTransaction(
                        writer,
                        self._terms,
                        me.number,
                        now,
                        functools.partial(self._sweep, writer),
                        lambda new: self._add(writer, [new])[0],
                    )
                )
            self._has_records = True
            return answer
        except BaseException:
            self._terms.clear()
            raise

    def _check_living(self, connection: sqlite3.Connection, me: StoreInstance) -> int:
        """Check that an instance has not ended; return the number of its last batch.

        Raises:
            InstanceEnded: The instance has ended.
        """
        found = connection.execute(
            "SELECT ended, batch FROM instances WHERE instance = ? AND epoch = ?",
            (me.number, me.epoch),
        ).fetchone()
        if found is None or found[0] is not None:
            self._unlock(me.number)
            raise InstanceEnded(
                f"instance {me.number} of the store {self.path} has ended, because it had "
                f"not written for {VALIDITY:g} s or its lock was free; begin a new one"
            )
        return int(found[1])

    def _renew(
        self,
        connection: sqlite3.Connection,
        me: StoreInstance,
        number: int,
        now: int,
        *,
        rarely: bool = False,
    ) -> BatchWriter:
        """Renew the validity of an instance; return what makes its changes.

        ``rarely``: at most once a second. A transaction that changes nothing then writes nothing,
        and wakes no other process.
        """
        valid_until = now + round(VALIDITY * 1000)
        connection.execute(
            "UPDATE instances SET valid_until = ?, batch = ? WHERE instance = ?"
            " AND (valid_until NOT BETWEEN ? AND ? OR batch != ?)",
            (
                valid_until,
                number,
                me.number,
                valid_until - RARELY if rarely else valid_until,
                valid_until,
                number,
            ),
        )
        begun = self._begun.get(me.number, 0)
        return BatchWriter(connection, self._terms, me.number, now, self._grace, begun)

    def _applied(self, writer: BatchWriter, batch: WriteBatch, now: int) -> BatchAnswer:
        adds = self._add(writer, batch.adds)
        changes = [writer.change(one) for one in batch.changes]
        writer.receive(batch.receipts)
        swept = self._sweep(writer, batch.sweep) if batch.sweep else []
        reserved = [writer.reserve(one) for one in batch.reservations]
        block = None
        if batch.block:
            (first,) = writer.connection.execute("SELECT next_id FROM meta").fetchone()
            writer.connection.execute("UPDATE meta SET next_id = ?", (first + BLOCK,))
            block = range(first, first + BLOCK)
        return BatchAnswer(now, False, adds, changes, swept, reserved, block)

    def _sweep(self, writer: BatchWriter, limit: int) -> builtins.list[SweptJob]:
        by_validity = self._monotonic() >= self._trusted_from
        swept = writer.sweep(limit, self._is_alive, by_validity=by_validity)
        self._count_others(writer.connection)
        return swept

    def _repeated(self, writer: BatchWriter, batch: WriteBatch, now: int) -> BatchAnswer:
        """Return the answer to a batch that was applied before, from the jobs as they are now."""
        adds = [writer.find(new) for new in batch.adds]
        changes = []
        for one in batch.changes:
            found = states_of(writer.connection, one.ids)
            changes.append(
                ChangeAnswer([state for state, _ in found], [attempt for _, attempt in found])
            )
        return BatchAnswer(now, True, adds, changes, (), (), None)

    def _add(self, writer: BatchWriter, adds: Sequence[NewJobs]) -> builtins.list[AddAnswer]:
        if not adds:
            return []
        sizes = [sum(map(len, new.payloads)) + ROW * len(new.ids) for new in adds]
        free = self._max_bytes - self._file.size
        if free < sum(sizes):  # or there are unused pages in the file
            free = self._max_bytes - self._bytes_in_use(writer)
        answers = []
        for new, size in zip(adds, sizes, strict=True):
            free -= size
            answers.append(writer.add(new) if free >= 0 else _refused(new))
        return answers

    def _bytes_in_use(self, writer: BatchWriter) -> int:
        found = (
            writer.connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        pages, unused, size = map(int, found)
        return (pages - unused) * size

    # -- reading --------------------------------------------------------------------------------

    def news(self, me: StoreInstance, limit: int = 1000) -> SubmitterNews:
        """Return what others did; see :class:`~wmp.store.contract.Store`."""
        with self._file.reading() as connection:
            ended = connection.execute(
                "SELECT id FROM jobs WHERE state >= 3 AND submitter IS NOT NULL AND submitter = ?"
                " ORDER BY id LIMIT ?",
                (me.number, limit),
            ).fetchall()
            cancelling = connection.execute(
                "SELECT id FROM jobs WHERE state IN (1, 2) AND state = 2 AND instance = ?"
                " ORDER BY id LIMIT ?",
                (me.number, limit),
            ).fetchall()
            ids = [id for (id,) in ended]
            jobs = read_jobs(
                connection,
                self._terms,
                JobFilter(ids=ids),
                after=-1,
                limit=len(ids),
                payloads=True,
            )
        return SubmitterNews(jobs, [id for (id,) in cancelling])

    def kinds(self, *, counted: bool = False) -> builtins.list[QueuedKind]:
        """Return the kinds of queued jobs; see :class:`~wmp.store.contract.Store`."""
        now = self._now()
        with self._file.reading() as connection:
            return queued_kinds(connection, self._terms, now, counted=counted)

    def wait(self, descriptor: int, timeout: float) -> bool:
        """Wait for a write of another process; see :class:`~wmp.store.contract.Store`."""
        until = time.monotonic() + timeout
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(descriptor, select.POLLIN)
        while True:
            version = self._file.changes()
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
        with self._file.writing() as connection:
            copies.raise_generation(connection, self._now(), os.stat(self.path).st_ino)
        self._file.expected = None
        self._identify()

    def close(self) -> None:
        """End the instances of this object and release all resources. Idempotent."""
        for number in tuple(self._locks):
            self._unlock(number)
        super().close()


def _refused(new: NewJobs) -> AddAnswer:
    """Return the answer for jobs that a full store does not take."""
    return AddAnswer([0] * len(new.ids), [StoredJobState.ABSENT] * len(new.ids))
