"""Jobs at a worker: those that wait and those that run, and how many go on a lane at once.

A *lane* takes the resources of one job and runs a bundle of them one after the other. Jobs
that wait stand in a line for each (manager, owner, kind); the lines are served in the order
in which their first jobs came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Sequence

from attrs import define, field

from wmp.actions import Run
from wmp.core.protocol.resources import Resources
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.throughput import Throughput
from wmp.message import Frame, Kind, Peer

__all__ = ["RunQueue", "RunningLane", "WaitingBatch", "WaitingJobs"]


@define(eq=False)
class WaitingBatch:
    """Jobs that came in one TAKE and wait, in columns."""

    ids: Sequence[int]
    deadlines: Sequence[float | None] | None
    """None when no job has one."""
    payloads: Sequence[Frame]
    turn: int
    """Grows with every TAKE."""
    since: float
    """When it came."""

    def __len__(self) -> int:
        return len(self.ids)

    def late(self, now: float, first: int, last: int) -> int:
        """The place of the first job from ``first`` on whose time has passed; else ``last``."""
        for place, deadline in enumerate((self.deadlines or ())[first:last], first):
            if deadline is not None and deadline <= now:
                return place
        return last

    def drop(self, count: int) -> None:
        """Take out the first jobs."""
        self.ids = self.ids[count:]
        self.payloads = self.payloads[count:]
        if self.deadlines is not None:
            self.deadlines = self.deadlines[count:]

    def without(self, ids: Container[int]) -> None:
        """Take out jobs by their numbers."""
        rows = [row for row, id in enumerate(self.ids) if id not in ids]
        self.ids = [self.ids[row] for row in rows]
        self.payloads = [self.payloads[row] for row in rows]
        if self.deadlines is not None:
            self.deadlines = [self.deadlines[row] for row in rows]


@define(eq=False)
class WaitingJobs:
    """Jobs that wait: of one kind and owner, from one manager."""

    upstream: RemoteManager
    owner: Peer
    kind: Kind
    parcels: deque[WaitingBatch] = field(factory=deque)
    """Oldest first; none is empty."""
    waiting: int = 0
    """Jobs in all of them."""

    @property
    def ids(self) -> list[int]:
        """Their numbers, oldest first."""
        return [id for parcel in self.parcels for id in parcel.ids]

    def take(self, count: int) -> None:
        """Take out jobs of the first parcel."""
        parcel = self.parcels[0]
        self.waiting -= count
        if count < len(parcel):
            parcel.drop(count)
        else:
            self.parcels.popleft()


@define(eq=False)
class RunningLane:
    """A bundle that runs."""

    number: int
    upstream: RemoteManager
    owner: Peer
    kind: Kind
    ids: dict[int, None]
    """Jobs that have not ended, in order."""
    since: float
    """When it started, or last reported."""
    lost: bool = False
    """The manager's session is over: nobody wants the results."""


_Key = tuple[bytes, Peer, Kind]


