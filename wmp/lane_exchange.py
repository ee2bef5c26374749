"""The actions and events of lanes: what a worker's machine and the executors of handlers exchange.

They are a part of :mod:`wmp.actions` and :mod:`wmp.events`, which export them too. A worker process
needs no other action and no other event, and starts sooner without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wmp.record import FrozenRecord
from wmp.vocabulary import Frame, Outcome, Peer

if TYPE_CHECKING:  # a worker process needs no message, and starts sooner without this module
    from wmp.message import Kind

__all__ = [
    "Begun",
    "Finished",
    "Interrupt",
    "LaneKind",
    "Recall",
    "Recalled",
    "Reported",
    "Run",
]


class LaneKind(FrozenRecord):
    """The parts of a :class:`wmp.message.Kind` that a worker process needs."""

    role: str
    codec: str


class Run(FrozenRecord):
    """Start jobs on one lane: one after the other, on the resources of one job.

    The answer is ``Finished``, in one or more parts; results of slow jobs are not held back.
    """

    lane: int
    kind: Kind
    manager: Peer
    """Owner of the jobs."""
    ids: Sequence[int]
    attempts: Sequence[int]
    deadlines: Sequence[float | None] | None
    """Deadlines of the jobs, on the clock of ``now``; None when no job has a deadline."""
    payloads: Sequence[Frame]
    begin_by: Sequence[float | None] | None = None
    """Times after which the jobs may not be begun, at the latest their deadlines.

    None: only deadlines count.
    """
    limits: Sequence[float | None] | None = None
    """Seconds for which each job may run; None when no job has a limit.

    If a job has a limit, the lane reports the start of each job by ``Begun``.
    """
    failed: Sequence[int | None] | None = None
    """Number of earlier failed attempts of each job; an entry is None for a job with settings of
    its own.

    The column is None when no attempt failed.
    """
    begun: Sequence[int | None] | None = None
    """Number of earlier runs of each job that began or may have begun; None: all earlier leases."""

    def runs_before(self, row: int) -> int:
        """Return the number of earlier runs of the job in a row."""
        runs = None if self.begun is None else self.begun[row]
        return self.attempts[row] - 1 if runs is None else runs


class Recall(FrozenRecord):
    """Take back the jobs of a lane that have not begun; the answer is ``Recalled``."""

    lane: int
    ids: Sequence[int]


class Interrupt(FrozenRecord):
    """Stop these jobs, whose results are not wanted: raise their cancelled flags.

    Jobs that have not begun end as CANCELLED. Jobs that have begun may end as CANCELLED.
    """

    lane: int
    ids: Sequence[int]


class Begun(FrozenRecord):
    """A lane begins a job that has a limit; ``Run.limits`` has the limits."""

    lane: int
    id: int


class Finished(FrozenRecord):
    """Jobs of a lane ended. A lane may report them in several parts."""

    lane: int
    ids: Sequence[int]
    outcomes: Sequence[Outcome]
    """OK, ERROR, CANCELLED, or LOST: the process of the job died; the payload names the cause."""
    payloads: Sequence[Frame]
    texts: Sequence[str | None] | None = None
    """The error for people and for the settings of jobs, see ``Columns.texts``; None without an
    error.
    """
    waits: Sequence[int | None] | None = None
    """Milliseconds after which a job should be tried again; None for no such request."""
    codec: str | None = None
    """Codec of the results; None for the codec of the jobs."""


class Recalled(FrozenRecord):
    """These jobs of a lane had not begun and will not begin.

    The answer to ``Recall``. A lane also hands jobs back unasked after a pause of this process.
    """

    lane: int
    ids: Sequence[int]


class Reported(FrozenRecord):
    """A handler reported progress."""

    lane: int
    id: int
    fraction: float | None
    text: str | None
