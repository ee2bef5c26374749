"""What the executors of this process have in common: their lanes, and what happens to them."""

from __future__ import annotations

from typing import Protocol

from wmp.actions import Interrupt, Recall, Run
from wmp.events import Finished, Recalled
from wmp.message import Outcome
from wmp.runtime.executors.lane import Lane, PoolEvent, PostEvent
from wmp.runtime.executors.reporter import Reporter
from wmp.runtime.handlers import Served

__all__ = ["Executor", "LocalExecutor", "cancelled", "lost"]


class Executor(Protocol):
    """Runs lanes in one way. The driver's thread calls it; nothing but ``close`` may wait."""

    def start(self) -> None: ...

    def run(self, action: Run, served: Served) -> None: ...

    def recall(self, action: Recall) -> bool:
        """Recall, and say whether the lane was one of this executor's."""

    def interrupt(self, action: Interrupt) -> bool:
        """Interrupt, and say whether the lane was one of this executor's."""

    def interrupt_all(self) -> None:
        """Interrupt every lane."""

    def stop(self) -> None:
        """Begin nothing more and ask what runs to end."""

    def close(self, timeout: float) -> None:
        """Wait for what ``stop`` asked for, at most ``timeout`` seconds; post nothing after."""


def cancelled(lane: int, ids: list[int]) -> Finished:
    """Jobs that were cancelled before they began."""
    return Finished(lane, ids, [Outcome.CANCELLED] * len(ids), [b""] * len(ids))


def lost(lane: int, ids: list[int], cause: str) -> Finished:
    """Jobs that this worker cannot end: their process died, say (WMP-6.14)."""
    return Finished(lane, ids, [Outcome.LOST] * len(ids), [cause.encode()] * len(ids))


class LocalExecutor:
    """The lanes at work in this process, by number."""

    def __init__(self, post: PostEvent) -> None:
        self._post = post
        self._closed = False
        self.lanes: dict[int, Lane] = {}
        self.reporter = Reporter()

    def post(self, event: PoolEvent) -> None:
        """Post, unless the pool has been closed: a stuck handler may end much later."""
        if not self._closed:
            self._post(event)

    def open(self, action: Run, served: Served) -> Lane:
        """Make a lane of ``action`` and remember it."""
        lane = Lane(action, served, self.post, self.reporter)
        self.lanes[action.lane] = lane
        return lane

    def forget(self, lane: Lane) -> None:
        """The lane has ended and everything of it is posted."""
        self.lanes.pop(lane.number, None)

    def recall(self, action: Recall) -> bool:
        lane = self.lanes.get(action.lane)
        if lane is None:
            return False
        self.post(Recalled(action.lane, lane.recall(action.ids)))
        return True

    def interrupt(self, action: Interrupt) -> bool:
        lane = self.lanes.get(action.lane)
        if lane is None:
            return False
        taken = lane.interrupt(action.ids)
        if taken:
            self.post(cancelled(action.lane, taken))
        return True

    def interrupt_all(self) -> None:
        for lane in list(self.lanes.values()):
            self.interrupt(Interrupt(lane.number, lane.action.ids))

    def stop(self) -> None:
        """Begin nothing more, raise every flag."""
        for lane in list(self.lanes.values()):
            lane.abandon()

    def mute(self) -> None:
        """Post nothing more."""
        self._closed = True
        self.reporter.close()
