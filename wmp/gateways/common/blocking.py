"""The common part of the objects of other protocols for code without an event loop."""

from __future__ import annotations

from typing import Any, TypeVar

from wmp.blocking.node import BlockingPart, BlockingProgram
from wmp.gateways.common.aio import (
    DRAIN_TIMEOUT,
    Body,
    DrainingPart,
    DrainingProgram,
    ForeignWorker,
)
from wmp.gateways.common.requester import Requester
from wmp.gateways.common.worker_machine import ForeignWorkerStatistics

_DrainingT = TypeVar("_DrainingT", bound=DrainingPart)
_ProgramT = TypeVar("_ProgramT", bound=DrainingProgram)
_WorkerT = TypeVar("_WorkerT", bound=ForeignWorker)
_RequesterT = TypeVar("_RequesterT", bound=Requester[Any])


class BlockingRequester(BlockingPart[_RequesterT]):
    """Runs a client of another protocol on the loop of a portal."""

    def __init__(self, name: str, inner: _RequesterT) -> None:
        super().__init__(name, inner, lambda timeout: inner.close())

    def request(self, body: Body) -> bytes | list[bytes]:
        """Send a request and wait for its reply. Any thread may call this method.

        Args:
            body: One frame, or a list of frames.

        Returns:
            The reply: one frame, or a list of several frames.

        Raises:
            NoReply: No reply came in time.
            ClosedError: The client is not started, was closed, or was closed during the call.
            TypeError: The body is no body.
        """
        return self._portal.call(self._inner.request(body))


class BlockingDrainingPart(BlockingPart[_DrainingT]):
    """Runs an object that drains on the loop of a portal."""

    def __init__(self, inner: _DrainingT) -> None:
        super().__init__(inner.name, inner, inner.close)

    @property
    def name(self) -> str:
        """Name of this object in log lines."""
        return self._inner.name

    def drain(self, timeout: float | None = None) -> None:
        """Take no further request, finish the requests in progress, and end.

        Args:
            timeout: Seconds to wait at most. After this time the requests still go on.

        Raises:
            TimeoutError: Some requests were still in progress after ``timeout`` seconds.
        """
        self._portal.call(self._inner.drain(timeout))

    def close(self, timeout: float = DRAIN_TIMEOUT) -> None:
        """Drain for ``timeout`` seconds at most, then stop. Idempotent, and bounded in time."""
        self._shut(timeout)


class BlockingForeignProgram(BlockingDrainingPart[_ProgramT], BlockingProgram[_ProgramT]):
    """Runs a worker, a server or a gateway on the loop of a portal."""


class BlockingForeignWorker(BlockingForeignProgram[_WorkerT]):
    """Runs a worker of another protocol on the loop of a portal."""

    def statistics(self) -> ForeignWorkerStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)
