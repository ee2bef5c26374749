"""The lanes of all workers in a world, with the states of their handlers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from attrs import define, field

from wmp.checks.job_history import History
from wmp.message import Outcome, Peer
from wmp.runtime.executors.handlers import BEGAN
from wmp.testing.simulator.agenda import Agenda
from wmp.testing.simulator.fleet import SimulatedFleet
from wmp.testing.simulator.network import LinkQueue, Network
from wmp.testing.simulator.trace import Trace
from wmp.testing.simulator.workload import SimulatedTask

_LOOK = 0.25
"""Seconds between two checks of a handler that hangs."""


class LaneHandlers(Protocol):
    """The handlers for the jobs of a world."""

    def call(self, name: str, lane: LinkQueue, id: int) -> None:
        """Call the handler of a lane's first job, and let the call end."""

    def hangs(self, name: str, lane: LinkQueue) -> None:
        """Note that the handler of a lane's first job does not return."""

    def dies(self, name: str, lane: LinkQueue) -> None:
        """Note that the process of a lane's first job dies."""


@define(eq=False)
class LaneRunner:
    """Begins the jobs of every lane, and lets each job end.

    Args:
        network: Has the lanes.
        agenda: Holds the ends of handlers.
        fleet: Knows the paused nodes.
        history: Records every execution.
        trace: Records handlers that hang.
    """

    network: Network
    agenda: Agenda
    fleet: SimulatedFleet
    history: History
    trace: Trace
    handlers: LaneHandlers = field(init=False)
    on_begun: Callable[[Peer, Peer, int], None] | None = field(default=None, init=False)
    """Called with the worker, its manager and the number of each job that begins."""
    begun: Counter[str] = field(factory=Counter, init=False)
    """Number of executions by worker."""
    slow: dict[str, float] = field(factory=dict, init=False)
    """Workers with slow handlers, each with its factor of time."""
    hung: set[tuple[LinkQueue, int]] = field(factory=set, init=False)
    """Jobs, by lane and number, whose handlers do not return by themselves."""

    def begin(self, name: str, lane: LinkQueue) -> None:
        """Begin the next job of a lane."""
        id = lane.left[0]
        if id in lane.cancelled:
            self.agenda.after(0.0, self.cancel, name, lane, id, False)
            return
        row = list(lane.run.ids).index(id)
        attempt = lane.run.attempts[row]
        self.begun[name] += 1
        now = self.network.local(name)
        peer, owner, runs = self.fleet.peer(name), lane.run.manager, lane.run.runs_before(row)
        self.history.begun(peer, owner, id, attempt, now, runs)
        if self.on_begun is not None:
            self.on_begun(peer, owner, id)
        taken: Counter[str] = Counter()
        for other in self.network.lanes[name].values():
            taken.update(dict(other.run.kind.needs))
        self.history.booked(name, taken, self.fleet.topology.workers[name].resources)
        self.handlers.call(name, lane, id)

    def is_current(self, name: str, lane: LinkQueue, id: int) -> bool:
        """Return whether a job is still the current job of its lane."""
        return self.network.lanes[name].get(lane.run.lane) is lane and lane.left[0] == id

    def may_end(
        self, what: Callable[..., None], name: str, lane: LinkQueue, id: int, *more: Any
    ) -> bool:
        """Return whether a handler may end now.

        A paused worker calls ``what`` again after its pause.
        """
        if (lane, id) in self.hung or self.fleet.postpone(name, what, name, lane, id, *more):
            return False
        return self.is_current(name, lane, id)

    def cancel(self, name: str, lane: LinkQueue, id: int, began: bool = True) -> None:
        """End a job as cancelled, after or before it began."""
        self.end(name, lane, id, Outcome.CANCELLED, b"", None, began)

    def end(
        self,
        name: str,
        lane: LinkQueue,
        id: int,
        outcome: Outcome,
        result: bytes,
        codec: str | None = None,
        began: bool = True,
    ) -> None:
        """End a job, unless its handler hangs or the job has left the lane."""
        if self.may_end(self.end, name, lane, id, outcome, result, codec, began):
            text = BEGAN if began and outcome is Outcome.CANCELLED else None
            self.network.end(name, lane, outcome, result, text, codec=codec)

    def bereave(self, name: str, lane: LinkQueue) -> None:
        """End the process that runs the first job of a lane."""
        self.handlers.dies(name, lane)
        self.network.bereave(name, lane)

    def hang(self, name: str, lane: LinkQueue, seconds: float) -> None:
        """Keep the handler of a lane's first job running for this number of seconds."""
        self.handlers.hangs(name, lane)
        id, now = lane.left[0], self.agenda.now
        self.trace.note(now, f"a handler of {name} hangs, in lane {lane.run.lane}")
        self.hung.add((lane, id))
        self._watch(name, lane, id, now + seconds)

    def _watch(self, name: str, lane: LinkQueue, id: int, until: float) -> None:
        """End a handler by force when its result is no longer wanted, or its time is over."""
        if not self.is_current(name, lane, id):
            self.hung.discard((lane, id))  # the process of the job or of the worker died
            return
        due = dict(zip(lane.run.ids, lane.run.deadlines or (), strict=False)).get(id)
        unwanted = id in lane.cancelled or (due is not None and due <= self.network.local(name))
        if name in self.fleet.paused or (self.agenda.now < until and not unwanted):
            self.agenda.after(_LOOK, self._watch, name, lane, id, until)
            return
        self.hung.remove((lane, id))
        self.bereave(name, lane)


@define(eq=False)
class TaskHandlers:
    """Does the tasks of a workload, in virtual time.

    Args:
        runner: Runs the lanes of the jobs.
        tasks: The task of each payload.
        on_begun: Called with the seconds that the handler takes.
    """

    runner: LaneRunner
    tasks: dict[bytes, SimulatedTask]
    on_begun: Callable[[float], None]

    def call(self, name: str, lane: LinkQueue, id: int) -> None:
        """Begin a task, which ends after its time."""
        takes = self.tasks[lane.payload(id)].takes * self.runner.slow.get(name, 1.0)
        self.on_begun(takes)
        self.runner.agenda.after(takes, self.end, name, lane, id)

    def end(self, name: str, lane: LinkQueue, id: int) -> None:
        """End a task. A task that ends early on cancellation ends as cancelled."""
        if self.runner.may_end(self.end, name, lane, id):
            task = self.tasks[lane.payload(id)]
            outcome, result = task.outcome, task.result
            failed = self._failures(lane, id)
            text = wait = None
            if id in lane.cancelled and task.heeds:
                outcome, result, text = Outcome.CANCELLED, b"", BEGAN
            elif failed < task.fails_first:
                outcome, result = Outcome.ERROR, b"failed " + task.payload
                text = f"ConnectionError: number {failed + 1}\n" + " ".join(History.names)
                if task.later is not None:
                    wait = round(task.later * 1000)
            self.runner.network.end(name, lane, outcome, result, text, wait)

    @staticmethod
    def _failures(lane: LinkQueue, id: int) -> int:
        """Return the failed attempts of a job; for a job with settings, all earlier attempts."""
        row, failed = list(lane.run.ids).index(id), lane.run.failed
        count = 0 if failed is None else failed[row]
        return lane.run.attempts[row] - 1 if count is None else count

    def hangs(self, name: str, lane: LinkQueue) -> None:
        """Do nothing: the trace contains the event already."""

    def dies(self, name: str, lane: LinkQueue) -> None:
        """Do nothing: the network ends the job."""
