"""The faults of a world: their kinds, and their times.

A *strike* is a fault with a time, drawn before the world begins. Another drawn number chooses the
node that is hit among the nodes that exist at this time. Faults of single messages are drawn from
another stream as each message is sent.

ZeroMQ keeps the order of messages on a connection and repeats none. Dropping, repeating and
reordering messages there is harder than reality.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from attrs import field, frozen


class Fault(Enum):
    """The kinds of faults."""

    DROP = "drop"
    """A message is lost."""
    DUPLICATE = "duplicate"
    """A message arrives twice."""
    DELAY = "delay"
    """A connection delays all messages for some time."""
    REORDER = "reorder"
    """A message arrives after later messages, of its own connection and of other connections."""
    ONE_WAY_PARTITION = "one-way partition"
    """Messages from one node to another are lost; the other direction is open."""
    TWO_WAY_PARTITION = "two-way partition"
    """A node is cut off from all its peers."""
    HALF_OPEN = "half-open link"
    """A connection is dead, and its ends do not notice: only a new connection helps."""
    FULL_PIPE = "full pipe"
    """A connection takes no messages for some time: end nodes park them, devices report them."""
    KILL_WORKER = "kill worker"
    """A worker's process ends; another process starts when the faults stop."""
    KILL_MANAGER = "kill manager"
    """A manager's process ends; another process starts when the faults stop."""
    PAUSE = "pause"
    """A node gets no events for some time shorter than ``max_silence``, and then all of them."""
    RESTART_WITH_MEMORY = "restart with memory"
    """A node gets no events for longer than ``max_silence``. Its memory is kept."""
    RESTART_WITHOUT_MEMORY = "restart without memory"
    """A manager or worker is started again, with a newer epoch."""
    RESTART_DEVICE = "restart device"
    """A device is started again, with a newer epoch."""
    CLOCK_SKEW = "clock skew"
    """A node's clock runs too fast or too slow."""
    SLOW_WORKER = "slow worker"
    """Handlers take many times longer for some time."""
    IDENTITY_COLLISION = "identity collision"
    """A second process with the same identity starts: the older one must stop."""
    WAKE_HERD = "wake herd"
    """All links come back at the same time, and every manager gets many jobs at the same time."""
    KILL_HANDLER = "kill handler"
    """The process that runs a job dies. Its worker reports the loss and still runs."""
    HANG = "hang"
    """A handler does not return.

    It is ended by force when its result is no longer wanted, or after too long a time.
    """


MESSAGE_FAULTS = (Fault.DROP, Fault.DUPLICATE, Fault.DELAY, Fault.REORDER)
"""The faults that hit single messages."""

STRIKES = tuple(f for f in Fault if f not in MESSAGE_FAULTS and f is not Fault.CLOCK_SKEW)
"""The faults that strike at a time."""

_LATER = (Fault.KILL_HANDLER, Fault.HANG)
"""Faults that are drawn after all others, so that older seeds keep their worlds."""


@frozen
class Strike:
    """One fault, at one time."""

    at: float
    fault: Fault
    lasts: float
    """Duration as a share of the longest duration of this kind: 0 to 1."""
    pick: float
    """Choice of the node that is hit: 0 to 1, along the list of possible nodes."""
    twist: float
    """A choice within the kind: 0 to 1."""


@frozen
class Faults:
    """The faults of one world."""

    until: float
    """The time at which all faults stop."""
    kinds: frozenset[Fault] = frozenset()
    strikes: tuple[Strike, ...] = ()
    rates: dict[Fault, float] = field(factory=dict)
    """The probability that a message is hit, by fault."""
    skew: dict[str, tuple[float, float]] = field(factory=dict)
    """Nodes with wrong clocks: (offset in seconds, rate)."""


def draw_faults(names: list[str], draw: Random) -> Faults:
    """Draw a world's faults. Some worlds get few kinds of faults, some many, some none."""
    until = draw.uniform(2.0, 7.0)
    share = draw.choice((0.0, 0.1, 0.25, 0.25, 0.5, 1.0))
    kinds = {fault for fault in Fault if fault not in _LATER and draw.random() < share}
    strikes = [
        strike
        for fault in STRIKES
        if fault not in _LATER
        for strike in _draw_strikes(fault, until, draw)
        if fault in kinds
    ]
    rate = draw.choice((0.01, 0.05, 0.2))
    rates = {fault: rate for fault in MESSAGE_FAULTS if fault in kinds}
    skew = {}
    for name in names:
        clock = (draw.uniform(-50, 1e5), 1 + draw.choice((-1, 1)) * draw.uniform(1e-4, 0.03))
        if Fault.CLOCK_SKEW in kinds and draw.random() < 0.7:
            skew[name] = clock
    for fault in _LATER:
        blows = _draw_strikes(fault, until, draw)
        if draw.random() < share:
            kinds.add(fault)
            strikes += blows
    strikes.sort(key=lambda strike: strike.at)
    return Faults(until, frozenset(kinds), tuple(strikes), rates, skew)


def _draw_strikes(fault: Fault, until: float, draw: Random) -> list[Strike]:
    """Draw a fault's strikes, used or not, so that other faults get the same draws."""
    return [
        Strike(draw.uniform(0, until), fault, draw.random(), draw.random(), draw.random())
        for _ in range(draw.choice((1, 1, 2, 3)))
    ]
