"""One job at its manager: its lifecycle as tables, and its record.

A job belongs to the manager from submission to its end (WMP-6.1). In between it is queued or
leased, any number of times. The job's attempt number identifies a lease, so that messages of an
older lease are recognised and refused (WMP-6.2). A leased job that its submitter cancels waits in
``CANCELLING`` for the worker's definite answer, and is never granted again (WMP-6.12).

``TRANSITIONS`` is consulted for every step of every job. ``IGNORED`` holds all other pairs with the
reason why nothing happens; together they cover State x Input exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from attrs import define, frozen

from wmp.actions import FailedAttempt
from wmp.message import Frame, Kind
from wmp.retry import Retry

_MAX_PATIENCE = 7  # at most 2**6 = 64 READYs or GIVEs
_MAX_TAKEN_AT_ONCE = 3
"""Number of times that a worker may leave with a job and get it again at once."""
_MAX_LEFT = _MAX_TAKEN_AT_ONCE + 6  # at most 2**6 = 64 READYs or GIVEs


class JobState(IntEnum):
    """The state of a job. IntEnum, because its hash is C code and is needed for each job."""

    QUEUED = 0
    LEASED = 1
    CANCELLING = 2
    ENDED = 3
    DELAYED = 4
    """The job waits for its start time and may not be granted before."""


class JobInput(IntEnum):
    """The inputs of a job's table."""

    GRANT = 0
    """A TAKE grants the job."""
    RESULT = 1
    """DONE ok or error, of the current attempt."""
    REFUSE = 2
    """DONE refused, of the current attempt."""
    RETURN = 3
    """DONE cancelled, of the current attempt."""
    LOSE = 4
    """The lease is lost, also by DONE lost, and the job may be tried again."""
    SPEND = 5
    """The lease is lost, and max_worker_losses does not allow this loss."""
    CANCEL = 6
    """The submitter no longer wants a result."""
    EXPIRE = 7
    """The job's deadline passed; or its expiry passed while it had no lease."""
    DUE = 8
    """The job's start time has come."""
    AGAIN = 9
    """DONE error or overrun, of the current attempt, after which the job is tried again."""


TRANSITIONS: Final[Mapping[tuple[JobState, JobInput], JobState]] = {
    (JobState.QUEUED, JobInput.GRANT): JobState.LEASED,  # WMP-6.1
    (JobState.QUEUED, JobInput.CANCEL): JobState.ENDED,
    (JobState.QUEUED, JobInput.EXPIRE): JobState.ENDED,  # WMP-6.8
    (JobState.DELAYED, JobInput.DUE): JobState.QUEUED,  # WMP-6.24
    (JobState.DELAYED, JobInput.CANCEL): JobState.ENDED,
    (JobState.DELAYED, JobInput.EXPIRE): JobState.ENDED,
    (JobState.LEASED, JobInput.RESULT): JobState.ENDED,  # WMP-6.3
    (JobState.LEASED, JobInput.AGAIN): JobState.DELAYED,
    (JobState.LEASED, JobInput.REFUSE): JobState.QUEUED,  # WMP-6.5
    (JobState.LEASED, JobInput.RETURN): JobState.QUEUED,  # WMP-6.11: handed back
    (JobState.LEASED, JobInput.LOSE): JobState.QUEUED,  # WMP-6.4, 6.15
    (JobState.LEASED, JobInput.SPEND): JobState.ENDED,  # WMP-6.15
    (JobState.LEASED, JobInput.CANCEL): JobState.CANCELLING,
    # CANCEL is sent, and a later result is ignored.
    (JobState.LEASED, JobInput.EXPIRE): JobState.ENDED,
    # The result came before the worker's answer to CANCEL.
    (JobState.CANCELLING, JobInput.RESULT): JobState.ENDED,
    (JobState.CANCELLING, JobInput.REFUSE): JobState.ENDED,
    (JobState.CANCELLING, JobInput.RETURN): JobState.ENDED,  # WMP-6.10: the definite answer
    (JobState.CANCELLING, JobInput.LOSE): JobState.ENDED,  # WMP-6.12: not granted again
    (JobState.CANCELLING, JobInput.SPEND): JobState.ENDED,
    (JobState.CANCELLING, JobInput.EXPIRE): JobState.ENDED,
    (JobState.CANCELLING, JobInput.AGAIN): JobState.ENDED,  # WMP-6.12: not tried again
}

