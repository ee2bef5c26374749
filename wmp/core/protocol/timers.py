"""Timers: the times at which a machine must check something.

A timer is a value, and its type names the check. Each machine defines the union of its timer types
and matches the union exhaustively.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from typing import Generic, Literal, NamedTuple, TypeVar

from attrs import define, field

_T = TypeVar("_T", bound=Hashable)


class ResendTimer(NamedTuple):
    """A message to this peer may have to be sent again (WMP-7.3).

    Timers are named tuples, which are hashed in C. The constant in the last field keeps two types
    with the same fields unequal.
    """

    identity: bytes
    what: Literal["resend"] = "resend"


class ClaimTimer(NamedTuple):
    """The peer of this identity did not answer a challenge (WMP-15.6)."""

    identity: bytes
    what: Literal["claim"] = "claim"


@define(eq=False)
class Timers(Generic[_T]):
    """A heap of (time, timer) in which a timer has at most one live entry.

    If a timer is set again or cleared, its old entry stays in the heap and is skipped when it is
    the first. So machines set a timer once and check the real state when the timer rings. They do
    not move the timer at every message.

    Invariant: every timer of ``_at`` has exactly one live entry in ``_heap``.
    """

    _at: dict[_T, tuple[float, int]] = field(factory=dict)
    _heap: list[tuple[float, int, _T]] = field(factory=list)
    _ties: int = 0
    """Number of settings so far. Timers for the same time ring in this order."""

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, timer: _T) -> bool:
        return timer in self._at

    def set(self, timer: _T, when: float) -> None:
        """Ring ``timer`` at ``when``, in place of any earlier setting."""
        self.set_all((timer,), when)

    def set_all(self, timers: Iterable[_T], when: float) -> None:
        """Ring each of ``timers`` at ``when``, in place of any earlier setting."""
        heap, at = self._heap, self._at
        tie = self._ties
        for timer in timers:
            tie += 1
            at[timer] = (when, tie)
            heapq.heappush(heap, (when, tie, timer))
        self._ties = tie
        if len(heap) > 64 and len(heap) > 4 * len(at):
            self._heap = [(when, tie, timer) for timer, (when, tie) in at.items()]
            heapq.heapify(self._heap)

    def arm(self, timer: _T, when: float) -> None:
        """Ring ``timer`` at ``when`` unless it is set already."""
        if timer not in self._at:
            self.set_all((timer,), when)

    def clear(self, timer: _T) -> None:
        """Clear ``timer``; a timer that is not set is ignored."""
        self._at.pop(timer, None)

    def clear_all(self, timers: Iterable[_T]) -> None:
        """Clear each of ``timers``; a timer that is not set is ignored."""
        at = self._at
        for timer in timers:
            at.pop(timer, None)

    def next(self) -> float | None:
        """Return the earliest time set, in seconds on the clock of ``now``; None when no timer is
        set.
        """
        heap = self._heap
        while heap:
            when, tie, timer = heap[0]
            if self._at.get(timer) == (when, tie):
                return when
            heapq.heappop(heap)
        return None

    def due(self, now: float) -> list[_T]:
        """Remove and return the timers that ring at or before ``now``, earliest first."""
        rung: list[_T] = []
        while (when := self.next()) is not None and when <= now:
            timer = heapq.heappop(self._heap)[2]
            del self._at[timer]
            rung.append(timer)
        return rung
