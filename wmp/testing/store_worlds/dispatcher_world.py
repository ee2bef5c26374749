"""Dispatchers and workers of both kinds on one store, in virtual time, with faults of a seed.

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
from attrs import define, field

from wmp.dispatcher.dispatch_events import (
    CallbackAnswered,
    CancellationAnswered,
    DispatcherAction,
    InstanceReplaced,
    JobPosted,
    PingWorker,
    PostJob,
    RunStep,
    SendCallback,
    SendCancellation,
    StepEnded,
    StepFailed,
    StoreChanged,
    TimePassed,
    WorkerPinged,
)
from wmp.dispatcher.job_document import CODEC, NewJobDocument
from wmp.dispatcher.machine import DispatcherMachine
from wmp.dispatcher.records import CallbackRecord, DispatchRecord, WorkerRecord, worker_number
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.job_steps import CancelJob, Create, Finish
from wmp.dispatcher.steps.refusals import RefusedPost
from wmp.dispatcher.steps.worker_steps import Register, Resign
from wmp.errors import InstanceEnded
from wmp.message import Kind
from wmp.store.contract import JobFilter
from wmp.store.stored_job import ENDED, StoredJobInput, StoredJobState
from wmp.store.transaction import StoreTransaction
from wmp.store.write_batch import JobChanges, Reservation
from wmp.testing.store_worlds.dispatcher_parties import (
    DispatcherFaults,
    WorldDispatcher,
    WorldManager,
    WorldWorker,
)
from wmp.testing.store_worlds.reference_transaction import TransactingReference

_START: Final = 1_800_000_000.0
_ROLE: Final = "resize"
_KIND: Final = Kind(_ROLE, codec=CODEC)
_CALLBACK: Final = {"hostname": "h", "port": 9, "path": "/", "method": "POST"}
_RENEWED: Final = 3.0
"""Seconds after which a manager renews its instance."""
_ALONE: Final = DispatcherFaults(isolate=1.0)
_CALM: Final = 400.0
"""Seconds without faults in which every job must end."""


@define(eq=False, slots=False)
class DispatcherWorld:
    """See the module; ``problems`` lists what went wrong."""

    seed: int
    faults: DispatcherFaults = field(factory=DispatcherFaults)
    settings: DispatcherSettings = field(
        factory=lambda: DispatcherSettings(ping_interval=2_000, timer_interval=500)
    )
    dispatchers: int = 2
    workers: int = 2
    managers: int = 0
    jobs: int = 6
    callbacks: bool = False
    """Whether each job has a callback."""
    problems: list[str] = field(factory=list)
    starts: dict[int, list[int]] = field(factory=dict)
    """The attempts of each job that workers began."""
    accepted: dict[int, int] = field(factory=dict)
    """The attempt of each job whose completion counted."""
    called: dict[int, int] = field(factory=dict)
    """Number of answers to the callback of each job."""

    def __attrs_post_init__(self) -> None:
        self.random = Random(self.seed)
        self.now = 0.0
        self.offset = _START
        self.calm = False
        self.store = TransactingReference(lambda: self.now + self.offset, undoes=False)
        self.alive = [self._begin() for _ in range(self.dispatchers)]
        self.hosts = [
            WorldWorker(8000 + index, self.random.randint(1, 2)) for index in range(self.workers)
        ]
        self.masters = [self._begin_manager() for _ in range(self.managers)]
        self.ids: list[int] = []
        self.sent: set[tuple[int, int]] = set()

    # -- parties --------------------------------------------------------------------------------

    def _begin(self) -> WorldDispatcher:
        me = self.store.begin(b"d", "dispatcher")
        drift = self.faults.drift
        rate = 1.0 + (self.random.uniform(-drift, drift) if drift else 0.0)
        machine = DispatcherMachine(self.settings, self._wants)
        dispatcher = WorldDispatcher(machine, me, iter(me.block), rate)
        dispatcher.events.append(TimePassed())
        dispatcher.renewed = self.now * rate
        return dispatcher

    def _begin_manager(self) -> WorldManager:
        return WorldManager(self.store.begin(b"m", "manager"), self.random.randint(1, 2))

    def _wants(self) -> dict[str, list[int]]:
        """Return the number of jobs that each waiting request of WMP workers can take."""
        wants = [
            master.places - len(master.held)
            for master in self.masters
            if len(master.held) < master.places
        ]
        return {_ROLE: wants} if wants else {}

    def _deadline(self, dispatcher: WorldDispatcher) -> float | None:
        """Return the deadline of a machine in the world's time."""
        deadline = dispatcher.machine.deadline()
        return None if deadline is None else deadline / dispatcher.rate

    def _transact(self, dispatcher: WorldDispatcher, step: Any) -> Any:
        """Run a step of a dispatcher; None if the store does not answer."""
        if dispatcher.cut_until > self.now:
            return None
        before = self._version()
        try:
            outcome = self.store.transact(dispatcher.me, step.run)
        except InstanceEnded:
            dispatcher.me = self.store.begin(b"d", "dispatcher")
            dispatcher.ids = iter(dispatcher.me.block)
            dispatcher.events.append(InstanceReplaced())
            return None
        dispatcher.renewed = self.now * dispatcher.rate
        if self._version() != before:
            self._check_capacity()
            self._notify_others(dispatcher)
        return (outcome,)

    def _version(self) -> Any:
        """Return a value that changes when a step changes jobs or records."""
        rows = [(job.id, job.state, job.attempt, job.instance) for job in self.store.list()]
        return rows, dict(self.store._records)

    def _any(self) -> WorldDispatcher | None:
        able = self._able()
        return self.random.choice(able) if able else None

    def _able(self) -> list[WorldDispatcher]:
        return [
            dispatcher
            for dispatcher in self.alive
            if max(dispatcher.paused_until, dispatcher.cut_until) <= self.now
        ]

    def _reached(self, host: WorldWorker) -> WorldDispatcher | None:
        """Return a dispatcher that a worker reaches."""
        able = [
            dispatcher
            for dispatcher in self._able()
            if host.reaches(self.alive.index(dispatcher), self.now)
        ]
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
        for dispatcher in self.alive:
            dispatcher.paused_until = dispatcher.cut_until = 0.0
        for host in self.hosts:
            host.alone_until = 0.0
            host.apart.clear()
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
            index = random.randrange(len(self.alive))
            self.store.died.add(self.alive[index].me.number)
            self.alive[index] = self._begin()
        if self._happens(faults.pause):
            random.choice(self.alive).paused_until = self.now + random.choice((1.0, 8.0, 40.0))
        if self._happens(faults.partition):
            random.choice(self.alive).cut_until = self.now + random.choice((1.0, 8.0, 40.0))
        if self._happens(faults.jump):
            self.offset += random.choice((-3.0, 3.0))
        if self._happens(faults.worker_crash):
            host = random.choice(self.hosts)
            host.stop()
            host.down_until = self.now + random.choice((0.5, 10.0))
            host.registers_at = host.down_until
        if self._happens(faults.gone):
            host = self.hosts[-1]
            host.stop()
            host.down_until = host.registers_at = inf
        if self._happens(faults.isolate):
            random.choice(self.hosts).alone_until = self.now + random.choice((1.0, 8.0, 40.0))
        if self._happens(faults.apart):
            index, until = random.randrange(len(self.alive)), random.choice((1.0, 8.0, 40.0))
            random.choice(self.hosts).apart[index] = self.now + until
        if self._happens(faults.resign):
            self._resign(random.choice(self.hosts))
        if self.masters and self._happens(faults.manager_crash):
            index = random.randrange(len(self.masters))
            self.store.died.add(self.masters[index].me.number)
            self.masters[index] = self._begin_manager()
        moves = self._moves()
        if moves:
            random.choice(moves)()
        else:
            self._advance()

    def _moves(self) -> list[Callable[[], None]]:
        """Return all moves that are possible now."""
        moves: list[Callable[[], None]] = []
        if len(self.ids) < self.jobs and self._any() is not None:
            moves.append(self._create)
        for dispatcher in self.alive:
            if dispatcher.paused_until > self.now:
                continue
            if dispatcher.events:
                moves.append(lambda dispatcher=dispatcher: self._take_event(dispatcher))  # type: ignore[misc]
            for action in dispatcher.actions:
                moves.append(
                    lambda dispatcher=dispatcher, action=action: self._act(dispatcher, action)  # type: ignore[misc]
                )
        for host in self.hosts:
            if host.down_until > self.now:
                continue
            if host.registers_at <= self.now:
                moves.append(lambda host=host: self._register(host))  # type: ignore[misc]
            if host.outbox and self._reached(host) is not None:
                moves.append(lambda host=host: self._report(host))  # type: ignore[misc]
            for id in [job for job in host.running if host.until[job] <= self.now]:
                moves.append(lambda host=host, id=id: self._finish(host, id))  # type: ignore[misc]
        for master in self.masters:
            if master.renews_at <= self.now or any(
                until <= self.now for _, until in master.held.values()
            ):
                moves.append(lambda master=master: self._manage(master))  # type: ignore[misc]
        return moves

    def _advance(self) -> None:
        """Let time pass to the next deadline."""
        times = [
            self._deadline(dispatcher)
            for dispatcher in self.alive
            if dispatcher.paused_until <= self.now
        ]
        waits = [time for time in times if time is not None]
        waits += [dispatcher.paused_until for dispatcher in self.alive] + [
            dispatcher.cut_until for dispatcher in self.alive
        ]
        waits += [host.registers_at for host in self.hosts]
        waits += [host.until[id] for host in self.hosts for id in host.running]
        for host in self.hosts:
            waits += [host.alone_until, *host.apart.values()]
        for master in self.masters:
            waits += [master.renews_at, *(until for _, until in master.held.values())]
        self.now = max(self.now, min((time for time in waits if time > self.now), default=self.now))
        for dispatcher in self.alive:
            deadline = self._deadline(dispatcher)
            if deadline is not None and deadline <= self.now and not dispatcher.events:
                dispatcher.events.append(TimePassed())

    def _take_event(self, dispatcher: WorldDispatcher) -> None:
        event = dispatcher.events.pop(0)
        dispatcher.actions += dispatcher.machine.handle(event, self.now * dispatcher.rate)

    def _notify_others(self, dispatcher: WorldDispatcher | None) -> None:
        for other in self.alive:
            if other is not dispatcher and StoreChanged(foreign=True) not in other.events:
                other.events.append(StoreChanged(foreign=True))

    def _create(self) -> None:
        dispatcher = self._any()
        if dispatcher is None:
            return
        id = next(dispatcher.ids)
        job = NewJobDocument(_ROLE, None, callback=_CALLBACK if self.callbacks else None)
        outcome = self._transact(dispatcher, Create(self.settings, id, job))
        if outcome is not None:
            self.ids.append(id)
            dispatcher.events.append(StoreChanged())
            if self._happens(self.faults.cancel) and self._transact(dispatcher, CancelJob(id)):
                self.accepted.setdefault(id, 0)

    def _register(self, host: WorldWorker) -> None:
        host.registers_at = self.now + self.settings.ping_interval / 2000
        dispatcher = self._reached(host)
        step = Register(self.settings, "h", host.port, host.places, {_ROLE: True})
        if (
            dispatcher is not None
            and not self._happens(self.faults.lose)
            and self._transact(dispatcher, step) is not None
        ):
            host.failed = 0
            dispatcher.events.append(StoreChanged())
            return
        host.failed += 1
        if host.failed >= self.settings.max_failed_checks:
            self._stop_alone(host)

    def _resign(self, host: WorldWorker) -> None:
        dispatcher = self._reached(host)
        if dispatcher is None or host.down_until > self.now:
            return
        if (
            self._transact(dispatcher, Resign(self.settings, worker_number("h", host.port)))
            is not None
        ):
            host.registers_at = self.now + 5.0
            dispatcher.events.append(StoreChanged())

    def _stop_alone(self, host: WorldWorker) -> None:
        """Stop a worker that has reached no dispatcher (DSP-5.9); a supervisor starts it again."""
        host.stop()
        host.down_until = host.registers_at = self.now + 1.0

    def _manage(self, master: WorldManager) -> None:
        """Have a manager write the ends of its jobs, reserve others, and renew its instance."""
        before = self._version()
        ready = [id for id, (_, until) in master.held.items() if until <= self.now]
        attempts = [master.held[id][0] for id in ready]
        free = master.places - len(master.held) + len(ready)

        def work(store: StoreTransaction) -> Any:
            current = {job.id: job.attempt for job in store.jobs(JobFilter(ids=ready))}
            change = JobChanges(StoredJobInput.SUCCEED, ready, attempts, [b"1"] * len(ready))
            states = store.change(change).states if ready else ()
            return current, states, store.reserve(Reservation(_KIND, free, 1 << 20))

        try:
            current, states, reserved = self.store.transact(master.me, work)
        except InstanceEnded:
            master.me = self.store.begin(b"m", "manager")
            master.held.clear()
            return
        master.renews_at = self.now + _RENEWED
        for id, attempt, state in zip(ready, attempts, states, strict=True):
            del master.held[id]
            if state is StoredJobState.OK and not self.accepted.get(id):
                self._accept(id, attempt, current[id])
        for id, attempt in zip(reserved.ids, reserved.attempts, strict=True):
            self.starts.setdefault(id, []).append(attempt)
            master.held[id] = attempt, self.now + self.random.choice((0.0, 0.5, 5.0, 30.0))
        if self._version() != before:
            self._notify_others(None)

    def _act(self, dispatcher: WorldDispatcher, action: DispatcherAction) -> None:
        dispatcher.actions.remove(action)
        match action:
            case RunStep(step):
                outcome = self._transact(dispatcher, step)
                # The answer to a commit may be lost.
                if outcome is None or self._happens(self.faults.lose / 4):
                    dispatcher.events.append(StepFailed(step))
                else:
                    dispatcher.events.append(StepEnded(step, outcome[0]))
            case PostJob():
                dispatcher.events.append(self._post(dispatcher, action))
            case PingWorker(worker, began):
                host = self._host(dispatcher, worker)
                if host is None or self._happens(self.faults.lose):
                    dispatcher.events.append(WorkerPinged(worker.id, began, "refused"))
                else:
                    jobs = [*host.running.items(), *host.outbox]
                    dispatcher.events.append(WorkerPinged(worker.id, began, None, jobs))
            case SendCancellation(wanted):
                host = self._host(dispatcher, wanted.worker)
                answered = host is not None and not self._happens(self.faults.lose)
                if answered and host is not None and host.running.get(wanted.id) == wanted.attempt:
                    del host.running[wanted.id]
                dispatcher.events.append(CancellationAnswered(wanted, answered))
            case SendCallback(callback):
                error = "refused" if self._happens(self.faults.lose) else None
                if error is None:
                    job = callback.record.id
                    self.called[job] = self.called.get(job, 0) + 1
                dispatcher.events.append(CallbackAnswered(callback, error))

    def _host(self, dispatcher: WorldDispatcher, worker: WorkerRecord) -> WorldWorker | None:
        """Return the worker that a record names, if a dispatcher reaches the worker."""
        host = next(host for host in self.hosts if host.port == worker.port)
        reached = host.reaches(self.alive.index(dispatcher), self.now)
        return host if reached and host.down_until <= self.now else None

    def _post(self, dispatcher: WorldDispatcher, action: PostJob) -> JobPosted:
        """Send a job; return what the dispatcher learns of it."""
        given = action.assignment
        if not dispatcher.machine.may_send(dispatcher.renewed, self.now * dispatcher.rate):
            refusal = RefusedPost("no transaction for too long", worker_at_fault=False)
            return JobPosted(given, refusal)
        if (given.id, given.attempt) in self.sent:
            self.problems.append(f"attempt {given.attempt} of job {given.id} was sent twice")
        self.sent.add((given.id, given.attempt))
        host = self._host(dispatcher, given.worker)
        if host is None:
            return JobPosted(given, RefusedPost("refused", answered=False))
        if self._happens(self.faults.lose):
            return JobPosted(given, None)  # the request is lost, and neither side knows
        if self._happens(self.faults.refuse):
            return JobPosted(given, RefusedPost("404", counts=True))
        begun = self._happens(self.faults.err)
        assert json.loads(given.document)["execution"]["attempt"] == given.attempt
        self.starts.setdefault(given.id, []).append(given.attempt)
        if attrs.evolve(self.faults, isolate=1.0) == _ALONE and any(
            given.id in other.running for other in self.hosts
        ):
            # A worker behind a partition stops before other workers get its jobs.
            self.problems.append(f"job {given.id} runs at two workers")
        host.running[given.id] = given.attempt
        host.until[given.id] = self.now + self.random.choice((0.0, 0.5, 5.0, 30.0))
        quiet = attrs.evolve(self.faults, crash=0.0, pause=0.0, cancel=0.0)
        if quiet == DispatcherFaults() and len(host.running) > host.places:
            # Only a worker that was wrongly given up may have more.
            self.problems.append(f"worker {host.port} runs {len(host.running)} jobs")
        if begun:
            return JobPosted(given, RefusedPost("500", counts=True, begun=True))
        return JobPosted(given, None, accepted=True)

    def _finish(self, host: WorldWorker, id: int) -> None:
        host.outbox.append((id, host.running.pop(id)))

    def _report(self, host: WorldWorker) -> None:
        dispatcher = self._reached(host)
        if dispatcher is None or self._happens(self.faults.lose):
            return
        id, attempt = host.outbox[0]
        before = self.store.list(JobFilter(ids=[id]))[0]
        outcome = self._transact(dispatcher, Finish(id, attempt, "s", b"1"))
        if outcome is None:
            return
        dispatcher.events.append(StoreChanged())
        if outcome[0].counts:
            self._accept(id, attempt, before.attempt)
        if not self._happens(self.faults.lose):
            host.outbox.pop(0)

    # -- invariants -----------------------------------------------------------------------------

    def _accept(self, id: int, attempt: int, current: int) -> None:
        """Note that a result counted."""
        if current != attempt:
            self.problems.append(f"a result of attempt {attempt} counted; {current} is current")
        if self.accepted.get(id):
            self.problems.append(f"two results of job {id} counted")
        self.accepted[id] = attempt

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
                maximum = max(running.get(id, 0), len(worker.jobs))
                if maximum > worker.max_jobs:
                    self.problems.append(
                        f"worker {worker.port} has {maximum} jobs, at most {worker.max_jobs}"
                    )

    def _all_ended(self) -> bool:
        """Return whether all jobs have ended, and the stored jobs of their callbacks, too."""
        jobs = self.store.list()
        wanted = len(self.ids) * (2 if self.callbacks else 1)
        return len(jobs) == wanted and all(job.state in ENDED for job in jobs)

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
            elif self.callbacks and not self._called(job.id):
                self.problems.append(f"the callback of job {job.id} was not sent")

    def _called(self, id: int) -> bool:
        """Return whether the callback of a job was answered, or tried for all its retries."""
        record = self.store._records.get((CallbackRecord.SORT, id))
        if record is None or record.body["job"] is None:
            return False
        (job,) = self.store.list(JobFilter(ids=[record.body["job"]]))
        failed = job.state is StoredJobState.ERROR
        return failed if not self.called.get(id) else job.state in ENDED


def run_dispatcher_world(seed: int, faults: DispatcherFaults, **more: Any) -> DispatcherWorld:
    """Run one world; return it."""
    world = DispatcherWorld(seed, faults, **more)
    world.run()
    return world
