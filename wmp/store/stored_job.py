"""A stored job: its lifecycle as tables.

``TABLE`` has one row for each change that may happen: the input, the states from which it leads,
the state to which it leads, the guards that must hold besides, and the effects on the other columns
of the job. A store makes its statements from these rows. ``TRANSITIONS`` has the same rows by state
and input. ``IGNORED`` has all other pairs, with the reason why nothing happens; together they cover
state x input exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final

from attrs import frozen


class StoredJobState(IntEnum):
    """The state of a stored job. The numbers are those in the database and never change."""

    WAITING = -2
    """The job waits for the results of other jobs. Programs of an earlier schema know no such state
    and never reserve such a job."""
    ABSENT = -1
    """The store has no such job."""
    QUEUED = 0
    RESERVED = 1
    CANCELLING = 2
    OK = 3
    ERROR = 4
    CANCELLED = 5
    TIMEOUT = 6
    LOST = 7


class StoredJobInput(Enum):
    """The inputs of the table."""

    ADD = "add"
    """A submitter adds the job."""
    ADD_RESERVED = "add reserved"
    """A submitter adds the job and reserves it in the same transaction."""
    ADD_WAITING = "add waiting"
    """A submitter adds a job that waits for other jobs."""
    PROCEED = "proceed"
    """All jobs for which the job waits have ended with results."""
    INHERIT_ERROR = "inherit error"
    """A job for which the job waits ended with an error."""
    INHERIT_CANCEL = "inherit cancel"
    """A job for which the job waits was cancelled."""
    INHERIT_TIMEOUT = "inherit timeout"
    """A time limit of a job for which the job waits passed."""
    INHERIT_LOSS = "inherit loss"
    """A job for which the job waits was lost, or the store does not have this job."""
    RESERVE = "reserve"
    """An instance reserves the job, to grant it."""
    REPEAT = "repeat"
    """The attempt is over without an outcome, and the instance keeps the job for another one."""
    RELEASE = "release"
    """The attempt was never granted, or a cancelled job's attempt is over; any instance may reserve
    the job."""
    SPEND = "spend"
    """The attempt is lost, and max_worker_losses does not allow this loss."""
    AGAIN = "again"
    """The attempt failed, and the job is tried again."""
    BEGIN = "begin"
    """A worker has the attempt, or reports its progress."""
    ADOPT = "adopt"
    """A worker holds the attempt, and an instance takes the job over in this attempt."""
    SUCCEED = "succeed"
    """DONE ok."""
    FAIL = "fail"
    """DONE error, and the job is not tried again."""
    OVERRUN = "overrun"
    """DONE overrun, and the job is not tried again."""
    LAPSE = "lapse"
    """The instance that reserved the job ended, and the grace passed."""
    CANCEL = "cancel"
    """Somebody wants no result of the job any more."""
    EXPIRE = "expire"
    """The deadline passed; or the expiry passed while the job was queued."""
    REVIVE = "revive"
    """An operator wants the job to run again."""
    FORGET = "forget"
    """A user or an operator removes the job."""
    PURGE = "purge"
    """The time to live passed."""


class Guard(Enum):
    """A condition of a change, besides the state of the job."""

    KEY_FREE = "no open job of its role has its key, apart from jobs that are being cancelled"
    AWAITS = "a job for which it waits is open"
    FULFILLED = "all jobs for which it waits ended with results"
    COMPLETE = "it waits for no results: its payload is complete"
    NOTHING_WAITS = "no job of its kind is due, and it has no delay"
    DUE = "due ≤ now"
    FRESH = "deadline and expiry > now"
    MINE = "reserved by this instance"
    ATTEMPT = "attempt = a > 0 and not over"
    ORPHANED = "the instance that reserved it has ended"
    LAPSED = "the instance that reserved it ended `grace` ago or earlier"
    OVERDUE = "deadline ≤ now"
    EXPIRED = "deadline or expiry ≤ now"
    ATTENDED = "reserved by this instance, or by an ended one"
    OUTLIVED = "purge ≤ now"
    UNNEEDED = (
        "no other job waits for its result, and no living instance that joined it has yet to learn"
        " of its end; nor has its submitter, for a minute at most"
    )


class Effect(Enum):
    """A change of the other columns of the job."""

    NEXT_ATTEMPT = "attempt + 1, not over"
    OVER = "the attempt is over"
    UNUSED = "attempt − 1, over"
    HOLD = "reserved by this instance"
    LEAVE = "reserved by no instance"
    COUNT_LOST = "lost + cost"
    COUNT_FAILED = "failed + 1"
    COUNT_UNBEGUN = "unbegun + u, which is 1 if the job had not begun"
    WAIT = "due = now + wait if there is a wait"
    KEEP_RESULT = "the result is stored"
    KEEP_FAILURE = "the failure of the attempt is stored, if the change has one"
    KEEP_RUN = "worker and start of the attempt are stored, if the change has them"
    KEEP_PROGRESS = "fraction and text of the progress are stored"
    END = "ended = now, purge = now + time to live, reserved by no instance"
    RESET = "lost = failed = 0, due = now; no deadline, expiry, result, failures, submitter, worker"
    FILL = "the results are in the payload; due, deadline and expiry count from now"
    INHERIT = (
        "the result is that of the other job; ended = now, purge = now + time to live; the"
        " submitter stays"
    )
    REMOVE = "the job, its payload, its result and its failures are deleted"


@frozen
class Transition:
    """One row of the table."""

    input: StoredJobInput
    sources: tuple[StoredJobState, ...]
    target: StoredJobState
    guards: tuple[Guard, ...] = ()
    effects: tuple[Effect, ...] = ()


_ABSENT = StoredJobState.ABSENT
_WAITING = StoredJobState.WAITING
_QUEUED = StoredJobState.QUEUED
_RESERVED = StoredJobState.RESERVED
_CANCELLING = StoredJobState.CANCELLING
_CANCELLED = StoredJobState.CANCELLED

OPEN: Final = (_WAITING, _QUEUED, _RESERVED, _CANCELLING)
"""States of a job that has not ended."""

_RUNNABLE: Final = (_QUEUED, _RESERVED, _CANCELLING)
"""Open states in which a worker may have the job."""

OF_KEY: Final = (_WAITING, _QUEUED, _RESERVED)
"""States in which a job has its key for itself. A job that is being cancelled does not."""

ENDED: Final = tuple(state for state in StoredJobState if state > _CANCELLING)
"""States of a job that has ended."""

_In = StoredJobInput

TABLE: Final[tuple[Transition, ...]] = (
    Transition(_In.ADD, (_ABSENT,), _QUEUED, (Guard.KEY_FREE,)),
    Transition(
        _In.ADD_RESERVED,
        (_ABSENT,),
        _RESERVED,
        (Guard.KEY_FREE, Guard.NOTHING_WAITS),
        (Effect.NEXT_ATTEMPT, Effect.HOLD),
    ),
    Transition(_In.ADD_WAITING, (_ABSENT,), _WAITING, (Guard.KEY_FREE, Guard.AWAITS)),
    Transition(_In.PROCEED, (_WAITING,), _QUEUED, (Guard.FULFILLED,), (Effect.FILL,)),
    Transition(_In.INHERIT_ERROR, (_WAITING,), StoredJobState.ERROR, (), (Effect.INHERIT,)),
    Transition(_In.INHERIT_CANCEL, (_WAITING,), _CANCELLED, (), (Effect.INHERIT,)),
    Transition(_In.INHERIT_TIMEOUT, (_WAITING,), StoredJobState.TIMEOUT, (), (Effect.INHERIT,)),
    Transition(_In.INHERIT_LOSS, (_WAITING,), StoredJobState.LOST, (), (Effect.INHERIT,)),
    Transition(
        _In.RESERVE,
        (_QUEUED,),
        _RESERVED,
        (Guard.DUE, Guard.FRESH),
        (Effect.NEXT_ATTEMPT, Effect.HOLD),
    ),
    Transition(
        _In.REPEAT,
        (_RESERVED,),
        _RESERVED,
        (Guard.MINE, Guard.ATTEMPT),
        (Effect.NEXT_ATTEMPT, Effect.KEEP_FAILURE, Effect.COUNT_LOST, Effect.COUNT_UNBEGUN),
    ),
    Transition(
        _In.RELEASE,
        (_RESERVED,),
        _QUEUED,
        (Guard.MINE, Guard.ATTEMPT),
        (Effect.UNUSED, Effect.LEAVE, Effect.COUNT_LOST, Effect.WAIT),
    ),
    Transition(
        _In.SPEND,
        (_RESERVED,),
        StoredJobState.LOST,
        (Guard.MINE, Guard.ATTEMPT),
        (
            Effect.COUNT_LOST,
            Effect.KEEP_FAILURE,
            Effect.KEEP_RESULT,
            Effect.KEEP_RUN,
            Effect.END,
        ),
    ),
    # The attempt is over, because a second DONE of it may come over another manager.
    Transition(
        _In.AGAIN,
        (_QUEUED, _RESERVED),
        _QUEUED,
        (Guard.ATTEMPT,),
        (Effect.OVER, Effect.LEAVE, Effect.KEEP_FAILURE, Effect.COUNT_FAILED, Effect.WAIT),
    ),
    # A cancelled job is never granted again (WMP-6.12).
    Transition(_In.REPEAT, (_CANCELLING,), _CANCELLED, (Guard.MINE, Guard.ATTEMPT), (Effect.END,)),
    Transition(
        _In.RELEASE,
        (_CANCELLING,),
        _CANCELLED,
        (Guard.MINE, Guard.ATTEMPT),
        (Effect.KEEP_RUN, Effect.END),
    ),
    Transition(_In.SPEND, (_CANCELLING,), _CANCELLED, (Guard.MINE, Guard.ATTEMPT), (Effect.END,)),
    Transition(_In.AGAIN, (_CANCELLING,), _CANCELLED, (Guard.ATTEMPT,), (Effect.END,)),
    Transition(_In.LAPSE, (_CANCELLING,), _CANCELLED, (Guard.LAPSED,), (Effect.END,)),
    Transition(
        _In.BEGIN,
        (_RESERVED,),
        _RESERVED,
        (Guard.ATTEMPT,),
        (Effect.KEEP_RUN, Effect.KEEP_PROGRESS),
    ),
    Transition(
        _In.BEGIN,
        (_CANCELLING,),
        _CANCELLING,
        (Guard.ATTEMPT,),
        (Effect.KEEP_RUN, Effect.KEEP_PROGRESS),
    ),
    # The attempt stays: a worker holds it.
    Transition(_In.ADOPT, (_QUEUED,), _RESERVED, (Guard.ATTEMPT,), (Effect.HOLD,)),
    Transition(_In.ADOPT, (_RESERVED,), _RESERVED, (Guard.ATTEMPT, Guard.ORPHANED), (Effect.HOLD,)),
    Transition(
        _In.ADOPT, (_CANCELLING,), _CANCELLING, (Guard.ATTEMPT, Guard.ORPHANED), (Effect.HOLD,)
    ),
    # Another instance may have reserved the job.
    Transition(
        _In.SUCCEED,
        _RUNNABLE,
        StoredJobState.OK,
        (Guard.ATTEMPT,),
        (Effect.KEEP_RESULT, Effect.KEEP_RUN, Effect.END),
    ),
    Transition(
        _In.FAIL,
        _RUNNABLE,
        StoredJobState.ERROR,
        (Guard.ATTEMPT,),
        (Effect.KEEP_FAILURE, Effect.KEEP_RESULT, Effect.KEEP_RUN, Effect.END),
    ),
    Transition(
        _In.OVERRUN,
        _RUNNABLE,
        StoredJobState.TIMEOUT,
        (Guard.ATTEMPT,),
        (Effect.KEEP_FAILURE, Effect.KEEP_RESULT, Effect.KEEP_RUN, Effect.END),
    ),
    # The attempt stays, so that a worker that still holds it can be adopted later.
    Transition(_In.LAPSE, (_RESERVED,), _QUEUED, (Guard.LAPSED,), (Effect.LEAVE,)),
    Transition(_In.CANCEL, (_WAITING, _QUEUED), _CANCELLED, (), (Effect.END,)),
    Transition(_In.CANCEL, (_RESERVED,), _CANCELLING),
    Transition(_In.EXPIRE, (_QUEUED,), StoredJobState.TIMEOUT, (Guard.EXPIRED,), (Effect.END,)),
    Transition(
        _In.EXPIRE,
        (_RESERVED, _CANCELLING),
        StoredJobState.TIMEOUT,
        (Guard.OVERDUE, Guard.ATTENDED),
        (Effect.END,),
    ),
    Transition(
        _In.REVIVE,
        ENDED,
        _QUEUED,
        (Guard.KEY_FREE, Guard.COMPLETE),
        (Effect.OVER, Effect.RESET),
    ),
    Transition(_In.FORGET, ENDED, _ABSENT, (), (Effect.REMOVE,)),
    Transition(_In.PURGE, ENDED, _ABSENT, (Guard.OUTLIVED, Guard.UNNEEDED), (Effect.REMOVE,)),
)
"""Every change that may happen to a stored job."""

TRANSITIONS: Final[Mapping[tuple[StoredJobState, StoredJobInput], StoredJobState]] = {
    (state, row.input): row.target for row in TABLE for state in row.sources
}
"""The state after each pair of state and input, if the guards hold."""

_ADDS = (_In.ADD, _In.ADD_RESERVED, _In.ADD_WAITING)
INHERITED: Final[Mapping[StoredJobState, StoredJobInput]] = {
    StoredJobState.ABSENT: _In.INHERIT_LOSS,
    StoredJobState.ERROR: _In.INHERIT_ERROR,
    StoredJobState.CANCELLED: _In.INHERIT_CANCEL,
    StoredJobState.TIMEOUT: _In.INHERIT_TIMEOUT,
    StoredJobState.LOST: _In.INHERIT_LOSS,
}
"""The input of a job that waits, by the state in which another job ended without a result."""

RELATIVE: Final = (*_ADDS, _In.PROCEED, *dict.fromkeys(INHERITED.values()))
"""Inputs about a job and other jobs, which a store does not make by the number of the job alone."""

_OTHERS = tuple(job_input for job_input in StoredJobInput if job_input not in _ADDS)
_BY_HOLDER = (_In.REPEAT, _In.RELEASE, _In.SPEND)
_BY_OTHERS = tuple(job_input for job_input in RELATIVE if job_input not in _ADDS)

_REASONS: Final[tuple[tuple[tuple[StoredJobState, ...], tuple[StoredJobInput, ...], str], ...]] = (
    ((_ABSENT,), _OTHERS, "the store has no such job: it was purged, or it was never stored"),
    (
        (*OPEN, *ENDED),
        _ADDS,
        "the job is stored already: the same add came twice",
    ),
    (
        (_RESERVED, _CANCELLING),
        (_In.RESERVE,),
        "an instance has reserved the job already",
    ),
    ((*_RUNNABLE, *ENDED), _BY_OTHERS, "the job waits for no other job any more"),
    (
        (_WAITING,),
        (
            _In.RESERVE,
            *_BY_HOLDER,
            _In.AGAIN,
            _In.BEGIN,
            _In.ADOPT,
            _In.SUCCEED,
            _In.FAIL,
            _In.OVERRUN,
            _In.LAPSE,
        ),
        "no worker gets a job that waits for other jobs",
    ),
    ((_WAITING,), (_In.EXPIRE,), "the times of the job count from the end of the other jobs"),
    ((_QUEUED,), (*_BY_HOLDER, _In.BEGIN), "no instance holds the job: its reservation is over"),
    ((_QUEUED,), (_In.LAPSE,), "no instance holds the job, so no reservation can lapse"),
    ((_CANCELLING,), (_In.CANCEL,), "the job was cancelled already"),
    (
        OPEN,
        (_In.REVIVE, _In.FORGET, _In.PURGE),
        "the job has not ended",
    ),
    (
        ENDED,
        (
            _In.RESERVE,
            *_BY_HOLDER,
            _In.AGAIN,
            _In.BEGIN,
            _In.ADOPT,
            _In.LAPSE,
            _In.CANCEL,
            _In.EXPIRE,
        ),
        "the job has ended, and only REVIVE queues it again",
    ),
    (
        ENDED,
        (_In.SUCCEED, _In.FAIL, _In.OVERRUN),
        "the job has already ended, and its first end is final",
    ),
)

IGNORED: Final[Mapping[tuple[StoredJobState, StoredJobInput], str]] = {
    (state, what): reason
    for states, inputs, reason in _REASONS
    for state in states
    for what in inputs
}
"""Each other pair, and the reason why nothing happens."""


def rows_of(what: StoredJobInput) -> list[Transition]:
    """Return the rows of an input, in the order of the table."""
    return [row for row in TABLE if row.input is what]
