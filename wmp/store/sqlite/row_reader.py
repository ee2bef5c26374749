"""Stored jobs as values: rows of the database, read by a filter."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from wmp.store.contract import JobFilter, StoredJob
from wmp.store.sqlite.interned import InternedTerms
from wmp.store.stored_job import StoredJobState

__all__ = ["read_jobs"]

_COLUMNS: Final = (
    "jobs.id, jobs.state, jobs.kind, jobs.terms, jobs.priority, jobs.due, jobs.attempt, jobs.lost,"
    " jobs.failed, jobs.instance, jobs.submitter, jobs.deadline, jobs.expires, jobs.created,"
    " jobs.ended, jobs.purge, jobs.key"
)
_PAYLOADS: Final = (
    ", coalesce(jobs.payload, (SELECT payload FROM bodies WHERE bodies.id = jobs.id)),"
    " (SELECT payload FROM results WHERE results.id = jobs.id)"
)
# One part for each of the two indexes of keys.
_OF_KEY: Final = (
    "jobs.id IN (SELECT id FROM jobs WHERE key = ? AND state < 3 AND key IS NOT NULL"
    " UNION ALL SELECT id FROM jobs WHERE key = ? AND state >= 3 AND key IS NOT NULL)"
)


def read_jobs(
    connection: sqlite3.Connection,
    terms: InternedTerms,
    where: JobFilter,
    *,
    after: int,
    limit: int,
    payloads: bool,
) -> list[StoredJob]:
    """Return jobs in the order of their numbers."""
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
        conditions.append(f"jobs.state IN ({', '.join(str(int(one)) for one in where.states)})")
    if where.instance is not None:
        conditions.append("jobs.instance = ? AND jobs.state IN (1, 2)")
        values.append(where.instance)
    rows = connection.execute(
        f"SELECT {_COLUMNS}{_PAYLOADS if payloads else ''} FROM jobs"
        f" WHERE {' AND '.join(conditions)} ORDER BY jobs.id LIMIT ?",
        (*values, limit),
    ).fetchall()
    return [_job(connection, terms, row) for row in rows]


def _job(connection: sqlite3.Connection, terms: InternedTerms, row: tuple[Any, ...]) -> StoredJob:
    id, state, kind, number, *rest = row
    return StoredJob(
        id,
        StoredJobState(state),
        terms.kind(connection, kind),
        terms.terms(connection, number),
        *rest,
    )