_DUE = "the start time of the job has come already"
_ENDED = "the job has already ended"
_NO_LEASE = "the job has no lease: the message is about an attempt that is over"

IGNORED: Final[Mapping[tuple[JobState, JobInput], str]] = {
    (
        JobState.QUEUED,
        JobInput.RESULT,
    ): "the job has no lease: the result is of an attempt that was lost",
    (
        JobState.QUEUED,
        JobInput.REFUSE,
    ): "the job has no lease: the refusal is of an attempt that was lost",
    (
        JobState.QUEUED,
        JobInput.RETURN,
    ): "the job has no lease: the answer is of an attempt that was lost",
    (JobState.QUEUED, JobInput.LOSE): "the job has no lease that could be lost",
    (JobState.QUEUED, JobInput.SPEND): "the job has no lease that could be lost",
    (JobState.LEASED, JobInput.GRANT): "a leased job is in no queue",
    (JobState.CANCELLING, JobInput.GRANT): "a leased job is in no queue",
    (JobState.CANCELLING, JobInput.CANCEL): "the submitter has already cancelled the job",
    (JobState.ENDED, JobInput.GRANT): "the job ended in the queue; the queue skips it",
    (JobState.ENDED, JobInput.RESULT): "the job has already ended, and its first end is final",
    (JobState.ENDED, JobInput.REFUSE): _ENDED,
    (JobState.ENDED, JobInput.RETURN): _ENDED,
    (JobState.ENDED, JobInput.LOSE): _ENDED,
    (JobState.ENDED, JobInput.SPEND): _ENDED,
    (JobState.QUEUED, JobInput.AGAIN): _NO_LEASE,
    (JobState.DELAYED, JobInput.AGAIN): _NO_LEASE,
    (JobState.ENDED, JobInput.AGAIN): _ENDED,
    (JobState.QUEUED, JobInput.DUE): _DUE,
    (JobState.LEASED, JobInput.DUE): _DUE,
    (JobState.CANCELLING, JobInput.DUE): _DUE,
    (JobState.ENDED, JobInput.DUE): "the job ended before its start time and is skipped",
    (JobState.DELAYED, JobInput.GRANT): "the start time of the job has not come",
    (JobState.DELAYED, JobInput.RESULT): _NO_LEASE,
    (JobState.DELAYED, JobInput.REFUSE): _NO_LEASE,
    (JobState.DELAYED, JobInput.RETURN): _NO_LEASE,
    (JobState.DELAYED, JobInput.LOSE): "the job has no lease that could be lost",
    (JobState.DELAYED, JobInput.SPEND): "the job has no lease that could be lost",
    (JobState.ENDED, JobInput.CANCEL): "the job has already ended and cannot be cancelled",
    (JobState.ENDED, JobInput.EXPIRE): _ENDED,
}


_MAX_HISTORY: Final = 32
"""Limit of the attempts of one job that are kept for its final error."""


@frozen
class JobLimits:
    """Limits that few jobs have. Jobs that were submitted together share one object."""

    expires_at: float | None = None
    """Time after which the job may not be begun, on the clock of ``now``."""
    run: float | None = None
    """Seconds for which one attempt may run."""
    retry: Retry | None = None
    """Settings of the errors that are tried again; None: the handlers decide."""

    def expired(self, now: float) -> bool:
        """Return whether no attempt may begin any more: the expiry has passed (WMP-6.19)."""
        return self.expires_at is not None and self.expires_at <= now


