"""The reporter: a thread that posts what waits behind a slow job.

A lane's own runner posts results when its bundle ends or when the last post is old enough, but
it cannot while it is inside a handler. The reporter can. It sleeps without a timer while no
result waits anywhere.
"""

from __future__ import annotations

from collections import deque
from threading import Event, Lock, Thread
from time import monotonic, sleep

from wmp.runtime.executors.lane import FLUSH_INTERVAL, Lane
from wmp.runtime.threads import start_thread

__all__ = ["Reporter"]


class Reporter:
    """Looks at a lane ``FLUSH_INTERVAL`` after it asked to be watched."""

    def __init__(self) -> None:
        self._due: deque[Lane] = deque()
        self._something = Event()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    def watch(self, lane: Lane) -> None:
        """Look at ``lane`` soon, once. Returns at once, from any thread."""
        lane.watched = True
        self._due.append(lane)
        if self._thread is None and not self._start():
            # Nobody will look later; so now, which is only less thrifty.
            self._due.clear()
            lane.watched = False
            lane.flush(monotonic())
            return
        self._something.set()

    def close(self) -> None:
        """End the thread; returns at once."""
        self._closed = True
        self._something.set()

    def _start(self) -> bool:
        """See that there is a thread, or that none is needed any more."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = start_thread(self._run, "wmp-reporter")
            return self._thread is not None or self._closed

    def _run(self) -> None:
        due = self._due
        while not self._closed:
            self._something.wait()
            # Cleared before ``due`` is read: a lane that comes in between sets it again.
            self._something.clear()
            while due and not self._closed:
                sleep(FLUSH_INTERVAL)
                for _ in range(len(due)):
                    lane = due.popleft()
                    # Before the look: what is appended after it asks for another one.
                    lane.watched = False
                    if lane.flush(monotonic()):
                        self.watch(lane)
