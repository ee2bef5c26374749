"""The outline of a worker: the part of its state that decides its future."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from wmp.checks.canonical import (
    UP,
    Outline,
    Pen,
    Series,
    amounts,
    claim_shape,
    ranks,
    stream_shape,
    timer_names,
)
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.credit import Credit
from wmp.core.worker.executions import Executions
from wmp.core.worker.job_times import NO_TIMES
from wmp.core.worker.machine import WorkerMachine
from wmp.core.worker.remote_manager import RemoteManager
from wmp.message import Peer

LEFT_OUT: Final = {
    "Capacity._arrivals": "only its growth matters: the next number is above all others",
    "Capacity._servings": "only its growth matters: the next number is above all others",
    "Capacity._took": "always None between two events",
    "Capacity._woke": "always None between two events",
    "Credit._connected": "always None between two events",
    "Credit._doubted": "always None between two events",
    "Credit._due": "always false between two events",
    "Credit._greeted": "always None between two events",
    "Credit._resized": "always false between two events",
    "Executions._answers": "always empty between two events",
    "Executions._limits_passed": "always empty between two events",
    "Executions._remarks": "always empty between two events",
    "Executions._overdue": "always false between two events",
    "Executions._orphaned": "always empty between two events",
    "HeldJobs.keep": "explored managers have no store",
    "Orphans._answers": "explored managers have no store",
    "Orphans.size": "explored managers have no store",
    "RemoteManager.max_stall": "explored workers send no beats",
    "RemoteManager.serves": "explored managers have no store",
    "RemoteManager.unwritten": "explored managers have no store",
    "WorkerOutbound.keeps": "explored managers have no store",
    "Executions.outcomes": "statistics, which no decision reads",
    "Executions.places": "it follows from the resources, which never change in an exploration",
    "Executions.usual": "a setting, which never changes",
    "Kept.number": "it follows from the stream",
    "Kept.size": "it follows from the payloads",
    "LinkState.pings": "only the jitter depends on it",
    "Locks.late": "statistics, which no decision reads",
    "Locks.newest": "only its growth matters: the next number is above all others",
    "RemoteManager.done": "statistics, which no decision reads",
    "Resources.shrunk": "resources never change in an exploration",
    "Resources.total": "resources never change in an exploration",
    "RunQueue._number": "only its growth matters: the next number is above all others",
    "RunQueue._turn": "only its growth matters: the next number is above all others",
    "RunQueue.parked": "it follows from the lines",
    "RunningLane.since": "only the throughput depends on it",
    "Stream.fruitless": "it matters only after ten resends, which no exploration reaches",
    "Stream.size": "it follows from the kept messages",
    "Throughput.places": "it follows from the resources, which never change in an exploration",
    "Throughput.window": "it follows from the means",
    "Throughput.means": "they decide only the window and the size of bundles",
    "Timers._heap": "the timers, and cleared timers that are removed later",
    "Timers._ties": "only its order matters, which the outline has",
    "WaitingBatch.since": "it matters only without a limit of the waiting jobs",
    "WaitingJobs.waiting": "it follows from its batches",
    "WorkerMachine._changed": "always false between two events",
    "WorkerMachine._stories": "a record of past events, which no decision reads",
    "WorkerMachine.count": "a setting, which never changes",
    "WorkerOutbound.actions": "always empty between two events",
    "WorkerOutbound.dropped": "statistics, which no decision reads",
    "WorkerOutbound.kept_bytes": "it follows from the streams",
    "WorkerOutbound.resend": "a setting, which never changes",
}
"""Fields that an outline leaves out, with the reason."""


def outline_worker(worker: WorkerMachine) -> Outline:
    """Outline a worker."""
    pen = Pen()
    links, settings, executions = worker._links, worker.settings, worker._executions
    me = worker._outbound.me
    interval = max(0.01, settings.ping)  # no manager has a longer interval
    states = []
    for link in links.states:
        pen.times.append(link.received_at)
        pen.past.append((link.pinged_at, 3 * interval))
        # Every PING and READY has its own jitter, by its number.
        pings = link.pings if settings.jitter else 0
        patience = max(1, settings.silence) * interval
        if link.refused_since is not None:
            pen.past += ((link.refused_since, patience), (link.refused_at, patience))
        refused = link.refused_since is not None
        states.append((link.connected, link.replaced, pings, link.doubted, refused))
    managers = list(links.managers.values())
    lock: Series = ("lock", me)
    shape = (
        me,
        worker._halted,
        executions.draining,
        worker._locks.windowed,
        _gone_shape(pen, worker),
        tuple(states),
        tuple([_manager_shape(pen, worker, manager, interval) for manager in managers]),
        tuple([_request_shape(pen, me, manager, worker._acks_requested) for manager in managers]),
        ranks([manager.served for manager in managers]),
        ranks([m.wake.arrival if m.wake is not None else 0 for m in managers]),
        _credit_shape(pen, me, worker._credit, settings),
        _queue_shape(pen, me, executions, settings),
        timer_names(pen, worker._outbound.timers, {m.identity: lock for m in managers}),
    )
    return pen.outline(shape)


def _gone_shape(pen: Pen, worker: WorkerMachine) -> Hashable:
    return tuple(
        [
            (peer, pen.number(("session", peer), session))
            for peer, session in sorted(worker._sessions.gone.items())
        ]
    )


def _request_shape(pen: Pen, me: Peer, manager: RemoteManager, answers: dict[bytes, int]) -> bool:
    """Return whether the draining worker has asked this manager to ack its last answer."""
    if not answers or manager.identity not in answers or manager.stream is None:
        return False
    series: Series = (UP, manager.peer, me, manager.stream.session)
    pen.position(series, answers[manager.identity])
    return True


def _manager_shape(
    pen: Pen, worker: WorkerMachine, manager: RemoteManager, interval: float
) -> Hashable:
    me, peer, stream, wake = worker._outbound.me, manager.peer, manager.stream, manager.wake
    series: Series = ("lock", me)
    pen.times.append(manager.received_at)
    # A PING is due one interval or three intervals after these times. All earlier times are
    # equivalent.
    pen.past += (
        (manager.sent_at, max(interval, manager.max_silence)),  # WMP-9.22
        (manager.pinged_at, 3 * interval),
        (manager.announced_at, interval),
    )
    pen.ahead.append(manager.hold_after)
    locks = []
    for lock in worker._locks.of(manager.identity).values():
        pen.number(series, lock.number)
        # In the first half of the hold a NO comes too early.
        pen.past.append((lock.opened, lock.hold / 2))
        locks.append((lock.needs, lock.want, lock.reserved, lock.hold, lock.state.value))
    return (
        peer,
        bool(manager.asking),
        manager.link,
        manager.path,
        claim_shape(pen, manager.claim, manager.confirmed_at, me, worker._claims.patience(manager)),
        manager.max_silence,
        manager.label,
        manager.met,
        stream and stream_shape(pen, stream, peer, me, at_manager=False),
        pen.number(("session", peer), manager.forgotten),
        manager.session_requested,
        manager.doubted,
        manager.standby,
        wake and (wake.role, wake.needs, wake.count),
        pen.number(("ready", me), manager.ready),
        manager.announced,
        pen.number(series, manager.last_lock),
        pen.number(series, manager.pinged_lock),
        tuple(locks),
        tuple(
            [
                (held.owner, tuple(held.attempts.items()), tuple(held.states.items()))
                for held in worker._executions.held(manager.identity)
            ]
        ),
    )


def _credit_shape(pen: Pen, me: Peer, credit: Credit, settings: WorkerSettings) -> Hashable:
    series: Series = ("ready", me)
    number, announced = credit._broadcast
    return (
        pen.number(series, credit.number),
        credit.number if settings.jitter else 0,
        credit.used,
        credit._repeatable,
        credit._content,
        pen.number(series, number),
        announced,
        credit._backoff,
    )


def _queue_shape(pen: Pen, me: Peer, executions: Executions, settings: WorkerSettings) -> Hashable:
    queue, resources = executions._queue, executions.resources
    measured = settings.window is None or settings.lane_max > 1
    running = []
    for lane in queue.running.values():
        pen.number(("lane", me), lane.number)
        if measured:
            pen.times.append(lane.since)
        held = lane.held
        limits = tuple(lane.limits.items()) if lane.limits else ()
        answered = tuple(sorted(lane.answered))
        running.append(
            (held.manager, held.owner, lane.kind, tuple(lane.ids), lane.lost, limits, answered)
        )
    batches = [batch for line in queue._lines.values() for batch in line.batches]
    turns = ranks([batch.turn for batch in batches for _ in batch.ids])
    lines = []
    for key, line in queue._lines.items():
        jobs: list[Hashable] = []
        for batch in line.batches:
            if settings.window is None:
                pen.times.append(batch.since)
            times = batch.times or NO_TIMES
            none = [None] * len(batch)
            for id, payload, *bounds in zip(
                batch.ids,
                batch.payloads,
                times.deadlines or none,
                times.begin_by or none,
                times.limits or none,
                times.begun or none,
                strict=True,
            ):
                pen.times += [at for at in bounds[:2] if at is not None]
                timed = tuple([at is not None for at in bounds[:2]])
                jobs.append((id, timed, *bounds[2:], bytes(payload)))
        lines.append((key, tuple(jobs)))
    return (
        amounts(resources.free),
        resources.places,
        executions.stalled,
        tuple(running),
        tuple(lines),
        turns,
        tuple(queue.throughput.means.items()) if measured else (),
    )
