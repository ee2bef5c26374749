"""Measurement of how long this process cannot run because the machine is busy.

A busy machine delays the kit and the testee alike, so that an honest testee seems late. A case that
fails after the kit was delayed for long is void (:class:`~wmp.conformance.script.case.Verdict`).
"""

from __future__ import annotations

import time
from collections import deque
from threading import Event, Lock, Thread
from typing import Final

from attrs import define, field

_STEP = 0.02
"""Seconds between two measurements."""
_SMALL = 0.002
"""Seconds of lateness that every machine has."""
_KEPT = 50_000


@define(eq=False)
class StallWatch:
    """Measures on a thread of its own how late this thread runs. It runs during conversations."""

    _lost: deque[tuple[float, float]] = field(factory=lambda: deque(maxlen=_KEPT), init=False)
    """(time, seconds) of each delay that is noticed."""
    _users: int = field(default=0, init=False)
    _over: Event = field(factory=Event, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def begin(self) -> float:
        """Begin to measure, until the matching ``end``. Return the time."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._over = Event()
                Thread(target=self._measure, args=(self._over,), daemon=True).start()
        return time.monotonic()

    def end(self) -> None:
        """Stop the measurement if no conversation is left."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._over.set()
                self._lost.clear()

    def note(self, at: float, lost: float) -> None:
        """Record a delay and the time of its end."""
        if lost > _SMALL:
            self._lost.append((at, lost))

    def longest(self, since: float) -> float:
        """Return the longest delay since a time, in seconds."""
        return max((lost for at, lost in list(self._lost) if at >= since), default=0.0)

    def _measure(self, over: Event) -> None:
        before = time.monotonic()
        while not over.wait(_STEP):
            now = time.monotonic()
            self.note(now, now - before - _STEP)
            before = now


WATCH: Final = StallWatch()
"""The measurement that all conversations of this process share."""
