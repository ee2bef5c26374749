"""Statistics of a manager, for people and programs. A snapshot changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from wmp.actions import End
from wmp.core.manager.scheduler import Scheduler
from wmp.core.manager.unserved import WaitingRow, waiting_rows
from wmp.core.protocol.statistics import Statistics
from wmp.message import Kind


@frozen
class WorkerRow:
    """The state of one worker at its manager."""

    identity: bytes
    label: str
    roles: tuple[str, ...]
    credit: int
    leased: int
    done: int
    resources: Mapping[str, int]
    """All resources of the worker."""
    used: Mapping[str, int]
    """The part of the resources that this manager's jobs hold."""


@frozen
class ManagerStatistics(Statistics):
    """Jobs, workers and counts of a manager; a snapshot."""

    queued: int
    delayed: int
    """Number of jobs that wait for their start time."""
    stored: int
    """Number of jobs that wait in the store, beside those that are ``queued`` here. Jobs of other
    processes are counted once a second, up to 10,000 of each role and needs."""
    leased: int
    ended: Mapping[End, int]
    requeued: Mapping[str, int]
    """Number of leases that ended without a result, by cause."""
    dropped: Mapping[str, int]
    """Number of messages ignored, by reason."""
    workers: Sequence[WorkerRow]
    waiting: Sequence[WaitingRow]
    """The waiting jobs by role and needs, and the reason why no worker can do them."""


def snapshot(scheduler: Scheduler) -> ManagerStatistics:
    """Make the snapshot. The cost grows with the number of workers and of kinds of waiting jobs."""
    workers = scheduler.leases.workers.values()
    rows = tuple(
        WorkerRow(
            w.identity, w.label, w.roles, w.credit, w.leased, w.done, w.resources, _used(w.held)
        )
        for w in workers
    )
    return ManagerStatistics(
        queued=scheduler.queues.waiting,
        delayed=scheduler.delayed.waiting,
        stored=scheduler.in_store,
        leased=sum(row.leased for row in rows),
        ended=dict(scheduler.leases.ended),
        requeued=dict(scheduler.requeue.counts),
        dropped=dict(scheduler.outbound.dropped),
        workers=rows,
        waiting=waiting_rows(scheduler.queues, workers, scheduler.stored_kinds()),
    )


def _used(held: Mapping[Kind, int]) -> dict[str, int]:
    """Add up the needs of the held jobs."""
    used: dict[str, int] = {}
    for kind, count in held.items():
        for name, amount in kind.needs:
            used[name] = used.get(name, 0) + count * amount
    return used
