"""The outline of a worker: what it remembers, as far as it decides how it goes on."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.credit import Credit
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.run_queue import RunQueue
from wmp.message import Peer
from wmp.testing.state.canonical import (
    UP,
    Outline,
    Pen,
    Series,
    amounts,
    ranks,
    stream_shape,
    timer_names,
)

if TYPE_CHECKING:
    from wmp.core.worker.machine import WorkerMachine

__all__ = ["LEFT_OUT", "outline_worker"]

LEFT_OUT: Final = {
    "Executions.outcomes": "statistics",
    "Executions._answers": "empty between two events",
    "Executions._look": "false between two events",
    "Kept.number": "follows from the stream",
    "Kept.size": "follows from the payloads",
    "RunningLane.since": "matters for the pace only",
    "RunQueue._number": "the next is above all others anyway",
    "RunQueue._turn": "the next is above all others anyway",
    "RunQueue.parked": "follows from the lines",
    "WaitingJobs.waiting": "follows from its parcels",
    "LinkState.pings": "matters for jitter only",
    "Throughput._windows": "follow from the means",
    "Throughput.means": "matter while the window or the size of bundles follows from them",
    "WaitingBatch.since": "matters where no setting says how many may wait",
    "Resources.total": "settings",
    "Capacity._arrivals": "the next is above all others anyway",
    "Capacity._doubt": "none between two events",
    "Capacity._greets": "none between two events",
    "Capacity._greet_link": "none between two events",
    "Capacity._locks": "the next is above all others anyway",
    "Capacity._repeat": "false between two events",
    "Capacity._servings": "the next is above all others anyway",
    "Capacity._took": "none between two events",
    "Capacity._woke": "none between two events",
    "Capacity.late": "statistics",
    "Capacity.places": "settings",
    "Capacity.usual": "settings",
    "Stream.size": "follows from what is kept",
    "WorkerOutbound.actions": "empty between two events",
    "WorkerOutbound.dropped": "statistics",
    "WorkerOutbound.kept_bytes": "follows from the streams",
    "WorkerOutbound.resend": "settings",
    "WorkerMachine._stories": "remembers what happened, and decides nothing",
    "Timers._heap": "the same timers, with leftovers",
    "Timers._ties": "only the order counts",
    "RemoteManager.done": "statistics",
    "WorkerMachine._changed": "false between two events",
    "WorkerMachine.count": "settings",
}
"""Fields that an outline does not have, and why."""


def outline_worker(worker: WorkerMachine) -> Outline:
    """Draw a worker."""
    pen = Pen()
    board, settings = worker._board, worker.settings
    me, room = board.me, worker._room
    interval = max(0.01, settings.ping)  # no manager's is longer
    links = []
    for link in board.links:
        pen.times.append(link.heard)
        pen.past.append((link.pinged, 3 * interval))
        # Every PING and READY has a jitter of its own, by its number.
        pings = link.pings if settings.jitter else 0
        links.append((link.connected, link.replaced, pings, link.doubted))
    upstreams = list(board.upstreams.values())
    lock: Series = ("lock", me)
    shape = (
        me,
        worker._halted,
        room.draining,
        room.windowed,
        _gone_shape(pen, worker),
        tuple(links),
        tuple([_upstream_shape(pen, me, upstream, interval) for upstream in upstreams]),
        tuple([_asked_shape(pen, me, upstream, worker._asked) for upstream in upstreams]),
        ranks([upstream.served for upstream in upstreams]),
        ranks([u.wake.arrival if u.wake is not None else 0 for u in upstreams]),
        _ready_shape(pen, me, room.ready, settings),
        _lanes_shape(pen, me, worker._lanes, settings),
        timer_names(pen, board.timers, {upstream.identity: lock for upstream in upstreams}),
    )
    return pen.outline(shape)


def _gone_shape(pen: Pen, worker: WorkerMachine) -> Hashable:
    return tuple(
        [
            (identity, epoch, pen.number(("session", (identity, epoch)), session))
            for identity, (epoch, session) in sorted(worker._gone.items())
        ]
    )


def _asked_shape(pen: Pen, me: Peer, upstream: RemoteManager, asked: dict[bytes, int]) -> bool:
    """Which answer it was asked to acknowledge last, while draining."""
    if not asked or upstream.identity not in asked or upstream.stream is None:
        return False
    series: Series = (UP, upstream.peer, me, upstream.stream.session)
    pen.place(series, asked[upstream.identity])
    return True


def _upstream_shape(pen: Pen, me: Peer, upstream: RemoteManager, interval: float) -> Hashable:
    peer, stream, wake = upstream.peer, upstream.stream, upstream.wake
    lock: Series = ("lock", me)
    pen.times.append(upstream.heard)
    # A PING is due one interval after these, or three: longer ago is the same.
    pen.past += (
        (upstream.sent, interval),
        (upstream.pinged, 3 * interval),
        (upstream.told, interval),
    )
    pen.ahead.append(upstream.hold_after)
    locks = []
    for held in upstream.locks.values():
        pen.number(lock, held.number)
        # NO in the first half of the hold is too early.
        pen.past.append((held.opened, held.hold / 2))
        locks.append((held.needs, held.want, held.reserved, held.hold, held.state.value))
    return (
        peer,
        upstream.link,
        upstream.path,
        upstream.expire,
        upstream.label,
        stream and stream_shape(pen, stream, peer, me, at_manager=False),
        pen.number(("session", peer), upstream.forgotten),
        upstream.asked,
        wake and (wake.role, wake.needs, wake.count),
        pen.number(("ready", me), upstream.ready),
        upstream.announced,
        pen.number(lock, upstream.last_lock),
        pen.number(lock, upstream.pinged_lock),
        tuple(locks),
        tuple(
            [
                (owner, tuple(taken.attempts.items()), tuple(taken.states.items()))
                for owner, taken in upstream.taken.items()
            ]
        ),
    )


def _ready_shape(pen: Pen, me: Peer, ready: Credit, settings: WorkerSettings) -> Hashable:
    series: Series = ("ready", me)
    wide, credit = ready._wide
    return (
        pen.number(series, ready.number),
        ready.number if settings.jitter else 0,
        ready.came,
        ready.fresh,
        ready._said,
        pen.number(series, wide),
        credit,
        ready._backoff,
    )


def _lanes_shape(pen: Pen, me: Peer, lanes: RunQueue, settings: WorkerSettings) -> Hashable:
    paced = settings.window is None or settings.lane_max > 1
    running = []
    for lane in lanes.running.values():
        pen.number(("lane", me), lane.number)
        if paced:
            pen.times.append(lane.since)
        running.append((lane.upstream.identity, lane.owner, lane.kind, tuple(lane.ids), lane.lost))
    parcels = [parcel for line in lanes._lines.values() for parcel in line.parcels]
    turns = ranks([parcel.turn for parcel in parcels for _ in parcel.ids])
    lines = []
    for key, line in lanes._lines.items():
        jobs: list[Hashable] = []
        for parcel in line.parcels:
            if settings.window is None:
                pen.times.append(parcel.since)
            deadlines = parcel.deadlines or [None] * len(parcel)
            pen.times += [at for at in deadlines if at is not None]
            for id, at, payload in zip(parcel.ids, deadlines, parcel.payloads, strict=True):
                jobs.append((id, at is not None, bytes(payload)))
        lines.append((key, tuple(jobs)))
    return (
        amounts(lanes.resources.free),
        lanes.resources.places,
        lanes.stalled,
        tuple(running),
        tuple(lines),
        turns,
        tuple(lanes.pace.means.items()) if paced else (),
    )
