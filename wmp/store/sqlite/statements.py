"""Statements of SQLite that are made from the table of stored jobs.

Each row of the table becomes one UPDATE or DELETE of jobs by their numbers. The guards become
conditions, and the effects become assignments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from wmp.store.sqlite.row_statement import RowStatement, row_statement
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

GRACE: Final = "grace"
"""Name of the value of the guard LAPSED: the milliseconds of grace."""

EACH: Final = (
    *("id", "attempt", "payload", "cost", "unbegun", "wait", "worker", "error"),
    *("doer", "age", "fraction", "note"),
)
"""Names of the values of a change that differ from job to job."""

SHARED: Final = ("me", "now", GRACE)
"""Names of the values that all jobs of a change share."""

_LIVING: Final = "SELECT instance FROM instances WHERE ended IS NULL"

UNNEEDED: Final = (
    "NOT EXISTS (SELECT 1 FROM parents JOIN jobs AS child ON child.id = parents.id"
    " WHERE parents.parent = jobs.id AND child.state = -2)"
    " AND NOT EXISTS (SELECT 1 FROM watchers JOIN instances"
    " ON instances.instance = watchers.instance"
    " WHERE watchers.id = jobs.id AND instances.ended IS NULL)"
    f" AND (jobs.submitter IS NULL OR jobs.purge <= {{now}} - {LEARNING}"
    f" OR jobs.submitter NOT IN ({_LIVING}))"
)
"""The condition that nobody needs an ended job any more."""

# A name in braces becomes `?`, or a column of the rows.
_GUARDS: Final[Mapping[Guard, str]] = {
    Guard.MINE: "instance = {me}",
    Guard.ATTEMPT: "attempt = {attempt} AND attempt > 0 AND NOT over",
    Guard.ORPHANED: f"instance NOT IN ({_LIVING})",
    Guard.LAPSED: (
        f"instance NOT IN ({_LIVING} UNION ALL"
        " SELECT instance FROM instances WHERE ended > {now} - {grace})"
    ),
    Guard.OVERDUE: "deadline <= {now}",
    Guard.EXPIRED: "(deadline <= {now} OR expires <= {now})",
    Guard.ATTENDED: f"(instance = {{me}} OR instance NOT IN ({_LIVING}))",
    Guard.OUTLIVED: "purge <= {now}",
    Guard.UNNEEDED: UNNEEDED,
    Guard.KEY_FREE: (
        "(key IS NULL OR NOT EXISTS (SELECT 1 FROM jobs AS other"
        " WHERE other.key = jobs.key AND other.role = jobs.role AND other.state < 2"
        " AND other.key IS NOT NULL))"
    ),
    Guard.COMPLETE: "NOT EXISTS (SELECT 1 FROM waits WHERE waits.id = jobs.id)",
    Guard.DUE: "due <= {now}",
    Guard.FRESH: "(deadline IS NULL OR deadline > {now}) AND (expires IS NULL OR expires > {now})",
}
"""The conditions. The others are about other jobs, and are checked by the caller."""

_EFFECTS: Final[Mapping[Effect, str]] = {
    Effect.NEXT_ATTEMPT: "attempt = attempt + 1, over = 0",
    Effect.OVER: "over = 1",
    Effect.UNUSED: "attempt = attempt - 1, over = 1",
    Effect.HOLD: "instance = {me}",
    Effect.LEAVE: "instance = NULL",
    Effect.COUNT_LOST: "lost = lost + {cost}",
    Effect.COUNT_FAILED: "failed = failed + 1",
    Effect.COUNT_UNBEGUN: "unbegun = unbegun + {unbegun}",
    Effect.WAIT: "due = CASE WHEN {wait} > 0 THEN {now} + {wait} ELSE due END",
    Effect.RESET: (
        "lost = 0, failed = 0, due = {now}, deadline = NULL, expires = NULL, ended = NULL,"
        " purge = NULL, submitter = NULL, worker = NULL, begun = NULL, ran = 0, fraction = NULL,"
        " note = NULL"
    ),
    Effect.KEEP_RUN: (
        "worker = coalesce({doer}, worker), begun = CASE WHEN {age} IS NULL OR ran = {attempt}"
        " THEN begun ELSE {now} - {age} END,"
        " ran = CASE WHEN {doer} IS NULL THEN ran ELSE {attempt} END"
    ),
    Effect.KEEP_PROGRESS: "fraction = {fraction}, note = {note}",
}
"""The assignments. END, KEEP_RESULT, KEEP_FAILURE and REMOVE are more than one assignment."""

_GROWTHS: Final[Mapping[Effect, int]] = {Effect.NEXT_ATTEMPT: 1, Effect.UNUSED: -1}

# The first 16 attempts are kept, and the last 16.
_KEEP_FAILURES: Final = (
    "INSERT OR REPLACE INTO failures(id, place, attempt, worker, at, error)"
    " SELECT id, CASE WHEN attempt <= 16 THEN attempt ELSE 17 + attempt % 16 END, attempt,"
    " {worker}, {now}, {error}"
)

_END: Final = (
    "ended = {{now}}, instance = NULL,"
    " submitter = CASE WHEN submitter = {{me}} THEN NULL ELSE submitter END,"
    " purge = {{now}} + (SELECT {age} FROM terms WHERE terms.terms = jobs.terms)"
)
_DEAD: Final = (StoredJobState.ERROR, StoredJobState.TIMEOUT, StoredJobState.LOST)


_DELETE: Final = "DELETE FROM {} WHERE id IN (SELECT id {})"


@frozen
class ChangeStatement:
    """The statements of one row of the table. Their order matters."""

    target: StoredJobState
    steps: tuple[RowStatement, ...]
    """The last one changes the rows in ``jobs``."""
    growth: int
    """The number that is added to the attempt."""
    keeps_result: bool
    """Whether the step before the last one stores a result."""
    failure: RowStatement | None
    """The statement that stores the failures of attempts, before all steps; None for none."""


def _statement(row: Transition) -> ChangeStatement:
    """Make the statements of one row."""
    states = ", ".join(str(int(state)) for state in row.sources)
    where = [f"id = {{id}} AND state IN ({states})", *(_GUARDS[guard] for guard in row.guards)]
    condition = " AND ".join(where)
    # CROSS JOIN: SQLite reads the given rows first, and finds each job by its number.
    chosen = f"FROM (VALUES {{*}}) AS given CROSS JOIN jobs WHERE {condition}"
    steps: list[str] = []
    if Effect.REMOVE in row.effects:
        for table in ("bodies", "results", "failures", "waits", "parents", "watchers", "jobs"):
            steps.append(_DELETE.format(table, chosen))
    else:
        if Effect.KEEP_RESULT in row.effects:
            steps.append(
                "INSERT OR REPLACE INTO results(id, attempt, payload)"
                f" SELECT id, attempt, {{payload}} {chosen}"
            )
        if Effect.RESET in row.effects:
            for table in ("results", "failures"):
                steps.append(_DELETE.format(table, chosen))
        assignments = [f"state = {int(row.target)}"]
        assignments += [_EFFECTS[effect] for effect in row.effects if effect in _EFFECTS]
        if Effect.END in row.effects:
            assignments.append(_END.format(age="keep_dead" if row.target in _DEAD else "keep"))
        steps.append(
            f"UPDATE jobs SET {', '.join(assignments)} FROM (VALUES {{*}}) AS given"
            f" WHERE {condition}"
        )
    failure = None
    if Effect.KEEP_FAILURE in row.effects:
        failure = row_statement(f"{_KEEP_FAILURES} {chosen}", EACH)
    return ChangeStatement(
        row.target,
        tuple(row_statement(step, EACH) for step in steps),
        sum(_GROWTHS.get(effect, 0) for effect in row.effects),
        Effect.KEEP_RESULT in row.effects,
        failure,
    )


def _ordered(rows: list[Transition]) -> list[Transition]:
    """Put rows into an order in which no row finds a job that an earlier row has changed.

    Raises:
        AssertionError: There is no such order.
    """
    left, ordered = list(rows), []
    while left:
        first = next(
            (
                row
                for row in left
                if not any(row.target in other.sources and row is not other for other in left)
            ),
            None,
        )
        assert first is not None, "two rows of an input lead to the states of each other"
        left.remove(first)
        ordered.append(first)
    return ordered


CHANGES: Final[Mapping[StoredJobInput, tuple[ChangeStatement, ...]]] = {
    what: tuple(_statement(row) for row in _ordered(rows_of(what)))
    for what in StoredJobInput
    if what not in RELATIVE
}
"""The statements of each input that changes a stored job."""

ADD_JOBS: Final = row_statement(
    "INSERT OR IGNORE INTO jobs(state, kind, priority, due, attempt, lost, failed, terms, instance,"
    " submitter, deadline, expires, created, role, id, key, payload)"
    " SELECT {state}, {kind}, {priority}, {due}, {attempt}, 0, 0, {terms}, {instance},"
    " {submitter}, {deadline}, {expires}, {created}, {role}, {id}, {key}, {payload}"
    " FROM (VALUES {*}) AS given",
    ("id", "key", "payload"),
)

KEEP_RESULTS: Final = row_statement(
    "INSERT OR REPLACE INTO results(id, attempt, payload)"
    " SELECT {id}, {attempt}, {payload} FROM (VALUES {*}) AS given",
    ("id", "attempt", "payload"),
)

RECEIVE_ENDS: Final = row_statement(
    "UPDATE jobs SET submitter = NULL FROM (VALUES {*}) AS given"
    " WHERE id = {id} AND submitter = {me} AND state >= 3",
    ("id",),
)

WATCH: Final = row_statement(
    "INSERT OR IGNORE INTO watchers(id, instance) SELECT {id}, {me} FROM (VALUES {*}) AS given",
    ("id",),
)

END_WATCHES: Final = row_statement(
    "DELETE FROM watchers WHERE instance = {me} AND id IN (SELECT {id} FROM (VALUES {*}) AS given)",
    ("id",),
)
