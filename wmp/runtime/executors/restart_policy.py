"""When the next worker process is started, and what it means that some did not come up."""

from __future__ import annotations

from threading import Event
from typing import Final

from wmp.runtime.executors.assignment import NEVER

__all__ = ["RestartPolicy"]

_START_TIMEOUT: Final = 60.0
"""Seconds for the first child to import what its handlers need."""

_BACKOFF: Final = (0.0, 0.2, 1.0, 5.0)
"""Seconds before the next child when that many in a row died before they were ready."""


class RestartPolicy:
    """Turns ends and failures of children into the time of the next start.

    The pool's thread calls all but ``wait_for_first``. Times are seconds, monotonic.
    """

    def __init__(self) -> None:
        self.at = NEVER
        """When to start children in the places of those that are missing."""
        self._failures = 0
        """Children in a row that died before they were ready."""
        self._first = Event()
        """The first child is ready, or never will be."""
        self._problem: str | None = None

    def wait_for_first(self) -> str | None:
        """Wait until the first child is ready; return what is wrong if none will be."""
        if not self._first.wait(_START_TIMEOUT):
            return f"no worker process was ready within {_START_TIMEOUT:g} s"
        return self._problem

    def ended(self, now: float) -> None:
        """A child ends, or will before long: its place is filled at once."""
        self.at = min(self.at, now)

    def came_up(self) -> None:
        """A child is ready."""
        self._failures = 0
        self._first.set()

    def failed(self, problem: str, now: float) -> bool:
        """A child did not come up: it is tried again later.

        Returns:
            Whether that was so often in a row that no work should wait for the next one.
        """
        if not self._first.is_set():
            self._problem = problem
            self._first.set()
        self._failures += 1
        self.at = now + _BACKOFF[min(self._failures, len(_BACKOFF) - 1)]
        return self._failures >= len(_BACKOFF)

    def close(self) -> None:
        """No child is started any more; nobody waits for the first."""
        self._first.set()
