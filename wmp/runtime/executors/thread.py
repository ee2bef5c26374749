"""Lanes on threads of this process: the default, right for handlers that wait or are short."""

from __future__ import annotations

from collections import deque
from queue import SimpleQueue
from threading import Thread
from time import monotonic

from wmp.actions import Run
from wmp.runtime.executors.base import LocalExecutor, lost
from wmp.runtime.executors.lane import Lane, PostEvent, run_lane
from wmp.runtime.handlers import Served
from wmp.runtime.threads import start_thread

__all__ = ["ThreadExecutor"]


class ThreadExecutor(LocalExecutor):
    """At most ``slots`` daemon threads, each started when no other is free."""

    def __init__(self, slots: int, post: PostEvent) -> None:
        super().__init__(post)
        self._slots = slots
        self._threads: list[Thread] = []
        self._queue: SimpleQueue[Lane | None] = SimpleQueue()
        self._idle: deque[None] = deque()
        """A token for each thread that waits; taken by the lane that is meant for it."""

    def start(self) -> None:
        """Nothing: threads start with the first lanes."""

    def run(self, action: Run, served: Served) -> None:
        if self._closed:
            return
        try:
            self._idle.pop()
        except IndexError:
            if len(self._threads) < self._slots:
                # Daemon: a handler that never returns must not keep the process alive.
                thread = start_thread(self._work, f"wmp-handlers-{len(self._threads)}")
                if thread is not None:
                    self._threads.append(thread)
                elif not self._threads:
                    self.post(
                        lost(action.lane, list(action.ids), "no thread could be started for it")
                    )
                    return
        self._queue.put(self.open(action, served))

    def _work(self) -> None:
        while (lane := self._queue.get()) is not None:
            run_lane(lane)
            self.forget(lane)
            del lane  # its payloads must not live as long as this thread idles
            self._idle.append(None)

    def close(self, timeout: float) -> None:
        """Wait for running handlers, leave those that do not end."""
        deadline = monotonic() + timeout
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        self.mute()
