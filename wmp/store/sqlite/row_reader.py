"""Rows of SQLite, read by a filter or by the numbers of jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from wmp.store.contract import JobFilter, QueuedKind
from wmp.store.sql.sql_rows import MAX_COUNTED, SqlRows
from wmp.store.sqlite.row_statement import parts

_COLUMNS: Final = (
    "jobs.id, jobs.state, jobs.kind, jobs.terms, jobs.priority, jobs.due, jobs.attempt, jobs.lost,"
    " jobs.failed, jobs.unbegun, jobs.instance, jobs.submitter, jobs.deadline, jobs.expires,"
    " jobs.created, jobs.ended, jobs.purge, jobs.key, jobs.worker, jobs.begun, jobs.ran,"
    " jobs.fraction, jobs.note"
)
_PAYLOADS: Final = (
    "coalesce(jobs.payload, (SELECT payload FROM bodies WHERE bodies.id = jobs.id)),"
    " (SELECT payload FROM results WHERE results.id = jobs.id)"
)
# One part for each of the two indexes of keys.
_OF_KEY: Final = (
    "jobs.id IN (SELECT id FROM jobs WHERE key = ? AND state < 2 AND key IS NOT NULL"
    " UNION ALL SELECT id FROM jobs WHERE key = ? AND state >= 2 AND key IS NOT NULL)"
)


class SqliteRows(SqlRows):
    """Reads rows of SQLite as values."""

    def select_jobs(
        self,
        connection: sqlite3.Connection,
        where: JobFilter,
        *,
        after: int,
        limit: int,
        payloads: bool,
    ) -> Sequence[tuple[Any, ...]]:
        """Return the fields of jobs."""
        conditions = ["jobs.id > ?"]
        values: list[Any] = [after]
        if where.ids is not None:
            # Numbers are in the text, because a statement takes a limited number of values.
            conditions.append(f"jobs.id IN ({', '.join(str(int(id)) for id in where.ids)})")
        if where.key is not None:
            conditions.append(_OF_KEY)
            values += [where.key, where.key]
        if where.role is not None:
            conditions.append("jobs.kind IN (SELECT kind FROM kinds WHERE role = ?)")
            values.append(where.role)
        if where.states is not None:
            conditions.append(
                f"jobs.state IN ({', '.join(str(int(state)) for state in where.states)})"
            )
        if where.instance is not None:
            conditions.append("jobs.instance = ? AND jobs.state IN (1, 2)")
            values.append(where.instance)
        return connection.execute(
            f"SELECT {_COLUMNS}, {_PAYLOADS if payloads else 'NULL, NULL'} FROM jobs"
            f" WHERE {' AND '.join(conditions)} ORDER BY jobs.id LIMIT ?",
            (*values, limit),
        ).fetchall()

    def select_by_ids(
        self, connection: sqlite3.Connection, select: str, ids: Sequence[int], order: str = ""
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that have these numbers."""
        for begin, end in parts(len(ids)):
            marks = ", ".join("?" * (end - begin))
            text = f"{select} WHERE id IN ({marks}){order}"
            yield from connection.execute(text, list(ids[begin:end]))

    def kinds(self, connection: sqlite3.Connection, now: int, *, counted: bool) -> list[QueuedKind]:
        """Return the kinds of which jobs are queued."""
        # One look into the index of queued jobs for each kind and priority.
        numbers = connection.execute(
            "SELECT kind FROM kinds WHERE EXISTS"
            " (SELECT 1 FROM jobs WHERE jobs.state = 0 AND jobs.kind = kinds.kind)"
        ).fetchall()
        kinds = []
        for (number,) in numbers:
            due = _earliest_due(connection, number)
            if due is not None:
                count = _count(connection, number) if counted else None
                kinds.append(
                    QueuedKind(self.terms.kind(connection, number), max(0, due - now), count)
                )
        return kinds


def _count(connection: sqlite3.Connection, kind: int) -> int:
    """Return the number of queued jobs of a kind, at most the maximum that is counted."""
    (count,) = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = 0 AND kind = ? LIMIT ?)",
        (kind, MAX_COUNTED),
    ).fetchone()
    return int(count)


def priorities_of(connection: sqlite3.Connection, kind: int) -> Iterator[int]:
    """Yield the priorities of the queued jobs of a kind, highest first, by the index."""
    maximum = (1 << 63) - 1
    while True:
        row = connection.execute(
            "SELECT priority FROM jobs WHERE state = 0 AND kind = ? AND priority <= ?"
            " ORDER BY priority DESC LIMIT 1",
            (kind, maximum),
        ).fetchone()
        if row is None:
            return
        yield row[0]
        maximum = row[0] - 1


def _earliest_due(connection: sqlite3.Connection, kind: int) -> int | None:
    """Return when the first queued job of a kind is due; None without one."""
    rows = (
        connection.execute(
            "SELECT due FROM jobs WHERE state = 0 AND kind = ? AND priority = ?"
            " ORDER BY due LIMIT 1",
            (kind, priority),
        ).fetchone()
        for priority in priorities_of(connection, kind)
    )
    return min((due for (due,) in rows), default=None)
