"""Statements of PostgreSQL that are made from the table of stored jobs.

All rows of an input become one statement. Its parts see one state of the database, and no two rows
have a source state in common, so that each job is changed once at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import frozen

from wmp.store.store_settings import LEARNING
from wmp.store.stored_job import (
    RELATIVE,
    Effect,
    Guard,
    StoredJobInput,
    StoredJobState,
    Transition,
    rows_of,
)

_TYPES: Final[Mapping[str, str]] = {
    "id": "bigint",
    "attempt": "bigint",
    "cost": "bigint",
    "unbegun": "bigint",
    "wait": "bigint",
    "payload": "bytea",
    "worker": "bytea",
    "error": "bytea",
    "doer": "bytea",
    "age": "bigint",
    "fraction": "double precision",
    "note": "bytea",
}
"""Values of a change that differ from job to job, and their types."""

GIVEN: Final = {
    name: f"%({name}){'b' if type == 'bytea' else 's'}::{type}[]" for name, type in _TYPES.items()
}
"""The column of a value, as the argument of unnest."""

_LIVING: Final = "SELECT instance FROM instances WHERE ended IS NULL"

UNNEEDED: Final = (
    "NOT EXISTS (SELECT 1 FROM parents JOIN jobs AS child ON child.id = parents.id"
    " WHERE parents.parent = jobs.id AND child.state = -2)"
    " AND NOT EXISTS (SELECT 1 FROM watchers JOIN instances"
    " ON instances.instance = watchers.instance"
    " WHERE watchers.id = jobs.id AND instances.ended IS NULL)"
    f" AND (jobs.submitter IS NULL OR jobs.purge <= %(now)s - {LEARNING}"
    f" OR jobs.submitter NOT IN ({_LIVING}))"
)
"""The condition that nobody needs an ended job any more."""

_GUARDS: Final[Mapping[Guard, str]] = {
    Guard.MINE: "jobs.instance = %(me)s",
    Guard.ATTEMPT: "jobs.attempt = given.attempt AND jobs.attempt > 0 AND NOT over",
    Guard.ORPHANED: f"jobs.instance NOT IN ({_LIVING})",
    Guard.LAPSED: (
        f"jobs.instance NOT IN ({_LIVING} UNION ALL"
        " SELECT instance FROM instances WHERE ended > %(now)s - %(grace)s)"
    ),
    Guard.OVERDUE: "deadline <= %(now)s",
    Guard.EXPIRED: "(deadline <= %(now)s OR expires <= %(now)s)",
    Guard.ATTENDED: f"(jobs.instance = %(me)s OR jobs.instance NOT IN ({_LIVING}))",
    Guard.OUTLIVED: "purge <= %(now)s",
    Guard.UNNEEDED: UNNEEDED,
    Guard.KEY_FREE: (
        "(key IS NULL OR NOT EXISTS (SELECT 1 FROM jobs AS other WHERE"
        " sha256(other.key) = sha256(jobs.key) AND sha256(other.role) = sha256(jobs.role)"
        " AND other.state < 2 AND other.key IS NOT NULL))"
    ),
    Guard.COMPLETE: "NOT EXISTS (SELECT 1 FROM waits WHERE waits.id = jobs.id)",
    Guard.DUE: "due <= %(now)s",
    Guard.FRESH: (
        "(deadline IS NULL OR deadline > %(now)s) AND (expires IS NULL OR expires > %(now)s)"
    ),
}
"""The conditions. The others are about other jobs, and are checked by the caller."""

_EFFECTS: Final[Mapping[Effect, str]] = {
    Effect.NEXT_ATTEMPT: "attempt = jobs.attempt + 1, over = FALSE",
    Effect.OVER: "over = TRUE",
    Effect.UNUSED: "attempt = jobs.attempt - 1, over = TRUE",
    Effect.HOLD: "instance = %(me)s",
    Effect.LEAVE: "instance = NULL",
    Effect.COUNT_LOST: "lost = lost + coalesce(given.cost, 0)",
    Effect.COUNT_FAILED: "failed = failed + 1",
    Effect.COUNT_UNBEGUN: "unbegun = jobs.unbegun + coalesce(given.unbegun, 0)",
    Effect.WAIT: "due = CASE WHEN given.wait > 0 THEN %(now)s + given.wait ELSE due END",
    Effect.RESET: (
        "lost = 0, failed = 0, due = %(now)s, deadline = NULL, expires = NULL, ended = NULL,"
        " purge = NULL, submitter = NULL, worker = NULL, begun = NULL, ran = 0, fraction = NULL,"
        " note = NULL"
    ),
    Effect.KEEP_RUN: (
        "worker = coalesce(given.doer, jobs.worker),"
        " begun = CASE WHEN given.age IS NULL OR ran = given.attempt"
        " THEN begun ELSE %(now)s - given.age END,"
        " ran = CASE WHEN given.doer IS NULL THEN ran ELSE given.attempt END"
    ),
    Effect.KEEP_PROGRESS: "fraction = given.fraction, note = given.note",
}
"""The assignments. END, KEEP_RESULT, KEEP_FAILURE and REMOVE are more than one assignment."""

_END: Final = (
    "ended = %(now)s, instance = NULL,"
    " submitter = CASE WHEN submitter = %(me)s THEN NULL ELSE submitter END,"
    " purge = %(now)s + (SELECT {age} FROM terms WHERE terms.terms = jobs.terms)"
)
_DEAD: Final = (StoredJobState.ERROR, StoredJobState.TIMEOUT, StoredJobState.LOST)

# The first 16 attempts are kept, and the last 16.
_KEEP_FAILURES: Final = (
    "INSERT INTO failures(id, place, attempt, worker, at, error)"
    " SELECT id, CASE WHEN tried <= 16 THEN tried ELSE 17 + tried %% 16 END, tried, worker,"
    " %(now)s, error FROM changed{n} WHERE error IS NOT NULL ON CONFLICT (id, place) DO UPDATE SET"
    " attempt = excluded.attempt, worker = excluded.worker, at = excluded.at, error ="
    " excluded.error"
)
_KEEP_RESULTS: Final = (
    "INSERT INTO results(id, attempt, payload)"
    " SELECT id, tried, coalesce(result, ''::bytea) FROM changed{n}"
    " ON CONFLICT (id) DO UPDATE SET attempt = excluded.attempt, payload = excluded.payload"
)
_FIELDS: Final = "id, state, attempt, kind, submitter, instance, growth"


@frozen
class JobStatement:
    """The statement of one input."""

    text: str
    each: Sequence[str]
    """Names of the values of each job."""
    alone: bool
    """Whether each job has a statement of its own, because a guard is about other jobs."""


def _parts(row: Transition, n: int) -> list[str]:
    """Return the parts of a statement that make one row of the table."""
    states = ", ".join(str(int(state)) for state in row.sources)
    where = [
        f"jobs.id = given.id AND state IN ({states})",
        *(_GUARDS[guard] for guard in row.guards),
    ]
    condition = " AND ".join(where)
    fields = "jobs.id, state, jobs.attempt, kind, submitter, jobs.instance"
    if Effect.REMOVE in row.effects:
        size = "octet_length(jobs.payload)"
        fields = "-1 AS state, 0::bigint AS attempt, kind, submitter, jobs.instance"
        removal = (
            f"changed{n} AS (DELETE FROM jobs USING given WHERE {condition} RETURNING jobs.id,"
            f" {fields}, -%(row)s - {size} AS growth)"
        )
        gone = [
            f"{table}{n} AS (DELETE FROM {table} USING changed{n} WHERE {table}.id = changed{n}.id)"
            for table in ("waits", "parents", "watchers")
        ]
        return [removal, *_removal(n), *gone]
    assignments = [f"state = {int(row.target)}"]
    assignments += [_EFFECTS[effect] for effect in row.effects if effect in _EFFECTS]
    if Effect.END in row.effects:
        assignments.append(_END.format(age="keep_dead" if row.target in _DEAD else "keep"))
    keeps = Effect.KEEP_RESULT in row.effects
    fails = Effect.KEEP_FAILURE in row.effects
    growth = "coalesce(octet_length(given.payload), 0)" if keeps else "0"
    fields += f", {growth} AS growth"
    if keeps or fails:
        fields += ", given.attempt AS tried"
    if keeps:
        fields += ", given.payload AS result"
    if fails:
        fields += ", given.worker, given.error"
    update = f"UPDATE jobs SET {', '.join(assignments)} FROM given WHERE {condition}"
    parts = [f"changed{n} AS ({update} RETURNING {fields})"]
    if keeps:
        parts.append(f"kept{n} AS ({_KEEP_RESULTS.format(n=n)})")
    if fails:
        parts.append(f"failed{n} AS ({_KEEP_FAILURES.format(n=n)})")
    if Effect.RESET in row.effects:
        parts += _removal(n)
    return parts


def _removal(n: int) -> list[str]:
    """Return the parts that remove results and failures of the jobs that changed."""
    where = f"USING changed{n} WHERE {{0}}.id = changed{n}.id"
    size = "RETURNING octet_length(results.payload) AS size"
    return [
        f"freed{n} AS (DELETE FROM results {where.format('results')} {size})",
        f"gone{n} AS (DELETE FROM failures {where.format('failures')})",
    ]


def _statement(what: StoredJobInput) -> JobStatement:
    """Make the statement of an input."""
    rows = rows_of(what)
    parts = [part for n, row in enumerate(rows) for part in _parts(row, n)]
    selects = [f"SELECT {_FIELDS} FROM changed{n}" for n in range(len(rows))]
    for n, row in enumerate(rows):
        if Effect.REMOVE in row.effects or Effect.RESET in row.effects:
            # Not the number of a job: only bytes that became free.
            selects.append(f"SELECT NULL, 0, 0, 0, NULL, NULL, -size FROM freed{n}")
    text = ", ".join(parts)
    used = [name for name in _TYPES if name == "id" or f"given.{name}" in text]
    columns = ", ".join(GIVEN[name] for name in used)
    given = f"given AS MATERIALIZED (SELECT * FROM unnest({columns}) AS g({', '.join(used)}))"
    return JobStatement(
        f"WITH {given}, {text} {' UNION ALL '.join(selects)}",
        used,
        any(Guard.KEY_FREE in row.guards for row in rows),
    )


def numbers(values: Iterable[int | None]) -> str:
    """Return numbers as the text of an array: the same type whatever their sizes are."""
    return "{" + ",".join(["NULL" if number is None else str(number) for number in values]) + "}"


CHANGES: Final[Mapping[StoredJobInput, JobStatement]] = {
    what: _statement(what) for what in StoredJobInput if what not in RELATIVE
}
"""The statement of each input that changes a stored job."""
