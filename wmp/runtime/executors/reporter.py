"""The reporter of a worker process: a thread that posts results which wait behind a slow job."""

from __future__ import annotations

from collections import deque
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Final, Protocol

from wmp.runtime.common.threads import FailedCall, start_thread

FLUSH_INTERVAL: Final = 0.1
"""Maximum number of seconds for which a result waits for other results of its lane.

The time is longer than the time of a bundle (``lane_time``), so a bundle of fast jobs is one event.
It is too short for a person to notice.
"""


class Watched(Protocol):
    """A lane with results or progress to post."""

    watched: bool
    """Whether the reporter flushes this lane within its interval."""

    def flush(self, now: float) -> bool:
        """Post what is due at ``now``, in seconds; return whether more is due later."""


class Reporter:
    """A thread that posts results and progress which wait behind a slow job.

    A lane's runner flushes the lane when the last of its jobs has ended. Before, the reporter
    flushes the lane in each interval. It sleeps without a timer while no lane has results.

    Args:
        failed: Takes the unexpected end of the thread.
    """

    def __init__(self, failed: FailedCall) -> None:
        self._failed = failed
        self._due: deque[Watched] = deque()
        self._something = Event()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    def watch(self, lane: Watched) -> None:
        """Flush ``lane`` once, after ``FLUSH_INTERVAL``. Returns at once, from any thread."""
        lane.watched = True
        self._due.append(lane)
        if self._thread is None and not self._start():
            # No thread can be started, so the lane is flushed now. This only costs more events.
            self._due.clear()
            lane.watched = False
            lane.flush(monotonic())
            return
        self._something.set()

    def close(self) -> None:
        """End the thread; return at once."""
        self._closed = True
        self._something.set()

    def _start(self) -> bool:
        """Start the thread if it is needed; return False if that failed."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = start_thread(self._run, "wmp-reporter", failed=self._failed)
            return self._thread is not None or self._closed

    def _run(self) -> None:
        due = self._due
        while not self._closed:
            self._something.wait()
            # Cleared before ``due`` is read: a lane that is added later sets the event again.
            self._something.clear()
            while due and not self._closed:
                sleep(FLUSH_INTERVAL)
                for _ in range(len(due)):
                    lane = due.popleft()
                    # Cleared before the flush: a result that comes after the flush requests another
                    # flush.
                    lane.watched = False
                    if lane.flush(monotonic()):
                        self.watch(lane)
