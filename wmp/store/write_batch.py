"""Write batches: the changes that one transaction makes, and the answer of the store.

Times are milliseconds. Jobs stand in columns: one entry for each job in each column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import field, frozen

from wmp.message import Frame, Kind
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import StoredJobInput, StoredJobState


@frozen
class StoredFailure:
    """An attempt of a stored job that failed or was lost."""

    attempt: int
    worker: str
    """Label of the worker."""
    error: str
    """The error in one line."""
    at: int = 0
    """When the failure was stored, in milliseconds since 1970; a change leaves it 0."""


@frozen
class NewJobs:
    """Jobs to add that share all terms (ADD)."""

    kind: Kind
    terms: StoredTerms
    ids: Sequence[int]
    """Numbers of the instance's blocks, never used before."""
    payloads: Sequence[Frame]
    priority: int = 0
    delay_ms: int = 0
    """Milliseconds from the transaction until the jobs are due."""
    timeout_ms: int | None = None
    """Milliseconds from then until the deadline."""
    expires_in_ms: int | None = None
    """Milliseconds from then until the jobs may not be begun any more."""
    keys: Sequence[str | None] | None = None
    """None when no job has a key."""
    unique: Literal["open", "kept"] = "open"
    """Which jobs of the same key an add joins: open ones, or ended ones too that are kept."""
    reserve: bool = False
    """Whether to reserve the jobs at once if no job of the kind is due (ADD_RESERVED)."""
    after: Sequence[int] = ()
    """Numbers of the jobs for whose results each of the jobs waits, in the order of the results."""
    splice: int | None = None
    """Place in each payload at which the results of these jobs are inserted, one after the other;
    None if the payload takes no results."""


@frozen
class JobChanges:
    """One input for several jobs. No job is named twice."""

    input: StoredJobInput
    ids: Sequence[int]
    attempts: Sequence[int] | None = None
    """The attempts that the changes are about; None for inputs without the guard ATTEMPT."""
    payloads: Sequence[Frame] | None = None
    """Results, errors or causes, for inputs that keep a result."""
    costs: Sequence[int] | None = None
    """Lost leases to count, 0 or 1, for inputs that count; None for 0."""
    waits_ms: Sequence[int] | None = None
    """Milliseconds until the job is due, for inputs that wait; None for 0."""
    failures: Sequence[StoredFailure | None] | None = None
    """Failed or lost attempts, for inputs that keep a failure; None for none."""
    workers: Sequence[str | None] | None = None
    """Labels of the workers that have or had the attempts, for inputs that keep a run."""
    ages_ms: Sequence[int | None] | None = None
    """Milliseconds since these workers got the attempts, beside ``workers``."""
    fractions: Sequence[float | None] | None = None
    """Progress of the attempts, 0 to 1, for inputs that keep a progress."""
    notes: Sequence[str | None] | None = None
    """Texts of the progress, beside ``fractions``."""
    unbegun: Sequence[int] | None = None
    """Leases that ended before the job began, 0 or 1, for inputs that count them; None for 0."""


@frozen
class Reservation:
    """Jobs of a kind that an instance wants to reserve (RESERVE)."""

    kind: Kind
    count: int
    bytes: int
    """Limit of the bytes of the payloads together."""


@frozen
class WriteBatch:
    """The changes of one transaction, in the order in which they take effect.

    An empty batch renews the validity of the instance.
    """

    adds: Sequence[NewJobs] = ()
    changes: Sequence[JobChanges] = ()
    receipts: Sequence[int] = ()
    """Ended jobs whose ends this instance, which submitted or joined them, has learned."""
    watch: Sequence[int] = ()
    """Jobs of which this instance wants to learn the ends: until then they are not purged. An add
    that joins a job watches the job without this."""
    sweep: int = 0
    """Limit for each of: ends of instances, lapses, expiries, deadlines, purges; 0 for no sweep."""
    reservations: Sequence[Reservation] = ()
    block: bool = False
    """Whether another block of numbers is wanted."""


@frozen
class AddAnswer:
    """The answer to one ``NewJobs``."""

    ids: Sequence[int]
    """The number of each job: that of another job if the add joined one, 0 if the store is full."""
    states: Sequence[StoredJobState]


@frozen
class ChangeAnswer:
    """The answer to one ``JobChanges``: state and attempt of each job after it."""

    states: Sequence[StoredJobState]
    attempts: Sequence[int]


@frozen
class ReservedJobs:
    """The answer to one ``Reservation``, in the order in which the jobs should be granted."""

    ids: Sequence[int]
    attempts: Sequence[int]
    payloads: Sequence[bytes]
    priorities: Sequence[int]
    lost: Sequence[int]
    failed: Sequence[int]
    unbegun: Sequence[int]
    terms: Sequence[StoredTerms]
    deadlines_ms: Sequence[int | None]
    expires_at_ms: Sequence[int | None]
    """Times on the clock of the store, since 1970."""
    more: bool
    """Whether further jobs of the kind are due."""
    next_due: int | None
    """When the next job of the kind becomes due; None when no job waits for its time."""
    histories: Mapping[int, Sequence[StoredFailure]] = field(factory=dict)
    """The stored failures of jobs that have some, by number of the job, oldest first."""


@frozen
class SweptJob:
    """A job that a sweep changed, and that this instance had reserved or submitted."""

    id: int
    state: StoredJobState
    attempt: int


@frozen
class BatchAnswer:
    """The answer of a store to a batch."""

    now: int
    """The time of the transaction, by the clock of the store."""
    repeated: bool
    """Whether the batch had been applied before; then nothing is reserved, swept or given."""
    adds: Sequence[AddAnswer]
    changes: Sequence[ChangeAnswer]
    swept: Sequence[SweptJob]
    reserved: Sequence[ReservedJobs]
    block: range | None
    """The new block of numbers, if one was wanted."""
    stirred: bool = False
    """Whether jobs that waited for others were queued, or ended."""
