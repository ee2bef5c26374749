"""The time at which a worker process is replaced, with backoff after failures."""

from __future__ import annotations

from threading import Event
from typing import Final

from wmp.runtime.executors.assignment import NEVER

__all__ = ["RestartPolicy"]

_START_TIMEOUT: Final = 60.0
"""Seconds for the first child to import the modules of its handlers."""

_BACKOFF: Final = (0.0, 0.2, 1.0, 5.0)
"""Seconds before the next child after this number of deaths in a row before a child was ready."""


class RestartPolicy:
    """Turns ends and failures of children into the time of the next start.

    The executor's thread calls all but ``wait_for_first``. Times are seconds, monotonic.
    """

    def __init__(self) -> None:
        self.start_at = NEVER
        """Time at which missing children are started."""
        self._failures = 0
        """Children in a row that died before they were ready."""
        self._first = Event()
        """Set when the first child is ready, or no child will be."""
        self._problem: str | None = None

    def wait_for_first(self) -> str | None:
        """Wait until the first child is ready; return the problem if none will be."""
        if not self._first.wait(_START_TIMEOUT):
            return f"no worker process was ready within {_START_TIMEOUT:g} s"
        return self._problem

    def ended(self, now: float) -> None:
        """A child ended, or will soon: start another at once."""
        self.start_at = min(self.start_at, now)

    def came_up(self) -> None:
        """A child is ready."""
        self._failures = 0
        self._first.set()

    def failed(self, problem: str, now: float) -> bool:
        """A child died before it was ready: start another later.

        Returns:
            Whether so many died in a row that no job should wait for the next child.
        """
        if not self._first.is_set():
            self._problem = problem
            self._first.set()
        self._failures += 1
        self.start_at = now + _BACKOFF[min(self._failures, len(_BACKOFF) - 1)]
        return self._failures >= len(_BACKOFF)

    def close(self) -> None:
        """Start no further child; end the wait for the first."""
        self._first.set()
