"""The contract of a store: what an instance may ask for, and the values that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from wmp.message import Kind
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import StoredJobState
from wmp.store.write_batch import BatchAnswer, StoredFailure, WriteBatch


@frozen
class StoreInstance:
    """One process that uses a store, from its start to its end."""

    number: int
    """Number of the instance in the store."""
    identity: bytes
    epoch: int
    label: str
    block: range
    """The first block of numbers for jobs."""


@frozen
class StoredJob:
    """One stored job as the store has it. Times are milliseconds since 1970."""

    id: int
    state: StoredJobState
    kind: Kind
    terms: StoredTerms
    priority: int
    due: int
    attempt: int
    lost: int
    failed: int
    unbegun: int
    """Number of leases that ended before the job began."""
    instance: int | None
    """Number of the instance that has reserved the job."""
    submitter: int | None
    """Number of the instance that submitted the job and has not learned of its end."""
    deadline_ms: int | None
    expires_at_ms: int | None
    created: int
    ended: int | None
    purge: int | None
    """When the job is removed; None while it is open."""
    key: str | None
    payload: bytes | None = None
    """None if the caller did not ask for payloads."""
    result: bytes | None = None
    """Result, error or cause; None without one, or if the caller did not ask for payloads."""
    worker: str | None = None
    """Label of the worker that had the attempt ``ran``; None if no worker was reported."""
    begun: int | None = None
    """When that worker got the attempt."""
    ran: int = 0
    """The attempt that was reported last; 0 if none was."""
    fraction: float | None = None
    """Progress of that attempt, 0 to 1; None if it reported none."""
    note: str | None = None
    """Text of the progress; None if the attempt reported none."""
    history: Sequence[StoredFailure] = ()
    """Attempts that failed or were lost, oldest first; empty if the caller did not ask for
    payloads."""

    @property
    def running(self) -> bool:
        """Whether a worker has the current attempt, so that the job is not only reserved."""
        held = self.state in (StoredJobState.RESERVED, StoredJobState.CANCELLING)
        return held and 0 < self.ran == self.attempt

    @property
    def state_name(self) -> str:
        """The name of the state for people; ``running`` for a reserved job that a worker has."""
        if self.state is StoredJobState.RESERVED and self.running:
            return "running"
        return self.state.name.lower()


@frozen
class JobFilter:
    """Which jobs to list. A job must match every filter that is given."""

    ids: Sequence[int] | None = None
    key: str | None = None
    role: str | None = None
    states: Sequence[StoredJobState] | None = None
    instance: int | None = None
    """Number of the instance that has reserved the jobs."""


@frozen
class QueuedKind:
    """A kind of which jobs are queued."""

    kind: Kind
    wait: int
    """Milliseconds until the first of the jobs is due; 0 if one is due."""
    count: int | None = None
    """Number of the jobs, at most 10,000; None unless the caller asked for numbers."""


@frozen
class SubmitterNews:
    """Changes of the jobs of an instance that other processes made."""

    ended: Sequence[StoredJob]
    """Ended jobs that the instance submitted, and for which it has written no receipt."""
    cancelling: Sequence[int]
    """Numbers of the jobs that the instance holds and that are cancelled."""


@frozen
class KnownInstance:
    """One process that uses or used the store."""

    number: int
    label: str
    ended: int | None
    """When the instance was ended, in milliseconds since 1970; None if it was not."""
    alive: bool
    """Whether the instance has not ended, and its process lives."""


class Store(Protocol):
    """A store. Calls block; all calls of one object come from one thread at a time.

    Every call may raise :class:`~wmp.errors.StoreError`.
    """

    identity: bytes
    """Identity of the store, on the wire the owner of its jobs."""
    generation: int
    """Generation of the store, on the wire the epoch of the owner."""

    def begin(self, identity: bytes, label: str) -> StoreInstance:
        """Begin an instance, with an epoch above those of all earlier instances."""

    def apply(self, me: StoreInstance, number: int, batch: WriteBatch) -> BatchAnswer:
        """Make all changes of a batch in one transaction.

        Args:
            me: The instance, which must not have ended.
            number: 1 for the first batch of the instance, and one more for each further one. The
                number of the last batch again: the batch is not applied again, but answered.
            batch: The changes.

        Raises:
            InstanceEnded: The instance has ended; begin a new one.
            StoreUnavailable: Nothing is known to be stored; give the same batch again.
        """

    def news(self, me: StoreInstance, limit: int = 1000) -> SubmitterNews:
        """Return what others did to the jobs of an instance."""

    def list(
        self,
        where: JobFilter = JobFilter(),
        *,
        after: int = 0,
        limit: int = 1000,
        payloads: bool = False,
    ) -> list[StoredJob]:
        """Return jobs in the order of their numbers.

        Args:
            where: Which jobs.
            after: Only jobs with greater numbers: the last number of the page before.
            limit: Maximum number of jobs.
            payloads: Whether to read payloads and results too.
        """

    def kinds(self, *, counted: bool = False) -> Sequence[QueuedKind]:
        """Return the kinds of which jobs are queued; ``counted``: with the numbers of the jobs."""

    def wait(self, descriptor: int, timeout: float) -> bool:
        """Wait until a descriptor is readable, another process wrote, or ``timeout`` seconds.

        Returns:
            Whether another process wrote.
        """

    def end(self, me: StoreInstance) -> None:
        """End an instance in good order. Idempotent."""

    def close(self) -> None:
        """Release all resources. Idempotent."""
