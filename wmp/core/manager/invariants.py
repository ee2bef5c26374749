"""The invariants of a manager between any two events: for tests, off in production."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from wmp.core.manager.delayed_jobs import DelayedJobs
from wmp.core.manager.job_lifecycle import JobRecord, JobState
from wmp.core.manager.queues import Batch, Grant, Queue, Queues
from wmp.core.manager.remote_worker import RemoteWorker, fits
from wmp.core.manager.scheduler import Scheduler
from wmp.core.manager.timers import DueTimer, ExpiryTimer, HoldTimer, ManagerTimers, WakeTimer
from wmp.core.manager.worker_selection import WorkerSelection
from wmp.core.protocol.timers import ResendTimer
from wmp.message import Kind

__all__ = ["check_manager"]


def check_manager(scheduler: Scheduler) -> None:
    """Raise AssertionError when an invariant is broken; costs by all state."""
    leases, queues, timers = scheduler.leases, scheduler.queues, scheduler.timers
    workers = leases.workers
    assert not leases._ids, "an end was not reported"
    for worker in workers.values():
        _check_worker(worker, timers)
        _check_leases(worker, leases._parts)
    _check_parts(leases._parts, workers, timers)
    _check_queues(queues, workers, timers, leases._parts)
    _check_delayed(scheduler.delayed, timers, leases._parts)
    _check_selection(scheduler.selection, workers)
    held = sum(len(worker.gives) for worker in workers.values())
    assert scheduler.held_gives == held, "held_gives counts the open GIVEs"
    kept = sum(worker.stream.size for worker in workers.values())
    assert scheduler.outbound.kept_bytes == kept, "kept_bytes is not the sum of all streams"


def _check_worker(worker: RemoteWorker, timers: ManagerTimers) -> None:
    identity, stream = worker.identity, worker.stream
    assert ExpiryTimer(identity) in timers, "no timer for silence"
    numbers = [kept.number for kept in stream.kept]
    assert numbers == list(range(stream.acked + 1, stream.sent + 1)), "a stream has a gap"
    assert stream.size == sum(kept.size for kept in stream.kept), "the size of a stream"
    assert bool(stream.kept) == (ResendTimer(identity) in timers), "the resend timer"
    assert 0 <= worker.window <= worker.credit, "window within credit"
    for number, give in worker.gives.items():
        assert number == give.lock <= worker.last_lock, "the lock of an open GIVE"
        assert give.want > 0, "an open GIVE wants jobs"
        assert 0 <= give.window <= give.want, "window within what a GIVE wants"
        assert give.worker is worker, "the worker of an open GIVE"
        assert HoldTimer(identity, number) in timers, "no timer for an open GIVE"
    assert worker.offer_cache in (None, worker.fresh_offer()), "the offer is stale"


def _check_leases(worker: RemoteWorker, parts: Mapping[int, JobRecord | Grant]) -> None:
    held: Counter[Kind] = Counter()
    granted = 0
    for id, job in worker.leases.items():
        assert parts.get(id) is job, "a lease leads to its record"
        assert job.holder == worker.identity, "the holder of a lease"
        assert job.state in (JobState.LEASED, JobState.CANCELLING), "the state of a lease"
        assert 0 < job.take <= worker.stream.sent, "the TAKE of a lease"
        held[job.kind] += 1
    for first, grant in worker.grants.items():
        left = sum(parts.get(id) is grant for id in grant.ids)
        assert first == grant.ids[0], "a grant stands under its first number"
        assert grant.holder == worker.identity, "the holder of a grant"
        assert left == grant.left > 0, "what is left of a grant"
        assert 0 < grant.take <= worker.stream.sent, "the TAKE of a grant"
        granted += left
        held[grant.kind] += left
    assert worker.granted == granted, "granted counts the jobs of grants"
    assert worker.held == held, "held counts jobs by kind"


def _check_parts(
    parts: Mapping[int, JobRecord | Grant],
    workers: Mapping[bytes, RemoteWorker],
    timers: ManagerTimers,
) -> None:
    for id, part in parts.items():
        if part.deadline is not None or part.limits is None:
            assert (part.deadline is not None) == (id in timers), "the timer of a deadline"
        elif part.holder is None:
            assert (part.limits.expires is not None) == (id in timers), "the timer of an expiry"
        if part.holder is None:
            assert isinstance(part, JobRecord), "a grant has a holder"
            waits = part.state is JobState.QUEUED or part.state is JobState.DELAYED
            assert waits, "a record without a holder is queued or delayed"
            continue
        assert part.holder in workers, "the holder is a known worker"
        worker = workers[part.holder]
        if isinstance(part, JobRecord):
            assert worker.leases.get(id) is part, "a record stands with its worker"
        else:
            assert worker.grants.get(part.ids[0]) is part, "a grant stands with its worker"


def _check_queues(
    queues: Queues,
    workers: Mapping[bytes, RemoteWorker],
    timers: ManagerTimers,
    parts: Mapping[int, JobRecord | Grant],
) -> None:
    for queue in queues:
        assert queues.find(queue.kind) is queue, "a queue stands under its kind"
        waiting, dead = _count(queue, timers, parts)
        assert queue.waiting == waiting, "waiting counts the jobs of a queue"
        assert queue.dead == dead, "dead counts what ended in a queue"
        assert queue.waiting or queue.woken, "a queue without jobs and WAKEs is forgotten"
        woken = sum(worker.woken.get(queue.kind, 0) for worker in workers.values())
        assert queue.woken == woken, "woken counts the WAKEs of a queue"
        if queue.waiting and queue.woken:
            assert WakeTimer(queue.kind) in timers, "no timer for open WAKEs"
    for worker in workers.values():
        for kind, count in worker.woken.items():
            assert count > 0, "a WAKE asks for jobs"
            assert queues.find(kind) is not None, "a WAKE has its queue"


def _count(
    queue: Queue, timers: ManagerTimers, parts: Mapping[int, JobRecord | Grant]
) -> tuple[int, int]:
    """Return the number of waiting jobs of a queue, and the number of its dead places."""
    waiting = dead = 0
    assert queue._order == sorted(-priority for priority in queue._lines), "order of priorities"
    for priority, line in queue._lines.items():
        for job in line.back:
            if job.state is not JobState.QUEUED:
                dead += 1
                continue
            assert job.priority == priority, "the line of a job"
            assert parts.get(job.id) is job, "a job in a line has its record"
            waiting += 1
        for batch in line.new:
            if type(batch) is JobRecord:
                waits = batch.state is JobState.QUEUED
                dead, waiting = dead + (not waits), waiting + waits
                assert not waits or parts.get(batch.id) is batch, "a job in a line has its record"
                continue
            assert type(batch) is Batch
            assert batch.due is None, "a delayed batch is in no line"
            dead += not batch.ids
            waiting += len(batch.ids)
            assert (batch.priority, batch.kind) == (priority, queue.kind), "the line of a batch"
            assert len(batch.ids) == len(batch.payloads), "the columns of a batch"
            for id in batch.ids:
                assert id not in parts, "a job that was granted waits in a batch"
                limits = batch.limits
                ends = batch.deadline is not None or (limits and limits.expires is not None)
                assert bool(ends) == (id in timers), "the timer of a deadline or an expiry"
    return waiting, dead


def _check_delayed(
    delayed: DelayedJobs, timers: ManagerTimers, parts: Mapping[int, JobRecord | Grant]
) -> None:
    waiting = dead = 0
    for due, _, part in delayed._heap:
        if type(part) is JobRecord:
            waits = part.state is JobState.DELAYED
            assert not waits or parts.get(part.id) is part, "a delayed job has its record"
            waiting, dead = waiting + waits, dead + (not waits)
        elif type(part) is Batch:
            waiting, dead = waiting + len(part.ids), dead + (not part.ids)
            assert not part.ids or part.due == due, "the time of a delayed batch"
    assert delayed.waiting == waiting, "waiting counts the delayed jobs"
    assert delayed.dead == dead, "dead counts the delayed jobs that ended"
    assert not waiting or DueTimer() in timers, "no timer for delayed jobs"


def _check_selection(selection: WorkerSelection, workers: Mapping[bytes, RemoteWorker]) -> None:
    profiles = selection.profiles
    members: Counter[int] = Counter()
    with_capacity: Counter[int] = Counter()
    for identity, profile in profiles._of.items():
        assert identity in workers, "a candidate is a known worker"
        members[id(profile)] += 1
        with_capacity[id(profile)] += workers[identity].has_capacity
    for key, profile in profiles._all.items():
        assert profile.members == members[id(profile)] > 0, "members of a profile"
        assert profile.with_capacity == with_capacity[id(profile)], (
            "workers of a profile that have capacity"
        )
        for identity in (*profile.credited, *profile.giving):
            assert profiles._of.get(identity) is profile, "a line of another profile"
        for kind, eligible in profile.eligible.items():
            assert profiles._eligible.get(kind) is eligible, "a kind that was dropped"
        for role in key[0]:
            assert profiles._by_role[role].get(key) is profile, "a profile by its roles"
    busy: Counter[Kind] = Counter()
    for identity, worker in workers.items():
        standing = profiles._of.get(identity)
        credited = standing is not None and identity in standing.credited
        giving = standing is not None and identity in standing.giving
        assert credited == (worker.credit > 0), "credited exactly with credit"
        assert giving == bool(worker.gives), "giving exactly with an open GIVE"
        assert worker.has_capacity == (credited or giving), (
            "capacity exactly with credit or an open GIVE"
        )
        assert worker.busy is profiles.busy, "one count of busy workers"
        busy.update(() if worker.has_capacity else tuple(worker.held))
    assert profiles.busy.counts == busy, (
        "busy counts the workers that hold jobs and have no capacity"
    )
    for kind, eligible in profiles._eligible.items():
        suited = [p for p in profiles._all.values() if kind in p.eligible]
        able = [
            p
            for p in profiles._all.values()
            if kind.role in p.key[0] and fits(dict(kind.needs), dict(p.key[1]))
        ]
        assert suited == able, "the profiles that suit a kind"
        assert eligible.with_capacity == sum(p.with_capacity for p in able), (
            "workers with capacity for a kind"
        )
        lines = {p.key: p for p in able if p.credited}
        assert eligible.credited == lines, "lines of credit for a kind"
        lines = {p.key: p for p in able if p.giving}
        assert eligible.giving == lines, "lines of open GIVEs for a kind"
