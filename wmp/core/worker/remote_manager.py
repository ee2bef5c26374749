"""One manager, as its worker remembers it (WMP-1.8): epoch, session, route, WAKE, READY.

:mod:`wmp.core.worker.executions` holds the manager's jobs, :mod:`wmp.core.worker.locks` its locks.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from math import inf

from attrs import define, field

from wmp.core.protocol.claims import Claim
from wmp.core.protocol.outbound import Kept, Stream
from wmp.core.protocol.resources import Needs
from wmp.message import Path, Peer

MAX_SILENCE = 6.0
"""Seconds of silence after which a manager is given up.

The ``max_silence`` of its PONG replaces this value.
"""


class SessionEntry(Enum):
    """The relation of the session in a message to the known session."""

    CURRENT = "current"
    """Act on the message.

    It names the known session, a session that is entered now, or no session.
    """
    NEWER = "newer"
    """The manager has begun another session.

    Lose the old session, then act on the message (WMP-7.6).
    """
    OLD = "old session"
    """Drop the message."""
    UNKNOWN = "unknown session"
    """No session is known, and the message begins none.

    Request a session, and ignore the number.
    """


@define(eq=False)
class PendingWake:
    """A WAKE that is not answered yet (WMP-3.9)."""

    role: str
    needs: Needs
    count: int
    arrival: int
    """Place in the order of the WAKEs, which decides between managers that were never served."""


@define(eq=False)
class RemoteManager:
    """One manager, for one epoch of it."""

    identity: bytes
    epoch: int
    link: int
    path: Path | None
    """The ``to`` that reaches the manager, from its newest message.

    None after a report that the route is unreachable.
    """
    # This route holds the identity (spec §15).
    received_at: float
    """When the last message of the manager came."""
    sent_at: float
    pinged_at: float
    max_silence: float = MAX_SILENCE
    max_stall: float = 0.0
    """Time for which beats keep the leases of this worker, by the manager's newest PONG."""
    label: str = ""
    met: bool = False
    """Whether a PONG of the manager has come."""
    stream: Stream | None = None
    """The streams of the session; None while no session is known."""
    forgotten: int = 0
    """The forgotten session with the manager.

    Numbers were used in it, so it must not be entered again (WMP-7.8).
    """
    doubted: bool = False
    """Whether the route changed within the epoch, and no PONG has named the session over the new
    route (WMP-15.11)."""
    session_requested: bool = False
    """Whether PING without ``session`` went out, so that the next PONG names a session that
    both sides can begin at 1 (WMP-7.8)."""
    asking: int = 0
    """Number under which the manager was asked after a pause of this worker whether its jobs may
    begin (WMP-9.22); 0 while no answer is awaited."""
    standby: bool = False
    """Whether the newest PONG reports that the manager grants no jobs (WMP-17.3)."""
    wake: PendingWake | None = None
    ready: int = 0
    """Number of the newest READY sent to the manager, or reported by its PONG."""
    announced: int = 0
    """Credit that the manager should remember."""
    announced_at: float = -inf
    """When READY was last sent to the manager."""
    served: int = 0
    """Place of the manager in the order of servings.

    The manager with the least place is next (WMP-3.10).
    """
    hold_after: float = -inf
    """Time until which no held GIVE is sent. It is set when held GIVEs did not help."""
    last_lock: int = 0
    """Highest lock number sent to the manager."""
    pinged_lock: int = 0
    """``last_lock`` at the last PING, whose PONG must know this lock (WMP-5.5)."""
    done: int = 0
    """Number of answered jobs."""
    claim: Claim | None = None
    """A claim of another process to the identity, until this manager answers or its time is over.
    """
    confirmed_at: float = -inf
    """When the manager last answered a challenge."""
    serves: tuple[Peer, ...] = ()
    """Stores that the manager serves, by its newest PONG (WMP-14.6)."""
    unwritten: deque[Kept] = field(factory=deque)
    """Acknowledged DONEs whose results are not stored yet (WMP-14.4)."""

    @property
    def peer(self) -> Peer:
        """(identity, epoch)."""
        return self.identity, self.epoch

    @property
    def direct(self) -> bool:
        """Return whether no device is on the route: the manager is the other end of its link."""
        return self.path is not None and len(self.path) == 2

    def enter(self, session: int | None, *, begins: bool) -> SessionEntry:
        """Follow the manager into the session that a message names (WMP-7.6, 7.8).

        A session that this worker does not know may be a forgotten session, in which numbers were
        used. The worker enters a session only if both sides begin at 1: at number 1 with nothing
        acknowledged, and at the answer to a PING without a session. That PING may be lost and the
        PONG answer another PING, so the number of the forgotten session is remembered.

        Args:
            session: The session in the message; None for none.
            begins: Whether both sides begin at 1 with this message.
        """
        stream = self.stream
        if session is not None and stream is not None:
            if session < stream.session:
                return SessionEntry.OLD
            return SessionEntry.CURRENT if session == stream.session else SessionEntry.NEWER
        if session is not None and begins and session > self.forgotten:
            self.stream = Stream(session)
        return SessionEntry.UNKNOWN if self.stream is None else SessionEntry.CURRENT
