"""What a worker holds and did, for people and programs: snapshots that change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from wmp.core.worker.capacity import Capacity
from wmp.core.worker.executions import Executions
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.run_queue import RunQueue
from wmp.message import Outcome

__all__ = ["ManagerRow", "WorkerStatistics", "snapshot"]


@frozen
class ManagerRow:
    """One manager, as its worker knows it."""

    identity: bytes
    epoch: int
    label: str
    link: int
    """Over which link it was heard last."""
    session: int | None
    """None while none is known."""
    reachable: bool
    done: int
    """Jobs answered."""
    held: int
    """Jobs not answered yet."""
    locks: int
    """GIVEs not answered yet."""
    waking: bool
    """Its WAKE waits for room."""


@frozen
class WorkerStatistics:
    """What a worker holds and did; a snapshot."""

    held: int
    """Jobs taken and not answered."""
    parked: int
    """Of them, those that wait."""
    running: int
    """Of them, those on lanes."""
    locks: int
    """GIVEs not answered yet."""
    locked: Mapping[str, int]
    """Resources locked or in use, by name."""
    free: Mapping[str, int]
    """The rest of them."""
    unacknowledged: int
    """Bytes of answers kept until a manager acknowledges them."""
    window: int
    """Jobs that may wait beyond what runs."""
    late: int
    """Jobs that came when their lock was gone."""
    outcomes: Mapping[Outcome, int]
    """Jobs answered, by outcome."""
    dropped: Mapping[str, int]
    """What was ignored, by reason."""
    managers: Sequence[ManagerRow]


def snapshot(
    board: WorkerOutbound, lanes: RunQueue, room: Capacity, bench: Executions
) -> WorkerStatistics:
    """Take the snapshot; costs by the number of managers and lanes."""
    managers = board.upstreams.values()
    return WorkerStatistics(
        held=sum(upstream.held for upstream in managers),
        parked=lanes.parked,
        running=sum(len(lane.ids) for lane in lanes.running.values() if not lane.lost),
        locks=sum(len(upstream.locks) for upstream in managers),
        locked=lanes.resources.used,
        free=dict(lanes.resources.free),
        unacknowledged=board.kept_bytes,
        window=room.window,
        late=room.late,
        outcomes={Outcome(code): count for code, count in bench.outcomes.items()},
        dropped=dict(board.dropped),
        managers=tuple(
            ManagerRow(
                identity=upstream.identity,
                epoch=upstream.epoch,
                label=upstream.label,
                link=upstream.link,
                session=upstream.stream.session if upstream.stream is not None else None,
                reachable=board.reachable(upstream),
                done=upstream.done,
                held=upstream.held,
                locks=len(upstream.locks),
                waking=upstream.wake is not None,
            )
            for upstream in managers
        ),
    )
