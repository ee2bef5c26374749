"""The base of a script: a way to and from one testee, and a clock.

There are two implementations: :mod:`wmp.conformance.wire.virtual` (a sans-I/O implementation in
this process, in virtual time) and :mod:`wmp.conformance.engine.socket_plays` (a live peer, in real
time). All times are *units*: a unit is one second of the specification's timers. A testee may scale
its timers to make a unit shorter. ``unit`` is its length in milliseconds, for the fields that
travel in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import field, frozen

from wmp.message import Frame

EPOCH = 5000
"""The epoch of the kit's peers for a testee that has just been started."""


@frozen
class Connection:
    """One connection between the kit and the testee."""

    side: str
    """``dialled``: the kit's DEALER to the testee's ROUTER; ``upper``: the kit's DEALER to the
    ROUTER of a device to which managers dial in; ``taken``: a DEALER of the testee at a ROUTER of
    the kit."""
    endpoint: int
    """The index of the kit's endpoint (taken) or of the kit's DEALER (dialled, upper)."""
    name: bytes = b""
    """The routing id at the kit's ROUTER (taken).

    A new socket of the testee gets another routing id.
    """


@frozen
class SubmittedJob:
    """A job for a manager, as the kit submits it."""

    name: str
    """The name of the job in the conversation."""
    payload: bytes = b""
    role: str = "echo"
    timeout: float | None = None
    """Units until the job must have ended."""
    max_worker_losses: int | None = None
    """Number of lost leases that the job survives; None for the default of the testee."""
    priority: int = 0
    expires: float | None = None
    """Units within which the job must have begun."""
    run_limit: float | None = None
    """Units for which one attempt may run."""
    delay: float | None = None
    """Units until the job may begin."""
    retries: int | None = None
    """Number of further attempts after any error, by settings of the job; None without settings."""
    wait: float | None = None
    """Units to wait before each of these attempts."""


@frozen
class JobEnd:
    """The end of a job, or its progress, as the manager reported it to the submitter."""

    name: str
    outcome: str
    """ok, error, cancelled, timeout, lost; or status, which is progress and no end."""
    payload: bytes = b""


@frozen
class Terms:
    """The settings with which a testee is started."""

    endpoints: int = 1
    """Number of endpoints to which the testee connects: those of managers (worker, device), or
    those of devices to which it dials in (manager)."""
    slots: int = 1
    """Number of jobs that the testee can run at the same time (worker)."""
    dial_in: bool = False
    """Whether the testee must have an address to which managers dial in (device)."""
    options: dict[str, str] = field(factory=dict)
    """Further settings of a case; a testee ignores unknown ones."""


class Wire(Protocol):
    """A way to one testee."""

    may_end: bool
    """Set by a script: whether the testee may end by itself."""
    epoch: int
    """The epoch of the kit's peers: above every epoch that the testee received before."""

    @property
    def unit(self) -> int:
        """Milliseconds of one unit."""

    @property
    def grace(self) -> float:
        """Units that "at once" may take; 0 in virtual time."""

    @property
    def patience(self) -> float:
        """Units within which a testee must start."""

    def stalled(self, evident: bool) -> str:
        """Text about a delay of the kit; "" if no such delay explains the failure.

        Args:
            evident: Whether a message of the testee shows the failure, and not a missing message.
        """

    def now(self) -> float:
        """Units since the testee was started."""

    def start(self) -> None:
        """Let the testee begin; called once."""

    def dial(self, *, upper: bool = False) -> Connection:
        """Open a connection to the testee's ROUTER (manager, device).

        Args:
            upper: Whether to connect to the ROUTER to which managers dial in (device).
        """

    def hang_up(self, connection: Connection) -> None:
        """Close a dialled connection."""

    def send(self, connection: Connection, frames: Sequence[Frame]) -> None:
        """Send a message."""

    def receive(self, until: float) -> tuple[Connection, Sequence[Frame]] | None:
        """Return the next message of the testee; None when ``until`` passes first."""

    def submit(self, job: SubmittedJob) -> None:
        """Hand a job to a manager."""

    def cancel(self, name: str) -> None:
        """Cancel a job of the manager."""

    def ends(self) -> list[JobEnd]:
        """Return the reports of the manager to the submitter since the last call."""

    def restart(self) -> bool:
        """End the testee without a word, and start it again with its store; return whether this
        is possible."""

    def stop(self) -> bool:
        """Stop the process of the testee, as SIGSTOP does; return whether this is possible.

        Messages to the testee wait until :meth:`resume`.
        """

    def resume(self) -> None:
        """Let a stopped testee go on. Idempotent."""

    def drain(self) -> None:
        """Let the testee finish its jobs, send BYE and end."""

    @property
    def ended(self) -> bool:
        """Whether the testee has ended, by itself or by ``drain``."""

    def close(self) -> str:
        """End the testee; return a complaint about its end, or ""."""
