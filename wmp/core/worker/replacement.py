"""Replacements: answers in place of an answer that the manager never accepts (WMP-7.11).

A message of several jobs may be refused because of one of the jobs. So the worker first sends a
message of its own for each job. Only a job whose own message is refused gets another answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve, fields

from wmp.core.protocol.checksums import checksums_of
from wmp.core.protocol.outbound import Kept
from wmp.message import Columns, Command, Limits, Outcome

JOB_BYTES: Final = 32
"""Bytes that each answer counts in addition to its payload.

They bound the number of empty results that a worker keeps for a manager that acknowledges nothing.
"""


def replacements(kept: Kept, text: str) -> list[tuple[Columns, int]]:
    """Return the columns of other answers, each with the number of bytes that the answer counts.

    Args:
        kept: The refused DONE or STATUS.
        text: Why the manager refuses the answer, for readers.
    """
    columns = kept.columns
    assert columns is not None
    ids, attempts = columns.ids, columns.attempts
    if len(ids) > 1:
        each = [_row(columns, row) for row in range(len(ids))]
        return [(answer, JOB_BYTES + sum(map(len, answer.payloads or ()))) for answer in each]
    if kept.command is not Command.DONE:
        return [(Columns(ids, attempts), JOB_BYTES)]
    cause = f"the manager refused the result: {text}".encode()[: Limits.LONG_TEXT]
    payloads = [cause.decode(errors="ignore").encode()]
    sums = None if columns.checksums is None else checksums_of(payloads)
    lost = Columns(ids, attempts, outcomes=[Outcome.LOST], payloads=payloads, checksums=sums)
    return [(lost, JOB_BYTES + len(payloads[0]))]


def _row(columns: Columns, row: int) -> Columns:
    """Return the columns of one job."""
    names = [field.name for field in fields(Columns)]
    full: dict[str, Sequence[Any] | None] = {name: getattr(columns, name) for name in names}
    return evolve(columns, **{name: [col[row]] for name, col in full.items() if col is not None})
