"""A lane for a child process: the jobs of the lane that have not ended.

The child holds the lane already, or a child gets the lane when it is free.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final

from wmp.lane_exchange import Finished, Run
from wmp.runtime.executors.handler_calls import PoolEvent, cancelled, lost
from wmp.runtime.executors.result_buffer import ResultBuffer

NEVER: Final = float("inf")

_Row = tuple[int, float | None, bytes, float | None, float | None, int | None, int | None]
"""Attempt, deadline, payload, time by which the job must begin, run limit, failures and begun runs
of a job."""

_SETBACKS: Final = 3
"""Number of children in a row that may die before they begin a job of a lane."""


class Assignment:
    """The jobs of a lane that have not ended, in order, and the jobs among them that must stop."""

    __slots__ = (
        "_interrupted",
        "_kind",
        "_manager",
        "_setbacks",
        "alarm",
        "flagged",
        "jobs",
        "number",
    )

    def __init__(self, action: Run) -> None:
        self.number = action.lane
        self._kind = action.kind
        self._manager = action.manager
        payloads = [p if type(p) is bytes else bytes(p) for p in action.payloads]
        rows = zip(
            action.attempts,
            action.deadlines or repeat(None),
            payloads,
            action.begin_by or action.deadlines or repeat(None),
            action.limits or repeat(None),
            action.failed or repeat(0),
            action.begun or repeat(None),
            strict=False,
        )
        self.jobs: dict[int, _Row] = dict(zip(action.ids, rows, strict=False))
        self.alarm = NEVER
        """Time of the next check whether the running job may continue."""
        self.flagged: dict[int, float] = {}
        """Time from which a job must stop: it is interrupted, or its deadline has passed."""
        self._interrupted: set[int] = set()
        self._setbacks = 0

    def message(self) -> tuple[Any, ...]:
        """Return the message that makes a child run the lane."""
        rows = zip(*self.jobs.values(), strict=True)
        attempts, deadlines, payloads, begin_by, limits, failed, begun = rows
        self.flagged.clear()
        self.alarm = min((at for at in deadlines if at is not None), default=NEVER)
        kind = self._kind
        return (
            "run",
            self.number,
            kind.role,
            kind.codec,
            self._manager,
            tuple(self.jobs),
            attempts,
            deadlines,
            payloads,
            begin_by,
            limits if limits.count(None) < len(limits) else None,
            failed if failed.count(0) < len(failed) else None,
            begun if begun.count(None) < len(begun) else None,
        )

    def take(self, ids: Iterable[int]) -> list[int]:
        """Remove jobs; return the jobs that were still there."""
        pop = self.jobs.pop
        return [id for id in ids if pop(id, None) is not None]

    def interrupt(self, ids: Iterable[int]) -> None:
        """Record jobs whose results are not wanted: no other child may begin them."""
        self._interrupted.update(ids)

    def progress(self, ids: Iterable[int]) -> None:
        """Remove jobs that the child has ended."""
        self._setbacks = 0
        self.take(ids)

    def release(self) -> list[PoolEvent]:
        """End the interrupted jobs, because the child leaves.

        Another child takes the other jobs.
        """
        unwanted = self.take(sorted(self._interrupted))
        return [cancelled(self.number, unwanted)] if unwanted else []

    def child_died(self, buffer: ResultBuffer, begun: int, cause: str) -> list[PoolEvent]:
        """End the jobs that the dead child had ended, and the job that it was running.

        Args:
            buffer: Results that the child had not sent.
            begun: The job that the child began last; 0 for none.
            cause: The cause of its death.
        """
        events: list[PoolEvent] = []
        rows = [row for row in zip(*buffer.results(), strict=True) if row[0] in self.jobs]
        if rows:
            ended, outcomes, payloads = map(list, zip(*rows, strict=True))
            self.take(ended)
            events.append(Finished(self.number, ended, outcomes, payloads))
        events += self.release()
        ids = self.take((begun,))
        if ids or events:
            self._setbacks = 0
        else:
            self._setbacks += 1
            if self._setbacks >= _SETBACKS:
                # For example, one payload may kill every child that reads the lane, and the parent
                # does not know which payload.
                ids = self.take(list(self.jobs))
        if ids:
            events.append(lost(self.number, ids, cause))
        return events
