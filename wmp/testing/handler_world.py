"""A world whose handlers are real functions: what is between a test and the machines.

One manager, as many devices as the seed says, the workers that the test asks for, and a program
that submits jobs. A handler takes simulated time, and its function is called at some moment of
it: a worker that is killed before has done nothing, one that is killed after has done it for
nothing. Some calls are ended in the middle (:class:`~wmp.testing.handler_run.Fuse`).

Everything happens in episodes: faults are drawn, strike for a while, are mended, and what was
submitted comes to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import Random

from attrs import define, evolve, field

from wmp.actions import End, Notify, Resolve
from wmp.codec import unpack_error
from wmp.core.protocol.settings import WorkerSettings
from wmp.errors import ConfigError
from wmp.events import Reported, Submitted
from wmp.message import Frame, Outcome, Peer
from wmp.runtime.handlers import Served
from wmp.runtime.submission.submissions import Status
from wmp.testing.episode import Deaths, draw_episode
from wmp.testing.fault_injection import strike
from wmp.testing.faults import Fault, Faults, Strike
from wmp.testing.handler_run import Burnt, Fuse, Host, SimulatedRunningJob, execute
from wmp.testing.invariants import History, Violation
from wmp.testing.network import Action, LinkQueue
from wmp.testing.observer import Observer
from wmp.testing.simulated_job import SimulatedJob
from wmp.testing.topology import Topology, can, draw_timers
from wmp.testing.trace import Trace
from wmp.testing.workload import SubmitBatch, Workload
from wmp.testing.world import BUDGET, World

__all__ = ["MANAGER", "Cast", "HandlerWorld", "Line"]

MANAGER = "manager"

_KILLS = 2
"""Times that handlers of one job are killed in the middle at most: it would be lost in the end."""
_SHOWN = 80
"""Characters of an error that are told."""
_RETRY = 0.1
"""Seconds after which a fault that hit nobody strikes again."""
_EVENTS = 400
"""Events that one more job may bring about."""

Line = tuple[float, str, SimulatedJob | None]
"""A time, what happened then, and to which job."""

Cast = Callable[[], Mapping[str, Served]]
"""Makes the handlers of one process of a worker."""


@define(eq=False)
class _Runs(History):
    """A history of jobs whose results are known only when their handlers have made them."""

    _made: dict[tuple[Peer, int, int], tuple[End, bytes]] = field(factory=dict)

    def made(self, owner: Peer, id: int, attempt: int, outcome: Outcome, result: Frame) -> None:
        """A handler has ended."""
        if outcome in (Outcome.OK, Outcome.ERROR):
            end = End.OK if outcome is Outcome.OK else End.ERROR
            self._made[owner, id, attempt] = end, bytes(result)

    def resolved(
        self,
        owner: Peer,
        id: int,
        end: End,
        payload: bytes,
        attempt: int,
        by: Peer | None,
        now: float = inf,
    ) -> None:
        """Hold the end against what that attempt's handler made."""
        made = self._made.get((owner, id, attempt))
        if made is not None:
            self.jobs[owner][id].results = dict([made])
        super().resolved(owner, id, end, payload, attempt, by, now)


