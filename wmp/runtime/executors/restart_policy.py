"""The time at which a worker process is replaced, with a backoff after failures."""

from __future__ import annotations

from threading import Event
from typing import Final

from wmp.runtime.executors.assignment import NEVER

_START_TIMEOUT: Final = 60.0
"""Seconds within which the first child must import the modules of its handlers."""

_BACKOFF: Final = (0.0, 0.2, 1.0, 5.0)
"""Seconds until the next child, by the number of children in a row that died before they were
ready.
"""


class RestartPolicy:
    """Determines the time of the next start from the ends and failures of children.

    The executor's thread calls all methods but ``wait_for_first``. Times are seconds on the
    monotonic clock.
    """

    def __init__(self) -> None:
        self.start_at = NEVER
        """Time at which missing children are started."""
        self._failures = 0
        """Number of children in a row that died before they were ready."""
        self._first = Event()
        """Set when the first child is ready, or no child will be."""
        self._problem: str | None = None

    def wait_for_first(self) -> str | None:
        """Wait until the first child is ready; return the problem if no child will be ready."""
        if not self._first.wait(_START_TIMEOUT):
            return f"no worker process was ready within {_START_TIMEOUT:g} s"
        return self._problem

    def ended(self, now: float) -> None:
        """Record that a child has ended, or will end soon: another child starts at once."""
        self.start_at = min(self.start_at, now)

    def came_up(self) -> None:
        """Record that a child is ready."""
        self._failures = 0
        self._first.set()

    def failed(self, problem: str, now: float) -> bool:
        """Record that a child died before it was ready: another child starts later.

        Returns:
            Whether too many children died in a row, so that no job should wait for the next child.
        """
        if not self._first.is_set():
            self._problem = problem
            self._first.set()
        self._failures += 1
        self.start_at = now + _BACKOFF[min(self._failures, len(_BACKOFF) - 1)]
        return self._failures >= len(_BACKOFF)

    def close(self) -> None:
        """Start no further child; end the wait for the first."""
        if not self._first.is_set():
            self._problem = "the worker processes were ended before one of them was ready"
        self._first.set()
