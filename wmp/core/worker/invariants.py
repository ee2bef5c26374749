"""The invariants of a worker between any two events: for tests, off in production."""

from __future__ import annotations

from wmp.core.protocol.resources import Resources
from wmp.core.protocol.timers import ResendTimer
from wmp.core.worker.executions import Executions
from wmp.core.worker.locks import Locks
from wmp.core.worker.orphans import Orphans
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.timers import KeepTimer, LockTimer, PatienceTimer, PingTimer


def check_worker(
    outbound: WorkerOutbound, executions: Executions, locks: Locks, orphans: Orphans
) -> None:
    """Raise AssertionError when an invariant is broken. The cost grows with the whole state."""
    resources, timers, managers = executions.resources, outbound.timers, outbound.links.managers
    resources.check()
    executions.check()
    locks.check()
    used = dict.fromkeys(resources.total, 0)
    places = 0
    takers = [(lane.kind.needs, 1) for lane in executions.lanes]
    for manager in managers.values():
        for number, lock in locks.of(manager.identity).items():
            assert number == lock.number <= manager.last_lock
            assert LockTimer(manager.identity, number) in timers
            takers.append((lock.needs, lock.reserved))
        assert PingTimer(manager.identity) in timers
        kept = manager.stream.kept if manager.stream is not None else ()
        assert bool(kept) == (ResendTimer(manager.identity) in timers)
    for needs, count in takers:
        places += count
        for name, amount in needs:
            used[name] += amount * count
    assert used == resources.used, (used, resources.used)
    assert resources.places == Resources.of({}).places - places
    if outbound.settings.window is None:
        assert not executions.parked or PatienceTimer() in timers
    streams = [manager.stream for manager in managers.values() if manager.stream is not None]
    unwritten = sum(kept.size for manager in managers.values() for kept in manager.unwritten)
    kept_bytes = sum(stream.size for stream in streams) + unwritten + orphans.size
    assert outbound.kept_bytes == kept_bytes
    for owner in orphans.owners:
        assert KeepTimer(owner) in timers
