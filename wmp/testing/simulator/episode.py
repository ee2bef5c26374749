"""The faults of one episode of a simulated world, and the deaths of single handler calls.

All draws use random streams that the caller gives. People read the worlds in which a test fails, so
most episodes have only one or two kinds of faults.
"""

from __future__ import annotations

from random import Random

from attrs import define, field

from wmp.testing.simulator.faults import MESSAGE_FAULTS, STRIKES, Fault, Faults, Strike

_LONGEST = 60.0
"""The longest time with faults, in simulated seconds."""
_LINES = 16
"""Maximum number of lines that run before a handler is ended in the middle."""


def draw_episode(
    chosen: frozenset[Fault],
    now: float,
    work: float,
    skew: dict[str, tuple[float, float]],
    draw: Random,
) -> Faults:
    """Draw the faults from ``now`` on.

    Args:
        chosen: The kinds of faults that may occur.
        now: Simulated seconds.
        work: The expected simulated seconds of the waiting jobs; faults strike meanwhile.
        skew: The wrong clocks; they stay wrong.
        draw: The random stream.
    """
    until = now + min(_LONGEST, 0.5 + draw.uniform(0.2, 1.0) * work)
    # In the order of the list, because the order of a set differs from process to process.
    known = [fault for fault in Fault if fault in chosen]
    few = draw.sample(known, min(len(known), draw.choice((1, 1, 2, 3, 5, 8))))
    strikes = tuple(
        Strike(draw.uniform(now, until), fault, draw.random(), draw.random(), draw.random())
        for fault in few
        if fault in STRIKES
        for _ in range(draw.choice((1, 1, 2, 3)))
    )
    rate = draw.choice((0.01, 0.05, 0.2))
    rates = {fault: rate for fault in MESSAGE_FAULTS if fault in few}
    return Faults(until, frozenset(few), strikes, rates, skew)


@define(eq=False)
class ProcessDeaths:
    """The deaths of processes during a handler, or after it and before its result is sent."""

    rate: float = 0.0
    kinds: tuple[Fault, ...] = field(default=())

    @staticmethod
    def of(faults: Faults, draw: Random) -> ProcessDeaths:
        """Draw the probabilities of one episode."""
        kinds = (Fault.KILL_WORKER, Fault.KILL_HANDLER)
        rate = draw.choice((0.1, 0.3, 0.6))
        return ProcessDeaths(rate, tuple(fault for fault in kinds if fault in faults.kinds))

    def draw(self, draw: Random) -> tuple[Fault, int | None] | None:
        """Draw the end of one call; None lets the call live.

        Returns:
            The kind of death, and the number of lines of the handler that run before it; None for
            all lines.
        """
        luck, which, middle, lines = (draw.random() for _ in range(4))
        if not self.kinds or luck >= self.rate:
            return None
        kind = self.kinds[int(which * len(self.kinds))]
        # Most handlers are short.
        return kind, int(_LINES * lines**2) if middle < 0.6 else None
