"""Virtual time: the calls to make, and the clocks of the nodes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from attrs import define, field

from wmp.checks.job_history import Violation
from wmp.testing.simulator.network import Network


@define(eq=False)
class Agenda:
    """A heap of calls, each with a time.

    Calls for the same time are made in the order in which they were added.

    Args:
        network: Has the current time in ``now``.
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
        """The time of the first call; infinite without calls."""
        return self._calls[0][0] if self._calls else inf

    def at(self, when: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call ``what`` at a time."""
        self._ties += 1
        heapq.heappush(self._calls, (max(when, self.now), self._ties, what, arguments))

    def after(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call ``what`` after this number of seconds."""
        self.at(self.now + seconds, what, *arguments)

    def call_first(self) -> None:
        """Remove the first call and make it."""
        _, _, what, arguments = heapq.heappop(self._calls)
        what(*arguments)

    def latest(self, what: Callable[..., None]) -> float:
        """Return the time of the last call of ``what``; 0 if there is no such call."""
        return max((when for when, _, call, _ in self._calls if call == what), default=0.0)


@define(eq=False)
class NodeClocks:
    """The clocks of all nodes, some of them wrong, and the deadlines of the nodes.

    Args:
        network: Has the nodes, and the time in ``now``.
        skew: Nodes with wrong clocks: (offset in seconds, rate).
    """

    network: Network
    skew: Mapping[str, tuple[float, float]] = field(factory=dict)
    shown: dict[str, float] = field(factory=dict, init=False)
    """The last reading of each clock, because a clock never goes back."""
    _due: dict[str, float] = field(factory=dict, init=False)
    """The deadline of each node that has one, in the world's time."""

    def local(self, name: str) -> float:
        """Return the time on the clock of a node."""
        offset, rate = self.skew.get(name, (0.0, 1.0))
        shown = max(offset + rate * self.network.now, self.shown.get(name, -inf))
        self.shown[name] = shown
        return shown

    def plan(self, name: str, when: float | None) -> None:
        """Set the deadline of a node, in the time of its own clock; None removes it."""
        if when is None:
            self._due.pop(name, None)
        else:
            offset, rate = self.skew.get(name, (0.0, 1.0))
            self._due[name] = max(self.network.now, (when - offset) / rate)

    def earliest(self) -> tuple[float, str]:
        """Return the earliest deadline and its node; infinite without deadlines."""
        due = self._due
        if not due:
            return inf, ""
        name = min(due, key=due.__getitem__)
        return due[name], name

    def ring(self, name: str) -> None:
        """Wake a node at its deadline.

        Raises:
            Violation: "no livelock": the node asks to be woken again at once.
        """
        when = self.network.nodes[name].deadline()
        assert when is not None
        # The conversion to a wrong clock and back may have rounded the time down.
        self.shown[name] = max(self.local(name), when)
        try:
            self.network.tick(name)
        except AssertionError as error:
            if isinstance(error, Violation):
                raise
            raise Violation("no livelock", str(error)) from error
