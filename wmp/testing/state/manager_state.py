"""The outline of a manager: the part of its state that decides its future."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from wmp.checks.canonical import (
    DOWN,
    Outline,
    Pen,
    Series,
    amounts,
    claim_shape,
    ranks,
    stream_shape,
    timer_names,
)
from wmp.core.manager.delayed_jobs import DelayedJobs
from wmp.core.manager.job_lifecycle import JobRecord, JobState, Refusal
from wmp.core.manager.queues import Batch, Grant, Queue
from wmp.core.manager.remote_worker import RemoteWorker
from wmp.core.manager.worker_selection import WorkerSelection

if TYPE_CHECKING:
    from wmp.core.manager.machine import ManagerMachine

LEFT_OUT: Final = {
    "Claims.number": "only its growth matters: the next number is above all others",
    "Claims.patience": "a function of settings, and of the max_silence of the holder",
    "Failures.epoch": "a setting, which never changes",
    "JobRecord.history": "only for the text of the final error; no decision reads it",
    "Leases._codecs": "always empty between two events",
    "Leases._histories": "always empty between two events",
    "Batch.due": "the outline has it among the times of the delayed jobs",
    "Batches._sealed": "it decides only which jobs share a batch",
    "DelayedJobs._ties": "only its order matters, which the outline has",
    "DelayedJobs.dead": "a number of ended entries that are removed later",
    "DelayedJobs.waiting": "it follows from the heap",
    "Batch.first": "it follows from the first jobs of the batch",
    "Batches._all": "the batches of the lines, and ended batches that are removed later",
    "Batches._spent": "a number of ended entries that are removed later",
    "Leases.ended": "statistics, which no decision reads",
    "Leases.forwarded": "the number of forwarded jobs, which follows from the jobs",
    "Requeue.counts": "statistics, which no decision reads",
    "Leases._ids": "always empty between two events",
    "Leases._ends": "always empty between two events",
    "Leases._payloads": "always empty between two events",
    "Leases._attempts": "always empty between two events",
    "Give.until": "the outline has it among the timers",
    "Grant.left": "it follows from the jobs of the grant",
    "ManagerMachine.policy": "a setting, which never changes",
    "ManagerMachine.stored": "a setting, which never changes",
    "ManagerMachine.standby": "a setting, which never changes",
    "JobEnds.causes": "texts for people, which no decision reads",
    "WaitCauses.leases": "the leases, which the outline has",
    "WaitCauses._at": "only for the texts of one step",
    "WaitCauses._texts": "only for the texts of one step",
    "Scheduler.stored": "a setting, which never changes",
    "Scheduler.store": "explored managers have no store; store_world.py plays those with one",
    "JobEnds.changes": "explored managers have no store",
    "Requeue.changes": "explored managers have no store",
    "Ownership.me": "a setting, which never changes",
    "Ownership.store": "explored managers have no store",
    "Ownership.orphan_ttl_ms": "explored managers have no store",
    "Stream.written": "explored managers have no store",
    "Failures.changes": "explored managers have no store",
    "ManagerMachine._identities": "it follows from the workers",
    "Scheduler.held_gives": "it follows from the workers",
    "ManagerMachine._sessions": "only its growth matters: the next number is above all others",
    "WorkerSelection.policy": "a setting, which never changes",
    "WorkerSelection.scan": "a setting, which never changes",
    "WorkerSelection.max_leases": "a setting, which never changes",
    "WorkerSelection.on_policy_error": "a setting, which never changes",
    "Profile.members": "it follows from the workers of the profile",
    "Profile.with_capacity": "it follows from the lines",
    "Profile.eligible": "the profiles that the outline lists by kind",
    "Eligible.needs": "it follows from the kind",
    "Eligible.with_capacity": "it follows from the profiles",
    "Profiles._by_role": "the profiles that the outline lists by key",
    "Profiles._eligible": "it follows from the profiles",
    "Profiles._ranks": "only its growth matters: the next number is above all others",
    "BusyWorkers.counts": "it follows from the workers",
    "RemoteWorker.beat_key": "explored workers send no beats",
    "RemoteWorker.own_at": "explored workers send no beats",
    "RemoteWorker.has_capacity": "it follows from the credit and the GIVEs",
    "Outbound.actions": "always empty between two events",
    "Outbound.dropped": "statistics, which no decision reads",
    "Outbound.kept_bytes": "it follows from the streams",
    "Outbound.resend": "a setting, which never changes",
    "Queue.dead": "the number of ended jobs in the lines that are removed later",
    "Queue.needs": "it follows from the kind",
    "Queue._order": "it follows from the lines",
    "Queues._by_role": "the queues that the outline lists by kind",
    "RemoteWorker.headers": "only policies of the application read it",
    "RemoteWorker.origin": "it never changes and is read only for a limit",
    "RemoteWorker.offer_cache": "it follows from the other fields of the worker",
    "RemoteWorker.granted": "the number of jobs of its grants, which the outline has",
    "RemoteWorker.held": "the number of its leased jobs by kind, which follows from the leases",
    "RemoteWorker.done": "statistics, which only a policy of the application may read",
    "RemoteWorker.capacity_reports": "each refusal has the difference to this number",
    "Stream.fruitless": "it matters only after ten resends, which no exploration reaches",
    "Stream.size": "it follows from the kept messages",
    "ManagerMachine._stories": "a record of past events, which no decision reads",
    "Timers._heap": "the timers, and cleared timers that are removed later",
    "Timers._ties": "only its order matters, which the outline has",
    "Kept.number": "it follows from the stream",
    "Kept.size": "it follows from the payloads",
}
"""Fields that an outline leaves out, with the reason."""


def all_jobs(manager: ManagerMachine) -> dict[int, JobRecord]:
    """Return the records of all jobs that have not ended, by number; for reading only."""
    leases, batches = manager._scheduler.leases, manager._scheduler.queues.batches
    jobs: dict[int, JobRecord] = {}
    for batch in batches:
        jobs.update({id: job for id in batch.ids if (job := batch.find(id)) is not None})
    for part in dict.fromkeys(leases._parts.values()):
        records = part.records(leases._parts) if isinstance(part, Grant) else (part,)
        jobs.update({job.id: job for job in records})
    return jobs


def outline_manager(manager: ManagerMachine) -> Outline:
    """Outline a manager."""
    pen = Pen()
    me, scheduler = manager._me, manager._scheduler
    workers = [manager._workers[identity] for identity in sorted(manager._workers)]
    locks: dict[bytes, Series] = {w.identity: ("lock", (w.identity, w.epoch)) for w in workers}
    shape = (
        me,
        manager._draining,
        manager._scheduler.ownership.standby,
        manager._halted,
        tuple(sorted(manager._gone.items())),
        scheduler.last_id,
        tuple([_worker_shape(pen, manager, worker) for worker in workers]),
        tuple([_job_shape(pen, job, manager) for _, job in sorted(all_jobs(manager).items())]),
        tuple([_queue_shape(queue) for queue in scheduler.queues]),
        _delayed_shape(pen, scheduler.delayed),
        _offers_shape(scheduler.selection),
        ranks([worker.served for worker in workers]),
        timer_names(pen, manager._timers, locks),
    )
    return pen.outline(shape)


def _worker_shape(pen: Pen, manager: ManagerMachine, worker: RemoteWorker) -> Hashable:
    me, granted = manager._me, manager._scheduler.leases
    patience = manager._claims.patience(worker)
    peer = (worker.identity, worker.epoch)
    lock: Series = ("lock", peer)
    pen.times.append(worker.last_received)
    stream = stream_shape(pen, worker.stream, me, peer, at_manager=True)
    down: Series = (DOWN, me, peer, worker.stream.session)
    gives = []
    for give in worker.gives.values():
        pen.number(lock, give.lock)
        gives.append((give.want, give.window, give.roles, amounts(give.needs)))
    leases = {job.id: job.take for job in worker.leases.values()}
    for grant in worker.grants.values():
        leases.update(dict.fromkeys(granted.open(grant), grant.take))
    for _, take in sorted(leases.items()):
        pen.position(down, take)
    return (
        peer,
        stream,
        worker.link,
        worker.newest_link,
        worker.path,
        claim_shape(pen, worker.claim, worker.confirmed_at, me, patience),
        worker.label,
        pen.number(("ready", peer), worker.ready),
        worker.credit,
        worker.window,
        worker.widest,
        worker.roles,
        worker.circular,
        amounts(worker.resources),
        tuple(gives),
        pen.number(lock, worker.last_lock),
        tuple(sorted(leases)),
        tuple([(kind, count) for kind, count in worker.woken.items()]),
    )


def _job_shape(pen: Pen, job: JobRecord, manager: ManagerMachine) -> Hashable:
    limits = job.limits
    if job.deadline is not None:
        pen.times.append(job.deadline)
    if limits is not None and limits.expires_at is not None:
        pen.times.append(limits.expires_at)
    refusing = []
    for identity, refusal in sorted(job.refused.items(), key=_by_identity) if job.refused else ():
        # The number of reports that the worker must still send before it gets the job again. An
        # old refusal counts towards the next refusal.
        worker = manager._workers.get(identity)
        same = worker is not None and worker.stream.session == refusal.session
        more = refusal.reports - worker.capacity_reports if same and worker is not None else -1
        refusing.append((identity, refusal.times, max(-1, more)))
    leaving = []
    for identity, times in sorted(job.left.items()) if job.left else ():
        worker = manager._workers.get(identity)
        reports = 0 if worker is None else min(worker.capacity_reports, 64)
        leaving.append((identity, times, job.passes_over(identity, 0, reports) and reports))
    return (
        job.id,
        bytes(job.payload),
        job.kind,
        job.priority,
        job.max_worker_losses,
        job.deadline is not None,
        limits and (limits.expires_at is not None, limits.run, limits.retry),
        job.failed,
        job.unbegun,
        job.state,
        job.attempt,
        job.lost,
        job.holder,
        tuple(refusing),
        tuple(leaving),
        job.reserved,
    )


def _by_identity(item: tuple[bytes, Refusal]) -> bytes:
    return item[0]


def _queue_shape(queue: Queue) -> Hashable:
    lines = []
    for priority, line in sorted(queue._lines.items()):
        # Jobs that ended in the queue are skipped when they are the first.
        ids = [job.id for job in line.back if job.state is JobState.QUEUED]
        for part in line.new:
            if type(part) is JobRecord:
                ids += [part.id] if part.state is JobState.QUEUED else []
            elif type(part) is Batch:
                ids += part.ids
        if ids:
            lines.append((priority, tuple(ids)))
    return queue.kind, queue.waiting, queue.woken, queue.factor, tuple(lines)


def _delayed_shape(pen: Pen, delayed: DelayedJobs) -> Hashable:
    """Return the delayed jobs in the order of their times."""
    jobs = []
    for due, _, part in sorted(delayed._heap):
        ids = tuple(part.ids) if type(part) is Batch else ()
        if type(part) is JobRecord and part.state is JobState.DELAYED:
            ids = (part.id,)
        if ids:
            pen.times.append(due)
            jobs.append(ids)
    return tuple(jobs)


def _offers_shape(offers: WorkerSelection) -> Hashable:
    """Return the workers with credit, those with open GIVEs, oldest first, and all workers."""
    profiles = [p for p in offers.profiles._all.values() if p.credited or p.giving]
    credited = [(rank, id) for p in profiles for id, (rank, _) in p.credited.items()]
    giving = [(rank, id) for p in profiles for id, (rank, _) in p.giving.items()]
    return (
        tuple([id for _, id in sorted(credited)]),
        tuple([id for _, id in sorted(giving)]),
        tuple(sorted(offers.profiles._of)),
    )
