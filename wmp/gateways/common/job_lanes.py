"""The jobs of a door: the line of those that wait for a foreign worker, and the ends of each lane.

A worker machine puts quick jobs that wait on one lane, so that it and its manager take one step for
several jobs. Behind the door the jobs of all lanes of a group wait in one line, in the order of
their arrival: a worker that is free gets the first of them, whatever its lane. The door reports
some ends of a lane together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import repeat
from typing import Any, Final, Literal, NamedTuple

from attrs import define, field

from wmp.actions import Run
from wmp.core.protocol.timers import Timers
from wmp.events import Finished, Recalled
from wmp.foreign import Of
from wmp.message import Frame, Outcome

LANE_JOBS: Final = 16
"""Maximum number of jobs of a lane."""

LANE_TIME: Final = 0.03
"""Seconds that the jobs of a lane should take together, by the time of earlier jobs."""

REPORT_INTERVAL: Final = 0.008
"""Maximum number of seconds for which an end waits for other ends of its lane."""


class LaneReportTimer(NamedTuple):
    """Ends of a lane must wait no longer for other ends."""

    group: str
    lane: int
    what: Literal["report"] = "report"


@define(eq=False)
class JobLane:
    """The jobs of one lane."""

    run: Run
    group: str
    """Name of the group of workers."""
    left: int = field(init=False)
    """Number of jobs that have not ended."""
    since: float = field(default=0.0, init=False)
    """When the first end that is not reported came."""
    ids: list[int] = field(factory=list, init=False)
    """The jobs whose ends are not reported. The next lists have one entry for each."""
    outcomes: list[Outcome] = field(factory=list, init=False)
    payloads: list[Frame] = field(factory=list, init=False)
    codec: str | None = field(default=None, init=False)
    """Codec of these results; None for the codec of the jobs."""

    def __attrs_post_init__(self) -> None:
        self.left = len(self.run.ids)

    def report(self) -> Of[Finished] | None:
        """Return the ends that are not reported yet; None for none."""
        if not self.ids:
            return None
        event = Finished(self.run.lane, self.ids, self.outcomes, self.payloads, codec=self.codec)
        self.ids, self.outcomes, self.payloads = [], [], []
        self.codec = None
        return Of(self.group, event)


@define(eq=False)
class JobLanes:
    """The jobs of all lanes of a door.

    Args:
        timers: The timers of the door, which gets ``LaneReportTimer``.
    """

    timers: Timers[Any]
    _lanes: dict[tuple[str, int], JobLane] = field(factory=dict, init=False)
    _waiting: dict[str, deque[tuple[JobLane, int]]] = field(factory=dict, init=False)
    """The jobs that have not begun, by group: the lane of each, and its place in the columns."""

    def __len__(self) -> int:
        return len(self._lanes)

    def waiting(self, group: str) -> int:
        """Return the number of jobs of a group that have not begun."""
        line = self._waiting.get(group)
        return len(line) if line else 0

    def add(self, group: str, run: Run) -> None:
        """Let the jobs of a lane wait behind the others."""
        lane = self._lanes[group, run.lane] = JobLane(run, group)
        line = self._waiting.get(group)
        if line is None:
            line = self._waiting[group] = deque()
        line.extend(zip(repeat(lane), range(lane.left)))

    def next(self, group: str, now: float, actions: list[Any]) -> tuple[JobLane, int] | None:
        """Take the first job that waits and may begin now.

        A job whose time has passed ends as cancelled (WMP-6.7, 6.19).

        Returns:
            Its lane, and its place in the columns of the lane; None for no such job.
        """
        line = self._waiting.get(group)
        while line:
            lane, row = line.popleft()
            times = lane.run.begin_by or lane.run.deadlines
            begin_by = None if times is None else times[row]
            if begin_by is None or begin_by > now:
                return lane, row
            self.end_job(lane, lane.run.ids[row], Outcome.CANCELLED, b"", now, actions)
        return None

    def end_job(
        self,
        lane: JobLane,
        id: int,
        outcome: Outcome,
        payload: Frame,
        now: float,
        actions: list[Any],
        codec: str | None = None,
    ) -> None:
        """End a job. The end leaves with other ends of its lane.

        Args:
            lane: Its lane.
            id: Its number.
            outcome: Its outcome.
            payload: Its result.
            now: Seconds.
            actions: Gets what follows.
            codec: Codec of the result; None for the codec of the job.
        """
        if not lane.ids:
            lane.since = now
            if lane.left > 1:
                timer = LaneReportTimer(lane.group, lane.run.lane)
                self.timers.arm(timer, now + REPORT_INTERVAL)
        elif codec != lane.codec and (earlier := lane.report()) is not None:
            actions.append(earlier)
        lane.codec = codec
        lane.ids.append(id)
        lane.outcomes.append(outcome)
        lane.payloads.append(payload)
        lane.left -= 1
        if not lane.left:
            self._close(lane, actions)
        elif now - lane.since >= REPORT_INTERVAL:
            self.flush(lane, actions)

    def recall(self, group: str, number: int, ids: Collection[int], actions: list[Any]) -> None:
        """Hand back those jobs of a lane that have not begun.

        A worker that has a request has begun it, as far as the door can know.
        """
        lane = self._lanes.get((group, number))
        taken = () if lane is None else tuple(self._take_out(lane, ids))
        if lane is not None and taken:
            lane.left -= len(taken)
            if not lane.left:
                self._close(lane, actions)
        actions.append(Of(group, Recalled(number, taken)))

    def cancel_waiting(
        self, group: str, number: int, ids: Collection[int], now: float, actions: list[Any]
    ) -> JobLane | None:
        """End those jobs of a lane that have not begun; return the lane, None if it has ended."""
        lane = self._lanes.get((group, number))
        if lane is not None:
            for id in self._take_out(lane, ids):
                self.end_job(lane, id, Outcome.CANCELLED, b"", now, actions)
            self.flush(lane, actions)
        return lane

    def hand_back(self, group: str, now: float, actions: list[Any]) -> None:
        """Let all jobs of a group that have not begun go back to their manager."""
        line = self._waiting.pop(group, ())
        for lane, row in line:
            self.end_job(lane, lane.run.ids[row], Outcome.CANCELLED, b"", now, actions)
        for lane in {id(lane): lane for lane, _ in line}.values():
            self.flush(lane, actions)

    def report(self, timer: LaneReportTimer, actions: list[Any]) -> None:
        """Report the ends of a lane that have waited for others."""
        lane = self._lanes.get((timer.group, timer.lane))
        if lane is not None:
            self.flush(lane, actions)

    def _take_out(self, lane: JobLane, ids: Collection[int]) -> list[int]:
        """Take those jobs of a lane that wait out of the line; return them."""
        line = self._waiting.get(lane.group)
        taken: list[int] = []
        if line:
            kept: deque[tuple[JobLane, int]] = deque()
            for other, row in line:
                if other is lane and lane.run.ids[row] in ids:
                    taken.append(lane.run.ids[row])
                else:
                    kept.append((other, row))
            self._waiting[lane.group] = kept
        return taken

    def _close(self, lane: JobLane, actions: list[Any]) -> None:
        """Report the end of a lane."""
        number = lane.run.lane
        del self._lanes[lane.group, number]
        if len(lane.run.ids) > 1:
            self.timers.clear(LaneReportTimer(lane.group, number))
        self.flush(lane, actions)

    def flush(self, lane: JobLane, actions: list[Any]) -> None:
        """Report the ends of a lane that have waited for others."""
        if (report := lane.report()) is not None:
            actions.append(report)
