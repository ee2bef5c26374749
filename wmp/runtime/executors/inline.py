"""Lanes on the driver's own thread.

No hop to another thread: the fastest there is for handlers of a few microseconds. The price:
while a lane runs nothing else does, heartbeats included (WMP-9.5), so a lane must never take
longer than a fraction of a manager's ``expire``; and neither RECALL nor CANCEL reaches it.
"""

from __future__ import annotations

from wmp.actions import Run
from wmp.runtime.executors.base import LocalExecutor
from wmp.runtime.executors.lane import run_lane
from wmp.runtime.handlers import Served

__all__ = ["InlineExecutor"]


class InlineExecutor(LocalExecutor):
    """Runs a lane inside ``run``; everything of it is posted when that returns."""

    def start(self) -> None:
        """Nothing to start."""

    def run(self, action: Run, served: Served) -> None:
        if self._closed:
            return
        lane = self.open(action, served)
        # The driver could not act on an early report: it is here.
        lane.watched = True
        run_lane(lane)
        self.forget(lane)

    def close(self, timeout: float) -> None:
        """Nothing can be running."""
        self.mute()
