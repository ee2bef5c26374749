"""Lanes in this process: on threads, or on the driver's own thread."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from wmp.lane_exchange import Interrupt, Recall, Recalled, Run
from wmp.runtime.common.threads import ThreadEnded
from wmp.runtime.executors.handler_calls import (
    Lane,
    MovingTime,
    PoolEvent,
    PostEvent,
    cancelled,
    run_lane,
)
from wmp.runtime.executors.handlers import Served
from wmp.runtime.executors.reporter import Reporter
from wmp.vocabulary import Limits


class SettableTime:
    """A time, at first without end."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = inf


class LocalExecutor:
    """The running lanes of this process by number.

    Args:
        post: Takes the events.
        max_result: Maximum number of bytes of one result.
        doing: Takes a text about present work, as at
            :class:`~wmp.runtime.executors.handler_calls.LaneHost`.
    """

    def __init__(
        self,
        post: PostEvent,
        max_result: int = Limits.PAYLOAD,
        doing: Callable[[str], object] | None = None,
    ) -> None:
        self.post: PostEvent = post
        self.max_result = max_result
        self.doing: Callable[[str], object] = doing or _keep_silent
        self.lanes: dict[int, Lane] = {}
        self.reporter = Reporter(self.thread_ended)
        self.begins_until: MovingTime = SettableTime()
        """Time until which jobs may begin (WMP-9.22)."""

    def thread_ended(self, ended: ThreadEnded) -> None:
        """Report the unexpected end of a thread."""
        self.post(ended)

    def forget(self, number: int) -> None:
        """Remove a lane that has ended: all its events have been posted."""
        self.lanes.pop(number, None)

    def recall(self, action: Recall) -> bool:
        lane = self.lanes.get(action.lane)
        if lane is None:
            return False
        self.post(Recalled(action.lane, lane.recall(action.ids)))
        return True

    def hand_back(self, lane: int, ids: list[int]) -> None:
        """Report jobs that will not begin although nobody recalled them."""
        self.post(Recalled(lane, ids))

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
        """Begin no further job; raise every flag."""
        for lane in list(self.lanes.values()):
            lane.abandon()

    def mute(self) -> None:
        """Post no further event."""
        self.post = _ignore  # a handler that hung may end much later
        self.reporter.close()


class InlineExecutor(LocalExecutor):
    """Lanes on the driver's own thread: all events of a lane are posted when ``run`` returns.

    No job changes the thread, so this is the fastest executor for handlers of a few microseconds.
    But while a lane runs, the node does nothing else and sends no heartbeats (WMP-9.5). So a lane
    must never take longer than a fraction of a manager's ``max_silence``. Neither RECALL nor CANCEL
    reaches a lane.
    """

    def start(self) -> None:
        """Do nothing, because this executor needs no thread or process."""

    def run(self, action: Run, served: Served) -> None:
        lane = self.lanes[action.lane] = Lane(action, served, self)
        lane.watched = True  # no reporter: it would only wait for the driver
        run_lane(lane)
        self.forget(lane.number)

    def close(self, timeout: float) -> None:
        """Do nothing: no lane can be running."""
        self.mute()


def _ignore(event: PoolEvent) -> None:
    pass


def _keep_silent(text: str) -> None:
    pass
