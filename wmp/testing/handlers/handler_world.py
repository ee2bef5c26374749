"""A world whose handlers are real functions: the layer between a test and the machines.

The world has one manager, as many devices as the seed draws, the workers of the test, and a program
that submits jobs (:class:`~wmp.testing.simulator.submitter.Submitter`). A call of a handler takes
simulated time (:class:`~wmp.testing.handlers.user_handlers.UserHandlers`).

A world runs in episodes: faults are drawn, strike for some time and are ended, and then all
submitted jobs come to their ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from random import Random

from attrs import define, evolve, field

from wmp.checks.job_history import Violation
from wmp.core.protocol.settings import WorkerSettings
from wmp.errors import ConfigError
from wmp.testing.handlers.user_handlers import Cast, UserHandlers
from wmp.testing.simulator.episode import ProcessDeaths, draw_episode
from wmp.testing.simulator.faults import Fault, Strike
from wmp.testing.simulator.network import LinkQueue
from wmp.testing.simulator.simulated_job import SimulatedJob
from wmp.testing.simulator.submitter import MANAGER, HandlerHistory, NarratedTrace, Submitter
from wmp.testing.simulator.topology import Topology, can, draw_timers
from wmp.testing.worlds.simulation import BUDGET, Simulation

_RETRY = 0.1
"""Seconds until a fault that hit no node strikes again."""
_EVENTS = 400
"""Maximum number of events that one more job may cause."""


@define(eq=False, kw_only=True)
class HandlerWorld:
    """A world of one manager, in which users' functions run.

    Args:
        seed: Decides everything except the effects of the functions.
        kinds: The faults that may occur.
        keep: The number of machine steps that are kept; None for all.
    """

    seed: int
    kinds: frozenset[Fault]
    keep: int | None = 30
    story: NarratedTrace = field(init=False)
    simulation: Simulation = field(init=False)
    submitter: Submitter = field(init=False)
    handlers: UserHandlers = field(init=False)
    _at_work: bool = field(default=False, init=False)
    _topology: Random = field(init=False)
    _faults: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        def stream(name: str) -> Random:
            return Random(f"{self.seed}:{name}")

        self._topology, self._faults = stream("topology"), stream("faults")
        self.story = story = NarratedTrace(self.keep)
        topology = Topology(draw_timers(self._topology), (MANAGER,), {}, {}, None)
        history = HandlerHistory()
        self.simulation = simulation = Simulation(self.seed, topology, story, history)
        simulation.clocks.skew = simulation.faults.skew
        simulation.checks.looks = False  # the limits of users' tables are not known
        injector, runner, fleet = simulation.injector, simulation.runner, simulation.fleet
        self.submitter = submitter = Submitter(
            simulation.network, simulation.agenda, fleet, history, story
        )
        runner.handlers = self.handlers = UserHandlers(
            runner, injector, submitter, history, stream("handlers")
        )
        injector.active, injector.offer = False, lambda batch: None  # only the test submits jobs
        simulation.checks.accepted = submitter.accepted
        simulation.network.watchers.append(submitter.handled)
        fleet.on_started, fleet.on_resumed = self._started, self._resumed
        fleet.on_killed = self._killed
        self._add(MANAGER, ())
        for number in range(self._topology.choice((0, 0, 1, 1, 2))):
            above = [MANAGER, *topology.uplinks]
            name = f"device {number + 1}"
            topology.uplinks[name] = (self._topology.choice(above),)
            self._add(name, topology.uplinks[name])

    # -- building

    def hire(
        self,
        name: str,
        cast: Cast,
        roles: Sequence[str],
        resources: Mapping[str, int],
        window: int | None,
        takes: tuple[float, float] | None,
    ) -> None:
        """Add a worker, which starts at once."""
        topology, draw = self.simulation.fleet.topology, self._topology
        timers = topology.timers
        if takes is None:
            takes = 0.0, draw.choice((0.02, 0.2, 1.0, 4.0))
        settings = WorkerSettings(
            identity=name.encode(),
            epoch=0,
            label=name,
            roles=tuple(sorted(roles)),
            resources=resources,
            window=window,
            hold=draw.choice((0.0, timers.hold)),
            lock_timeout=timers.lock_timeout,
            ping=timers.ping,
            ready_backoff_max=timers.backoff,
            reconnect_backoff_max=timers.backoff,
            resend=timers.resend,
        )
        uplink = draw.choice([MANAGER, *(n for n in topology.uplinks if n.startswith("device "))])
        for process in (name, f"{name}+"):
            self.handlers.casts[process], self.handlers.takes[process] = cast, takes
            topology.workers[process] = settings
            topology.uplinks[process] = (uplink,)
            self._add(process, (uplink,))

    def _add(self, name: str, uplinks: tuple[str, ...]) -> None:
        self.simulation.fleet.add(name, uplinks)
        offset, rate = self._faults.uniform(0, 1e5), 1 + self._faults.uniform(-0.03, 0.03)
        if Fault.CLOCK_SKEW in self.kinds and self._faults.random() < 0.7:
            self.simulation.faults.skew[name] = offset, rate
        if not name.endswith("+"):
            self.simulation.fleet.start_soon(name)

    # -- an episode

    def go(self, seconds: float | None) -> None:
        """Let time pass, with faults.

        Args:
            seconds: The time to pass; None until all jobs have ended.

        Raises:
            ConfigError: No worker can do a job, or a handler called this method.
            Violation: The machines broke a promise: a defect of this library.
        """
        if self._at_work:
            raise ConfigError(
                "a handler must not run its own world; submit there, and run it afterwards"
            )
        self._check()
        if seconds is None and self._settled():
            return
        simulation = self.simulation
        simulation.budget = self.story.steps + BUDGET + _EVENTS * len(self.submitter.jobs)
        self._at_work = True
        try:
            if not simulation.injector.active:
                self._break()
            self._pass(inf if seconds is None else simulation.now + seconds, seconds is None)
        finally:
            self._at_work = False
            self.handlers.close()

    def _pass(self, end: float, all: bool) -> None:
        simulation = self.simulation
        over = simulation.faults.until
        until = min(end, over)
        while simulation.now < until and not (all and self._settled()):
            simulation.run(min(until, simulation.now + 0.1))
        if simulation.injector.active and (all or simulation.now >= over):
            simulation.mend()
        if not all:
            simulation.run(end)
        elif not self._settled():
            simulation.wait(self._patience(), self._settled)
            if not self._settled():
                waiting = [repr(job) for job in self.submitter.jobs if not job.done()]
                raise Violation("every job ends", f"{', '.join(waiting[:8])} did not")

    def _check(self) -> None:
        workers = self.simulation.fleet.topology.workers.values()
        for job in self.submitter.jobs:
            kind, timeout = job._terms[1], job._terms[3]
            if job.done() or timeout is not None or any(can(w, kind) for w in workers):
                continue
            needs = ", ".join(f"{amount} of {name!r}" for name, amount in kind.needs)
            have = dict.fromkeys(f"{w.roles} with {dict(w.resources)}" for w in workers)
            offers = ", ".join(have) or "there is none: call world.worker()"
            raise ConfigError(
                f"{job} asks for role {kind.role!r} and needs {needs or 'nothing'}: no worker of "
                f"this world can do that ({offers})"
            )

    def _break(self) -> None:
        """Draw the faults from now on."""
        simulation, draw = self.simulation, self._faults
        topology = simulation.fleet.topology
        workers = [name for name in topology.workers if not name.endswith("+")]
        slots = sum(topology.workers[name].resources.get("slots", 1) for name in workers)
        work = self._unfinished * self.handlers.longest / max(1, slots)
        skew = simulation.faults.skew
        faults = draw_episode(self.kinds, simulation.now, work, skew, draw)
        self.handlers.deaths = ProcessDeaths.of(faults, draw)
        if workers:
            simulation.fleet.topology = evolve(topology, double=draw.choice(workers))
        for blow in faults.strikes:
            simulation.agenda.at(blow.at, self._strike, blow)
        simulation.begin_faults(faults)

    def _strike(self, blow: Strike) -> None:
        simulation, injector = self.simulation, self.simulation.injector
        if not injector.active or blow not in simulation.faults.strikes:
            return  # the strike belongs to an earlier episode
        before = injector.counts[blow.fault]
        injector.strike(blow)
        injector.doomed.clear()  # this method decides the next strike
        if injector.counts[blow.fault] == before:  # no node could be hit
            self.story.notes.pop()
            simulation.agenda.after(_RETRY, self._strike, blow)

    @property
    def _unfinished(self) -> int:
        return sum(not job.done() for job in self.submitter.jobs)

    def _settled(self) -> bool:
        if self._unfinished:
            return False
        # A running handler may still act, even if its result is no longer wanted.
        network = self.simulation.network
        busy = any(lanes and network.alive(name) for name, lanes in network.lanes.items())
        return not busy and self.simulation.settled

    def _patience(self) -> float:
        timers = self.simulation.fleet.topology.timers
        # A high estimate of the time: one slow worker does all jobs.
        work = 12 * (1 + self._unfinished) * self.handlers.longest
        return 2 * work + 30.0 + 2 * timers.backoff + len(self.submitter.jobs) * timers.trip

    # -- reports of the fleet

    def _started(self, name: str) -> None:
        self.handlers.started(name)
        if name == MANAGER:
            self.submitter.submit_the_rest()

    def _resumed(self, name: str) -> None:
        """Submit the other jobs: the submitting program was stopped together with its manager."""
        if name == MANAGER and self.simulation.network.alive(name):
            self.submitter.submit_the_rest()

    def _killed(self, name: str, lanes: Sequence[LinkQueue]) -> None:
        for lane in lanes:
            self.submitter.note(f"{name} is killed while it runs the job", self.submitter.job(lane))

    def again(self) -> list[SimulatedJob]:
        """Return the jobs with more than one handler call.

        First the jobs with a call that was ended in the middle.
        """
        jobs = [job for job in self.submitter.jobs if job.runs > 1]
        return sorted(jobs, key=lambda job: (not job.cut, -job.runs, job.number))
