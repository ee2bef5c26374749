"""Statistics of a manager for people and programs: snapshots that change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from wmp.actions import End
from wmp.core.manager.scheduler import Scheduler
from wmp.core.protocol.statistics import Statistics

__all__ = ["ManagerStatistics", "WorkerRow", "snapshot"]


@frozen
class WorkerRow:
    """One worker, as its manager knows it."""

    identity: bytes
    label: str
    roles: tuple[str, ...]
    credit: int
    leased: int
    done: int


@frozen
class ManagerStatistics(Statistics):
    """Jobs, workers and counts of a manager; a snapshot."""

    queued: int
    leased: int
    ended: Mapping[End, int]
    requeued: Mapping[str, int]
    """Leases that did not end in a result, by cause."""
    dropped: Mapping[str, int]
    """Messages ignored, by reason."""
    workers: Sequence[WorkerRow]


def snapshot(scheduler: Scheduler) -> ManagerStatistics:
    """Take the snapshot; costs by the number of workers."""
    rows = tuple(
        WorkerRow(w.identity, w.label, w.roles, w.credit, w.leased, w.done)
        for w in scheduler.leases.workers.values()
    )
    return ManagerStatistics(
        queued=scheduler.queues.waiting,
        leased=sum(row.leased for row in rows),
        ended=dict(scheduler.leases.ended),
        requeued=dict(scheduler.requeue.counts),
        dropped=dict(scheduler.outbound.dropped),
        workers=rows,
    )