@frozen
class Refusal:
    """A worker that refused a job gets it again only after it has reported capacity (WMP-6.5)."""

    session: int
    reports: int
    """Number of READYs, GIVEs and PINGs that the manager must have counted before the worker gets
    the job.
    """
    times: int


@define(eq=False)
class JobRecord:
    """The record of one job. There may be a million records, so a record must be small."""

    id: int
    payload: Frame
    kind: Kind
    priority: int
    max_worker_losses: int
    deadline: float | None
    state: JobState = JobState.QUEUED
    attempt: int = 0
    """Number of the newest lease; 0 before the first."""
    lost: int = 0
    """Number of lost leases whose attempt may have started."""
    holder: bytes | None = None
    """Identity of the worker that holds the lease; None while no worker does."""
    take: int = 0
    """Number of the TAKE that granted the lease."""
    refused: dict[bytes, Refusal] | None = None
    """The refusals, by identity of the worker; None for none."""
    limits: JobLimits | None = None
    left: dict[bytes, int] | None = None
    """Number of times that a worker left with the job, by identity of the worker; None for none."""
    failed: int = 0
    """Number of attempts that ended as error or overrun."""
    alone: bool = False
    """Whether the job is sent in a TAKE of its own (WMP-7.11)."""
    history: list[FailedAttempt] | None = None
    """Attempts that failed or were lost, oldest first; None for none."""
    unbegun: int = 0
    """Number of leases that ended before the job began: handed back, refused, or never sent."""
    reserved: bool = False
    """Whether ``attempt`` is the number of the next lease already: the store has written it."""
    leased_at: float | None = None
    """When the newest lease of a stored job began; None for other jobs."""
    reported: bool = False
    """Whether the store knows of that lease and its last progress."""
    number: int = 0
    """Number of the job at its owner, if that is another manager; 0 for all other jobs."""

    @property
    def wire_id(self) -> int:
        """Return the number of the job in messages."""
        return self.number or self.id

    def record(self, worker: str, at: float, error: str) -> None:
        """Record an attempt that failed or was lost.

        If there are many attempts, only the first and the last are kept.
        """
        if self.history is None:
            self.history = []
        elif len(self.history) >= _MAX_HISTORY:
            del self.history[_MAX_HISTORY // 2]
        self.history.append(FailedAttempt(self.attempt, worker, at, error))

    def leave(self, identity: bytes) -> bool:
        """Record that a worker left with the job; return whether the loss counts (WMP-6.23)."""
        if self.left is None:
            self.left = {}
        times = self.left.get(identity, 0)
        self.left[identity] = min(times + 1, _MAX_LEFT)
        return not times

    def refuse(self, identity: bytes, session: int, reports: int) -> None:
        """Record that a worker refused the job.

        After each refusal the worker must report capacity twice as often as before.
        """
        if self.refused is None:
            self.refused = {}
        last = self.refused.get(identity)
        times = 1 if last is None else min(last.times + 1, _MAX_PATIENCE)
        self.refused[identity] = Refusal(session, reports + 2 ** (times - 1) - 1, times)

    def passes_over(self, identity: bytes, session: int, reports: int) -> bool:
        """Return whether the job must not go to this worker now.

        True if the worker refused the job, or left with the job several times. The answer becomes
        false when the worker has reported capacity often enough since then.
        """
        if self.left is not None:
            again = self.left.get(identity, 0) - _MAX_TAKEN_AT_ONCE
            if again > 0 and reports < 2**again:
                return True
        if self.refused is None:
            return False
        last = self.refused.get(identity)
        return last is not None and last.session == session and reports <= last.reports

    def expired(self, now: float) -> bool:
        """Return whether no attempt may begin any more: the expiry has passed (WMP-6.19)."""
        return self.limits is not None and self.limits.expired(now)

    def step(self, what: JobInput) -> bool:
        """Move by the table; return False when the table ignores the pair."""
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            return False
        self.state = state
        return True
