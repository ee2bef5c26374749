"""One transaction of SQLite that decides from what it reads."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from wmp.store.contract import JobFilter, QueuedKind, StoredJob
from wmp.store.sqlite.batch_writer import BatchWriter
from wmp.store.sqlite.interned import InternedTerms
from wmp.store.sqlite.row_reader import queued_kinds, read_jobs
from wmp.store.store_settings import BLOCK
from wmp.store.transaction import StoreRecord
from wmp.store.write_batch import (
    AddAnswer,
    ChangeAnswer,
    JobChanges,
    NewJobs,
    Reservation,
    ReservedJobs,
    SweptJob,
)

_RECORDS: Final = (
    """CREATE TABLE IF NOT EXISTS records(
        sort TEXT NOT NULL, id INTEGER NOT NULL, open INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY(sort, id)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS records_open ON records(sort, id) WHERE open = 1",
)


def make_records(connection: sqlite3.Connection) -> None:
    """Make the table of records if the store has none, inside the caller's transaction."""
    for statement in _RECORDS:
        connection.execute(statement)


class SqliteTransaction:
    """See :class:`~wmp.store.transaction.StoreTransaction`.

    Args:
        writer: Makes the changes of jobs.
        terms: The numbers of kinds and terms.
        me: Number of the instance that writes.
        now: Time of the transaction, in milliseconds.
        sweep: Sweeps with a limit.
        add: Adds jobs, unless the store is full.
    """

    def __init__(
        self,
        writer: BatchWriter,
        terms: InternedTerms,
        me: int,
        now: int,
        sweep: Callable[[int], list[SweptJob]],
        add: Callable[[NewJobs], AddAnswer],
    ) -> None:
        self.now = now
        self.me = me
        self.sweep = sweep
        self.add = add
        self.change: Callable[[JobChanges], ChangeAnswer] = writer.change
        self.reserve: Callable[[Reservation], ReservedJobs] = writer.reserve
        self._connection = writer.connection
        self._terms = terms

    def jobs(
        self, where: JobFilter, *, after: int = 0, limit: int = 1000, payloads: bool = False
    ) -> list[StoredJob]:
        """Return jobs."""
        return read_jobs(
            self._connection, self._terms, where, after=after, limit=limit, payloads=payloads
        )

    def queued(self, *, counted: bool = False) -> Sequence[QueuedKind]:
        """Return the kinds of which jobs are queued."""
        return queued_kinds(self._connection, self._terms, self.now, counted=counted)

    def living(self) -> set[int]:
        """Return the numbers of the instances that have not ended."""
        rows = self._connection.execute("SELECT instance FROM instances WHERE ended IS NULL")
        return {number for (number,) in rows}

    def block(self) -> range:
        """Return a new block of numbers."""
        (first,) = self._connection.execute("SELECT next_id FROM meta").fetchone()
        self._connection.execute("UPDATE meta SET next_id = ?", (first + BLOCK,))
        return range(first, first + BLOCK)

    def record(self, sort: str, id: int) -> StoreRecord | None:
        """Return a record."""
        row = self._connection.execute(
            "SELECT id, open, body FROM records WHERE sort = ? AND id = ?", (sort, id)
        ).fetchone()
        return None if row is None else StoreRecord(row[0], bool(row[1]), json.loads(row[2]))

    def records(
        self, sort: str, *, opened: bool = True, after: int = -1, limit: int = 10_000
    ) -> Sequence[StoreRecord]:
        """Return records."""
        which = "AND open = 1" if opened else ""
        rows = self._connection.execute(
            f"SELECT id, open, body FROM records WHERE sort = ? AND id > ? {which}"
            " ORDER BY id LIMIT ?",
            (sort, after, limit),
        )
        return [StoreRecord(id, bool(is_open), json.loads(body)) for id, is_open, body in rows]

    def put(self, sort: str, record: StoreRecord) -> None:
        """Write a record."""
        self._connection.execute(
            "INSERT OR REPLACE INTO records(sort, id, open, body) VALUES(?, ?, ?, ?)",
            (sort, record.id, int(record.open), json.dumps(record.body, separators=(",", ":"))),
        )

    def remove(self, sort: str, id: int) -> None:
        """Remove a record."""
        self._connection.execute("DELETE FROM records WHERE sort = ? AND id = ?", (sort, id))
