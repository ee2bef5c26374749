"""Alarms by name: the one place where a machine keeps the times at which it must look again."""

from __future__ import annotations

import heapq
from collections.abc import Hashable

from attrs import define, field

__all__ = ["Timers"]


@define(eq=False)
class Timers:
    """A heap of (time, name) in which a name stands at most once.

    Setting and clearing leave the old entry in the heap; it is skipped when it surfaces.
    Machines therefore arm a timer once and look at the real state when it rings, instead of
    moving it at every message.

    Invariant: every name of ``_at`` has exactly one live entry in ``_heap``.
    """

    _at: dict[Hashable, tuple[float, int]] = field(factory=dict)
    _heap: list[tuple[float, int, Hashable]] = field(factory=list)
    _ties: int = 0
    """Settings so far: whoever was set first rings first."""

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._at

    def set(self, name: Hashable, when: float) -> None:
        """Ring ``name`` at ``when``, in place of any earlier setting."""
        self._ties = tie = self._ties + 1
        self._at[name] = (when, tie)
        heapq.heappush(self._heap, (when, tie, name))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._at):
            self._heap = [(at, tie, name) for name, (at, tie) in self._at.items()]
            heapq.heapify(self._heap)

    def arm(self, name: Hashable, when: float) -> None:
        """Ring ``name`` at ``when`` unless it is set already."""
        if name not in self._at:
            self.set(name, when)

    def clear(self, name: Hashable) -> None:
        """Forget ``name``; nothing happens when it is not set."""
        self._at.pop(name, None)

    def next(self) -> float | None:
        """The earliest time set, in seconds on the clock of ``now``; None when nothing is."""
        heap = self._heap
        while heap:
            when, tie, name = heap[0]
            if self._at.get(name) == (when, tie):
                return when
            heapq.heappop(heap)
        return None

    def due(self, now: float) -> list[Hashable]:
        """Take out and return the names that ring at or before ``now``, earliest first."""
        rung: list[Hashable] = []
        while (when := self.next()) is not None and when <= now:
            name = heapq.heappop(self._heap)[2]
            del self._at[name]
            rung.append(name)
        return rung
