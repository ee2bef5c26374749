"""Statistics of a worker, for people and programs: snapshots that change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from wmp.core.protocol.statistics import Statistics
from wmp.core.worker.executions import Executions
from wmp.core.worker.held_table import ORPHANED
from wmp.core.worker.locks import Locks
from wmp.core.worker.outbound import WorkerOutbound
from wmp.message import Outcome


@frozen
class ManagerRow:
    """One manager, as its worker knows it."""

    identity: bytes
    epoch: int
    label: str
    link: int
    """Link of the newest message."""
    session: int | None
    """Number of the session; None while the worker knows no session with the manager."""
    reachable: bool
    done: int
    """Number of answered jobs."""
    held: int
    """Number of jobs that are not answered yet."""
    locks: int
    """Number of GIVEs that are not answered yet."""
    waking: bool
    """Whether a WAKE of the manager waits for free resources."""


@frozen
class WorkerStatistics(Statistics):
    """The state of a worker and its counters; a snapshot."""

    held: int
    """Number of held jobs, which are not answered."""
    parked: int
    """Number of held jobs that wait."""
    running: int
    """Number of held jobs that are on lanes."""
    locks: int
    """Number of GIVEs that are not answered yet."""
    locked: Mapping[str, int]
    """Resources locked or in use, by name."""
    free: Mapping[str, int]
    """Free resources, by name."""
    unacknowledged: int
    """Bytes of answers kept until a manager acknowledges them."""
    window: int
    """Number of jobs that may wait beside the running jobs."""
    late: int
    """Number of jobs that came after their lock was closed."""
    outcomes: Mapping[Outcome, int]
    """Number of answered jobs, by outcome."""
    dropped: Mapping[str, int]
    """Number of ignored messages and events, by reason."""
    managers: Sequence[ManagerRow]
    hung: int = 0
    """Number of jobs whose handlers continue in threads after an interruption, and hold slots."""


def snapshot(outbound: WorkerOutbound, executions: Executions, locks: Locks) -> WorkerStatistics:
    """Return a snapshot. The cost grows with the number of managers and lanes."""
    links, resources = outbound.links, executions.resources
    rows = tuple(
        ManagerRow(
            identity=manager.identity,
            epoch=manager.epoch,
            label=manager.label,
            link=manager.link,
            session=manager.stream.session if manager.stream is not None else None,
            reachable=links.reachable(manager),
            done=manager.done,
            held=executions.count(manager.identity),
            locks=len(locks.of(manager.identity)),
            waking=manager.wake is not None,
        )
        for manager in links.managers.values()
    )
    return WorkerStatistics(
        held=sum(row.held for row in rows) + executions.count(ORPHANED),
        parked=executions.parked,
        running=executions.running,
        locks=sum(row.locks for row in rows),
        locked=resources.used,
        free=dict(resources.free),
        unacknowledged=outbound.kept_bytes,
        window=executions.window,
        late=locks.late,
        outcomes={Outcome(code): count for code, count in executions.outcomes.items()},
        dropped=dict(outbound.dropped),
        managers=rows,
    )
