"""What a worker holds and did, for people and programs: snapshots that change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from wmp.message import Outcome

__all__ = ["ManagerRow", "WorkerStatistics"]


@frozen
class ManagerRow:
    """One manager, as its worker knows it."""

    identity: bytes
    epoch: int
    label: str
    link: int
    """Over which link it was heard last."""
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
