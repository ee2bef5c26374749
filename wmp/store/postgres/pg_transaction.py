"""One transaction of PostgreSQL that decides from what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from wmp.store.contract import JobFilter, QueuedKind, StoredJob
from wmp.store.postgres.pg_rows import read_kinds, select_jobs
from wmp.store.postgres.pg_terms import PostgresTerms
from wmp.store.postgres.pg_writer import JobWriter
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


def next_block(connection: Any) -> range:
    """Return a new block of numbers for jobs, inside the caller's transaction."""
    (end,) = connection.execute(
        "UPDATE meta SET next_id = next_id + %s RETURNING next_id", (BLOCK,)
    ).fetchone()
    return range(end - BLOCK, end)


class PostgresTransaction:
    """See :class:`~wmp.store.transaction.StoreTransaction`.

    No other transaction of the store runs meanwhile, so that nothing has to be locked.

    Args:
        writer: Makes the changes of jobs.
        terms: The numbers of kinds and terms.
        sweep: Sweeps with a limit.
        add: Adds jobs, unless the store is full.
    """

    def __init__(
        self,
        writer: JobWriter,
        terms: PostgresTerms,
        sweep: Callable[[int], list[SweptJob]],
        add: Callable[[NewJobs], AddAnswer],
    ) -> None:
        self.now = writer.now
        self.me = writer.me
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
        return select_jobs(
            self._connection, self._terms, where, after=after, limit=limit, payloads=payloads
        )

    def queued(self, *, counted: bool = False) -> Sequence[QueuedKind]:
        """Return the kinds of which jobs are queued."""
        return read_kinds(self._connection, self._terms, self.now, counted=counted)

    def living(self) -> set[int]:
        """Return the numbers of the instances that have not ended."""
        rows = self._connection.execute("SELECT instance FROM instances WHERE ended IS NULL")
        return {number for (number,) in rows}

    def block(self) -> range:
        """Return a new block of numbers."""
        return next_block(self._connection)

    def record(self, sort: str, id: int) -> StoreRecord | None:
        """Return a record."""
        row = self._connection.execute(
            "SELECT id, open, body FROM records WHERE sort = %s AND id = %s", (sort, id)
        ).fetchone()
        return None if row is None else StoreRecord(row[0], row[1], json.loads(row[2]))

    def records(
        self, sort: str, *, opened: bool = True, after: int = -1, limit: int = 10_000
    ) -> Sequence[StoreRecord]:
        """Return records."""
        which = "AND open" if opened else ""
        rows = self._connection.execute(
            f"SELECT id, open, body FROM records WHERE sort = %s AND id > %s {which}"
            " ORDER BY id LIMIT %s",
            (sort, after, limit),
        )
        return [StoreRecord(id, is_open, json.loads(body)) for id, is_open, body in rows]

    def put(self, sort: str, record: StoreRecord) -> None:
        """Write a record."""
        self._connection.execute(
            "INSERT INTO records(sort, id, open, body) VALUES(%s, %s, %s, %s)"
            " ON CONFLICT (sort, id) DO UPDATE SET open = excluded.open, body = excluded.body",
            (sort, record.id, record.open, json.dumps(record.body, separators=(",", ":"))),
        )

    def remove(self, sort: str, id: int) -> None:
        """Remove a record if it exists."""
        self._connection.execute("DELETE FROM records WHERE sort = %s AND id = %s", (sort, id))
