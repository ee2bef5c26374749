"""The common part of the objects of other protocols for code without an event loop."""

from __future__ import annotations

from typing import Any, TypeVar

from wmp.blocking.node import BlockingProgram
from wmp.gateways.aio.node import DRAIN_TIMEOUT, ForeignProgram

__all__ = ["BlockingForeignProgram"]

_ForeignT = TypeVar("_ForeignT", bound=ForeignProgram[Any])


class BlockingForeignProgram(BlockingProgram[_ForeignT]):
    """Runs a worker or server of another protocol on the loop of a portal."""

    def __init__(self, inner: _ForeignT) -> None:
        super().__init__(inner.name, inner, inner.close)

    @property
    def name(self) -> str:
        """Name of this object in log lines."""
        return self._inner.name

    def drain(self, timeout: float | None = None) -> None:
        """Finish the requests in progress, and end. ``run`` then returns.

        Args:
            timeout: Seconds to wait at most. After this time the requests still go on.

        Raises:
            TimeoutError: Some requests were still in progress after ``timeout`` seconds.
        """
        self._portal.call(self._inner.drain(timeout))

    def close(self, timeout: float = DRAIN_TIMEOUT) -> None:
        """Drain for ``timeout`` seconds at most, then stop. Idempotent, and bounded in time."""
        self._shut(timeout)
