"""The jobs of a worker that wait or run: the order of their starts, and their number on a lane.

A *lane* takes the resources of one job and runs a bundle of jobs one after the other. Jobs wait in
a line for each (manager, owner, kind). The lines are served in the order in which their first jobs
came. The measured duration of jobs decides the size of bundles, and the number of jobs that should
wait here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence

from attrs import define, field

from wmp.actions import Run
from wmp.core.protocol.resources import Resources
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.execution_lifecycle import TRANSITIONS, ExecutionInput, ExecutionState
from wmp.core.worker.job_times import NO_TIMES, JobTimes, joined
from wmp.message import Frame, Kind, Peer

_LANES = 80
"""With more places than this number, bundles become longer.

Each lane costs the worker a step at its start and at its end. With many places these steps would
take as long as the jobs.
"""
_LONGEST = 2.5
"""Maximum factor by which a bundle becomes longer."""

_WEIGHT = 0.25
"""Weight of the newest measure in the mean. After some ten bundles an old value is replaced."""


@define(eq=False)
class Throughput:
    """Mean duration of a job by role: a moving mean over the newest bundles.

    Jobs of a few microseconds should wait here in advance and start in large bundles. A job of
    seconds that waits here could run at an idle worker elsewhere.
    """

    settings: WorkerSettings
    places: int
    """Number of jobs that run at the same time."""
    means: dict[str, float] = field(factory=dict)
    """Seconds of a job, by role."""
    window: int = field(init=False)
    """Number of jobs that should wait here beside the running jobs, by the newest measure."""

    def __attrs_post_init__(self) -> None:
        self.window = self._window()

    def record(self, role: str, seconds: float, jobs: int) -> None:
        """Record that a lane took ``seconds`` for ``jobs`` jobs."""
        each = max(0.0, seconds) / jobs
        mean = self.means.get(role)
        self.means[role] = each if mean is None else mean + _WEIGHT * (each - mean)
        self.window = self._window()

    def _window(self) -> int:
        settings = self.settings
        if settings.window is not None:
            return settings.window
        if not self.means:
            return 0
        # The slowest role counts, since the role of the next jobs is not known.
        slowest = max(self.means.values())
        if slowest > settings.window_time:
            return 0
        return self._jobs(settings.window_time, slowest, settings.window_max, max(1, self.places))

    def resize(self, places: int) -> None:
        """Count with another number of jobs that run at the same time."""
        self.places = places
        self.window = self._window()

    def bundle(self, role: str, waiting: int, places: int) -> int:
        """Return the number of jobs for one lane.

        Args:
            role: Role of the jobs.
            waiting: Number of jobs that wait.
            places: Number of lanes of such jobs, free or not.
        """
        settings = self.settings
        mean = self.means.get(role)
        if mean is None:
            return 1
        seconds = settings.lane_time * min(max(1.0, places / _LANES), _LONGEST)
        maximum = self._jobs(seconds, mean, settings.lane_max)
        return max(1, min(maximum, -(-waiting // places)))

    @staticmethod
    def _jobs(seconds: float, mean: float, maximum: int, times: int = 1) -> int:
        # Compare before the division: a mean may be 0, or so small that the division overflows.
        if mean * maximum <= seconds * times:
            return maximum
        return int(seconds / mean * times)


@define(eq=False)
class HeldJobs:
    """The jobs of one owner that came from one manager.

    Invariant: ``attempts`` and ``states`` have the same keys, and no state is ABSENT.
    """

    manager: bytes
    """Identity of the manager that gets the answers; empty for orphaned jobs."""
    owner: Peer
    keep: float = 0.0
    """Seconds for which the jobs are kept without a manager (WMP-14.5)."""
    attempts: dict[int, int] = field(factory=dict)
    states: dict[int, ExecutionState] = field(factory=dict)

    def __len__(self) -> int:
        return len(self.attempts)

    def state(self, job: int) -> ExecutionState:
        """Return the state of a job."""
        return self.states.get(job, ExecutionState.ABSENT)

    def new_rows(self, ids: Sequence[int], attempts: Sequence[int]) -> list[int]:
        """Return the rows of jobs that are not held; a held job takes over the higher attempt."""
        rows: dict[int, int] = {}
        for row, (job, attempt) in enumerate(zip(ids, attempts, strict=True)):
            if job in self.attempts:
                # WMP-4.14: a held job has one answer, which also ends the newer lease.
                newer = attempt > self.attempts[job]
                if newer and self.step(job, ExecutionInput.TAKE) is not None:
                    self.attempts[job] = attempt
            elif job not in rows or attempt > attempts[rows[job]]:
                rows[job] = row
        return sorted(rows.values())

    def add(self, ids: Sequence[int], attempts: Iterable[int]) -> None:
        """Hold jobs that were absent."""
        parked = TRANSITIONS[ExecutionState.ABSENT, ExecutionInput.TAKE]
        self.attempts.update(zip(ids, attempts, strict=True))
        self.states.update(dict.fromkeys(ids, parked))

    def start(self, ids: Sequence[int]) -> list[int]:
        """Hand parked jobs to a lane; return their attempts."""
        self.states.update(
            dict.fromkeys(ids, TRANSITIONS[ExecutionState.PARKED, ExecutionInput.START])
        )
        return list(map(self.attempts.__getitem__, ids))

    def step(self, job: int, what: ExecutionInput) -> ExecutionState | None:
        """Move one job by the table; return its new state, or None when ``what`` is ignored."""
        state = TRANSITIONS.get((self.state(job), what))
        if state is None or state is ExecutionState.ABSENT:
            return state
        self.states[job] = state
        return state

    def remove(self, ids: Sequence[int], what: ExecutionInput) -> list[int]:
        """Remove jobs that the input ``what`` ends; return their attempts.

        ``TRANSITIONS`` is consulted once for each state of these jobs, not once for each job.
        """
        for state in set(map(self.states.pop, ids)):
            assert TRANSITIONS[state, what] is ExecutionState.ABSENT
        return list(map(self.attempts.pop, ids))


@define(eq=False)
class WaitingBatch:
    """Jobs of one TAKE that wait, in columns."""

    ids: Sequence[int]
    times: JobTimes | None
    """Times of the jobs; None when no job has a time."""
    payloads: Sequence[Frame]
    turn: int
    """A number that grows with every TAKE."""
    since: float
    """When the TAKE came."""

    def __len__(self) -> int:
        return len(self.ids)

    def late(self, now: float, first: int, last: int) -> int:
        """Return the index of the first job, from ``first`` on, that may no longer begin.

        Return ``last`` if all jobs may begin.
        """
        return last if self.times is None else self.times.late(now, first, last)

    def drop(self, count: int) -> None:
        """Remove the first jobs."""
        self.ids = self.ids[count:]
        self.payloads = self.payloads[count:]
        if self.times is not None:
            self.times = self.times.slice(count)

    def without(self, ids: Container[int]) -> None:
        """Remove jobs by their numbers."""
        rows = [row for row, id in enumerate(self.ids) if id not in ids]
        self.ids = [self.ids[row] for row in rows]
        self.payloads = [self.payloads[row] for row in rows]
        if self.times is not None:
            self.times = self.times.only(rows)


@define(eq=False)
class WaitingJobs:
    """A line: waiting jobs of one kind and owner that came from one manager."""

    held: HeldJobs
    kind: Kind
    batches: deque[WaitingBatch] = field(factory=deque)
    """The batches, oldest first; no batch is empty."""
    waiting: int = 0
    """Number of jobs in all batches."""

    @property
    def key(self) -> tuple[bytes, Peer, Kind]:
        """Return (identity of the manager, owner, kind), the key of the line."""
        return self.held.manager, self.held.owner, self.kind

    @property
    def ids(self) -> list[int]:
        """Return numbers of the jobs, oldest first."""
        return [id for batch in self.batches for id in batch.ids]

    def take(self, count: int) -> None:
        """Take jobs out of the first batch."""
        batch = self.batches[0]
        self.waiting -= count
        if count < len(batch):
            batch.drop(count)
        else:
            self.batches.popleft()


@define(eq=False)
class RunningLane:
    """A bundle that runs."""

    number: int
    held: HeldJobs
    kind: Kind
    ids: dict[int, None]
    """Jobs that have not ended, in order."""
    since: float
    """When the lane started, or last reported."""
    limits: dict[int, float] | None = None
    """Seconds that each job may run, for the jobs that have a limit."""
    answered: set[int] = field(factory=set)
    """Jobs that were answered before their end, because they ran for too long."""
    lost: bool = False
    """Whether the session of the manager is over: results are dropped."""


@define(eq=False)
class RunQueue:
    """All jobs that wait or run.

    Invariant: every lane holds the resources of one job of its kind; ``parked`` is the number of
    jobs in all lines.
    """

    resources: Resources
    throughput: Throughput
    running: dict[int, RunningLane] = field(factory=dict)
    parked: int = 0
    _lines: dict[tuple[bytes, Peer, Kind], WaitingJobs] = field(factory=dict)
    _turn: int = 0
    _number: int = 0

    def park(
        self,
        held: HeldJobs,
        kind: Kind,
        ids: Sequence[int],
        times: JobTimes | None,
        payloads: Sequence[Frame],
        now: float,
    ) -> None:
        """Let jobs wait until ``start`` starts them."""
        key = (held.manager, held.owner, kind)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = WaitingJobs(held, kind)
        self._turn += 1
        line.batches.append(WaitingBatch(ids, times, payloads, self._turn, now))
        line.waiting += len(ids)
        self.parked += len(ids)

    def start(
        self, now: float, questioned: Container[bytes] = ()
    ) -> tuple[list[Run], list[tuple[WaitingJobs, list[int]]], Resources]:
        """Start as many jobs as the resources allow, oldest first.

        Jobs of the managers ``questioned``, which were asked whether they may begin, wait
        (WMP-9.22).

        If the next job of a line does not fit, the line reserves the free part of its needs, so
        that small jobs behind it cannot starve a large job.

        Returns:
            Actions that run jobs; the ids, line by line, of jobs that expired before they began
            (WMP-6.7, 6.19: they left their line and are still held); and the resources that are
            free for others.
        """
        runs: list[Run] = []
        expired: list[tuple[WaitingJobs, list[int]]] = []
        spare = self.resources.spare()
        waiting = list(self._lines.values()) if self.parked else []
        for line in [line for line in waiting if line.held.manager in questioned]:
            spare.set_aside(line.kind.needs)
            waiting.remove(line)
        bundles: dict[int, int] = {}
        while waiting:
            line = min(waiting, key=_turn) if len(waiting) > 1 else waiting[0]
            if line.batches[0].times is not None and (late := self._weed(line, now)):
                expired.append((line, late))
            if line.waiting and spare.fits(line.kind.needs):
                spare.take(line.kind.needs)
                maximum = bundles.get(id(line))
                if maximum is None:
                    # Busy lanes will be free soon, so the jobs are shared among all lanes.
                    places = self.resources.capacity(line.kind.needs)
                    maximum = self.throughput.bundle(line.kind.role, line.waiting, places)
                    bundles[id(line)] = maximum
                runs.append(self._run(line, min(maximum, line.waiting), now))
            elif line.waiting:
                spare.set_aside(line.kind.needs)
                waiting.remove(line)
            if not line.waiting:
                waiting.remove(line)
                del self._lines[line.key]
        return runs, expired, spare

    def end(self, lane: RunningLane, ids: Sequence[int]) -> None:
        """Remove jobs from their lane, each once; a lane without jobs frees its resources."""
        if len(ids) == len(lane.ids):
            lane.ids.clear()
        for job in ids if lane.ids else ():
            del lane.ids[job]
        if not lane.ids:
            del self.running[lane.number]
            self.resources.release(lane.kind.needs)

    def remove(self, held: HeldJobs, ids: set[int]) -> None:
        """Remove jobs from their lines."""
        for line in list(self._lines.values()):
            if line.held is held:
                for batch in line.batches:
                    batch.without(ids)
                line.batches = deque(batch for batch in line.batches if len(batch))
                waiting = sum(map(len, line.batches))
                self.parked -= line.waiting - waiting
                line.waiting = waiting
                if not waiting:
                    del self._lines[line.key]

    def forget(self, manager: bytes) -> list[RunningLane]:
        """Drop the waiting jobs of a manager whose session is over; return its lanes.

        Jobs that are kept without a manager (WMP-14.5) stay.
        """
        for key, line in list(self._lines.items()):
            if line.held.manager == manager and not line.held.keep:
                self.parked -= line.waiting
                del self._lines[key]
        lanes = [
            lane
            for lane in self.running.values()
            if lane.held.manager == manager and not lane.held.keep and not lane.lost
        ]
        for lane in lanes:
            lane.lost = True
        return lanes

    def move(self, held: HeldJobs, target: HeldJobs, manager: bytes) -> None:
        """Let the jobs of ``held`` belong to ``target`` and to a manager.

        ``target`` may be ``held``.
        """
        lines = [line for line in self._lines.values() if line.held is held]
        for line in lines:
            del self._lines[line.key]
            line.held = target
        target.manager = manager
        for line in lines:
            other = self._lines.setdefault(line.key, line)
            if other is not line:
                both = [*other.batches, *line.batches]
                other.batches = deque(sorted(both, key=lambda batch: batch.turn))
                other.waiting += line.waiting
        for lane in self.running.values():
            if lane.held is held:
                lane.held = target

    @property
    def loaded(self) -> list[RunningLane]:
        """Return the lanes on which jobs wait behind the first job."""
        return [lane for lane in self.running.values() if len(lane.ids) > 1 and not lane.lost]

    def blocked(self, since: float) -> list[WaitingJobs]:
        """Return lines that have waited since ``since``, while no lane with the same needs
        reported.
        """
        if not self.parked:
            return []
        moving = {lane.kind.needs for lane in self.running.values() if lane.since > since}
        return [
            line
            for line in self._lines.values()
            if line.batches[0].since <= since and line.kind.needs not in moving
        ]

    @property
    def unfit(self) -> list[WaitingJobs]:
        """Return the lines whose jobs need more than there is."""
        capacity = self.resources.capacity
        return [line for line in self._lines.values() if not capacity(line.kind.needs)]

    def clear(self, line: WaitingJobs) -> list[int]:
        """Remove all jobs of a line; return their numbers."""
        del self._lines[line.key]
        self.parked -= line.waiting
        return line.ids

    def drain(self) -> list[tuple[WaitingJobs, list[int]]]:
        """Remove all waiting jobs, line by line."""
        lines = [(line, line.ids) for line in self._lines.values()]
        self._lines.clear()
        self.parked = 0
        return lines

    def check(self) -> None:
        """Raise AssertionError when the invariant does not hold."""
        assert self.parked == sum(line.waiting for line in self._lines.values())
        for lane in self.running.values():
            assert lane.ids, f"lane {lane.number} must have jobs"
        for key, line in self._lines.items():
            assert line.waiting, f"the line {key} must have waiting jobs"
            assert line.waiting == sum(map(len, line.batches))
            assert all(line.batches), f"each batch of line {key} must have jobs"
            assert key == line.key

    def _weed(self, line: WaitingJobs, now: float) -> list[int]:
        """Remove jobs at the head of a line that may not begin any more.

        Later jobs are removed later.
        """
        late: list[int] = []
        while line.batches and not line.batches[0].late(now, 0, 1):
            late.append(line.batches[0].ids[0])
            line.take(1)
        self.parked -= len(late)
        return late

    def _run(self, line: WaitingJobs, left: int, now: float) -> Run:
        """Put the next bundle of a line, with ``left`` jobs at most, on a new lane."""
        kind, held = line.kind, line.held
        ids: list[int] = []
        payloads: list[Frame] = []
        parts: list[tuple[int, JobTimes | None]] = []
        late = False
        while left and not late:
            batch = line.batches[0]
            maximum = min(left, len(batch))
            # Take jobs up to the next one that may not begin any more.
            count = (
                batch.late(now, 0 if ids else 1, maximum) if batch.times is not None else maximum
            )
            late = count < maximum
            ids += batch.ids[:count]
            payloads += batch.payloads[:count]
            if batch.times is not None or parts:
                parts = parts or [(len(ids) - count, None)]
                parts.append((count, batch.times and batch.times.slice(0, count)))
            left -= count
            if count:
                line.take(count)
        self.parked -= len(ids)
        self._number += 1
        number = self._number
        self.resources.take(kind.needs)
        lane = self.running[number] = RunningLane(number, held, kind, dict.fromkeys(ids), now)
        deadlines = begin_by = limits = None
        failed: list[int | None] | None = None
        begun: list[int | None] | None = None
        if parts:
            times = [(n, NO_TIMES if part is None else part) for n, part in parts]
            deadlines = joined([(n, part.deadlines) for n, part in times])
            if any(part.begin_by for _, part in times):
                begin_by = joined([(n, part.begins) for n, part in times])
            limits = joined([(n, part.limits) for n, part in times])
            if any(part.failed is not None for _, part in times):
                failed = [count for n, part in times for count in part.failed or [0] * n]
            if any(part.begun is not None for _, part in times):
                begun = [runs for n, part in times for runs in part.begun or [None] * n]
            if limits is not None:
                rows = zip(ids, limits, strict=True)
                lane.limits = {id: limit for id, limit in rows if limit is not None}
        return Run(
            lane=number,
            kind=kind,
            manager=held.owner,
            ids=ids,
            attempts=held.start(ids),
            deadlines=deadlines,
            payloads=payloads,
            begin_by=begin_by,
            limits=limits,
            failed=failed,
            begun=begun,
        )


def _turn(line: WaitingJobs) -> int:
    return line.batches[0].turn
