"""What must hold of a worker between any two events: for tests, off in production."""

from __future__ import annotations

from wmp.core.protocol.resources import Resources
from wmp.core.protocol.timers import ResendTimer
from wmp.core.worker.capacity import Capacity
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.run_queue import RunQueue

__all__ = ["check_worker"]


def check_worker(board: WorkerOutbound, lanes: RunQueue, room: Capacity) -> None:
    """Raise AssertionError when an invariant is broken; costs by all state."""
    resources = lanes.resources
    resources.check()
    lanes.check()
    used = dict.fromkeys(resources.total, 0)
    places = windowed = 0
    takers = [(lane.kind.needs, 1) for lane in lanes.running.values()]
    for upstream in board.upstreams.values():
        for number, lock in upstream.locks.items():
            assert 0 <= lock.reserved <= lock.want, (number, lock)
            assert number <= upstream.last_lock
            assert ("lock", upstream.identity, number) in board.timers
            takers.append((lock.needs, lock.reserved))
            windowed += lock.windowed
        assert all(upstream.taken.values()), "an owner without jobs is kept"
        assert ("ping", upstream.identity) in board.timers
        kept = upstream.stream.kept if upstream.stream is not None else ()
        assert bool(kept) == (ResendTimer(upstream.identity) in board.timers)
    for needs, count in takers:
        places += count
        for name, amount in needs:
            used[name] += amount * count
    assert used == resources.used, (used, resources.used)
    assert resources.places == Resources.of({}).places - places
    assert windowed == room.windowed
    held = sum(upstream.held for upstream in board.upstreams.values())
    running = sum(len(lane.ids) for lane in lanes.running.values() if not lane.lost)
    assert held == lanes.parked + running, (held, lanes.parked, running)
    if board.settings.window is None:
        assert not lanes.parked or ("patience",) in board.timers
    streams = [u.stream for u in board.upstreams.values() if u.stream is not None]
    assert board.kept_bytes == sum(stream.size for stream in streams)
