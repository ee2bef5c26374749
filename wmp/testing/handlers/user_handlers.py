"""Users' handlers in a world: each is called at one moment within the time of its call.

A worker that is killed before that moment has not done the job. A worker that is killed after that
moment has done the job, but its result is lost. Some calls are ended in the middle
(:class:`~wmp.testing.handlers.handler_run.CrashPoint`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random

from attrs import define, field

from wmp.codec import unpack_error
from wmp.events import Reported
from wmp.message import Frame, Outcome
from wmp.runtime.executors.handlers import Served
from wmp.testing.handlers.handler_run import (
    CrashPoint,
    HandlerCrash,
    Host,
    SimulatedRunningJob,
    execute,
)
from wmp.testing.simulator.episode import ProcessDeaths
from wmp.testing.simulator.fault_injection import FaultInjector
from wmp.testing.simulator.faults import Fault
from wmp.testing.simulator.lane_runner import LaneRunner
from wmp.testing.simulator.network import LinkQueue
from wmp.testing.simulator.simulated_job import SimulatedJob
from wmp.testing.simulator.submitter import HandlerHistory, Submitter

_KILLS = 2
"""Maximum number of kills in the middle of one job's handlers; more kills could lose the job."""
_SHOWN = 80
"""Number of characters of an error that are shown."""

Cast = Callable[[], Mapping[str, Served]]
"""Makes the handlers of one process of a worker."""


@define(eq=False)
class UserHandlers:
    """Calls users' functions for the jobs of every worker.

    Args:
        runner: Runs the lanes of the jobs.
        injector: Knows whether faults strike, and counts them.
        submitter: Knows the jobs.
        history: Records the handlers' results.
        draw: The random stream for the times and the ends of calls.
    """

    runner: LaneRunner
    injector: FaultInjector
    submitter: Submitter
    history: HandlerHistory
    draw: Random
    deaths: ProcessDeaths = field(factory=ProcessDeaths, init=False)
    takes: dict[str, tuple[float, float]] = field(factory=dict, init=False)
    """Simulated seconds of a call at each worker: the least and the most seconds."""
    casts: dict[str, Cast] = field(factory=dict, init=False)
    _served: dict[str, Mapping[str, Served]] = field(factory=dict, init=False)
    """The handlers of the process that runs under a name."""
    _loop: asyncio.Runner | None = field(default=None, init=False)

    @property
    def longest(self) -> float:
        """The longest call at any worker, in simulated seconds."""
        return max((maximum for _, maximum in self.takes.values()), default=0.0)

    def started(self, name: str) -> None:
        """Make the handlers of a worker's new process."""
        if name in self.casts:
            self._served[name] = self.casts[name]()

    def close(self) -> None:
        """Close the event loop of the coroutines."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def call(self, name: str, lane: LinkQueue, id: int) -> None:
        """Begin a call. The function itself runs some time before the end of the call."""
        minimum, maximum = self.takes[name]
        takes = self.draw.uniform(minimum, maximum) * self.runner.slow.get(name, 1.0)
        moment = takes * self.draw.random()
        self.runner.agenda.after(moment, self._call, name, lane, id, takes - moment)

    def hangs(self, name: str, lane: LinkQueue) -> None:
        """Note that a handler does not return."""
        self.submitter.note(f"its handler hangs at {name}", self.submitter.job(lane))

    def dies(self, name: str, lane: LinkQueue) -> None:
        """Note that the process that ran a handler has died."""
        job = self.submitter.job(lane)
        self.submitter.note(f"the process in {name} that ran it has died", job)

    def _call(self, name: str, lane: LinkQueue, id: int, rest: float) -> None:
        runner, network = self.runner, self.runner.network
        if runner.fleet.postpone(name, self._call, name, lane, id, rest):
            return
        if not runner.is_current(name, lane, id):
            return
        run, row = lane.run, list(lane.run.ids).index(id)
        due = None if run.deadlines is None else run.deadlines[row]
        if due is not None and due <= network.local(name):
            runner.cancel(name, lane, id)  # WMP-6.7
            return
        served = self._served[name][run.kind.role]
        job, attempt = self.submitter.job(lane), run.attempts[row]
        drawn = self.deaths.draw(self.draw)
        if not self.injector.active or job.killed >= _KILLS:
            drawn = None
        death, lines = drawn or (None, None)
        crash = None if lines is None else CrashPoint(served.call, lines)

        def report(fraction: float | None, text: str | None) -> None:
            if runner.is_current(name, lane, id):
                network.happen(name, Reported(run.lane, id, fraction, text))

        host = Host(lane.cancelled, report)
        running = SimulatedRunningJob(
            host,
            id,
            attempt,
            run.manager[0],
            due,
            lambda: network.local(name),
            run.kind.role,
            None if run.begun is None else run.begun[row],
        )
        job.runs += 1
        what = f"{name} calls the handler, attempt {running.attempt}"
        try:
            outcome, result, codec = execute(
                served, run.kind.codec, lane.payload(id), running, self._open_loop, crash
            )
        except HandlerCrash:
            assert crash is not None
            job.cut += 1
            self.submitter.note(f"{what}: the handler is stopped {crash.stopped_at}", job)
        else:
            self.submitter.note(f"{what}: {_shown(outcome, result)}", job)
            if death is None:
                self.history.handled(run.manager, id, attempt, outcome, result)
                end = outcome, bytes(result), codec
                runner.agenda.after(rest, runner.end, name, lane, id, *end)
                return
        assert death is not None
        self._kill(name, lane, id, job, death)

    def _kill(self, name: str, lane: LinkQueue, id: int, job: SimulatedJob, death: Fault) -> None:
        job.killed += 1
        self.injector.counts[death] += 1
        if not self.runner.is_current(name, lane, id):
            return  # the handler itself may have cancelled the job
        if death is Fault.KILL_HANDLER:
            self.runner.bereave(name, lane)
            return
        self.runner.fleet.kill(name, silently=self.draw.random() < 0.3)
        self.runner.fleet.restart(name, self.draw.uniform(0.05, 1.0))

    def _open_loop(self) -> asyncio.Runner:
        if self._loop is None:
            self._loop = asyncio.Runner()
        return self._loop


def _shown(outcome: Outcome, result: Frame) -> str:
    if outcome is Outcome.OK:
        return "it returns"
    if outcome is Outcome.CANCELLED:
        return "it gives up"
    type_name, text, _ = unpack_error(result)
    return f"it raises {type_name}: {text[:_SHOWN]}"
