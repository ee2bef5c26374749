"""A lane that is, or will be, at a worker process: what its parent still has to answer for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from wmp.actions import Run
from wmp.events import Finished
from wmp.runtime.executors.base import cancelled, lost
from wmp.runtime.executors.lane import PoolEvent

if TYPE_CHECKING:
    from wmp.runtime.executors.child_process import ChildProcess
    from wmp.runtime.executors.result_buffer import ResultBuffer

__all__ = ["NEVER", "Assignment"]

NEVER: Final = float("inf")

_AGAIN: Final = 0.1
"""Seconds until another look at a job that should end by itself as soon as its turn comes."""

_SETBACKS: Final = 3
"""Children in a row that may die before they began anything of a lane."""


class Assignment:
    """The jobs of a lane that have not ended, in order, and what was asked about them."""

    __slots__ = (
        "_flagged",
        "_interrupted",
        "_kind",
        "_manager",
        "_setbacks",
        "alarm",
        "child",
        "jobs",
        "number",
    )

    def __init__(self, action: Run) -> None:
        self.number = action.lane
        self._kind = action.kind
        self._manager = action.manager
        payloads = [p if type(p) is bytes else bytes(p) for p in action.payloads]
        rows = zip(action.attempts, action.deadlines or repeat(None), payloads, strict=False)
        self.jobs: dict[int, tuple[int, float | None, bytes]] = dict(
            zip(action.ids, rows, strict=False)
        )
        self.child: ChildProcess | None = None
        """Who runs it; None while it waits for somebody."""
        self.alarm = NEVER
        """When to ``look`` whether the running job may go on."""
        self._interrupted: set[int] = set()
        """Jobs of which nobody wants the result."""
        self._flagged: dict[int, float] = {}
        """Since when a job is told to stop: it is interrupted, or its deadline has passed."""
        self._setbacks = 0

    def message(self) -> tuple[Any, ...]:
        """What a child is told to run it."""
        attempts, deadlines, payloads = zip(*self.jobs.values(), strict=True)
        self._flagged.clear()
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
        )

    def take(self, ids: Iterable[int]) -> list[int]:
        """Remove jobs; return those that were still there."""
        pop = self.jobs.pop
        return [id for id in ids if pop(id, None) is not None]

    def interrupt(self, ids: Sequence[int], now: float, grace: float) -> None:
        """Note that nobody wants the results of jobs that the child has."""
        self._interrupted.update(ids)
        for id in ids:
            self._flagged.setdefault(id, now)
        self.alarm = min(self.alarm, now + grace)

    def look(self, running: int, now: float, grace: float) -> tuple[bool, bool]:
        """See whether the job that the child is at may go on; set the next alarm.

        Args:
            running: That job.
            now: Seconds, monotonic.
            grace: Seconds that a job may go on after its flag was raised.

        Returns:
            Whether its flag must be raised now, and whether it must be ended by force.
        """
        raised = end = False
        alarm = NEVER
        for id, (_, deadline, _) in self.jobs.items():
            since = self._flagged.get(id)
            if since is None:
                if deadline is None:
                    continue
                if deadline > now:
                    alarm = min(alarm, deadline)
                    continue
                if id == running:
                    self._flagged[id] = since = deadline
                    raised = True
                else:
                    since = NEVER  # the child does not begin it any more (WMP-6.7)
            due = since + grace
            if id != running:
                # Its turn may come without a word: the child has not read the flag yet, say.
                alarm = min(alarm, max(due, now + _AGAIN))
            elif due > now:
                alarm = min(alarm, due)
            else:
                end = True
        self.alarm = alarm
        return raised, end

    def progress(self, ids: Iterable[int]) -> None:
        """The child ended jobs."""
        self._setbacks = 0
        self.take(ids)

    def release(self) -> list[PoolEvent]:
        """Its child leaves, and another takes the rest: end what nobody wants."""
        unwanted = self.take(sorted(self._interrupted))
        return [cancelled(self.number, unwanted)] if unwanted else []

    def bereave(self, shelf: ResultBuffer, begun: int, cause: str) -> list[PoolEvent]:
        """Its child died: answer for it.

        Args:
            shelf: What the child had ended and not handed over.
            begun: The job that it began last, 0 for none.
            cause: What it died of.
        """
        events: list[PoolEvent] = []
        rows = [row for row in zip(*shelf.results(), strict=True) if row[0] in self.jobs]
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
                # A payload that no child survives reading, say. Which one nobody knows.
                ids = self.take(list(self.jobs))
        if ids:
            events.append(lost(self.number, ids, cause))
        return events
