"""Statements of SQLite that are made from the table of stored jobs.

Each row of the table becomes one UPDATE or DELETE of a job by its number. The guards become
conditions, and the effects become assignments. A statement has only ``?``, and ``names`` has the
value for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from wmp.store.stored_job import Effect, Guard, StoredJobInput, StoredJobState, Transition, rows_of

__all__ = ["CHANGES", "GRACE", "VALUES", "ChangeStatement"]

GRACE: Final = "grace"
"""Name of the value of the guard LAPSED: the milliseconds of grace."""

VALUES: Final = ("id", "attempt", "me", "now", "cost", "wait", "payload", GRACE)
"""Names of the values that a statement may need."""

_LIVING: Final = "SELECT instance FROM instances WHERE ended IS NULL"

# A name in braces becomes `?`.
_GUARDS: Final[Mapping[Guard, str]] = {
    Guard.MINE: "instance = {me}",
    Guard.ATTEMPT: "attempt = {attempt} AND attempt > 0",
    Guard.ORPHANED: f"instance NOT IN ({_LIVING})",
    Guard.LAPSED: (
        f"instance NOT IN ({_LIVING} UNION ALL"
        " SELECT instance FROM instances WHERE ended > {now} - {grace})"
    ),
    Guard.OVERDUE: "deadline <= {now}",
    Guard.EXPIRED: "(deadline <= {now} OR expires <= {now})",
    Guard.ATTENDED: f"(instance = {{me}} OR instance NOT IN ({_LIVING}))",
    Guard.OUTLIVED: "purge <= {now}",
    Guard.KEY_FREE: (
        "(key IS NULL OR NOT EXISTS (SELECT 1 FROM jobs AS other"
        " WHERE other.key = jobs.key AND other.state < 3 AND other.key IS NOT NULL))"
    ),
    Guard.DUE: "due <= {now}",
    Guard.FRESH: "(deadline IS NULL OR deadline > {now}) AND (expires IS NULL OR expires > {now})",
}
"""The conditions. NOTHING_WAITS is about the jobs of a kind, and is checked by the caller."""

_EFFECTS: Final[Mapping[Effect, str]] = {
    Effect.NEXT_ATTEMPT: "attempt = attempt + 1",
    Effect.HOLD: "instance = {me}",
    Effect.LEAVE: "instance = NULL",
    Effect.COUNT_LOST: "lost = lost + {cost}",
    Effect.COUNT_FAILED: "failed = failed + 1",
    Effect.WAIT: "due = CASE WHEN {wait} > 0 THEN {now} + {wait} ELSE due END",
    Effect.RESET: (
        "lost = 0, failed = 0, due = {now}, deadline = NULL, expires = NULL, ended = NULL,"
        " purge = NULL, submitter = NULL"
    ),
}
"""The assignments. END, KEEP_RESULT and REMOVE are more than one assignment."""

_END: Final = (
    "ended = {{now}}, instance = NULL,"
    " submitter = CASE WHEN submitter = {{me}} THEN NULL ELSE submitter END,"
    " purge = {{now}} + (SELECT {age} FROM terms WHERE terms.terms = jobs.terms)"
)
_DEAD: Final = (StoredJobState.ERROR, StoredJobState.TIMEOUT, StoredJobState.LOST)


@frozen
class ChangeStatement:
    """The statements of one row of the table. Their order matters."""

    target: StoredJobState
    steps: tuple[tuple[str, tuple[str, ...]], ...]
    """Statements with the names of their values. The last one changes the row in ``jobs``."""
    next_attempt: bool
    keeps_result: bool
    """Whether the step before the last one stores a result."""


def _numbered(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with ``?`` for each name in braces, and the names."""
    names: list[str] = []
    parts = text.split("{")
    for place, part in enumerate(parts[1:], 1):
        name, _, rest = part.partition("}")
        names.append(name)
        parts[place] = "?" + rest
    return "".join(parts), tuple(names)


def _statement(row: Transition) -> ChangeStatement:
    """Make the statements of one row."""
    states = ", ".join(str(int(state)) for state in row.sources)
    where = [f"id = {{id}} AND state IN ({states})", *(_GUARDS[one] for one in row.guards)]
    condition = " AND ".join(where)
    steps: list[str] = []
    if Effect.REMOVE in row.effects:
        chosen = f"(SELECT id FROM jobs WHERE {condition})"
        steps += [f"DELETE FROM {table} WHERE id = {chosen}" for table in ("bodies", "results")]
        steps.append(f"DELETE FROM jobs WHERE {condition}")
    else:
        if Effect.KEEP_RESULT in row.effects:
            steps.append(
                "INSERT OR REPLACE INTO results(id, attempt, payload)"
                f" SELECT id, attempt, {{payload}} FROM jobs WHERE {condition}"
            )
        if Effect.RESET in row.effects:
            steps.append(f"DELETE FROM results WHERE id = (SELECT id FROM jobs WHERE {condition})")
        assignments = [f"state = {int(row.target)}"]
        assignments += [_EFFECTS[one] for one in row.effects if one in _EFFECTS]
        if Effect.END in row.effects:
            assignments.append(_END.format(age="keep_dead" if row.target in _DEAD else "keep"))
        steps.append(f"UPDATE jobs SET {', '.join(assignments)} WHERE {condition}")
    return ChangeStatement(
        row.target,
        tuple(map(_numbered, steps)),
        Effect.NEXT_ATTEMPT in row.effects,
        Effect.KEEP_RESULT in row.effects,
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
    if what not in (StoredJobInput.ADD, StoredJobInput.ADD_RESERVED)
}
"""The statements of each input that changes a stored job."""
