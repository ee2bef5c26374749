"""The life of a job at a worker, as a table of states and inputs (spec §6)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

__all__ = ["IGNORED", "TRANSITIONS", "ExecutionInput", "ExecutionState"]


class ExecutionState(IntEnum):
    """The life of a job at the worker. Integers, because they are hashed once a job."""

    ABSENT = 0
    """Not held: never accepted, or answered by DONE."""
    PARKED = 1
    """The job waits for resources, or for its lane."""
    STARTED = 2
    """The job was handed to a lane, where it may still wait for the jobs before it."""
    RECALLING = 3
    """The job was handed to a lane, and recalled in case it has not begun."""
    INTERRUPTED = 4
    """The job was handed to a lane, and its result is not wanted any more."""
    OVERDUE = 5
    """The job was begun, and interrupted because it ran for longer than its limit."""


class ExecutionInput(IntEnum):
    """The events in the life of a job at the worker."""

    TAKE = 0
    """A TAKE of the same or a higher attempt."""
    START = 1
    FINISH = 2
    RECALLED = 3
    """The lane reports that the job never began."""
    CANCEL = 4
    UNSTARTED = 5
    """CANCEL with ``unstarted``."""
    EXPIRE = 6
    """The job's deadline or expiry passed."""
    HAND_BACK = 7
    """The worker ends."""
    FORGET = 8
    """The session or the epoch of the job's manager is lost."""
    OVERRUN = 9
    """The job ran for longer than its limit."""
    ABANDON = 10
    """The job continues after that, and is answered although it has not ended."""


_S = ExecutionState
_I = ExecutionInput

TRANSITIONS: Final[Mapping[tuple[ExecutionState, ExecutionInput], ExecutionState]] = {
    (_S.ABSENT, _I.TAKE): _S.PARKED,
    (_S.PARKED, _I.TAKE): _S.PARKED,  # the higher attempt counts (WMP-4.14)
    (_S.PARKED, _I.START): _S.STARTED,
    (_S.PARKED, _I.CANCEL): _S.ABSENT,
    (_S.PARKED, _I.UNSTARTED): _S.ABSENT,
    (_S.PARKED, _I.EXPIRE): _S.ABSENT,
    (_S.PARKED, _I.HAND_BACK): _S.ABSENT,
    (_S.PARKED, _I.FORGET): _S.ABSENT,
    (_S.STARTED, _I.TAKE): _S.STARTED,  # a running job answers for the higher attempt too
    (_S.STARTED, _I.FINISH): _S.ABSENT,
    (_S.STARTED, _I.RECALLED): _S.ABSENT,
    (_S.STARTED, _I.CANCEL): _S.INTERRUPTED,
    (_S.STARTED, _I.UNSTARTED): _S.RECALLING,
    (_S.STARTED, _I.FORGET): _S.ABSENT,
    (_S.RECALLING, _I.TAKE): _S.RECALLING,
    (_S.RECALLING, _I.FINISH): _S.ABSENT,
    (_S.RECALLING, _I.RECALLED): _S.ABSENT,
    (_S.RECALLING, _I.CANCEL): _S.INTERRUPTED,
    (_S.RECALLING, _I.FORGET): _S.ABSENT,
    (_S.INTERRUPTED, _I.TAKE): _S.INTERRUPTED,
    (_S.INTERRUPTED, _I.FINISH): _S.ABSENT,
    (_S.INTERRUPTED, _I.RECALLED): _S.ABSENT,  # recalled first, interrupted after
    (_S.INTERRUPTED, _I.FORGET): _S.ABSENT,
    (_S.STARTED, _I.OVERRUN): _S.OVERDUE,  # WMP-6.21
    (_S.RECALLING, _I.OVERRUN): _S.OVERDUE,
    (_S.OVERDUE, _I.TAKE): _S.OVERDUE,
    (_S.OVERDUE, _I.FINISH): _S.ABSENT,
    (_S.OVERDUE, _I.RECALLED): _S.ABSENT,
    (_S.OVERDUE, _I.CANCEL): _S.INTERRUPTED,
    (_S.OVERDUE, _I.FORGET): _S.ABSENT,
    (_S.OVERDUE, _I.ABANDON): _S.ABSENT,
}
"""The state that follows from each state by each input."""

_NOT_HELD = "not held: answered cancelled at once"
_NOT_BEGUN = "no lane has the job"
_BEGUN = "a lane has the job: only its handler can end the job"

IGNORED: Final[Mapping[tuple[ExecutionState, ExecutionInput], str]] = {
    (_S.ABSENT, _I.START): "nothing to start",
    (_S.ABSENT, _I.FINISH): "result of a job not held",
    (_S.ABSENT, _I.RECALLED): "result of a job not held",
    (_S.ABSENT, _I.CANCEL): _NOT_HELD,  # WMP-6.10
    (_S.ABSENT, _I.UNSTARTED): _NOT_HELD,
    (_S.ABSENT, _I.EXPIRE): "nothing to expire",
    (_S.ABSENT, _I.HAND_BACK): "nothing to hand back",
    (_S.ABSENT, _I.FORGET): "nothing to forget",
    (_S.PARKED, _I.FINISH): _NOT_BEGUN,
    (_S.PARKED, _I.RECALLED): _NOT_BEGUN,
    (_S.STARTED, _I.START): "started already",
    (_S.STARTED, _I.EXPIRE): _BEGUN,
    (_S.STARTED, _I.HAND_BACK): _BEGUN,
    (_S.RECALLING, _I.START): "started already",
    (_S.RECALLING, _I.UNSTARTED): "asked already",
    (_S.RECALLING, _I.EXPIRE): _BEGUN,
    (_S.RECALLING, _I.HAND_BACK): _BEGUN,
    (_S.INTERRUPTED, _I.START): "started already",
    (_S.INTERRUPTED, _I.CANCEL): "asked already",
    (_S.INTERRUPTED, _I.UNSTARTED): "interrupted already: no result is wanted",
    (_S.INTERRUPTED, _I.EXPIRE): _BEGUN,
    (_S.INTERRUPTED, _I.HAND_BACK): _BEGUN,
    (_S.ABSENT, _I.OVERRUN): "the job has ended",
    (_S.ABSENT, _I.ABANDON): "the job has ended",
    (_S.PARKED, _I.OVERRUN): _NOT_BEGUN,
    (_S.PARKED, _I.ABANDON): _NOT_BEGUN,
    (_S.STARTED, _I.ABANDON): "the job has not run for too long",
    (_S.RECALLING, _I.ABANDON): "the job has not run for too long",
    (_S.INTERRUPTED, _I.OVERRUN): "interrupted already: no result is wanted",
    (_S.INTERRUPTED, _I.ABANDON): "no result is wanted: the submitter has an end",
    (_S.OVERDUE, _I.START): "started already",
    (_S.OVERDUE, _I.UNSTARTED): _BEGUN,
    (_S.OVERDUE, _I.EXPIRE): _BEGUN,
    (_S.OVERDUE, _I.HAND_BACK): _BEGUN,
    (_S.OVERDUE, _I.OVERRUN): "interrupted already",
}
"""Every other pair, and the reason why it changes nothing."""
