"""A lock: the room that a worker keeps for the manager to which it sent GIVE (spec §4, §5)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from attrs import define

from wmp.core.protocol.resources import Needs

__all__ = ["IGNORED", "TRANSITIONS", "Lock", "LockInput", "LockState"]


class LockState(Enum):
    """The life of a lock number at the worker."""

    UNUSED = "unused"
    """No GIVE had this number yet."""
    OPEN = "open"
    """GIVE was sent and is answered at once."""
    HELD = "held"
    """GIVE was sent with ``hold``: the manager may sit on it."""
    WITHDRAWN = "withdrawn"
    """A held GIVE that was called back; the answer is still to come."""
    CLOSED = "closed"
    """Nothing is kept free any more."""


class LockInput(Enum):
    """What can happen to a lock."""

    GIVE = "give"
    HOLD = "hold"
    """GIVE with ``hold``."""
    TAKE = "take"
    """TAKE that closes the lock."""
    MORE = "more"
    """TAKE with ``more``."""
    NO = "no"
    TIMEOUT = "timeout"
    WITHDRAW = "withdraw"
    FORGET = "forget"
    """The manager's session, epoch or route to it is lost."""


_S = LockState
_I = LockInput

TRANSITIONS: Final[Mapping[tuple[LockState, LockInput], LockState]] = {
    (_S.UNUSED, _I.GIVE): _S.OPEN,
    (_S.UNUSED, _I.HOLD): _S.HELD,
    (_S.OPEN, _I.TAKE): _S.CLOSED,
    (_S.OPEN, _I.MORE): _S.OPEN,
    (_S.OPEN, _I.NO): _S.CLOSED,
    (_S.OPEN, _I.TIMEOUT): _S.CLOSED,
    (_S.OPEN, _I.FORGET): _S.CLOSED,
    (_S.HELD, _I.TAKE): _S.CLOSED,
    (_S.HELD, _I.MORE): _S.HELD,
    (_S.HELD, _I.NO): _S.CLOSED,
    (_S.HELD, _I.TIMEOUT): _S.CLOSED,
    (_S.HELD, _I.WITHDRAW): _S.WITHDRAWN,
    (_S.HELD, _I.FORGET): _S.CLOSED,
    # The answer crossed the withdrawal: what came, came.
    (_S.WITHDRAWN, _I.TAKE): _S.CLOSED,
    (_S.WITHDRAWN, _I.MORE): _S.WITHDRAWN,
    (_S.WITHDRAWN, _I.NO): _S.CLOSED,
    (_S.WITHDRAWN, _I.TIMEOUT): _S.CLOSED,
    (_S.WITHDRAWN, _I.FORGET): _S.CLOSED,
}
"""What each input makes of each state."""

_LATE_TAKE = "late: the jobs run if there is room and are refused if not"
_GIVEN = "numbers only grow: a GIVE never uses one again"

IGNORED: Final[Mapping[tuple[LockState, LockInput], str]] = {
    # A TAKE is a lease whatever became of the lock: it is never simply dropped (WMP-4.12).
    (_S.UNUSED, _I.TAKE): _LATE_TAKE,
    (_S.UNUSED, _I.MORE): _LATE_TAKE,
    (_S.UNUSED, _I.NO): "unknown lock",  # answered ERROR unknown (WMP-4.13)
    (_S.UNUSED, _I.TIMEOUT): "no timer is set for it",
    (_S.UNUSED, _I.WITHDRAW): "nothing to withdraw",
    (_S.UNUSED, _I.FORGET): "nothing to forget",
    (_S.OPEN, _I.GIVE): _GIVEN,
    (_S.OPEN, _I.HOLD): _GIVEN,
    (_S.OPEN, _I.WITHDRAW): "it is answered at once anyway",
    (_S.HELD, _I.GIVE): _GIVEN,
    (_S.HELD, _I.HOLD): _GIVEN,
    (_S.WITHDRAWN, _I.GIVE): _GIVEN,
    (_S.WITHDRAWN, _I.HOLD): _GIVEN,
    (_S.WITHDRAWN, _I.WITHDRAW): "withdrawn already",
    (_S.CLOSED, _I.GIVE): _GIVEN,
    (_S.CLOSED, _I.HOLD): _GIVEN,
    (_S.CLOSED, _I.TAKE): _LATE_TAKE,
    (_S.CLOSED, _I.MORE): _LATE_TAKE,
    (_S.CLOSED, _I.NO): "lock already released",  # counted, not answered (WMP-4.13)
    (_S.CLOSED, _I.TIMEOUT): "its timer is gone",
    (_S.CLOSED, _I.WITHDRAW): "nothing left to withdraw",
    (_S.CLOSED, _I.FORGET): "nothing left to forget",
}
"""Every other pair, and why it changes nothing."""


@define(eq=False)
class Lock:
    """One GIVE that is not closed.

    Invariant: 0 ≤ reserved ≤ want. The resources of ``reserved`` jobs are taken from the
    worker's; the other ``want - reserved`` jobs are promised places in its window.
    """

    number: int
    needs: Needs
    want: int
    """Jobs that may still come."""
    reserved: int
    """Of them, how many have resources locked."""
    opened: float
    hold: float = 0.0
    """Seconds that the manager may keep the GIVE."""
    state: LockState = LockState.UNUSED

    def step(self, what: LockInput) -> bool:
        """Go where the table leads; False when it says to ignore ``what``."""
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            return False
        self.state = state
        return True

    @property
    def windowed(self) -> int:
        """Promised places in the window."""
        return self.want - self.reserved
