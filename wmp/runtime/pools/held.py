"""A lane that is, or will be, at a worker process: what its parent still has to answer for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any

from wmp.actions import Run
from wmp.codec import pack_error
from wmp.events import Finished
from wmp.message import Outcome
from wmp.runtime.pools.lane import PoolEvent
from wmp.runtime.pools.local import cancelled

if TYPE_CHECKING:
    from wmp.runtime.pools.spawn import Child

__all__ = ["HeldLane"]


class HeldLane:
    """The jobs of a lane that have not ended, in order, and what was asked about them."""

    __slots__ = ("_kind", "_manager", "child", "interrupted", "jobs", "number")

    def __init__(self, action: Run) -> None:
        self.number = action.lane
        self._kind = action.kind
        self._manager = action.manager
        payloads = [p if type(p) is bytes else bytes(p) for p in action.payloads]
        rows = zip(action.attempts, action.deadlines or repeat(None), payloads, strict=False)
        self.jobs: dict[int, tuple[int, float | None, bytes]] = dict(
            zip(action.ids, rows, strict=False)
        )
        self.child: Child | None = None
        """Who runs it; None while it waits for somebody."""
        self.interrupted: set[int] = set()

    def message(self) -> tuple[Any, ...]:
        """What a child is told to run it."""
        attempts, deadlines, payloads = zip(*self.jobs.values(), strict=True)
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

    def bereave(self, begun: int, pid: int | None, how: str) -> list[PoolEvent]:
        """Its child died: answer for it.

        Jobs that had ended but whose results the child had not handed over yet (a few
        milliseconds of fast jobs at most) run again with the rest: a job is run at least once.

        Args:
            begun: The job that the child began last, 0 for none.
            pid: The child.
            how: What it died of.
        """
        events: list[PoolEvent] = []
        if self.take((begun,)):
            payload = pack_error(
                "WorkerProcessDied",
                f"worker process {pid} ended ({how}) while it ran this job; "
                "look for a crash in native code, a call of os._exit or a lack of memory",
            )
            events.append(Finished(self.number, [begun], [Outcome.ERROR], [payload]))
        unwanted = self.take(sorted(self.interrupted))
        if unwanted:
            events.append(cancelled(self.number, unwanted))
        return events
