"""Stored jobs as values: rows of PostgreSQL, read by a filter or by the numbers of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from wmp.store.contract import JobFilter, QueuedKind, StoredJob
from wmp.store.postgres.pg_statements import numbers
from wmp.store.postgres.pg_terms import PostgresTerms, as_bytes, as_text
from wmp.store.stored_job import StoredJobState
from wmp.store.write_batch import StoredFailure

_COUNTED: Final = 10_000
"""Largest number of queued jobs of a kind that are counted."""

_COLUMNS: Final = (
    "id, state, kind, terms, priority, due, attempt, lost, failed, instance, submitter, deadline,"
    " expires, created, ended, purge, key"
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


def select_jobs(
    connection: Any,
    terms: PostgresTerms,
    where: JobFilter,
    *,
    after: int,
    limit: int,
    payloads: bool,
) -> list[StoredJob]:
    """Return jobs in the order of their numbers."""
    conditions = ["id > %s"]
    values: list[Any] = [after]
    if where.ids is not None:
        conditions.append("id = ANY(%s::bigint[])")
        values.append(numbers(where.ids))
    if where.key is not None:
        # One part for each of the two indexes of keys.
        conditions.append(
            "id IN (SELECT id FROM jobs WHERE sha256(key) = sha256(%s) AND state < 3"
            " AND key IS NOT NULL UNION ALL SELECT id FROM jobs"
            " WHERE sha256(key) = sha256(%s) AND state >= 3 AND key IS NOT NULL)"
        )
        values += [as_bytes(where.key)] * 2
    if where.role is not None:
        conditions.append("kind IN (SELECT kind FROM kinds WHERE role = %s)")
        values.append(as_bytes(where.role))
    if where.states is not None:
        conditions.append(f"state IN ({', '.join([str(int(one)) for one in where.states])})")
        if not where.states:
            return []
    if where.instance is not None:
        conditions.append("instance = %s AND state IN (1, 2)")
        values.append(where.instance)
    rows = connection.execute(
        f"SELECT {_COLUMNS}, {_PAYLOADS if payloads else 'NULL, NULL'} FROM jobs"
        f" WHERE {' AND '.join(conditions)} ORDER BY id LIMIT %s",
        (*values, limit),
        binary=True,
    ).fetchall()
    found = failures_of(connection, [row[0] for row in rows]) if payloads else {}
    jobs = []
    for id, state, kind, number, *rest, key, payload, result in rows:
        both = terms.kind(connection, kind), terms.terms(connection, number)
        text = None if key is None else as_text(key)
        job: list[Any] = [
            id,
            StoredJobState(state),
            *both,
            *rest,
            text,
            payload,
            result,
            found.get(id, ()),
        ]
        jobs.append(StoredJob(*job))
    return jobs


def failures_of(connection: Any, ids: Sequence[int]) -> dict[int, tuple[StoredFailure, ...]]:
    """Return the stored failures of the jobs that have some, oldest first."""
    found: dict[int, tuple[StoredFailure, ...]] = {}
    if ids:
        for id, attempt, worker, error, at in connection.execute(
            "SELECT id, attempt, worker, error, at FROM failures WHERE id = ANY(%s::bigint[])"
            " ORDER BY id, attempt",
            (numbers(ids),),
            binary=True,
        ):
            failure = StoredFailure(attempt, as_text(worker), as_text(error), at)
            found[id] = (*found.get(id, ()), failure)
    return found


def find_states(connection: Any, ids: Sequence[int]) -> dict[int, tuple[StoredJobState, int]]:
    """Return state and attempt of each job; absent ones too."""
    found = {
        id: (StoredJobState(state), attempt)
        for id, state, attempt in connection.execute(
            "SELECT id, state, attempt FROM jobs WHERE id = ANY(%s::bigint[])", (numbers(ids),)
        )
    }
    return {id: found.get(id, (StoredJobState.ABSENT, 0)) for id in ids}


def read_priorities(connection: Any, kind: int) -> list[tuple[int, int]]:
    """Return the priorities of queued jobs of a kind, highest first, and the first due of each."""
    rows = connection.execute(_PRIORITIES.format(kind="%(kind)s"), {"kind": kind}).fetchall()
    return [(priority, due) for priority, due in rows]


def read_kinds(
    connection: Any, terms: PostgresTerms, now: int, *, counted: bool
) -> list[QueuedKind]:
    """Return the kinds of which jobs are queued; ``counted``: with the numbers of the jobs."""
    count = "NULL::bigint"
    if counted:
        count = (
            "(SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = 0 AND jobs.kind = kinds.kind"
            f" LIMIT {_COUNTED}) AS counted)"
        )
    rows = connection.execute(
        "SELECT kind, due, CASE WHEN due IS NULL THEN 0 ELSE " + count + " END FROM"
        " (SELECT kind, (SELECT min(due) FROM ("
        + _PRIORITIES.format(kind="kinds.kind")
        + ") AS each) AS due FROM kinds) AS kinds WHERE due IS NOT NULL ORDER BY kind"
    ).fetchall()
    return [
        QueuedKind(terms.kind(connection, kind), max(0, due - now), number)
        for kind, due, number in rows
    ]
