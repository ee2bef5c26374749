"""What a script stands on: a way to and from one testee, and a clock.

Two implementations: :mod:`wmp.conformance.virtual` (a sans-I/O implementation in this
process, in virtual time) and :mod:`wmp.conformance.sockets` (a live peer, in real time).
All times are *units*: a unit is one second of the specification's timers. A testee that
scales its timers makes it shorter; ``unit`` says how many milliseconds it is, for the
fields that travel in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import field, frozen

from wmp.message import Frame

__all__ = ["EPOCH", "Connection", "JobEnd", "SubmittedJob", "Terms", "Wire"]

EPOCH = 5000
"""Of the kit's peers, where the testee has just been started."""


@frozen
class Connection:
    """One connection between the kit and the testee."""

    side: str
    """``dialled``: the kit's DEALER to the testee's ROUTER; ``taken``: a DEALER of the
    testee's at a ROUTER of the kit's."""
    endpoint: int
    """Which endpoint of the kit's (taken), or which DEALER of the kit's (dialled)."""
    name: bytes = b""
    """The routing id that the kit's ROUTER saw (taken); the testee's new socket has another."""


@frozen
class SubmittedJob:
    """What a manager is told to submit."""

    name: str
    """What the kit calls it."""
    payload: bytes = b""
    role: str = "echo"
    timeout: float | None = None
    """Units until it must have ended."""
    retries: int | None = None
    """Lost leases that it survives; None: what the testee does anyway."""
    priority: int = 0


@frozen
class JobEnd:
    """What a manager told the submitter about a job."""

    name: str
    outcome: str
    """ok, error, cancelled, timeout, lost; or status, which is progress and no end."""
    payload: bytes = b""


@frozen
class Terms:
    """What a testee is started with."""

    endpoints: int = 1
    """How many endpoints it connects to (worker, device)."""
    slots: int = 1
    """Jobs that it can run at once (worker)."""
    options: dict[str, str] = field(factory=dict)
    """Further wishes of a case; a testee that does not know one ignores it."""


class Wire(Protocol):
    """A way to one testee."""

    may_end: bool
    """Set by a script: the testee may end by itself."""
    epoch: int
    """Of the kit's peers: newer than any that the testee has heard of them before."""

    @property
    def unit(self) -> int:
        """Milliseconds of one unit."""

    @property
    def grace(self) -> float:
        """Units that "at once" may take: 0 in virtual time."""

    @property
    def patience(self) -> float:
        """Units that a testee may take to start."""

    def now(self) -> float:
        """Units since the testee was started."""

    def start(self) -> None:
        """Let the testee begin; once."""

    def dial(self) -> Connection:
        """Open a connection to the testee's ROUTER (manager, device)."""

    def hang_up(self, connection: Connection) -> None:
        """Close a connection that was dialled."""

    def send(self, connection: Connection, frames: Sequence[Frame]) -> None:
        """Send a message."""

    def receive(self, until: float) -> tuple[Connection, Sequence[Frame]] | None:
        """Return the next message of the testee; None when ``until`` came first."""

    def submit(self, job: SubmittedJob) -> None:
        """Hand a job to a manager."""

    def cancel(self, name: str) -> None:
        """Cancel a job of a manager's."""

    def ends(self) -> list[JobEnd]:
        """What a manager told the submitter since the last call."""

    def drain(self) -> None:
        """Ask the testee to end: to finish what it has and say goodbye."""

    @property
    def ended(self) -> bool:
        """Whether the testee has ended by itself, or was drained and has."""

    def close(self) -> str:
        """End the testee; returns what was wrong with its end, empty for nothing."""
