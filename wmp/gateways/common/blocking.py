# Twin of wmp/gateways/common/aio.py; written by specs/build_blocking.py.
# Twin of wmp/gateways/common/requester.py; written by specs/build_blocking.py.
"""The common part of the objects of other protocols for code without an event loop."""

from __future__ import annotations

from typing import Any, TypeVar

from wmp.blocking.node import BlockingPart, BlockingProgram
from wmp.duration import Duration
from wmp.gateways.common.aio import (
    DRAIN_TIMEOUT,
    Body,
    DrainingPart,
    DrainingProgram,
    ForeignProgram,
    ForeignWorker,
)
from wmp.gateways.common.requester import Requester
from wmp.gateways.common.serial_worker import ForeignWorkerStatistics

_DrainingPartT = TypeVar("_DrainingPartT", bound=DrainingPart)
_DrainingProgramT = TypeVar("_DrainingProgramT", bound=DrainingProgram)
_ForeignProgramT = TypeVar("_ForeignProgramT", bound=ForeignProgram[Any])
_ForeignWorkerT = TypeVar("_ForeignWorkerT", bound=ForeignWorker)
_RequesterT = TypeVar("_RequesterT", bound=Requester[Any])


class BlockingDrainingPart(BlockingPart[_DrainingPartT]):
    """An object that can finish the requests in progress before it ends."""

    @property
    def name(self) -> str:
        """Name of this object in log lines."""
        return self._look(lambda: self._inner.name)

    def drain(self, timeout: Duration | None = None) -> None:
        """Take no further request, finish the requests in progress, and end.

        Args:
            timeout: Seconds to wait at most. After this time the requests still go on.

        Raises:
            TimeoutError: Some requests were still in progress after ``timeout`` seconds.
        """
        self._portal.call(self._inner.drain(timeout))

    def close(self, timeout: Duration = DRAIN_TIMEOUT) -> None:
        """Drain for at most ``timeout`` seconds, then stop. Idempotent, and bounded in time.

        Requests that are still in progress then get no reply. In a fork of this process the call
        does nothing.
        """
        self._shut(timeout)


class BlockingDrainingProgram(
    BlockingDrainingPart[_DrainingProgramT],
    BlockingProgram[_DrainingProgramT],
):
    """A program of another protocol: the first signal drains, the second stops at once."""

    def interrupt(self) -> None:
        """Act as after a signal. The first call drains. The second call stops at once.

        Any thread may call this method.
        """
        self._portal.post(self._inner.interrupt)


class BlockingForeignProgram(BlockingDrainingProgram[_ForeignProgramT]):
    """A worker or server of another protocol."""

    def start(self) -> None:
        """Start the pool, open the socket and begin to serve. Idempotent.

        ``run`` and ``with`` call this method.

        Raises:
            ConfigError: The endpoint cannot be used, or a process pool cannot import the handler.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The object was closed.
        """
        super().start()


class BlockingForeignWorker(BlockingForeignProgram[_ForeignWorkerT]):
    """A worker of another protocol, which does one request at a time."""

    def statistics(self) -> ForeignWorkerStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)


class BlockingRequester(BlockingPart[_RequesterT]):
    """Sends requests by a machine."""

    def start(self) -> None:
        """Open the sockets; ``with`` calls this method. Idempotent.

        Raises:
            ConfigError: An endpoint cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The client was closed.
        """
        super().start()

    def request(self, body: Body) -> bytes | list[bytes]:
        """Send a request and wait for its reply.

        Args:
            body: One frame, or a list of frames.

        Returns:
            The reply: one frame, or a list of several frames.

        Raises:
            NoReply: No reply came in time.
            ClosedError: The client is not started, was closed, or was closed during the call.
            TypeError: The body is not a body.
        """
        return self._portal.call(self._inner.request(body))

    def close(self) -> None:
        """Close the sockets. Requests in progress raise ``ClosedError``. Idempotent."""
        self._shut(0.0)
