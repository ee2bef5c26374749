"""Events: values that report to a machine what happened, named by past participles.

A machine takes one event at a time by ``handle(event, now)``. ``now`` is seconds on a monotonic
clock of the caller's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from attrs import frozen

from wmp.errors import DecodeError
from wmp.lane_exchange import Begun, Finished, Recalled, Reported
from wmp.message import ForwardedKind, Frame, Kind, Link, Message, Outcome, Peer
from wmp.retry import Retry

if TYPE_CHECKING:  # a worker process has no store, and starts sooner without these modules
    from wmp.store.contract import QueuedKind, StoredJob
    from wmp.store.job_terms import StoredTerms
    from wmp.store.write_batch import BatchAnswer

__all__ = [
    "FIRST_FORWARDED",
    "Begun",
    "Cancelled",
    "Closed",
    "Connected",
    "DeviceEvent",
    "Disconnected",
    "Drained",
    "Finished",
    "Forwarded",
    "Garbled",
    "InstanceBegun",
    "Leased",
    "ManagerEvent",
    "Recalled",
    "Received",
    "Relieved",
    "Reported",
    "Resized",
    "Retracted",
    "Returned",
    "StoreFilled",
    "Submitted",
    "Ticked",
    "Undelivered",
    "Woken",
    "WorkerEvent",
    "Written",
]


@frozen
class Received:
    """A well-formed message arrived on ``link``."""

    link: Link
    message: Message


@frozen
class Garbled:
    """Frames arrived on ``link`` that cannot be decoded as a message."""

    link: Link
    error: DecodeError


@frozen
class Undelivered:
    """A ``Send`` could not be delivered: there is no such connection, or its pipe is full."""

    link: Link
    message: Message


@frozen
class Ticked:
    """Time passed. The event is due at ``deadline()``, and harmless at any other time."""


@frozen
class Drained:
    """The user asked this node to end: accept no new jobs, finish the others, send BYE."""


@frozen
class Closed:
    """The node ends now: send BYE and wait for nothing."""


@frozen
class Relieved:
    """The standby of this manager ended: it grants jobs from now on (WMP-17.2)."""


@frozen
class Submitted:
    """The application submitted jobs of one kind."""

    ids: Sequence[int]
    """Numbers chosen by the caller, from 1, each greater than every earlier one."""
    payloads: Sequence[Frame]
    kind: Kind
    priority: int = 0
    """Jobs of a higher priority are granted first."""
    timeout: float | None = None
    """Seconds from now within which the jobs must end."""
    max_worker_losses: int = 3
    """Number of lost leases after which a job is still queued again."""
    expires: float | None = None
    """Seconds from now within which the jobs may be begun."""
    run_limit: float | None = None
    """Seconds for which one attempt may run."""
    delay: float = 0.0
    """Seconds from now until the jobs may be granted. The other times count from then."""
    retry: Retry | None = None
    """Settings that name the errors after which a job is tried again; None: the handlers decide."""
    stored: StoredTerms | None = None
    """Terms under which the jobs are stored; None for jobs that only the manager keeps.

    The numbers of stored jobs are below 2**62 and in no order. Those of other jobs are above, if
    the manager has a store.
    """
    keys: Sequence[str | None] | None = None
    """Keys of stored jobs; None when no job has a key."""
    unique: Literal["open", "kept"] = "open"
    """Which stored jobs of the same key a job joins; see ``NewJobs.unique``."""
    after: Sequence[int] = ()
    """Stored jobs for whose results each of the jobs waits; see ``NewJobs.after``."""
    splice: int | None = None
    """Place of these results in the payload; see ``NewJobs.splice``."""
    called: Sequence[float] | None = None
    """When the submitter called for each job, on the clock of ``handle``; None if it is not known.

    Only the journal uses these times.
    """


@frozen
class Cancelled:
    """The submitter wants no result of these jobs any more."""

    ids: Sequence[int]
    unstarted: bool = False
    """Whether only jobs that have not begun are cancelled. The others go on."""


FIRST_FORWARDED: Final = 3 << 61
"""The lowest number of a job of another manager, above the numbers of all other jobs."""


@frozen
class Forwarded:
    """Jobs of another manager came, which this manager hands to its own workers (section 19).

    The answer is one entry of an ``Answer`` for each job. All columns have one entry for each job.
    """

    ids: Sequence[int]
    """Numbers chosen by the caller, from ``FIRST_FORWARDED``, each greater than every earlier
    one."""
    kind: ForwardedKind
    """Their kind, with their owner, and the managers that they have passed."""
    numbers: Sequence[int]
    """The numbers of the jobs at their owner."""
    attempts: Sequence[int]
    payloads: Sequence[Frame]
    deadlines: Sequence[float | None] | None = None
    """As in ``Run``; so are the next four columns."""
    begin_by: Sequence[float | None] | None = None
    limits: Sequence[float | None] | None = None
    failed: Sequence[int | None] | None = None
    begun: Sequence[int | None] | None = None


@frozen
class InstanceBegun:
    """The store has begun an instance for this manager: at the start, and after the end of the
    earlier instance."""

    owned: Sequence[int] = ()
    """Numbers of the acknowledged jobs that were submitted here under an earlier instance and whose
    ends were not reported."""
    store: Peer | None = None
    """Identity and generation of the store. With None no worker keeps jobs when this manager
    ends."""
    number: int = 0
    """Number of the instance in the store."""


@frozen
class Written:
    """The store has applied the batch of a ``Write``."""

    step: int
    """Number of the ``Write``."""
    answer: BatchAnswer
    held: Sequence[StoredJob] | None = None
    """All jobs that the instance has reserved; None if nobody asked, and the answer is of the first
    application of the batch."""
    seen: Sequence[StoredJob] = ()
    """The jobs of ``Write.look`` that the store has, with payloads."""


@frozen
class Leased:
    """A program gave jobs of a store to a worker that speaks another protocol.

    No machine takes this event; it is a line of the journals of dispatchers and of Titanic.
    """

    role: str
    ids: Sequence[int]
    attempts: Sequence[int]
    worker: Peer
    """Name of the worker, and a number that differs between processes of this name."""


@frozen
class Returned:
    """A worker of another protocol ended attempts of jobs; see :class:`Leased`."""

    ids: Sequence[int]
    attempts: Sequence[int]
    outcomes: Sequence[Outcome]
    worker: Peer | None = None
    """The worker, if the program knows it."""


@frozen
class StoreFilled:
    """The store takes no new jobs. The batch is tried again without its new jobs.

    The event comes again while the batch without new jobs finds no space either.
    """

    step: int
    """Number of the ``Write``."""
    text: str
    """The cause, and what to do."""


@frozen
class Woken:
    """Another process has written to the store."""

    ended: Sequence[StoredJob]
    """Jobs that this manager submitted and that others ended, with payloads."""
    cancelling: Sequence[int]
    """Numbers of jobs that this manager has reserved and that are cancelled."""
    kinds: Sequence[QueuedKind]
    """Kinds of the queued jobs."""


@frozen
class Connected:
    """A link of a worker, or of a manager to a device, is connected, the first time or again."""

    link: Link


@frozen
class Disconnected:
    """A connection ended: of a manager's ROUTER, of its link to a device, or of a device's upper
    ROUTER."""

    link: Link


@frozen
class Resized:
    """The resources of this worker changed."""

    resources: Mapping[str, int]
    """All resources from now on. A name that is left out has the amount 0."""
    roles: tuple[str, ...] | None = None
    """All roles from now on; None if they did not change."""
    forwards: tuple[bytes, ...] = ()
    """Identities of the forwarding managers whose capacity the worker offers (section 19)."""


@frozen
class Retracted:
    """The manager above wants no result of these forwarded jobs, or another worker may do them."""

    ids: Sequence[int]
    """The numbers that ``Forwarded`` gave the jobs."""
    unstarted: bool = False
    """Whether only jobs that have not begun are withdrawn. The others go on."""
    waiting: bool = False
    """Whether only jobs that no worker has are withdrawn. The others go on."""


ManagerEvent = (
    Received
    | Garbled
    | Undelivered
    | Ticked
    | Connected
    | Disconnected
    | Relieved
    | Submitted
    | Forwarded
    | Retracted
    | Cancelled
    | InstanceBegun
    | Written
    | StoreFilled
    | Woken
    | Drained
    | Closed
)
WorkerEvent = (
    Received
    | Garbled
    | Undelivered
    | Ticked
    | Connected
    | Begun
    | Finished
    | Recalled
    | Reported
    | Resized
    | Drained
    | Closed
)
DeviceEvent = Received | Garbled | Undelivered | Ticked | Disconnected | Drained | Closed
