"""The life of a job at a worker, as a table of states and inputs (spec §6)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class ExecutionState(IntEnum):
    """The state of a job at the worker. An IntEnum, because a state is hashed once for each job."""

    ABSENT = 0
    """Not held: never accepted, or answered by DONE."""
    PARKED = 1
    """The job waits for resources, or for its lane."""
    STARTED = 2
    """The job was handed to a lane. There it runs, or waits for the jobs before it."""
    RECALLING = 3
    """The job was handed to a lane, and is recalled if it has not begun."""
    INTERRUPTED = 4
    """The job was handed to a lane, and no result of it is wanted any more."""
    OVERDUE = 5
    """The job ran for longer than its limit and was interrupted."""


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
    """The job still continues some time after its limit, and is answered as overrun."""


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
    (_S.INTERRUPTED, _I.RECALLED): _S.ABSENT,  # the job was first recalled, and then interrupted
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

_NOT_HELD = "the worker does not hold the job and answers cancelled at once"
_NOT_BEGUN = "the job waits and is on no lane"
_STARTED = "the job has already started"
_BEGUN = "the job is on a lane, where only its handler can end it"

IGNORED: Final[Mapping[tuple[ExecutionState, ExecutionInput], str]] = {
    (_S.ABSENT, _I.START): "the worker holds no such job to start",
    (_S.ABSENT, _I.FINISH): "the result is of a job that the worker does not hold",
    (_S.ABSENT, _I.RECALLED): "the result is of a job that the worker does not hold",
    (_S.ABSENT, _I.CANCEL): _NOT_HELD,  # WMP-6.10
    (_S.ABSENT, _I.UNSTARTED): _NOT_HELD,
    (_S.ABSENT, _I.EXPIRE): "the worker holds no such job that could expire",
    (_S.ABSENT, _I.HAND_BACK): "the worker holds no such job to hand back",
    (_S.ABSENT, _I.FORGET): "the worker holds no such job to forget",
    (_S.PARKED, _I.FINISH): _NOT_BEGUN,
    (_S.PARKED, _I.RECALLED): _NOT_BEGUN,
    (_S.STARTED, _I.START): _STARTED,
    (_S.STARTED, _I.EXPIRE): _BEGUN,
    (_S.STARTED, _I.HAND_BACK): _BEGUN,
    (_S.RECALLING, _I.START): _STARTED,
    (_S.RECALLING, _I.UNSTARTED): "the manager has already asked for the job",
    (_S.RECALLING, _I.EXPIRE): _BEGUN,
    (_S.RECALLING, _I.HAND_BACK): _BEGUN,
    (_S.INTERRUPTED, _I.START): _STARTED,
    (_S.INTERRUPTED, _I.CANCEL): "the manager has already cancelled the job",
    (_S.INTERRUPTED, _I.UNSTARTED): "the job is already interrupted: its manager wants no result",
    (_S.INTERRUPTED, _I.EXPIRE): _BEGUN,
    (_S.INTERRUPTED, _I.HAND_BACK): _BEGUN,
    (_S.ABSENT, _I.OVERRUN): "the job has ended",
    (_S.ABSENT, _I.ABANDON): "the job has ended",
    (_S.PARKED, _I.OVERRUN): _NOT_BEGUN,
    (_S.PARKED, _I.ABANDON): _NOT_BEGUN,
    (_S.STARTED, _I.ABANDON): "the job has not exceeded its run limit",
    (_S.RECALLING, _I.ABANDON): "the job has not exceeded its run limit",
    (_S.INTERRUPTED, _I.OVERRUN): "the job is already interrupted: its manager wants no result",
    (
        _S.INTERRUPTED,
        _I.ABANDON,
    ): "the manager wants no result: the job has ended for its submitter",
    (_S.OVERDUE, _I.START): _STARTED,
    (_S.OVERDUE, _I.UNSTARTED): _BEGUN,
    (_S.OVERDUE, _I.EXPIRE): _BEGUN,
    (_S.OVERDUE, _I.HAND_BACK): _BEGUN,
    (_S.OVERDUE, _I.OVERRUN): "the job is already interrupted",
}
"""Every other pair, and the reason why it changes nothing."""
