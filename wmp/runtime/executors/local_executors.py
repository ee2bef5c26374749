"""Lanes in this process: on threads, or on the driver's own thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from time import monotonic

from wmp.actions import Interrupt, Recall, Run
from wmp.events import Recalled
from wmp.message import Limits
from wmp.runtime.common.threads import ThreadEnded, start_thread
from wmp.runtime.executors.handlers import Served
from wmp.runtime.executors.lane import (
    Lane,
    PoolEvent,
    PostEvent,
    Reporter,
    cancelled,
    lost,
    run_lane,
)


class LocalExecutor:
    """The running lanes of this process by number.

    Args:
        post: Takes the events.
        max_result: Maximum number of bytes of one result.
    """

    def __init__(self, post: PostEvent, max_result: int = Limits.PAYLOAD) -> None:
        self.post: PostEvent = post
        self.max_result = max_result
        self.doing: Callable[[str], object] = _keep_silent
        self.lanes: dict[int, Lane] = {}
        self.reporter = Reporter(self.thread_ended)

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


class ThreadExecutor(LocalExecutor):
    """Lanes on at most ``slots`` daemon threads. A thread is started if no other thread is free.

    This executor is the default. It suits handlers that wait, and short handlers.
    """

    def __init__(self, slots: int, post: PostEvent, max_result: int = Limits.PAYLOAD) -> None:
        super().__init__(post, max_result)
        self._slots = slots
        self._threads: list[Thread] = []
        self._queue: SimpleQueue[Lane | None] = SimpleQueue()
        self._idle: deque[None] = deque()
        """A token for each thread that waits; taken for each lane that is queued."""

    def start(self) -> None:
        """Do nothing: threads start with the first lanes."""

    def run(self, action: Run, served: Served) -> None:
        try:
            self._idle.pop()
        except IndexError:
            if len(self._threads) < self._slots:
                # A daemon thread: a handler that never returns must not keep the process alive.
                name = f"wmp-handlers-{len(self._threads)}"
                thread = start_thread(self._work, name, failed=self.thread_ended)
                if thread is not None:
                    self._threads.append(thread)
                elif not self._threads:
                    self.post(
                        lost(
                            action.lane,
                            list(action.ids),
                            "the worker could not start a thread for the job",
                        )
                    )
                    return
        lane = self.lanes[action.lane] = Lane(action, served, self)
        self._queue.put(lane)

    def _work(self) -> None:
        while (lane := self._queue.get()) is not None:
            run_lane(lane)
            self.forget(lane.number)
            del lane  # a thread without work must not keep its last payloads
            self._idle.append(None)

    def close(self, timeout: float) -> None:
        """Wait for running handlers; leave handlers that do not end."""
        deadline = monotonic() + timeout
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        self.mute()


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
