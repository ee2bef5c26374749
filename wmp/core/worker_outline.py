"""The outline of a worker: what it remembers, as far as it decides how it goes on."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from wmp.core.lanes import Lanes
from wmp.core.outline import UP, Outline, Pen, Series, amounts, ranks, stream_shape, timer_names
from wmp.core.ready import Ready
from wmp.core.settings import WorkerSettings
from wmp.core.upstream import Upstream
from wmp.message import Peer

if TYPE_CHECKING:
    from wmp.core.worker import Worker

__all__ = ["LEFT_OUT", "outline_worker"]

LEFT_OUT: Final = {
    "Bench.outcomes": "statistics",
    "Bench._answers": "empty between two events",
    "Bench._look": "false between two events",
    "Kept.number": "follows from the stream",
    "Kept.size": "follows from the payloads",
    "Lane.since": "matters for the pace only",
    "Lanes._number": "the next is above all others anyway",
    "Lanes._turn": "the next is above all others anyway",
    "Lanes.parked": "follows from the lines",
    "Line.waiting": "follows from its parcels",
    "Link.pings": "matters for jitter only",
    "Pace._windows": "follow from the means",
    "Pace.means": "matter while the window or the size of bundles follows from them",
    "Parcel.since": "matters where no setting says how many may wait",
    "Resources.total": "settings",
    "Room._arrivals": "the next is above all others anyway",
    "Room._doubt": "none between two events",
    "Room._greets": "none between two events",
    "Room._greet_link": "none between two events",
    "Room._locks": "the next is above all others anyway",
    "Room._repeat": "false between two events",
    "Room._servings": "the next is above all others anyway",
    "Room._took": "none between two events",
    "Room._woke": "none between two events",
    "Room.late": "statistics",
    "Room.places": "settings",
    "Room.usual": "settings",
    "Stream.size": "follows from what is kept",
    "Switchboard.actions": "empty between two events",
    "Switchboard.dropped": "statistics",
    "Switchboard.kept_bytes": "follows from the streams",
    "Timers._heap": "the same timers, with leftovers",
    "Timers._ties": "only the order counts",
    "Upstream.done": "statistics",
    "Worker._changed": "false between two events",
    "Worker.count": "settings",
}
"""Fields that an outline does not have, and why."""


def outline_worker(worker: Worker) -> Outline:
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


def _gone_shape(pen: Pen, worker: Worker) -> Hashable:
    return tuple(
        [
            (identity, epoch, pen.number(("session", (identity, epoch)), session))
            for identity, (epoch, session) in sorted(worker._gone.items())
        ]
    )


def _asked_shape(pen: Pen, me: Peer, upstream: Upstream, asked: dict[bytes, int]) -> bool:
    """Which answer it was asked to acknowledge last, while draining."""
    if not asked or upstream.identity not in asked or upstream.stream is None:
        return False
    series: Series = (UP, upstream.peer, me, upstream.stream.session)
    pen.place(series, asked[upstream.identity])
    return True


def _upstream_shape(pen: Pen, me: Peer, upstream: Upstream, interval: float) -> Hashable:
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


def _ready_shape(pen: Pen, me: Peer, ready: Ready, settings: WorkerSettings) -> Hashable:
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


def _lanes_shape(pen: Pen, me: Peer, lanes: Lanes, settings: WorkerSettings) -> Hashable:
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
