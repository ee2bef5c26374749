"""A manager's stored jobs: what it writes to the store, and what the answers decide.

Theory of operation. One write is under way at a time; what happens meanwhile is gathered for the
next one. A stored job that this manager has reserved and that waits for a worker has a record in
its queue, like a job that came back. Its attempt is written already, so the grant does not count
another one. When the lease of a stored job ends, the job leaves all lines until the answer to its
change: only then is its end reported (``Resolve``), or is the job queued again. Nothing else waits
for the store. ``specs/store.md`` section 12 lists the duties of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Final, assert_never

from attrs import define, field

from wmp.actions import JOINED, Acknowledge, Decline, End, FailedAttempt, Note, Write
from wmp.core.manager.job_ends import JobEnds
from wmp.core.manager.job_lifecycle import JobRecord
from wmp.core.manager.leases import Leases
from wmp.core.manager.ownership import Ownership
from wmp.core.manager.queues import Queue, Queues
from wmp.core.manager.remote_worker import ManagerOutbound, RemoteWorker
from wmp.core.manager.store_demand import StoreDemand
from wmp.core.manager.store_writes import (
    FIRST_UNSTORED,
    ChangeColumns,
    NewStoredJobs,
)
from wmp.core.manager.stored_changes import StoredChanges
from wmp.core.manager.stored_records import (
    failure_of,
    history_of,
    is_stored,
    limits_of,
    milliseconds,
    record_of,
    records_of,
)
from wmp.core.manager.succession import Succession
from wmp.core.manager.timers import ManagerTimers, StoreDueTimer, SweepTimer
from wmp.events import InstanceBegun, StoreFilled, Submitted, Woken, Written
from wmp.message import Frame, Kind
from wmp.store.contract import StoredJob
from wmp.store.stored_job import ENDED, TRANSITIONS, StoredJobInput, StoredJobState
from wmp.store.write_batch import AddAnswer, BatchAnswer, ChangeAnswer, NewJobs, ReservedJobs

_GRANT_FOR: Final = 7.0
"""Seconds after the start of the last renewal for which stored jobs are granted."""
_SWEEP: Final = 1.0
"""Seconds between two sweeps. Each of them renews the validity of the instance, too."""
_MAX_LOOKED: Final = 1000
"""Maximum number of jobs whose rows one write asks for."""
_State = StoredJobState
_In = StoredJobInput

_INPUTS: Final = {
    End.OK: _In.SUCCEED,
    End.ERROR: _In.FAIL,
    End.TIMEOUT: _In.OVERRUN,
    End.LOST: _In.SPEND,
}
"""The input that writes each end. A cancelled job ends by CANCEL and RELEASE."""

_ENDS: Final = {
    _State.OK: End.OK,
    _State.ERROR: End.ERROR,
    _State.CANCELLED: End.CANCELLED,
    _State.TIMEOUT: End.TIMEOUT,
    _State.LOST: End.LOST,
}

_GROWTHS: Final = {_In.REPEAT: 1, _In.RELEASE: -1}
"""By how much a change that had its effect moves the attempt; 0 for the other inputs."""

_GONE: Final = (
    b"the store has the job no more: somebody removed the job, or its time to live passed"
)
_SWEPT_TEXTS: Final = {
    _State.TIMEOUT: b"timed out, or expired, while the job was in the store",
    _State.CANCELLED: b"",
}


@define(eq=False)
class StoreLink:
    """The stored jobs of a manager.

    Args:
        outbound: Takes actions.
        leases: All jobs that are leased or have a record.
        queues: The waiting jobs.
        timers: Timers of the manager.
        ownership: The owners of jobs on the wire.
        changes: The changes that wait for the store.
        job_ends: Ends jobs without results.
        succession: Takes over jobs whose leases began elsewhere.
    """

    outbound: ManagerOutbound
    leases: Leases
    queues: Queues
    timers: ManagerTimers
    ownership: Ownership
    changes: StoredChanges
    job_ends: JobEnds
    succession: Succession
    demand: StoreDemand = field(init=False)
    draining: bool = False
    _begun: bool = False
    _step: int = 0
    _renewed: float = -inf
    """When the last write was sent that was answered."""
    _sweep: bool = False
    _watched: dict[int, None] = field(factory=dict)
    """Open jobs whose ends no news have, because another instance submitted them."""
    _histories: dict[int, Sequence[FailedAttempt]] = field(factory=dict)
    _progress: dict[tuple[int, int], tuple[float | None, str | None]] = field(factory=dict)
    """Reports of stored jobs since the last sweep, by number and attempt: the last of each."""
    _touched: dict[Kind, None] = field(factory=dict)
    """Kinds whose queues got jobs in this step."""
    _look_soon: bool = False
    """Whether the next write asks for the rows of watched jobs."""
    _rows: dict[int, tuple[End, Frame, int]] = field(factory=dict)
    """Ends to report in this step, by number of the job."""
    _results: list[ChangeColumns] = field(factory=list)
    """Results to report in this step, if all of a change were accepted."""

    def __attrs_post_init__(self) -> None:
        self.demand = StoreDemand(self.leases, self.queues)

    @property
    def idle(self) -> bool:
        """Whether everything is written."""
        waits = self.changes.under_way is not None or self.changes.pending or self.changes.repeating
        return not waits and not self.succession.questions

    # -- from the application

    def submit(self, event: Submitted, now: float) -> None:
        """Add new jobs; reserve as many with that as the workers have capacity for."""
        assert event.stored is not None
        demand = self.demand.of(event.kind)
        count = len(event.ids)
        later = event.delay > 0 or event.after
        free = 0 if later else max(0, min(count, self.demand.free(demand, now)))
        demand.adding += free
        for begin, end in ((0, free), (free, count)):
            if begin < end:
                new = NewJobs(
                    event.kind,
                    event.stored,
                    event.ids[begin:end],
                    event.payloads[begin:end],
                    event.priority,
                    ceil(event.delay * 1000),
                    milliseconds(event.timeout),
                    milliseconds(event.expires),
                    None if event.keys is None else event.keys[begin:end],
                    event.unique,
                    reserve=end == free,
                    after=event.after,
                    splice=event.splice,
                )
                self.changes.pending.add(new, event)

    # -- from workers: jobs that were granted elsewhere

    def listed(self, worker: RemoteWorker, held: Mapping[int, int], now: float) -> None:
        """Take over listed jobs that are not leased to the worker, as far as the store allows."""
        self.succession.listed(worker, held, now)

    # -- from workers: a lease goes on

    def progressed(self, id: int, fraction: float | None, text: str | None) -> None:
        """Note the progress of a leased job; the next sweep writes it (STORE-12.14)."""
        job = self.leases.record(id) if id < FIRST_UNSTORED else None
        if job is not None:
            self._progress[id, job.attempt] = fraction, text
            job.reported = False

    def _report_runs(self) -> None:
        """Write which workers have which attempts, and what these reported (STORE-12.14)."""
        begun = self.changes.pending.of(_In.BEGIN)
        progress, self._progress = self._progress, {}
        for worker in self.leases.workers.values():
            for job in worker.leases.values():
                if job.leased_at is None or job.reported:
                    continue
                job.reported = True
                run = worker.name, job.leased_at
                report = progress.get((job.id, job.attempt))
                begun.add(job.id, job.attempt, run=run, progress=report)

    # -- from workers: a lease is over

    def take_ends(self) -> None:
        """Write the ends of this step; those that the store has confirmed are reported instead."""
        ended = self.leases.take_ended(FIRST_UNSTORED)
        runs, self.leases.runs = self.leases.runs, {}
        if ended is not None:
            ids, ends, payloads, attempts, histories = ended
            self._histories.update(histories)
            if ends.count(End.OK) == len(ends):
                of_each = list(map(runs.get, ids))
                self.changes.pending.of(_In.SUCCEED).extend(ids, attempts, payloads, of_each)
            else:
                for id, end, payload, attempt in zip(ids, ends, payloads, attempts, strict=True):
                    if end is End.CANCELLED:
                        self.changes.cancel(id)
                        self.changes.pending.of(_In.RELEASE).add(id, attempt, run=runs.get(id))
                    else:
                        self.changes.pending.of(_INPUTS[end]).add(
                            id,
                            attempt,
                            payload,
                            cost=int(end is End.LOST),
                            failure=failure_of(histories.get(id), attempt),
                            run=runs.get(id),
                        )
        results, self._results = self._results, []
        for columns in results:
            self._report(columns)
        rows, self._rows = self._rows, {}
        for id, (end, payload, attempt) in rows.items():
            self.changes.cancelled.discard(id)
            self._watched.pop(id, None)
            history = self._histories.pop(id, None)
            self.leases.report_end(id, end, payload, attempt, history)

    def _report(self, columns: ChangeColumns) -> None:
        """Report results, all at once if nothing else is known about these jobs."""
        if self.changes.cancelled or self._watched or self._histories:
            for id, payload, attempt in zip(
                columns.ids, columns.payloads, columns.attempts, strict=True
            ):
                self._rows.setdefault(id, (End.OK, payload, attempt))
        else:
            self.leases.report_results(columns.ids, columns.payloads, columns.attempts)

    # -- writing

    def check(self, now: float) -> None:
        """Grant no stored job when the last renewal is too old: another instance may have the
        jobs soon. Called before each step, because messages may come before the time."""
        if self.changes.frozen is None and now - self._renewed > _GRANT_FOR:
            self.changes.freeze(self._withdraw())

    def _withdraw(self) -> list[JobRecord]:
        """Remove the stored jobs from all queues."""
        jobs: list[JobRecord] = []
        for queue in self.queues:
            jobs += queue.withdraw(is_stored)
            self.queues.tidy(queue)
        for job in jobs:
            self.leases.forget(job)
        return jobs

    def tick(self, now: float) -> None:
        """Sweep, and give back the jobs that no worker of this manager will do."""
        self._sweep = True
        self.timers.set(SweepTimer(), now + _SWEEP)
        for kind, count in () if self.draining else self.demand.surplus(now):
            if (queue := self.queues.find(kind)) is not None:
                stored = [job for job in queue.records() if is_stored(job)]
                self._give_back(queue, stored[-count:])
        self.demand.tidy()

    def drain(self) -> None:
        """Reserve nothing more, and give all jobs back that no worker has."""
        self.draining = True
        for queue in self.queues:
            self._give_back(queue, [job for job in queue.records() if is_stored(job)])
        self.changes.release_frozen()

    def _give_back(self, queue: Queue, jobs: Sequence[JobRecord]) -> None:
        if jobs:
            chosen = {job.id for job in jobs}
            queue.withdraw(lambda job: job.id in chosen)
            self.queues.tidy(queue)
            for job in jobs:
                self.leases.forget(job)
            self.changes.release(jobs)

    def flush(self, now: float, *, last: bool = False) -> None:
        """Write what was gathered, unless a write is under way."""
        if not self._begun or (self.changes.under_way is not None and not last):
            return
        reservations = () if self.draining or last else self.demand.reservations(now)
        due = self.changes.pending or reservations or self._look_soon or self.succession.questions
        if not due and (last or not self._sweep):
            if (when := self.demand.next_due()) < inf and not self.draining:
                self.timers.set(StoreDueTimer(), max(when, now + 0.001))
            return
        self._step += 1
        look = self._looked() if self._sweep or self._look_soon else ()
        if self._sweep and not last:
            self._report_runs()
        self._look_soon = False
        rows = self.succession.ask()
        sweep, self._sweep = self._sweep and not last, False
        batch, verify = self.changes.take(
            self._step, now, sweep=sweep, reservations=reservations, look=look, whole=last
        )
        self.succession.step = self._step + 1
        self.outbound.actions.append(Write(self._step, batch, [*look, *rows], verify))

    def end(self, now: float) -> None:
        """Write all that is left, and give all jobs back that no worker has."""
        self.drain()
        self.take_ends()
        self.flush(now, last=True)

    def _looked(self) -> list[int]:
        """Return the next jobs to look at, each in its turn."""
        chosen = list(self._watched)[:_MAX_LOOKED]
        if len(chosen) < len(self._watched):
            for id in chosen:
                del self._watched[id]
                self._watched[id] = None
        return chosen

    # -- from the store

    def handle(
        self, event: InstanceBegun | Written | StoreFilled | Woken, now: float
    ) -> Sequence[Queue]:
        """Act on an event of the store; return the queues that got jobs."""
        match event:
            case InstanceBegun():
                self.begun(event, now)
            case Written():
                return self.written(event, now)
            case StoreFilled():
                self.filled(event)
            case Woken():
                self.woken(event, now)
            case _:
                assert_never(event)
        return ()

    def begun(self, event: InstanceBegun, now: float) -> None:
        """Begin anew as another instance (STORE-1.3)."""
        lost = self.changes.lose_write()
        self.ownership.store = event.store
        self.succession.begin(event.number)
        if self._begun:
            self.changes.begin_anew(lost)
            self._withdraw()
            self._renewed = -inf
            self._watched.update(dict.fromkeys(event.owned))
            self.changes.pending.watch(event.owned)
            adopted = self.changes.pending.of(_In.ADOPT)
            for worker in self.leases.workers.values():
                for job in self.leases.of(worker):
                    if is_stored(job):
                        adopted.add(job.id, job.attempt)
        self._begun = True
        self.tick(now)

    def filled(self, event: StoreFilled) -> None:
        """Refuse the jobs for which the store has no space, and the jobs that wait behind them."""
        refused = self.changes.refuse_adds(event.step)
        self._decline((id for add in refused for id in self._undone(add)), event.text)

    def _undone(self, add: NewStoredJobs) -> Sequence[int]:
        if add.new.reserve:
            self.demand.of(add.new.kind).adding -= len(add.new.ids)
        return add.new.ids

    def _decline(self, ids: Iterable[int], text: str) -> None:
        if declined := tuple(ids):
            self.outbound.actions.append(Decline(declined, text))

    def woken(self, event: Woken, now: float) -> None:
        """Act on what other processes wrote."""
        for job in event.ended:
            self.changes.pending.receive(job.id)
            self._ended_elsewhere(job, now)
        for id in event.cancelling:
            frozen = any(job.id == id for job in self.changes.frozen or ())
            if frozen or self.leases.record(id) is not None:
                self.job_ends.cancel([id], now)
            elif id not in self.changes.changing():
                self.changes.verify()  # the answer that reserved the job was lost
        self.demand.wake(event.kinds, now)

    def written(self, event: Written, now: float) -> Sequence[Queue]:
        """Act on the answer to a write; return the queues that got jobs."""
        under_way, answer = self.changes.answered(event.step), event.answer
        if under_way is None:
            self.outbound.drop("late answer of the store")
            return ()
        self._renewed = max(self._renewed, under_way.sent_at)
        if self.changes.frozen is not None and now - self._renewed <= _GRANT_FOR:
            for job in self.changes.thaw():
                self._enter(job)
        certain = event.held is None
        for add, added in zip(under_way.adds, answer.adds, strict=False):
            self._added(add, added, now, certain=certain)
        for (what, columns), changed in zip(under_way.changes, answer.changes, strict=True):
            self._changed(what, columns, changed, now)
        cancels = [columns.ids for what, columns in under_way.changes if what is _In.CANCEL]
        # Jobs that other instances have reserved go on, and the caller of cancel() must learn it.
        if unended := [id for ids in cancels for id in ids if id not in self._rows]:
            self.outbound.actions.append(Acknowledge(unended))
        for swept in answer.swept:
            self.job_ends.withdraw(swept.id, now)
            self._end(swept.id, swept.state, _SWEPT_TEXTS.get(swept.state, b""), swept.attempt)
        for wanted, reserved in zip(under_way.reservations, answer.reserved, strict=False):
            self._reserved(wanted.kind, reserved, answer, now)
        self.succession.written(under_way.step, event.seen, answer.now, now)
        if event.held is not None:
            self._compare(event.held, answer, now)
        self._look(under_way.look, event.seen, now)
        touched, self._touched = self._touched, {}
        return [self.queues.get(kind) for kind in touched]

    def _added(self, add: NewStoredJobs, answer: AddAnswer, now: float, *, certain: bool) -> None:
        new, kind = add.new, add.new.kind
        demand = self.demand.of(kind)
        ids: Sequence[int] = self._undone(add)
        reserved = new.reserve and certain
        limits, until = limits_of(add.event, now), add.event.timeout
        deadline = None if until is None else now + until
        count = len(ids)
        if (
            reserved
            and answer.states.count(_State.RESERVED) == count
            and list(answer.ids) == list(ids)
        ):
            rest = (kind, new.priority, new.terms.max_worker_losses, deadline)
            self._enter_all(
                [
                    JobRecord(id, payload, *rest, attempt=1, limits=limits, reserved=True)
                    for id, payload in zip(ids, new.payloads, strict=True)
                ]
            )
            self.outbound.actions.append(Acknowledge(ids))
            return
        refused: list[int] = []
        joined: dict[int, int] = {}
        for id, payload, known_id, state in zip(
            ids, new.payloads, answer.ids, answer.states, strict=True
        ):
            if not known_id:
                refused.append(id)
            elif known_id != id:
                joined[id] = known_id
                self._watched[known_id] = None
                self._look_soon = True
                if id in self.changes.cancelled:
                    self.changes.cancelled.discard(id)
                    self.changes.cancel(known_id)
            elif state is _State.RESERVED and reserved:
                terms = new.terms
                self._enter(
                    JobRecord(
                        id,
                        payload,
                        kind,
                        new.priority,
                        terms.max_worker_losses,
                        deadline,
                        attempt=1,
                        limits=limits,
                        reserved=True,
                    )
                )
            elif state in ENDED:  # a job for which it waits ended without a result
                self._watched[id] = None
                self._look_soon = True
            elif state is _State.QUEUED:
                demand.leaves(new.delay_ms, now)
        stored = [id for id in ids if id not in refused] if refused else tuple(ids)
        if add.again:
            self._watched.update({id: None for id in stored if id not in joined})
        if stored:
            self.outbound.actions.append(Acknowledge(stored, joined or None))
        if joined:
            ids = tuple(joined)
            store, none = self.ownership.of(ids[0]), (0,) * len(ids)
            self.outbound.actions.append(Note(JOINED, store, (), store, ids, none))
        self._decline(refused, "the store has its maximum size and takes no further jobs")

    def _changed(
        self, what: StoredJobInput, columns: ChangeColumns, answer: ChangeAnswer, now: float
    ) -> None:
        if what is _In.BEGIN:
            return  # the other changes of these jobs show what became of them
        if what is _In.ADOPT:
            return  # the list of the reserved jobs shows the outcome
        target = TRANSITIONS[_State.RESERVED, what]
        if (
            what is _In.SUCCEED
            and answer.states.count(target) == len(columns.ids)
            and list(answer.attempts) == columns.attempts
        ):
            self._results.append(columns)
            return
        growth = _GROWTHS.get(what, 0)
        for id, attempt, payload, wait_ms, job, state, at in zip(
            columns.ids,
            columns.attempts,
            columns.payloads,
            columns.waits_ms,
            columns.jobs,
            answer.states,
            answer.attempts,
            strict=True,
        ):
            self.changes.repeating.pop(id, None)
            wanted = what is not _In.CANCEL or id in self.changes.cancelled
            if what is _In.CANCEL:
                self.changes.cancelled.discard(id)
            if state is _State.ABSENT:
                if wanted:  # else the job has joined another one, which is cancelled instead
                    gone = _State.CANCELLED if what is _In.CANCEL else _State.LOST
                    self._end(id, gone, _GONE, attempt)
            elif state is _State.CANCELLED:
                self._end(id, state, b"", at)
            elif state is target and (what is _In.CANCEL or at == attempt + growth):
                if state in ENDED:
                    self._end(id, state, payload, at)
                elif job is not None:
                    self._goes_on(job, what, wait_ms, now)
            elif what is not _In.CANCEL:
                self.outbound.drop("stale result")

    def _goes_on(self, job: JobRecord, what: StoredJobInput, wait_ms: int, now: float) -> None:
        """Take note of a job that did not end."""
        if what is _In.REPEAT:
            job.attempt += 1
            job.reserved = True
            self._enter(job, back=True)
        else:
            self.demand.of(job.kind).leaves(wait_ms, now)

    def _reserved(
        self, kind: Kind, reserved: ReservedJobs, answer: BatchAnswer, now: float
    ) -> None:
        due = reserved.next_due
        next_due = inf if due is None else now + (due - answer.now) / 1000
        self.demand.of(kind).took(len(reserved.ids), more=reserved.more, next_due=next_due)
        for job in records_of(kind, reserved, answer.now, now):
            self._enter(job)

    def _compare(self, held: Sequence[StoredJob], answer: BatchAnswer, now: float) -> None:
        """Bring the jobs here into line with the jobs that the instance has reserved."""
        mine = {job.id: job for job in held}
        for worker in self.leases.workers.values():
            for job in self.leases.of(worker):
                if is_stored(job) and job.id not in mine:
                    # Another instance has the job, or the job has ended.
                    self.job_ends.withdraw(job.id, now)
        settled = self.changes.pending.changed() | self.succession.results()
        for id, row in mine.items():
            if self.leases.record(id) is not None or id in settled:
                continue
            if row.state is _State.CANCELLING:
                self.changes.pending.of(_In.RELEASE).add(id, row.attempt)
                continue
            self._enter(record_of(row, answer.now, now))

    def _look(self, watched: Sequence[int], seen: Sequence[StoredJob], now: float) -> None:
        """Report the ends of the jobs that are watched."""
        jobs = {job.id: job for job in seen}
        for id in watched:
            job = jobs.get(id)
            if job is None:
                self._end(id, _State.LOST, _GONE, 0)
            elif job.state in ENDED:
                self.changes.pending.receive(id)
                self._ended_elsewhere(job, now)

    def _ended_elsewhere(self, job: StoredJob, now: float) -> None:
        self.job_ends.withdraw(job.id, now)
        payload = job.result if job.result is not None else _SWEPT_TEXTS.get(job.state, b"")
        if job.history and job.ended is not None:
            self._histories.setdefault(job.id, history_of(job.history, job.ended, now))
        self._end(job.id, job.state, payload, job.attempt)

    def _end(self, id: int, state: StoredJobState, payload: Frame, attempt: int) -> None:
        self._rows.setdefault(id, (_ENDS[state], payload, attempt))

    def _enter_all(self, jobs: list[JobRecord]) -> None:
        """Queue jobs of one kind and priority that this instance has reserved."""
        if self.changes.cancelled or self.draining or self.changes.frozen is not None:
            for job in jobs:
                self._enter(job)
            return
        for job in jobs:
            self.leases.keep(job)
        first = jobs[0]
        self.queues.get(first.kind).join_all(jobs, first.priority)
        self._touched[first.kind] = None

    def _enter(self, job: JobRecord, *, back: bool = False) -> None:
        """Queue a job that this instance has reserved."""
        if job.id in self.changes.cancelled or self.draining:
            self.changes.pending.of(_In.RELEASE).add(job.id, job.attempt, job=job)
        elif self.changes.frozen is not None:
            self.changes.freeze([job])
        else:
            self.leases.keep(job)
            queue = self.queues.get(job.kind)
            if back:
                queue.put_back(job)
            else:
                queue.join(job)
            self._touched[job.kind] = None
