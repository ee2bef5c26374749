"""Dispatchers and HTTP workers on one store, in virtual time, with faults that a seed draws.

Each step of the store, each event of a machine, each request and each answer is a move of its own,
so that a dispatcher may end between any two of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from random import Random
from typing import Any, Final

import attrs
from attrs import define, field, frozen

from wmp.dispatcher.dispatch_events import (
    CancellationAnswered,
    DispatcherAction,
    DispatcherEvent,
    InstanceReplaced,
    JobPosted,
    PingWorker,
    PostJob,
    RunStep,
    SendCancellation,
    StepEnded,
    StepFailed,
    StoreChanged,
    TimePassed,
    WorkerPinged,
)
from wmp.dispatcher.job_document import NewJobDocument
from wmp.dispatcher.machine import DispatcherMachine
from wmp.dispatcher.records import DispatchRecord, WorkerRecord
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.job_steps import CancelJob, Create, Finish
from wmp.dispatcher.steps.worker_steps import Register
from wmp.errors import InstanceEnded
from wmp.store.contract import JobFilter, StoreInstance
from wmp.store.stored_job import ENDED, StoredJobState
from wmp.testing.reference_transaction import TransactingReference

__all__ = ["DispatcherFaults", "DispatcherWorld", "run_dispatcher_world"]

_START: Final = 1_800_000_000.0
_ROLE: Final = "resize"
_CALM: Final = 400.0
"""Seconds without faults in which every job must end."""


@frozen
class DispatcherFaults:
    """Probabilities of faults at each move, while faults happen."""

    crash: float = 0.0
    """A dispatcher ends; another one begins."""
    pause: float = 0.0
    """A dispatcher stands still, and its instance may be ended meanwhile."""
    partition: float = 0.0
    """A dispatcher loses its store for some time."""
    lose: float = 0.0
    """A request is lost, or its answer."""
    worker_crash: float = 0.0
    gone: float = 0.0
    """A worker ends for ever; one stays."""
    jump: float = 0.0
    """The clock of the store jumps by some seconds."""
    cancel: float = 0.0


@define(eq=False)
class _WorldWorker:
    """An HTTP worker that refuses nothing: the dispatchers alone keep its limit."""

    port: int
    places: int
    running: dict[int, int] = field(factory=dict)
    until: dict[int, float] = field(factory=dict)
    """When each running job is done."""
    outbox: list[tuple[int, int]] = field(factory=list)
    down_until: float = 0.0
    registers_at: float = 0.0


@define(eq=False)
class _WorldDispatcher:
    """A dispatcher: its machine, and what it has to do."""

    machine: DispatcherMachine
    me: StoreInstance
    ids: Any
    actions: list[DispatcherAction] = field(factory=list)
    events: list[DispatcherEvent] = field(factory=list)
    renewed: float = 0.0
    paused_until: float = 0.0
    cut_until: float = 0.0


@define(eq=False, slots=False)
class DispatcherWorld:
    """See the module; ``problems`` has what went wrong."""

    seed: int
    faults: DispatcherFaults = DispatcherFaults()
    settings: DispatcherSettings = field(
        factory=lambda: DispatcherSettings(ping_interval=2_000, timer_interval=500)
    )
    dispatchers: int = 2
    workers: int = 2
    jobs: int = 6
    problems: list[str] = field(factory=list)
    starts: dict[int, list[int]] = field(factory=dict)
    """The attempts of each job that workers began."""
    accepted: dict[int, int] = field(factory=dict)
    """The attempt of each job whose completion counted."""

    def __attrs_post_init__(self) -> None:
        self.random = Random(self.seed)
        self.now = 0.0
        self.offset = _START
        self.calm = False
        self.store = TransactingReference(lambda: self.now + self.offset, undoes=False)
        self.alive = [self._begin() for _ in range(self.dispatchers)]
        self.hosts = [
            _WorldWorker(8000 + place, self.random.randint(1, 2)) for place in range(self.workers)
        ]
        self.ids: list[int] = []
        self.sent: set[tuple[int, int]] = set()

    # -- parties --------------------------------------------------------------------------------

    def _begin(self) -> _WorldDispatcher:
        me = self.store.begin(b"d", "dispatcher")
        made = _WorldDispatcher(DispatcherMachine(self.settings), me, iter(me.block))
        made.events.append(TimePassed())
        made.renewed = self.now
        return made

    def _transact(self, one: _WorldDispatcher, step: Any) -> Any:
        """Run a step of a dispatcher; None if the store does not answer."""
        if one.cut_until > self.now:
            return None
        before = self._version()
        try:
            outcome = self.store.transact(one.me, step.run)
        except InstanceEnded:
            one.me = self.store.begin(b"d", "dispatcher")
            one.ids = iter(one.me.block)
            one.events.append(InstanceReplaced())
            return None
        one.renewed = self.now
        if self._version() != before:
            self._check_capacity()
            self._notify_others(one)
        return (outcome,)

    def _version(self) -> Any:
        """Return a value that changes when a step changes jobs or records."""
        rows = [(one.id, one.state, one.attempt, one.instance) for one in self.store.list()]
        return rows, dict(self.store._records)

    def _any(self) -> _WorldDispatcher | None:
        able = [one for one in self.alive if max(one.paused_until, one.cut_until) <= self.now]
        return self.random.choice(able) if able else None

    # -- moves ----------------------------------------------------------------------------------

    def run(self, moves: int = 400) -> None:
        """Make moves with faults, then be calm until every job has ended."""
        for _ in range(moves):
            self._move()
            if self.problems:
                return
        self.calm = True
        until = self.now + _CALM
        for one in self.alive:
            one.paused_until = one.cut_until = 0.0
        while self.now < until and not self.problems:
            if len(self.ids) == self.jobs and self._all_ended():
                break
            self._move()
        self._check_end()

    def _happens(self, chance: float) -> bool:
        # An absent fault draws no number: a new kind of fault leaves the other worlds as they are.
        return chance > 0 and not self.calm and self.random.random() < chance

    def _move(self) -> None:
        faults, random = self.faults, self.random
        if self._happens(faults.crash):
            place = random.randrange(len(self.alive))
            self.store.died.add(self.alive[place].me.number)
            self.alive[place] = self._begin()
        if self._happens(faults.pause):
            random.choice(self.alive).paused_until = self.now + random.choice((1.0, 8.0, 40.0))
        if self._happens(faults.partition):
            random.choice(self.alive).cut_until = self.now + random.choice((1.0, 8.0, 40.0))
        if self._happens(faults.jump):
            self.offset += random.choice((-3.0, 3.0))
        if self._happens(faults.worker_crash):
            host = random.choice(self.hosts)
            host.running.clear()
            host.outbox.clear()
            host.down_until = self.now + random.choice((0.5, 10.0))
            host.registers_at = host.down_until
        if self._happens(faults.gone):
            host = self.hosts[-1]
            host.running.clear()
            host.outbox.clear()
            host.down_until = host.registers_at = inf
        moves = self._moves()
        if moves:
            random.choice(moves)()
        else:
            self._advance()

    def _moves(self) -> list[Callable[[], None]]:
        """Return everything that may happen now."""
        moves: list[Callable[[], None]] = []
        if len(self.ids) < self.jobs and self._any() is not None:
            moves.append(self._create)
        for one in self.alive:
            if one.paused_until > self.now:
                continue
            if one.events:
                moves.append(lambda one=one: self._take_event(one))  # type: ignore[misc]
            for action in one.actions:
                moves.append(lambda one=one, action=action: self._act(one, action))  # type: ignore[misc]
        for host in self.hosts:
            if host.down_until > self.now:
                continue
            if host.registers_at <= self.now and self._any() is not None:
                moves.append(lambda host=host: self._register(host))  # type: ignore[misc]
            if host.outbox and self._any() is not None:
                moves.append(lambda host=host: self._report(host))  # type: ignore[misc]
            for id in [one for one in host.running if host.until[one] <= self.now]:
                moves.append(lambda host=host, id=id: self._finish(host, id))  # type: ignore[misc]
        return moves

    def _advance(self) -> None:
        """Let time pass to the next deadline."""
        times = [one.machine.deadline() for one in self.alive if one.paused_until <= self.now]
        waits = [one for one in times if one is not None]
        waits += [one.paused_until for one in self.alive] + [one.cut_until for one in self.alive]
        waits += [host.registers_at for host in self.hosts]
        waits += [host.until[id] for host in self.hosts for id in host.running]
        self.now = max(self.now, min((one for one in waits if one > self.now), default=self.now))
        for one in self.alive:
            deadline = one.machine.deadline()
            if deadline is not None and deadline <= self.now and not one.events:
                one.events.append(TimePassed())

    def _take_event(self, one: _WorldDispatcher) -> None:
        event = one.events.pop(0)
        one.actions += one.machine.handle(event, self.now)

    def _notify_others(self, one: _WorldDispatcher) -> None:
        for other in self.alive:
            if other is not one and StoreChanged() not in other.events:
                other.events.append(StoreChanged())

    def _create(self) -> None:
        one = self._any()
        if one is None:
            return
        id = next(one.ids)
        found = self._transact(one, Create(self.settings, id, NewJobDocument(_ROLE, None)))
        if found is not None:
            self.ids.append(id)
            one.events.append(StoreChanged())
            if self._happens(self.faults.cancel) and self._transact(one, CancelJob(id)):
                self.accepted.setdefault(id, 0)

    def _register(self, host: _WorldWorker) -> None:
        host.registers_at = self.now + self.settings.ping_interval / 2000
        one = self._any()
        if one is None or self._happens(self.faults.lose):
            return
        step = Register(self.settings, "h", host.port, host.places, {_ROLE: True})
        if self._transact(one, step) is not None:
            one.events.append(StoreChanged())

    def _act(self, one: _WorldDispatcher, action: DispatcherAction) -> None:
        one.actions.remove(action)
        match action:
            case RunStep(step):
                found = self._transact(one, step)
                # The answer to a commit may be lost.
                if found is None or self._happens(self.faults.lose / 4):
                    one.events.append(StepFailed(step))
                else:
                    one.events.append(StepEnded(step, found[0]))
            case PostJob(given):
                one.events.append(JobPosted(given, self._post(one, action)))
            case PingWorker(worker, began):
                host = self._host(worker)
                if host is None or self._happens(self.faults.lose):
                    one.events.append(WorkerPinged(worker.id, began, "refused"))
                else:
                    jobs = [*host.running.items(), *host.outbox]
                    one.events.append(WorkerPinged(worker.id, began, None, jobs))
            case SendCancellation(wanted):
                host = self._host(wanted.worker)
                answered = host is not None and not self._happens(self.faults.lose)
                if answered and host is not None and host.running.get(wanted.id) == wanted.attempt:
                    del host.running[wanted.id]
                one.events.append(CancellationAnswered(wanted, answered))
            case _:
                pass

    def _host(self, worker: WorkerRecord) -> _WorldWorker | None:
        """Return the worker that a record names, if it is up."""
        host = next(one for one in self.hosts if one.port == worker.port)
        return host if host.down_until <= self.now else None

    def _post(self, one: _WorldDispatcher, action: PostJob) -> str | None:
        """Send a job; return why the worker surely has not begun."""
        given = action.assignment
        if not one.machine.may_send(one.renewed, self.now):
            return "no transaction for too long"
        if (given.id, given.attempt) in self.sent:
            self.problems.append(f"attempt {given.attempt} of job {given.id} was sent twice")
        self.sent.add((given.id, given.attempt))
        host = self._host(given.worker)
        if host is None:
            return "refused"
        if self._happens(self.faults.lose):
            return None  # the request is lost: nobody knows
        assert json.loads(given.document)["execution"]["attempt"] == given.attempt
        self.starts.setdefault(given.id, []).append(given.attempt)
        host.running[given.id] = given.attempt
        host.until[given.id] = self.now + self.random.choice((0.0, 0.5, 5.0, 30.0))
        quiet = attrs.evolve(self.faults, crash=0.0, pause=0.0, cancel=0.0)
        if quiet == DispatcherFaults() and len(host.running) > host.places:
            # Only a worker that was wrongly given up may have more.
            self.problems.append(f"worker {host.port} runs {len(host.running)} jobs")
        return None

    def _finish(self, host: _WorldWorker, id: int) -> None:
        host.outbox.append((id, host.running.pop(id)))

    def _report(self, host: _WorldWorker) -> None:
        one = self._any()
        if one is None or self._happens(self.faults.lose):
            return
        id, attempt = host.outbox[0]
        before = self.store.list(JobFilter(ids=[id]))[0]
        found = self._transact(one, Finish(id, attempt, "s", b"1"))
        if found is None:
            return
        one.events.append(StoreChanged())
        if found[0].counts:
            if before.attempt != attempt:
                self.problems.append(
                    f"a result of attempt {attempt} counted; {before.attempt} is current"
                )
            if self.accepted.get(id):
                self.problems.append(f"two results of job {id} counted")
            self.accepted[id] = attempt
        if not self._happens(self.faults.lose):
            host.outbox.pop(0)

    # -- invariants -----------------------------------------------------------------------------

    def _check_capacity(self) -> None:
        running: dict[int, int] = {}
        records = self.store._records
        for (sort, _), record in records.items():
            if sort == DispatchRecord.SORT and record.open and record.body["worker"] is not None:
                worker = record.body["worker"]
                running[worker] = running.get(worker, 0) + 1
        for (sort, id), record in records.items():
            if sort == WorkerRecord.SORT:
                worker = WorkerRecord.of(record)
                most = max(running.get(id, 0), len(worker.jobs))
                if most > worker.max_jobs:
                    self.problems.append(
                        f"worker {worker.port} has {most} jobs, at most {worker.max_jobs}"
                    )

    def _all_ended(self) -> bool:
        return all(job.state in ENDED for job in self.store.list(JobFilter(ids=self.ids)))

    def _check_end(self) -> None:
        if self.problems:
            return
        for job in self.store.list(JobFilter(ids=self.ids)):
            if job.state not in ENDED:
                self.problems.append(f"job {job.id} is still {job.state.name}")
            elif job.state is StoredJobState.OK and not self.accepted.get(job.id):
                self.problems.append(f"job {job.id} ended, and no completion counted")
            elif len(self.starts.get(job.id, ())) > job.attempt:
                self.problems.append(f"job {job.id} began more often than it has attempts")


def run_dispatcher_world(seed: int, faults: DispatcherFaults, **more: Any) -> DispatcherWorld:
    """Run one world; return it."""
    world = DispatcherWorld(seed, faults, **more)
    world.run()
    return world
