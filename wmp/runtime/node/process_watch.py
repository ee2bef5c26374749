"""The watch for stalls: times in which the whole process of a worker does not run.

A handler that holds Python's interpreter lock stops the loop of its worker, and with it all signs
of life. A child process then sends beats for the worker, and the log names the time afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from wmp import codec
from wmp.actions import Interrupt, Recall, Run
from wmp.core.worker.run_queue import RunningLane
from wmp.message import Message
from wmp.runtime.driver.performers import Executors
from wmp.runtime.node.beat_child import Beat, BeatChild

logger = logging.getLogger("wmp")

_STALL: Final = 2.0
"""Seconds by which a timer must be late for a line in the log."""

_FRESH: Final = 0.1
"""Seconds for which the child's record counts as new."""

_SHOWN: Final = 3
"""Maximum number of jobs that a log line names."""

_ADVICE: Final = (
    "a handler held Python's interpreter lock, or the process was stopped or got no processor; "
    'use pool="process" for handlers that hold the lock'
)
_ADVICE_PROCESSES: Final = "the process was stopped, or got no processor"


class ProcessWatch:
    """Passes on a worker's actions about lanes, and watches the time while jobs run.

    Args:
        executors: Perform the actions.
        lanes: Returns the lanes that run.
        interval: Returns the seconds between two checks.
        beats: Returns the number of the link, the seconds and the message of each beat.
        address: Returns the endpoint of a link.
        child: Sends the beats; None for none, as with handlers in processes of their own.
    """

    def __init__(
        self,
        executors: Executors,
        lanes: Callable[[], Iterable[RunningLane]],
        interval: Callable[[], float],
        beats: Callable[[], list[tuple[int, float, Message]]],
        address: Callable[[int], str],
        child: BeatChild | None,
    ) -> None:
        self.recall: Callable[[Recall], None] = executors.recall
        self.interrupt: Callable[[Interrupt], None] = executors.interrupt
        self._run = executors.run
        self._lanes = lanes
        self._interval = interval
        self._beats = beats
        self._address = address
        self._child = child
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reported_at = float("-inf")
        self._running: dict[int, str] = {}
        """The jobs that ran since the last check, in words, by lane."""

    def run(self, action: Run) -> None:
        """Start a lane, and watch the time from now on."""
        self._running[action.lane] = _words(action.kind.role, action.ids)
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        if self._timer is None:
            self._look_later(loop)
        if loop.time() - self._reported_at > _FRESH:
            self._report_beats(loop.time())
        self._run(action)

    def close(self) -> None:
        """End the watch and its child. The call may come from any thread, after the loop's end."""
        if self._timer is not None:
            self._timer.cancel()
        if self._child is not None:
            self._child.close()
            self._child = None

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._interval(), self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._timer is not None
        now = loop.time()
        late = now - self._timer.when()
        if late >= _STALL:
            self._log(self._interval() + late)
        running = {lane.number: _words(lane.kind.role, lane.ids) for lane in self._lanes()}
        idle = not self._running and not running
        self._running = running
        if idle:
            self._timer = None
            self._reported_at = float("-inf")
            if self._child is not None:
                self._child.report(self._interval(), ())
            return
        self._look_later(loop)
        self._report_beats(now)

    def _report_beats(self, now: float) -> None:
        if self._child is None:
            return
        self._reported_at = now
        beats: list[Beat] = []
        for link, bound, message in self._beats():
            endpoint = self._address(link)
            if not endpoint.startswith("inproc:"):  # which ends at this process
                beats.append((endpoint, bound, [bytes(frame) for frame in codec.encode(message)]))
        self._child.report(self._interval(), beats)

    def _log(self, seconds: float) -> None:
        jobs = list(self._running.values())
        shown = ", ".join(jobs[:_SHOWN]) + (", …" if len(jobs) > _SHOWN else "")
        logger.warning(
            "worker: this process did not run for %.0f s%s: %s",
            seconds,
            f", with {shown}" if shown else "",
            _ADVICE if self._child is not None else _ADVICE_PROCESSES,
        )


def _words(role: str, ids: Iterable[int]) -> str:
    return f"job {next(iter(ids), '?')} (role {role!r})"