@define(eq=False, kw_only=True)
class HandlerWorld(World):
    """A world of one manager, in which users' functions run.

    Args:
        seed: All of it, but for what the functions do.
        kinds: What goes wrong, at most.
        keep: How many steps of the machines can be told; None for all.
    """

    kinds: frozenset[Fault]
    history: _Runs = field(factory=_Runs, init=False)
    jobs: list[SimulatedJob] = field(factory=list, init=False)
    story: list[Line] = field(factory=list, init=False)
    """What happened, for people: no messages."""
    _casts: dict[str, Cast] = field(factory=dict, init=False)
    _served: dict[str, Mapping[str, Served]] = field(factory=dict, init=False)
    """The handlers of the process that runs under a name."""
    _takes: dict[str, tuple[float, float]] = field(factory=dict, init=False)
    _held: dict[tuple[Peer, int], SimulatedJob] = field(factory=dict, init=False)
    """(manager, id) to the job."""
    _handed: SimulatedJob | None = field(default=None, init=False)
    """The job that is being handed in."""
    _deaths: Deaths = field(factory=Deaths, init=False)
    _runner: asyncio.Runner | None = field(default=None, init=False)
    _at_work: bool = field(default=False, init=False)
    _topology: Random = field(init=False)
    _faults: Random = field(init=False)
    _handlers: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        def stream(name: str) -> Random:
            return Random(f"{self.seed}:{name}")

        self.trace = Trace(self.keep)
        self.witness = Observer(self.history)
        self._net, self._weather = stream("net"), stream("weather")
        self._probes, self._topology = stream("probes"), stream("topology")
        self._faults, self._handlers = stream("faults"), stream("handlers")
        self.mended = True
        self.workload = Workload((), (), ())
        self.faults = Faults(until=0.0)
        timers = draw_timers(self._topology)
        self.topology = Topology(timers, (MANAGER,), {}, {}, None)
        self._add(MANAGER, ())
        for number in range(self._topology.choice((0, 0, 1, 1, 2))):
            above = [MANAGER, *self.topology.uplinks]
            name = f"device {number + 1}"
            self.topology.uplinks[name] = (self._topology.choice(above),)
            self._add(name, self.topology.uplinks[name])

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
        """Add a worker; it starts at once."""
        timers, draw = self.topology.timers, self._topology
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
        uplink = draw.choice([MANAGER, *(n for n in self.uplinks if n.startswith("device "))])
        for process in (name, f"{name}+"):
            self._casts[process], self._takes[process] = cast, takes
            self.topology.workers[process] = settings
            self.topology.uplinks[process] = (uplink,)
            self._add(process, (uplink,))

    def _add(self, name: str, uplinks: tuple[str, ...]) -> None:
        self.uplinks[name] = uplinks
        self.lanes[name] = {}
        self.down.add(name)
        self._latency[name] = self.topology.timers.latency * self._net.random()
        offset, rate = self._faults.uniform(0, 1e5), 1 + self._faults.uniform(-0.03, 0.03)
        if Fault.CLOCK_SKEW in self.kinds and self._faults.random() < 0.7:
            self.faults.skew[name] = offset, rate
        if not name.endswith("+"):
            self.after(self._net.choice((0.0, self._net.uniform(0, 1))), self._begin, name)

    def _begin(self, name: str) -> None:
        if name not in self.nodes:  # else the end of the faults was faster
            self.start(name)

    def submit_job(self, job: SimulatedJob) -> None:
        """Hand a job in, now or as soon as there is a manager."""
        self.jobs.append(job)
        self.tell("is submitted", job)
        self._hand_in(job)

    def _hand_in(self, job: SimulatedJob) -> None:
        name = MANAGER
        if name not in self.nodes or not self.alive(name) or name in self.paused:
            return  # as soon as it starts or goes on
        payload, kind, priority, timeout, retries = job._order
        self._handed = job
        self.submit(
            name, [bytes(payload)], kind, priority=priority, timeout=timeout, retries=retries
        )

    def _hand_in_the_rest(self) -> None:
        me = self.peer(MANAGER)
        rest = [j for j in self.jobs if not j.done() and (j.owner is None or j.owner[0] != me)]
        for job in rest:
            if job.unwanted:
                job.settle(End.CANCELLED, b"", 0)
                continue
            if job.owner is not None:
                self.tell("is submitted again: its manager died before there was a result", job)
            self._hand_in(job)

    def withdraw(self, job: SimulatedJob) -> None:
        """The submitter does not want a job any more."""
        self.tell("is to be cancelled", job)
        if job.owner is None:
            job.settle(End.CANCELLED, b"", 0)  # nobody has heard of it
        elif MANAGER in self.nodes and self.alive(MANAGER):
            owner, id = job.owner
            if owner == self.peer(MANAGER):
                self.cancel(MANAGER, [id])

    # -- an episode

    def go(self, seconds: float | None) -> None:
        """Let time pass, faults included.

        Args:
            seconds: How much; None until all has ended.

        Raises:
            ConfigError: There is a job that nobody can do, or a handler called this.
            Violation: The machines broke a promise: a defect of this library.
        """
        if self._at_work:
            raise ConfigError("a handler must not let its own world run; submit, and run after it")
        self._check()
        if seconds is None and self._settled():
            return
        self.budget = self.trace.steps + BUDGET + _EVENTS * len(self.jobs)
        self._at_work = True
        try:
            if self.mended:
                self._break()
            self._pass(inf if seconds is None else self.now + seconds, seconds is None)
        finally:
            self._at_work = False
            if self._runner is not None:
                self._runner.close()
                self._runner = None

    def _pass(self, end: float, all: bool) -> None:
        until = min(end, self.faults.until)
        while self.now < until and not (all and self._settled()):
            self._run(min(until, self.now + 0.1))
        if not self.mended and (all or self.now >= self.faults.until):
            self._mend()
        if not all:
            self._run(end)
        elif not self._settled():
            self._wait()
            if not self._settled():
                waiting = [repr(job) for job in self.jobs if not job.done()]
                raise Violation("every job ends", f"{', '.join(waiting[:8])} did not")

    def _check(self) -> None:
        workers = self.topology.workers.values()
        for job in self.jobs:
            kind, timeout = job._order[1], job._order[3]
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
        """Draw what goes wrong from now on."""
        workers = [name for name in self.topology.workers if not name.endswith("+")]
        slots = sum(self.topology.workers[name].resources.get("slots", 1) for name in workers)
        longest = max((self._takes[name][1] for name in workers), default=0.0)
        work = sum(not job.done() for job in self.jobs) * longest / max(1, slots)
        skew = self.faults.skew
        self.faults = draw_episode(self.kinds, self.now, work, skew, self._faults)
        self._deaths = Deaths.of(self.faults, self._faults)
        if skew:
            self.counts[Fault.CLOCK_SKEW] = len(skew)
        if workers:
            self.topology = evolve(self.topology, double=self._faults.choice(workers))
        for blow in self.faults.strikes:
            self.at(blow.at, self._strike, blow)
        self.mended = False

    def _strike(self, blow: Strike) -> None:
        if self.mended or blow not in self.faults.strikes:
            return  # of an earlier episode
        before = self.counts[blow.fault]
        strike(self, blow)
        self.doomed.clear()  # who strikes later is decided here
        if self.counts[blow.fault] == before:  # there was nobody whom it could hit
            self.story.pop()
            self.after(_RETRY, self._strike, blow)

    def _settled(self) -> bool:
        if any(not job.done() for job in self.jobs):
            return False
        # A handler whose result nobody waits for may still do something.
        busy = any(lanes and self.alive(name) for name, lanes in self.lanes.items())
        return not busy and super()._settled()

    def _patience(self) -> float:
        timers, open_ = self.topology.timers, sum(not job.done() for job in self.jobs)
        longest = max((takes[1] for takes in self._takes.values()), default=0.0)
        work = 12 * (1 + open_) * longest  # by one worker, in the end, and it was slow
        return 2 * work + 30.0 + 2 * timers.backoff + len(self.jobs) * timers.trip

    # -- what a world decides

    def start(self, name: str) -> None:
        """Start a process; the submitting program hands a new manager what has no result."""
        if name in self._casts:
            self._served[name] = self._casts[name]()
        super().start(name)
        if name == MANAGER:
            self._hand_in_the_rest()

    def resume(self, name: str, node: object = None) -> None:
        """Give a node all that has waited for it; the submitting program was stopped with it."""
        super().resume(name, node)
        if name == MANAGER and name not in self.paused and self.alive(name):
            self._hand_in_the_rest()

    def say(self, text: str) -> None:
        """Note what the world does itself, for the story as well."""
        self.tell(text)

    def tell(self, text: str, job: SimulatedJob | None = None) -> None:
        """Add to the story."""
        super().say(text if job is None else f"{job}: {text}")
        self.story.append((self.now, text, job))

    def bereave(self, name: str, lane: LinkQueue) -> None:
        """End the process that runs a handler."""
        job = self._held[lane.run.manager, lane.left[0]]
        self.tell(f"the process in {name} that ran it has died", job)
        super().bereave(name, lane)

    def hang(self, name: str, lane: LinkQueue, seconds: float) -> None:
        """Let a handler not return."""
        self.tell(f"its handler hangs at {name}", self._held[lane.run.manager, lane.left[0]])
        super().hang(name, lane, seconds)

    def kill(self, name: str, *, silently: bool = False) -> None:
        """End a node's process, and say what it had in hand."""
        held = [self._held[lane.run.manager, lane.left[0]] for lane in self.lanes[name].values()]
        super().kill(name, silently=silently)
        for job in held:
            self.tell(f"{name} is killed with it in its hands", job)

    def offer(self, batch: SubmitBatch, number: int | None = None) -> None:
        """Only the test submits jobs."""

    def _accepted(self, manager: object, event: Submitted) -> None:
        owner = self.peer(MANAGER)
        assert self._handed is not None
        (id,) = event.ids
        self._held[owner, id] = self._handed
        self._handed.owner = owner, id
        self.history.accepted(owner, id, {}, event.retries)

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Tell the submitters what they are to know."""
        super().handled(name, event, actions)
        if name != MANAGER:
            return
        me = self.peer(name)
        for action in actions:
            if isinstance(action, Resolve):
                rows = zip(action.ids, action.ends, action.payloads, action.attempts, strict=True)
                for id, end, payload, attempts in rows:
                    job = self._held[me, id]
                    job.settle(end, payload, attempts)
                    self.tell(f"has ended: {end.value}", job)
            elif isinstance(action, Notify):
                self._held[me, action.id].progress(Status(action.fraction, action.text))

    # -- work

    def work(self, name: str, lane: LinkQueue, id: int) -> None:
        """A handler begins: its function is called some time before its end."""
        least, most = self._takes[name]
        takes = self._handlers.uniform(least, most) * self.slow.get(name, 1.0)
        moment = takes * self._handlers.random()
        self.after(moment, self._call, name, lane, id, takes - moment)

    def _current(self, name: str, lane: LinkQueue, id: int) -> bool:
        """Whether a job is still the one that a lane is at."""
        return self.lanes[name].get(lane.run.lane) is lane and lane.left[0] == id

    def _call(self, name: str, lane: LinkQueue, id: int, rest: float) -> None:
        if name in self.paused:
            self.paused[name].append((self._call, (name, lane, id, rest)))
            return
        if not self._current(name, lane, id):
            return
        run, row = lane.run, list(lane.run.ids).index(id)
        due = None if run.deadlines is None else run.deadlines[row]
        if due is not None and due <= self.local(name):
            self._finish(name, lane, id, Outcome.CANCELLED)  # WMP-6.7
            return
        served = self._served[name][run.kind.role]
        job, attempt = self._held[run.manager, id], run.attempts[row]
        drawn = self._deaths.draw(self._handlers)
        if self.mended or job.killed >= _KILLS:
            drawn = None
        death, lines = drawn or (None, None)
        fuse = None if lines is None else Fuse(served.call, lines)

        def report(fraction: float | None, text: str | None) -> None:
            if self._current(name, lane, id):
                self.happen(name, Reported(run.lane, id, fraction, text))

        host = Host(lane.cancelled, report)
        running = SimulatedRunningJob(
            host, id, attempt, run.manager[0], due, lambda: self.local(name), run.kind.role
        )
        job.runs += 1
        what = f"{name} calls the handler, attempt {attempt}"
        try:
            outcome, result = execute(
                served, run.kind.codec, lane.payload(id), running, self._loop, fuse
            )
        except Burnt:
            assert fuse is not None
            job.cut += 1
            self.tell(f"{what}: it is ended {fuse.place}", job)
        else:
            self.tell(f"{what}: {_shown(outcome, result)}", job)
            if death is None:
                self.history.made(run.manager, id, attempt, outcome, result)
                self.after(rest, self._finish, name, lane, id, outcome, result)
                return
        assert death is not None
        self._kill(name, lane, id, job, death)

    def _kill(self, name: str, lane: LinkQueue, id: int, job: SimulatedJob, death: Fault) -> None:
        job.killed += 1
        self.counts[death] += 1
        if not self._current(name, lane, id):
            return  # the handler's own doing: what it cancelled, say
        if death is Fault.KILL_HANDLER:
            self.bereave(name, lane)
            return
        self.kill(name, silently=self._handlers.random() < 0.3)
        self.after(self._handlers.uniform(0.05, 1.0), self._revive, name, self.nodes[name])

    def _revive(self, name: str, node: object) -> None:
        if name in self.down and self.nodes[name] is node:
            self.start(name)

    def _finish(
        self, name: str, lane: LinkQueue, id: int, outcome: Outcome, result: Frame = b""
    ) -> None:
        if name in self.paused:
            self.paused[name].append((self._finish, (name, lane, id, outcome, result)))
        elif self._current(name, lane, id) and (lane, id) not in self.hung:
            self.end(name, lane, outcome, bytes(result))

    def _loop(self) -> asyncio.Runner:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner

    def _look_into(self) -> None:
        """The tables of users' worlds have no bounds that are known here."""

    def again(self) -> list[SimulatedJob]:
        """Jobs for which a handler was called more than once; first those of which one was cut."""
        jobs = [job for job in self.jobs if job.runs > 1]
        return sorted(jobs, key=lambda job: (not job.cut, -job.runs, job.number))


def _shown(outcome: Outcome, result: Frame) -> str:
    if outcome is Outcome.OK:
        return "it returns"
    if outcome is Outcome.CANCELLED:
        return "it gives up"
    type_name, text, _ = unpack_error(result)
    return f"it raises {type_name}: {text[:_SHOWN]}"
