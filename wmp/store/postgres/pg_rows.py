"""Rows of PostgreSQL, read by a filter or by the numbers of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from wmp.store.contract import JobFilter, QueuedKind
from wmp.store.postgres.pg_changes import numbers
from wmp.store.postgres.pg_terms import as_bytes
from wmp.store.sql.sql_rows import MAX_COUNTED, SqlRows

_COLUMNS: Final = (
    "id, state, kind, terms, priority, due, attempt, lost, failed, unbegun, instance, submitter,"
    " deadline, expires, created, ended, purge, key,"
    " worker, begun, ran, fraction, note"
)
_PAYLOADS: Final = "payload, (SELECT payload FROM results WHERE results.id = jobs.id)"

# One look into the index of queued jobs for each priority of a kind.
_PRIORITIES: Final = """
WITH RECURSIVE found AS (
    (SELECT priority, due FROM jobs WHERE state = 0 AND kind = {kind}
     ORDER BY priority DESC, due LIMIT 1)
    UNION ALL
    SELECT next.priority, next.due FROM found CROSS JOIN LATERAL (
        SELECT priority, due FROM jobs
        WHERE state = 0 AND kind = {kind} AND priority < found.priority
        ORDER BY priority DESC, due LIMIT 1) AS next)
SELECT priority, due FROM found
"""


class PostgresRows(SqlRows):
    """Reads rows of PostgreSQL as values."""

    def select_jobs(
        self, connection: Any, where: JobFilter, *, after: int, limit: int, payloads: bool
    ) -> Sequence[tuple[Any, ...]]:
        """Return the fields of jobs."""
        conditions = ["id > %s"]
        values: list[Any] = [after]
        if where.ids is not None:
            conditions.append("id = ANY(%s::bigint[])")
            values.append(numbers(where.ids))
        if where.key is not None:
            # One part for each of the two indexes of keys.
            conditions.append(
                "id IN (SELECT id FROM jobs WHERE sha256(key) = sha256(%s) AND state < 2"
                " AND key IS NOT NULL UNION ALL SELECT id FROM jobs"
                " WHERE sha256(key) = sha256(%s) AND state >= 2 AND key IS NOT NULL)"
            )
            values += [as_bytes(where.key)] * 2
        if where.role is not None:
            conditions.append("kind IN (SELECT kind FROM kinds WHERE role = %s)")
            values.append(as_bytes(where.role))
        if where.states is not None:
            conditions.append(
                f"state IN ({', '.join([str(int(state)) for state in where.states])})"
            )
            if not where.states:
                return []
        if where.instance is not None:
            conditions.append("instance = %s AND state IN (1, 2)")
            values.append(where.instance)
        rows: list[tuple[Any, ...]] = connection.execute(
            f"SELECT {_COLUMNS}, {_PAYLOADS if payloads else 'NULL, NULL'} FROM jobs"
            f" WHERE {' AND '.join(conditions)} ORDER BY id LIMIT %s",
            (*values, limit),
            binary=True,
        ).fetchall()
        return rows

    def select_by_ids(
        self, connection: Any, select: str, ids: Sequence[int], order: str = ""
    ) -> Iterable[tuple[Any, ...]]:
        """Return the rows that have these numbers."""
        if not ids:
            return ()
        text = f"{select} WHERE id = ANY(%s::bigint[]){order}"
        rows: Iterable[tuple[Any, ...]] = connection.execute(text, (numbers(ids),), binary=True)
        return rows

    def kinds(self, connection: Any, now: int, *, counted: bool) -> list[QueuedKind]:
        """Return the kinds of which jobs are queued."""
        count = "NULL::bigint"
        if counted:
            count = (
                "(SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = 0"
                f" AND jobs.kind = kinds.kind LIMIT {MAX_COUNTED}) AS counted)"
            )
        rows = connection.execute(
            "SELECT kind, due, CASE WHEN due IS NULL THEN 0 ELSE " + count + " END FROM"
            " (SELECT kind, (SELECT min(due) FROM ("
            + _PRIORITIES.format(kind="kinds.kind")
            + ") AS each) AS due FROM kinds) AS kinds WHERE due IS NOT NULL ORDER BY kind"
        ).fetchall()
        return [
            QueuedKind(self.terms.kind(connection, kind), max(0, due - now), number)
            for kind, due, number in rows
        ]


def read_priorities(connection: Any, kind: int) -> list[tuple[int, int]]:
    """Return the priorities of queued jobs of a kind, highest first, and the first due of each."""
    rows = connection.execute(_PRIORITIES.format(kind="%(kind)s"), {"kind": kind}).fetchall()
    return [(priority, due) for priority, due in rows]
