"""One transaction of an SQL database that decides from what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import ClassVar

from wmp.store.contract import JobFilter, QueuedKind, StoredJob
from wmp.store.sql.sql_writer import SqlWriter
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


class SqlTransaction:
    """See :class:`~wmp.store.transaction.StoreTransaction`.

    No other transaction of the store runs meanwhile, so that nothing has to be locked.

    Args:
        writer: Makes the changes of jobs.
        sweep: Sweeps with a limit.
        add: Adds jobs, unless the store is full.
    """

    RECORD: ClassVar[str]
    """Select a record by its sort and number."""
    RECORDS: ClassVar[str]
    OPEN_RECORDS: ClassVar[str]
    """Select records by their sort, the number before the first, and a limit."""
    PUT: ClassVar[str]
    """Insert a record, or replace the record of its number."""
    REMOVE: ClassVar[str]
    """Delete a record by its sort and number."""

    def __init__(
        self,
        writer: SqlWriter,
        sweep: Callable[[int], list[SweptJob]],
        add: Callable[[NewJobs], AddAnswer],
    ) -> None:
        self.now = writer.now
        self.me = writer.me
        self.sweep = sweep
        self.add = add
        self.change: Callable[[JobChanges], ChangeAnswer] = writer.change
        self.reserve: Callable[[Reservation], ReservedJobs] = writer.reserve
        self.block: Callable[[], range] = writer.block
        self._connection = writer.connection
        self._rows = writer.rows

    def jobs(
        self, where: JobFilter, *, after: int = 0, limit: int = 1000, payloads: bool = False
    ) -> list[StoredJob]:
        """Return jobs."""
        return self._rows.jobs(self._connection, where, after=after, limit=limit, payloads=payloads)

    def queued(self, *, counted: bool = False) -> Sequence[QueuedKind]:
        """Return the kinds of which jobs are queued."""
        return self._rows.kinds(self._connection, self.now, counted=counted)

    def living(self) -> set[int]:
        """Return the numbers of the instances that have not ended."""
        rows = self._connection.execute("SELECT instance FROM instances WHERE ended IS NULL")
        return {number for (number,) in rows}

    def record(self, sort: str, id: int) -> StoreRecord | None:
        """Return a record."""
        row = self._connection.execute(self.RECORD, (sort, id)).fetchone()
        return None if row is None else StoreRecord(row[0], bool(row[1]), json.loads(row[2]))

    def records(
        self, sort: str, *, opened: bool = True, after: int = -1, limit: int = 10_000
    ) -> Sequence[StoreRecord]:
        """Return records."""
        statement = self.OPEN_RECORDS if opened else self.RECORDS
        rows = self._connection.execute(statement, (sort, after, limit))
        return [StoreRecord(id, bool(is_open), json.loads(body)) for id, is_open, body in rows]

    def put(self, sort: str, record: StoreRecord) -> None:
        """Write a record."""
        body = json.dumps(record.body, separators=(",", ":"))
        self._connection.execute(self.PUT, (sort, record.id, record.open, body))

    def remove(self, sort: str, id: int) -> None:
        """Remove a record if it exists."""
        self._connection.execute(self.REMOVE, (sort, id))
