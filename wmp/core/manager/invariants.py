"""The invariants of a manager between any two events: for tests, off in production."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from wmp.core.manager.delayed_jobs import DelayedJobs
from wmp.core.manager.job_lifecycle import JobRecord, JobState
from wmp.core.manager.queues import Batch, Grant, Queue, Queues
from wmp.core.manager.remote_worker import RemoteWorker, fits
from wmp.core.manager.scheduler import Scheduler
from wmp.core.manager.timers import (
    DueTimer,
    HoldTimer,
    ManagerTimers,
    WakeTimer,
    WorkerSilenceTimer,
)
from wmp.core.manager.worker_selection import WorkerSelection
from wmp.core.protocol.timers import ResendTimer
from wmp.message import Kind


def check_manager(scheduler: Scheduler) -> None:
    """Raise AssertionError when an invariant is broken. The cost grows with the whole state."""
    leases, queues, timers = scheduler.leases, scheduler.queues, scheduler.timers
    workers = leases.workers
    assert not leases._ids, "each end of a job must be reported in the event in which the job ends"
    for worker in workers.values():
        _check_worker(worker, timers)
        _check_leases(worker, leases._parts)
    _check_parts(leases._parts, workers, timers)
    _check_queues(queues, workers, timers, leases._parts)
    _check_delayed(scheduler.delayed, timers, leases._parts)
    _check_selection(scheduler.selection, workers)
    held = sum(len(worker.gives) for worker in workers.values())
    assert scheduler.held_gives == held, "held_gives must be the number of open GIVEs"
    kept = sum(worker.stream.size for worker in workers.values())
    assert scheduler.outbound.kept_bytes == kept, (
        "kept_bytes must be the sum of the sizes of all streams"
    )


def _check_worker(worker: RemoteWorker, timers: ManagerTimers) -> None:
    identity, stream = worker.identity, worker.stream
    assert WorkerSilenceTimer(identity) in timers, "each worker must have a timer for its silence"
    numbers = [kept.number for kept in stream.kept]
    assert numbers == list(range(stream.acked + 1, stream.sent + 1)), (
        "the kept messages of a stream must have consecutive numbers"
    )
    assert stream.size == sum(kept.size for kept in stream.kept), (
        "the size of a stream must be the sum of its kept messages"
    )
    assert bool(stream.kept) == (ResendTimer(identity) in timers), (
        "the resend timer must run if a stream keeps messages, and only then"
    )
    assert 0 <= worker.window <= worker.credit, "the window of a worker must not exceed its credit"
    for number, give in worker.gives.items():
        assert number == give.lock <= worker.last_lock, (
            "an open GIVE must stand under its lock, up to the worker's last lock"
        )
        assert give.want > 0, "an open GIVE must want jobs"
        assert 0 <= give.window <= give.want, "the window of a GIVE must not exceed its want"
        assert give.worker is worker, "an open GIVE must name the worker that holds it"
        assert HoldTimer(identity, number) in timers, "an open GIVE must have a timer for its hold"
    assert worker.offer_cache in (None, worker.fresh_offer()), (
        "a cached offer must equal a fresh offer"
    )


def _check_leases(worker: RemoteWorker, parts: Mapping[int, JobRecord | Grant]) -> None:
    held: Counter[Kind] = Counter()
    granted = 0
    for id, job in worker.leases.items():
        assert parts.get(id) is job, "the record of a leased job must be found by the job's number"
        assert job.holder == worker.identity, "a leased job must name its worker as holder"
        assert job.state in (JobState.LEASED, JobState.CANCELLING), (
            "a leased job must be in the state LEASED or CANCELLING"
        )
        assert 0 <= job.take <= worker.stream.sent, (
            "a leased job must name a TAKE that was sent, or 0 if it was taken over"
        )
        held[job.kind] += 1
    for first, grant in worker.grants.items():
        left = sum(parts.get(id) is grant for id in grant.ids)
        assert first == grant.ids[0], "a grant must stand under its first number"
        assert grant.holder == worker.identity, "a grant must name its worker as holder"
        assert left == grant.left > 0, (
            "left of a grant must be the number of its open jobs, at least 1"
        )
        assert 0 < grant.take <= worker.stream.sent, "a grant must name a TAKE that was sent"
        granted += left
        held[grant.kind] += left
    assert worker.granted == granted, "granted of a worker must be the number of jobs of its grants"
    assert worker.held == held, "held of a worker must count its leased jobs by kind"


def _check_parts(
    parts: Mapping[int, JobRecord | Grant],
    workers: Mapping[bytes, RemoteWorker],
    timers: ManagerTimers,
) -> None:
    for id, part in parts.items():
        if part.deadline is not None or part.limits is None:
            assert (part.deadline is not None) == (id in timers), (
                "a job must have a timer if it has a deadline, and only then"
            )
        elif part.holder is None:
            assert (part.limits.expires_at is not None) == (id in timers), (
                "a waiting job must have a timer if it has an expiry, and only then"
            )
        if part.holder is None:
            assert isinstance(part, JobRecord), "a grant must have a holder"
            waits = part.state is JobState.QUEUED or part.state is JobState.DELAYED
            assert waits, "a job without a holder must be queued or delayed"
            continue
        assert part.holder in workers, "the holder of a job must be a known worker"
        worker = workers[part.holder]
        if isinstance(part, JobRecord):
            assert worker.leases.get(id) is part, (
                "a leased job must be among the leases of its worker"
            )
        else:
            assert worker.grants.get(part.ids[0]) is part, (
                "a grant must be among the grants of its worker"
            )


def _check_queues(
    queues: Queues,
    workers: Mapping[bytes, RemoteWorker],
    timers: ManagerTimers,
    parts: Mapping[int, JobRecord | Grant],
) -> None:
    for queue in queues:
        assert queues.find(queue.kind) is queue, "a queue must stand under its kind"
        waiting, dead = _count(queue, timers, parts)
        assert queue.waiting == waiting, "waiting of a queue must be the number of its waiting jobs"
        assert queue.dead == dead, "dead of a queue must be the number of its ended jobs"
        assert queue.waiting or queue.woken, "a queue without jobs and WAKEs must be forgotten"
        woken = sum(worker.woken.get(queue.kind, 0) for worker in workers.values())
        assert queue.woken == woken, "woken of a queue must be the number of jobs in its open WAKEs"
        if queue.waiting and queue.woken:
            assert WakeTimer(queue.kind) in timers, (
                "a queue with jobs and open WAKEs must have a timer"
            )
    for worker in workers.values():
        for kind, count in worker.woken.items():
            assert count > 0, "an open WAKE must be for 1 job or more"
            assert queues.find(kind) is not None, "an open WAKE must have a queue"


def _count(
    queue: Queue, timers: ManagerTimers, parts: Mapping[int, JobRecord | Grant]
) -> tuple[int, int]:
    """Return the number of waiting jobs of a queue, and of ended jobs in its lines."""
    waiting = dead = 0
    assert queue._order == sorted(-priority for priority in queue._lines), (
        "a queue must list its priorities from high to low"
    )
    for priority, line in queue._lines.items():
        for job in line.back:
            if job.state is not JobState.QUEUED:
                dead += 1
                continue
            assert job.priority == priority, "a job must be in the line of its priority"
            assert parts.get(job.id) is job, (
                "the record of a job in a line must be found by the job's number"
            )
            waiting += 1
        for batch in line.new:
            if type(batch) is JobRecord:
                waits = batch.state is JobState.QUEUED
                dead, waiting = dead + (not waits), waiting + waits
                assert not waits or parts.get(batch.id) is batch, (
                    "the record of a job in a line must be found by the job's number"
                )
                continue
            assert type(batch) is Batch
            assert batch.due is None, "a delayed batch must be in no line"
            dead += not batch.ids
            waiting += len(batch.ids)
            assert (batch.priority, batch.kind) == (priority, queue.kind), (
                "a batch must be in the line of its kind and priority"
            )
            assert len(batch.ids) == len(batch.payloads), (
                "a batch must have as many payloads as numbers"
            )
            for id in batch.ids:
                assert id not in parts, "a job of a batch must have no record before it is granted"
                limits = batch.limits
                ends = batch.deadline is not None or (limits and limits.expires_at is not None)
                assert bool(ends) == (id in timers), (
                    "a job of a batch must have a timer if it has a deadline or an expiry, and "
                    "only then"
                )
    return waiting, dead


def _check_delayed(
    delayed: DelayedJobs, timers: ManagerTimers, parts: Mapping[int, JobRecord | Grant]
) -> None:
    waiting = dead = 0
    for due, _, part in delayed._heap:
        if type(part) is JobRecord:
            waits = part.state is JobState.DELAYED
            assert not waits or parts.get(part.id) is part, (
                "the record of a delayed job must be found by the job's number"
            )
            waiting, dead = waiting + waits, dead + (not waits)
        elif type(part) is Batch:
            waiting, dead = waiting + len(part.ids), dead + (not part.ids)
            assert not part.ids or part.due == due, (
                "a delayed batch must stand under its start time"
            )
    assert delayed.waiting == waiting, "waiting must be the number of delayed jobs"
    assert delayed.dead == dead, "dead must be the number of delayed jobs that ended"
    assert not waiting or DueTimer() in timers, "delayed jobs must have a timer"


def _check_selection(selection: WorkerSelection, workers: Mapping[bytes, RemoteWorker]) -> None:
    profiles = selection.profiles
    members: Counter[int] = Counter()
    with_capacity: Counter[int] = Counter()
    for identity, profile in profiles._of.items():
        assert identity in workers, "a candidate must be a known worker"
        members[id(profile)] += 1
        with_capacity[id(profile)] += workers[identity].has_capacity
    for key, profile in profiles._all.items():
        assert profile.members == members[id(profile)] > 0, (
            "members of a profile must be the number of its workers, at least 1"
        )
        assert profile.with_capacity == with_capacity[id(profile)], (
            "with_capacity of a profile must be the number of its workers with capacity"
        )
        for identity in (*profile.credited, *profile.giving):
            assert profiles._of.get(identity) is profile, (
                "a worker must be in the lines of its own profile only"
            )
        for kind, eligible in profile.eligible.items():
            assert profiles._eligible.get(kind) is eligible, (
                "a profile must name only kinds that the selection knows"
            )
        for role in key[0]:
            assert profiles._by_role[role].get(key) is profile, (
                "a profile must be found by each of its roles"
            )
    busy: Counter[Kind] = Counter()
    for identity, worker in workers.items():
        standing = profiles._of.get(identity)
        credited = standing is not None and identity in standing.credited
        giving = standing is not None and identity in standing.giving
        assert credited == (worker.credit > 0), (
            "the workers in `credited` must be exactly those with credit"
        )
        assert giving == bool(worker.gives), (
            "the workers in `giving` must be exactly those with an open GIVE"
        )
        assert worker.has_capacity == (credited or giving), (
            "the workers with capacity must be exactly those with credit or an open GIVE"
        )
        assert worker.busy is profiles.busy, "all workers must share one count of busy workers"
        busy.update(() if worker.has_capacity else tuple(worker.held))
    assert profiles.busy.counts == busy, (
        "busy must count the workers that hold jobs and have no capacity"
    )
    for kind, eligible in profiles._eligible.items():
        suited = [p for p in profiles._all.values() if kind in p.eligible]
        able = [
            p
            for p in profiles._all.values()
            if kind.role in p.key[0] and fits(dict(kind.needs), dict(p.key[1]))
        ]
        assert suited == able, "a kind must name the profiles that have its role and needs"
        assert eligible.with_capacity == sum(p.with_capacity for p in able), (
            "with_capacity of a kind must be the number of workers with capacity for it"
        )
        lines = {p.key: p for p in able if p.credited}
        assert eligible.credited == lines, (
            "a kind must name the profiles that suit it and have credit"
        )
        lines = {p.key: p for p in able if p.giving}
        assert eligible.giving == lines, (
            "a kind must name the profiles that suit it and have open GIVEs"
        )
