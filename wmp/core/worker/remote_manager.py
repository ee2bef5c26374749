"""What a worker remembers of one manager (WMP-1.8): its epoch, session, route, WAKE, locks."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from attrs import define, field

from wmp.core.protocol.resources import Needs
from wmp.core.protocol.stream import Stream
from wmp.core.worker.execution_lifecycle import ExecutionInput, HeldJobs
from wmp.core.worker.locks import Lock, LockState
from wmp.message import Path, Peer

__all__ = ["EXPIRE", "PendingWake", "RemoteManager"]

EXPIRE = 6.0
"""Seconds of silence after which a manager is given up, until its PONG states its own."""


@define(eq=False)
class PendingWake:
    """A WAKE that is not answered yet (WMP-3.9)."""

    role: str
    needs: Needs
    count: int
    arrival: int
    """Breaks ties between managers that were never served."""


@define(eq=False)
class RemoteManager:
    """One manager, for one epoch of it.

    Invariant: ``locks`` holds exactly the locks that are not closed, ``taken`` no empty owner.
    """

    identity: bytes
    epoch: int
    link: int
    path: Path | None
    """The ``to`` that reaches it, as latest heard; None when it turned out to be unreachable."""
    heard: float
    sent: float
    pinged: float
    expire: float = EXPIRE
    label: str = ""
    stream: Stream | None = None
    """None while no session is known."""
    forgotten: int = 0
    """The session that this worker had with it, and forgot: numbers were used in it, and it must
    not be entered again (WMP-7.8)."""
    asked: bool = False
    """Whether PING without ``session`` went out, so that the next PONG names a session that
    both sides can begin at 1 (WMP-7.8)."""
    wake: PendingWake | None = None
    ready: int = 0
    """Number of the newest READY sent to it, or that it says it remembers."""
    announced: int = 0
    """Credit that it is believed to remember."""
    told: float = -inf
    """When READY was last sent to it."""
    served: int = 0
    """When it was last served, as a count of servings; the least goes first (WMP-3.10)."""
    hold_after: float = -inf
    """No held GIVE before; set when they did not help."""
    last_lock: int = 0
    """Highest lock number it was sent."""
    pinged_lock: int = 0
    """``last_lock`` when PING was last sent: its PONG must know that one (WMP-5.5)."""
    locks: dict[int, Lock] = field(factory=dict)
    taken: dict[Peer, HeldJobs] = field(factory=dict)
    """Jobs held, by owner."""
    done: int = 0
    """Jobs answered."""

    @property
    def peer(self) -> Peer:
        """(identity, epoch)."""
        return self.identity, self.epoch

    @property
    def direct(self) -> bool:
        """Whether its route has no device in it: it is the other end of its link."""
        return self.path is not None and len(self.path) == 2

    @property
    def held(self) -> int:
        """How many of its jobs are here and not answered."""
        return sum(map(len, self.taken.values()))

    @property
    def covered(self) -> int:
        """Jobs that may still come under held GIVEs."""
        return sum(lock.want for lock in self.locks.values() if lock.state is LockState.HELD)

    def end(self, owner: Peer, ids: Sequence[int], what: ExecutionInput) -> list[int]:
        """Take jobs off the books; returns their attempts."""
        taken = self.taken[owner]
        attempts = taken.remove(ids, what)
        if not taken:
            del self.taken[owner]
        return attempts

    def listing(self, most: int) -> tuple[list[int], list[int]] | None:
        """(ids, attempts) of all jobs held for it, answered ones too until it has
        acknowledged them (WMP-9.9); None when there are too many, or some are not
        its own: the list cannot say whose they are."""
        if self.stream is None:
            return None
        ids: list[int] = []
        attempts: list[int] = []
        for owner, taken in self.taken.items():
            if owner != self.peer:
                return None
            ids += taken.attempts
            attempts += taken.attempts.values()
        for kept in self.stream.kept:
            if kept.columns is not None and kept.columns.outcomes is not None:
                ids += kept.columns.ids
                attempts += kept.columns.attempts
            if len(ids) > most:
                return None
        return (ids, attempts) if len(ids) <= most else None
