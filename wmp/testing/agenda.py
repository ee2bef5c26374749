"""Virtual time: what is to be done when, and what the clock of each node shows."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from attrs import define, field

from wmp.testing.invariants import Violation
from wmp.testing.network import Network

__all__ = ["Agenda", "NodeClocks"]


@define(eq=False)
class Agenda:
    """A heap of calls, each at a time; a number breaks ties.

    Args:
        network: Its ``now`` is the time.
    """

    network: Network
    _calls: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(
        factory=list, init=False
    )
    _ties: int = field(default=0, init=False)

    @property
    def now(self) -> float:
        """Virtual seconds since the world began."""
        return self.network.now

    @property
    def first(self) -> float:
        """The time of the first call, infinite when there is none."""
        return self._calls[0][0] if self._calls else inf

    def at(self, when: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call ``what`` at a time."""
        self._ties += 1
        heapq.heappush(self._calls, (max(when, self.now), self._ties, what, arguments))

    def after(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call ``what`` so many seconds from now."""
        self.at(self.now + seconds, what, *arguments)

    def call_first(self) -> None:
        """Take the first call off the agenda and make it."""
        _, _, what, arguments = heapq.heappop(self._calls)
        what(*arguments)

    def latest(self, what: Callable[..., None]) -> float:
        """The time of the last call of ``what``, 0 when there is none."""
        return max((when for when, _, call, _ in self._calls if call == what), default=0.0)


@define(eq=False)
class NodeClocks:
    """The clocks of all nodes, some of them wrong, and the deadlines that they keep.

    Args:
        network: Its nodes and its ``now``.
        skew: Nodes whose clocks are wrong: (offset in seconds, rate).
    """

    network: Network
    skew: Mapping[str, tuple[float, float]] = field(factory=dict)
    shown: dict[str, float] = field(factory=dict, init=False)
    """What each clock showed last: it never goes back."""
    _due: dict[str, float] = field(factory=dict, init=False)
    """The deadline of each node that has one, in the world's time."""

    def local(self, name: str) -> float:
        """What the clock of a node shows."""
        offset, rate = self.skew.get(name, (0.0, 1.0))
        shown = max(offset + rate * self.network.now, self.shown.get(name, -inf))
        self.shown[name] = shown
        return shown

    def plan(self, name: str, when: float | None) -> None:
        """Set the deadline of a node, as its own clock shows it; None for none."""
        if when is None:
            self._due.pop(name, None)
        else:
            offset, rate = self.skew.get(name, (0.0, 1.0))
            self._due[name] = max(self.network.now, (when - offset) / rate)

    def earliest(self) -> tuple[float, str]:
        """The earliest deadline and its node; infinite when no node has one."""
        due = self._due
        if not due:
            return inf, ""
        name = min(due, key=due.__getitem__)
        return due[name], name

    def ring(self, name: str) -> None:
        """Wake a node at its deadline.

        Raises:
            Violation: "no livelock", when the node asks to be woken at once again.
        """
        when = self.network.nodes[name].deadline()
        assert when is not None
        # The way there and back through a skewed clock may have rounded it off.
        self.shown[name] = max(self.local(name), when)
        try:
            self.network.tick(name)
        except AssertionError as error:
            if isinstance(error, Violation):
                raise
            raise Violation("no livelock", str(error)) from error
