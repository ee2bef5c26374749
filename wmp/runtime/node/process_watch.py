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
from wmp.core.worker.run_queue import RunningLane
from wmp.message import Message
from wmp.runtime.executors import Pool
from wmp.runtime.node.beat_child import Beat, BeatChild

logger = logging.getLogger("wmp")

_STALL: Final = 2.0
"""Seconds by which a timer must be late for a line in the log."""

_SHOWN: Final = 3
"""Maximum number of jobs that a log line names."""

_ADVICE: Final = (
    "a handler held Python's interpreter lock, or the process was stopped or got no processor; "
    'use pool="process" for handlers that hold the lock'
)
_ADVICE_PROCESSES: Final = "the process was stopped, or got no processor"


class ProcessWatch:
    """Watches the time while the jobs of a worker run, from the first job on.

    Args:
        pool: Runs the jobs.
        lanes: Returns the lanes that run.
        interval: Returns the seconds between two checks.
        beats: Returns the number of the link, the seconds and the message of each beat.
        address: Returns the endpoint of a link; empty for none.
        child: Sends the beats; None for none, as with handlers in processes of their own.
    """

    def __init__(
        self,
        pool: Pool,
        lanes: Callable[[], Iterable[RunningLane]],
        interval: Callable[[], float],
        beats: Callable[[], list[tuple[int, float, Message]]],
        address: Callable[[int], str],
        child: BeatChild | None,
    ) -> None:
        self._pool = pool
        self._lanes = lanes
        self._interval = interval
        self._beats = beats
        self._address = address
        self._child = child
        self._timer: asyncio.TimerHandle | None = None
        self._running: list[str] = []
        """The jobs that ran at the last check, in words."""
        pool.before_run = self._begin

    def close(self) -> None:
        """End the watch and its child. The call may come from any thread, after the loop's end."""
        self._pool.before_run = None
        if self._timer is not None:
            self._timer.cancel()
        if self._child is not None:
            self._child.close()
            self._child = None

    def _begin(self) -> None:
        """Watch from now on: a job is about to run, which may stop this thread at once."""
        loop = asyncio.get_running_loop()
        self._look_later(loop)
        self._report_beats()

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._interval(), self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._timer is not None
        newest, self._pool.newest = self._pool.newest, None
        running = [_words(lane.kind.role, lane.ids) for lane in self._lanes()]
        late = loop.time() - self._timer.when()
        if late >= _STALL:
            ended = [] if newest is None else [_words(newest.kind.role, newest.ids)]
            self._log(self._interval() + late, self._running or running or ended)
        self._running = running
        if newest is None and not running:
            # Idle workers cost nothing.
            self._timer = None
            self._pool.before_run = self._begin
            if self._child is not None:
                self._child.report(self._interval(), ())
            return
        self._look_later(loop)
        self._report_beats()

    def _report_beats(self) -> None:
        if self._child is None:
            return
        beats: list[Beat] = []
        for link, bound, message in self._beats():
            endpoint = self._address(link)
            if endpoint and not endpoint.startswith("inproc:"):  # which ends at this process
                beats.append((endpoint, bound, [bytes(frame) for frame in codec.encode(message)]))
        self._child.report(self._interval(), beats)

    def _log(self, seconds: float, jobs: list[str]) -> None:
        shown = ", ".join(jobs[:_SHOWN]) + (", …" if len(jobs) > _SHOWN else "")
        logger.warning(
            "worker: this process did not run for %.0f s%s: %s",
            seconds,
            f", with {shown}" if shown else "",
            _ADVICE if self._child is not None else _ADVICE_PROCESSES,
        )


def _words(role: str, ids: Iterable[int]) -> str:
    return f"job {next(iter(ids), '?')} (role {role!r})"
