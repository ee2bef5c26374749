"""Actions: values by which a machine asks its caller for something, named by imperatives.

``handle`` returns actions in the order in which they must be performed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from attrs import frozen

from wmp.lane_exchange import Interrupt, Recall, Run
from wmp.message import Frame, Link, Message, Outcome, Peer

if TYPE_CHECKING:  # a worker process has no store, and starts sooner without this module
    from wmp.store.write_batch import WriteBatch

__all__ = [
    "JOINED",
    "Acknowledge",
    "Answer",
    "Decline",
    "DeviceAction",
    "Drop",
    "End",
    "FailedAttempt",
    "Halt",
    "Interrupt",
    "ManagerAction",
    "Met",
    "Note",
    "Notify",
    "Recall",
    "Reconnect",
    "Resolve",
    "Run",
    "Send",
    "WorkerAction",
    "Write",
]


@frozen
class Send:
    """Encode and send ``message`` on ``link``."""

    link: Link
    message: Message


@frozen
class Drop:
    """Count and log a message or event that the machine ignores.

    ``reason`` is a short constant (a metric's label); ``detail`` is for people.
    """

    reason: str
    link: Link | None = None
    message: Message | None = None
    detail: str = ""


@frozen
class Note:
    """Write to the journal that locks or leases of a peer ended without a message, or that new
    jobs joined stored jobs of the same keys.

    The caller does nothing else. Without this line the journal would not show the cause.
    """

    reason: str
    """At a manager: the cause for which the leases are lost, or ``JOINED``.

    At a worker: ``timeout`` or ``forget``, the input of the table of locks or of executions.
    """
    peer: Peer
    """At a manager: the worker that held the leases, or the store. At a worker: the manager to
    which the locks or jobs belonged."""
    locks: Sequence[int] = ()
    """Numbers of locks."""
    owner: Peer | None = None
    """Owner of the jobs; None when this node owns them."""
    ids: Sequence[int] = ()
    attempts: Sequence[int] = ()


JOINED: Final = "joined a stored job of the same key"
"""Reason of a Note about new jobs that are not stored, because their keys name stored jobs."""


@frozen
class Halt:
    """The node has ended: in good order when ``error`` is None, else because of ``error``."""

    error: Exception | None = None


class End(Enum):
    """The end of a job for its submitter."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    LOST = "lost"


@frozen
class FailedAttempt:
    """An attempt that failed or was lost, of a job that was tried again."""

    attempt: int
    """Number of the lease."""
    worker: str
    """Label of the worker."""
    at: float
    """When the end of the attempt arrived, on the clock of ``now``."""
    error: str
    """The error in one line."""


@frozen
class Resolve:
    """Jobs ended: report the ends to the submitters. All columns have one entry for each job."""

    ids: Sequence[int]
    ends: Sequence[End]
    payloads: Sequence[Frame]
    """OK: the result. ERROR: CBOR ``[type, text, traceback]``. LOST: UTF-8 text: the label of the
    last worker, a line break, the cause. Else: UTF-8 text, the cause."""
    attempts: Sequence[int]
    """Number of leases of each job; 0 for a job that never left the manager."""
    histories: Mapping[int, Sequence[FailedAttempt]] | None = None
    """Failed and lost attempts of the jobs that were tried again, by number of the job, oldest
    first.

    The last attempt is included. None when no job was tried again.
    """
    codecs: Mapping[int, str] | None = None
    """Codecs of results that are not those of their jobs, by number of the job; None without such
    a result.
    """


@frozen
class Answer:
    """Leases of forwarded jobs ended: answer the manager above (section 19).

    All columns have one entry for each job.
    """

    ids: Sequence[int]
    """The numbers that ``Forwarded`` gave the jobs."""
    outcomes: Sequence[Outcome]
    """The outcomes of DONE. A job that is CANCELLED without a text has not begun."""
    payloads: Sequence[Frame]
    texts: Sequence[str | None]
    waits: Sequence[int | None]
    codec: str | None = None
    """Codec of the results; None for the codec of the jobs."""


@frozen
class Notify:
    """A job's handler reported progress."""

    id: int
    fraction: float | None
    text: str | None


@frozen
class Write:
    """Apply a write batch to the store.

    The answer is ``Written``. It is ``InstanceBegun`` instead if the instance had ended: then it is
    not known whether the batch was applied. Before the answer there is no further ``Write``, except
    for the last one of a manager that ends.
    """

    step: int
    """Number of this action, from 1. The caller numbers the batches of each instance itself."""
    batch: WriteBatch
    look: Sequence[int] = ()
    """Numbers of jobs whose rows are wanted."""
    held: bool = False
    """Whether the jobs that the instance has reserved are wanted."""


@frozen
class Acknowledge:
    """Jobs are stored, or were cancelled in the store and have not ended: report this to their
    submitters."""

    ids: Sequence[int]
    joined: Mapping[int, int] | None = None
    """Numbers of the jobs that had the same keys, by the numbers of the submitted jobs that joined
    them; None when no job joined another."""


@frozen
class Decline:
    """The store takes no further jobs: these jobs are not stored and end with an error."""

    ids: Sequence[int]
    text: str


@frozen
class Met:
    """A manager answered for the first time, or dialed in: log that this node can serve it."""

    peer: Peer
    label: str


@frozen
class Reconnect:
    """Replace the socket of a link whose managers are all silent; the answer is ``Connected``."""

    link: Link


ManagerAction = (
    Send | Drop | Note | Halt | Resolve | Answer | Notify | Write | Acknowledge | Decline
)
WorkerAction = Send | Drop | Note | Halt | Run | Recall | Interrupt | Met | Reconnect
DeviceAction = Send | Drop | Met | Halt
