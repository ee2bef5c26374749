"""What a machine asks its surroundings to do: values, named in imperatives.

``handle`` returns them in the order in which they must happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import frozen

from wmp.message import Frame, Kind, Link, Message, Peer

__all__ = [
    "DeviceAction",
    "Drop",
    "End",
    "Halt",
    "Interrupt",
    "ManagerAction",
    "Note",
    "Notify",
    "Recall",
    "Reconnect",
    "Resolve",
    "Run",
    "Send",
    "WorkerAction",
]


@frozen
class Send:
    """Encode and send ``message`` on ``link``."""

    link: Link
    message: Message


@frozen
class Drop:
    """Count and log: something was ignored. Silence is never accidental.

    ``reason`` is a short constant (a metric's label); ``detail`` is for people.
    """

    reason: str
    link: Link | None = None
    message: Message | None = None
    detail: str = ""


@frozen
class Note:
    """Write down what no message says: locks or leases of a peer are over by themselves.

    Nothing is to be done about it; a journal without it could not tell why.
    """

    reason: str
    """A manager's: why the leases are lost. A worker's: ``timeout`` or ``forget``, the input of
    the table of locks or of jobs."""
    peer: Peer
    """The worker that held the leases; the manager whose locks or jobs they were."""
    locks: Sequence[int] = ()
    """Numbers of locks."""
    owner: Peer | None = None
    """Who owns the jobs, when it is not this node."""
    ids: Sequence[int] = ()
    attempts: Sequence[int] = ()


@frozen
class Halt:
    """The node has ended: cleanly when ``error`` is None, else because of it."""

    error: Exception | None = None


class End(Enum):
    """How a job ended, as its submitter sees it."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    LOST = "lost"


@frozen
class Resolve:
    """Jobs ended: tell whoever submitted them. Columns of length k."""

    ids: Sequence[int]
    ends: Sequence[End]
    payloads: Sequence[Frame]
    """OK: the result. ERROR: CBOR ``[type, text, traceback]``. LOST: UTF-8 text, a line that says
    where the last worker ran, then the cause. Else: UTF-8 text, the cause."""
    attempts: Sequence[int]
    """How many leases the job had; 0 means that it never left the manager."""


@frozen
class Notify:
    """A job's handler reported progress."""

    id: int
    fraction: float | None
    text: str | None


@frozen
class Run:
    """Start k jobs on one lane: one after the other, on the resources of one job.

    Answer with ``Finished`` (in as many parts as is useful, soon for slow handlers).
    """

    lane: int
    kind: Kind
    manager: Peer
    """Who owns the jobs."""
    ids: Sequence[int]
    attempts: Sequence[int]
    deadlines: Sequence[float | None] | None
    """On the clock of ``now``; None when no job has one."""
    payloads: Sequence[Frame]


@frozen
class Recall:
    """Take back the jobs of a lane that have not begun; answer with ``Recalled``."""

    lane: int
    ids: Sequence[int]


@frozen
class Interrupt:
    """No result of these jobs is wanted: raise their cancelled flag.

    Those that have not begun end as CANCELLED; the others may.
    """

    lane: int
    ids: Sequence[int]


@frozen
class Reconnect:
    """Everything behind this link is silent: replace its socket, then say ``Connected``."""

    link: Link


ManagerAction = Send | Drop | Note | Halt | Resolve | Notify
WorkerAction = Send | Drop | Note | Halt | Run | Recall | Interrupt | Reconnect
DeviceAction = Send | Drop | Halt