@define(eq=False)
class RunQueue:
    """All jobs that wait or run.

    Invariant: every lane holds the resources of one job of its kind; ``parked`` is how many
    jobs stand in all lines.
    """

    resources: Resources
    pace: Throughput
    running: dict[int, RunningLane] = field(factory=dict)
    parked: int = 0
    stalled: bool = False
    """Whether jobs waited too long here and no lane has reported since."""
    _lines: dict[_Key, WaitingJobs] = field(factory=dict)
    _turn: int = 0
    _number: int = 0

    def park(
        self,
        upstream: RemoteManager,
        owner: Peer,
        kind: Kind,
        ids: Sequence[int],
        deadlines: Sequence[float | None] | None,
        payloads: Sequence[Frame],
        now: float,
    ) -> None:
        """Let jobs wait; ``start`` starts them."""
        key = (upstream.identity, owner, kind)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = WaitingJobs(upstream, owner, kind)
        self._turn += 1
        line.parcels.append(WaitingBatch(ids, deadlines, payloads, self._turn, now))
        line.waiting += len(ids)
        self.parked += len(ids)

    def start(self, now: float) -> tuple[list[Run], list[tuple[WaitingJobs, list[int]]], Resources]:
        """Start what resources allow, oldest first.

        Returns:
            What to run; the ids, line by line, whose deadline passed before they could begin
            (WMP-6.7; they are out of the line and still in ``taken``); and what is free for
            others. A line that does not fit keeps aside what there is of its next job's
            needs, so that small jobs behind it cannot starve a large one.
        """
        runs: list[Run] = []
        expired: list[tuple[WaitingJobs, list[int]]] = []
        spare = self.resources.spare()
        waiting = list(self._lines.values()) if self.parked else []
        while waiting:
            line = min(waiting, key=_turn) if len(waiting) > 1 else waiting[0]
            late = self._weed(line, now)
            if late:
                expired.append((line, late))
            fits = spare.fits(line.kind.needs) if line.waiting else 0
            if fits:
                spare.take(line.kind.needs)
                runs.append(self._run(line, fits, now))
            elif line.waiting:
                spare.set_aside(line.kind.needs)
                waiting.remove(line)
            if not line.waiting:
                waiting.remove(line)
                del self._lines[line.upstream.identity, line.owner, line.kind]
        return runs, expired, spare

    def end(self, lane: RunningLane, ids: Sequence[int]) -> None:
        """Jobs of a lane ended, each once; without any left, its resources are free again."""
        if len(ids) == len(lane.ids):
            lane.ids.clear()
        for job in ids if lane.ids else ():
            del lane.ids[job]
        if not lane.ids:
            del self.running[lane.number]
            self.resources.release(lane.kind.needs)

    def remove(self, upstream: RemoteManager, owner: Peer, ids: set[int]) -> None:
        """Take jobs out of their lines."""
        for line in list(self._lines.values()):
            if line.upstream is upstream and line.owner == owner:
                for parcel in line.parcels:
                    parcel.without(ids)
                line.parcels = deque(parcel for parcel in line.parcels if len(parcel))
                waiting = sum(map(len, line.parcels))
                self.parked -= line.waiting - waiting
                line.waiting = waiting
                if not waiting:
                    del self._lines[upstream.identity, owner, line.kind]

    def forget(self, upstream: RemoteManager) -> list[RunningLane]:
        """The manager's session is over: drop what waits; returns the lanes still at it."""
        for key, line in list(self._lines.items()):
            if line.upstream is upstream:
                self.parked -= line.waiting
                del self._lines[key]
        lanes = [lane for lane in self.of(upstream) if not lane.lost]
        for lane in lanes:
            lane.lost = True
        return lanes

    def of(self, upstream: RemoteManager) -> Iterator[RunningLane]:
        """Lanes with jobs of one manager."""
        return (lane for lane in self.running.values() if lane.upstream is upstream)

    @property
    def loaded(self) -> list[RunningLane]:
        """Lanes on which jobs wait for the first."""
        return [lane for lane in self.running.values() if len(lane.ids) > 1 and not lane.lost]

    def blocked(self, since: float) -> list[WaitingJobs]:
        """Lines whose first job has waited since then, while no lane of its needs reported."""
        if not self.parked:
            return []
        moving = {lane.kind.needs for lane in self.running.values() if lane.since > since}
        return [
            line
            for line in self._lines.values()
            if line.parcels[0].since <= since and line.kind.needs not in moving
        ]

    def clear(self, line: WaitingJobs) -> list[int]:
        """Take out all that waits in a line; its numbers."""
        del self._lines[line.upstream.identity, line.owner, line.kind]
        self.parked -= line.waiting
        return line.ids

    def drain(self) -> list[tuple[WaitingJobs, list[int]]]:
        """Take out all that waits, line by line."""
        lines = [(line, line.ids) for line in self._lines.values()]
        self._lines.clear()
        self.parked = 0
        return lines

    def check(self) -> None:
        """Raise AssertionError when the invariant does not hold."""
        assert self.parked == sum(line.waiting for line in self._lines.values())
        for lane in self.running.values():
            assert lane.ids, f"lane {lane.number} is empty"
        for key, line in self._lines.items():
            assert line.waiting, f"an empty line of {key}"
            assert line.waiting == sum(map(len, line.parcels))
            assert all(line.parcels), f"an empty parcel of {key}"
            assert key == (line.upstream.identity, line.owner, line.kind)

    def _weed(self, line: WaitingJobs, now: float) -> list[int]:
        """Take out the first jobs of a line whose time has passed; deeper ones come later."""
        late: list[int] = []
        while line.parcels and not line.parcels[0].late(now, 0, 1):
            late.append(line.parcels[0].ids[0])
            line.take(1)
        self.parked -= len(late)
        return late

    def _run(self, line: WaitingJobs, fits: int, now: float) -> Run:
        kind = line.kind
        left = self.pace.bundle(kind.role, line.waiting, fits)
        ids: list[int] = []
        deadlines: list[float | None] = []
        payloads: list[Frame] = []
        late = False
        while left and not late:
            parcel = line.parcels[0]
            most = min(left, len(parcel))
            # Up to the next job whose time has passed: that one is not started.
            count = parcel.late(now, 0 if ids else 1, most)
            late = count < most
            ids += parcel.ids[:count]
            payloads += parcel.payloads[:count]
            deadlines += parcel.deadlines[:count] if parcel.deadlines else [None] * count
            left -= count
            if count:
                line.take(count)
        self.parked -= len(ids)
        self._number += 1
        number = self._number
        self.resources.take(kind.needs)
        self.running[number] = RunningLane(
            number, line.upstream, line.owner, kind, dict.fromkeys(ids), now
        )
        return Run(
            lane=number,
            kind=kind,
            manager=line.owner,
            ids=ids,
            attempts=line.upstream.taken[line.owner].start(ids),
            deadlines=deadlines if deadlines.count(None) < len(ids) else None,
            payloads=payloads,
        )


def _turn(line: WaitingJobs) -> int:
    return line.parcels[0].turn
