"""The client of Majordomo for asyncio that has many requests on one socket."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from typing import Unpack

from wmp.aio.node import AsyncPart
from wmp.duration import Duration, in_seconds
from wmp.errors import ClosedError, NoReply
from wmp.foreign import EndRequest, Requested
from wmp.gateways.common.aio import Body, from_body, make_node
from wmp.gateways.majordomo.aio_worker import body_frames, service_frame
from wmp.gateways.majordomo.pipelined_machine import (
    MajordomoPipelinedMachine,
    MajordomoPipelinedStatistics,
)
from wmp.runtime.common.checks import check_count, check_seconds
from wmp.runtime.driver.foreign_driver import ForeignDriver
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    SocketSettings,
    shows_socket_options,
)


class MajordomoPipelinedClient(AsyncPart):
    """Sends many requests to a Majordomo broker over one socket, as the second client of the guide.

    Replies come in the order in which the workers end, and have no number: a reply names its
    service only. No request is sent again. Outside of asyncio one thread at a time may use the
    client.

    Args:
        endpoint: Address of the broker.
        timeout: Seconds without a reply after which all requests that were sent count as lost.
        window: Maximum number of requests at the broker. Further requests wait here.
        limit: Maximum number of requests without a reply. ``send`` waits above it.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        *,
        timeout: Duration = 7.5,
        window: int = 500,
        limit: int = 100_000,
        **options: Unpack[SocketOptions],
    ) -> None:
        self._machine = MajordomoPipelinedMachine(
            check_seconds("timeout", timeout, zero=False), check_count("window", window, 1)
        )
        self._limit = check_count("limit", limit, 1)
        super().__init__(
            make_node(
                "majordomo pipelined client",
                connect=(endpoint,),
                sockets=SocketSettings.of(options),
            )
        )
        self._replies: deque[tuple[str, bytes | list[bytes]]] = deque()
        self._lost = 0
        """Number of lost requests that no call of ``recv`` has reported."""
        self._given = self._ended = 0
        self._changed: asyncio.Event | None = None

    async def start(self) -> None:
        """Open the socket; ``async with`` calls this method. Idempotent.

        Raises:
            ConfigError: The endpoint cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The client was closed.
        """
        self._node.check_open()
        if self._node.driver is None:
            self._changed = asyncio.Event()
            make_driver = functools.partial(ForeignDriver, answer=self._answer)
            self._node.start(
                self._machine, link_events=True, make_driver=make_driver, on_halt=self._halted
            )

    async def send(self, service: str | bytes, body: Body) -> None:
        """Send a request, and do not wait for its reply.

        Args:
            service: Name of the service.
            body: One frame, or a list of frames.

        Raises:
            ClosedError: The client is not started or was closed.
            ConfigError: The service is not a name.
            TypeError: The body is not a body.
        """
        while not self._try_send(service, body):
            await self._wait()

    def _try_send(self, service: str | bytes, body: Body) -> bool:
        """Send a request if the limit allows it; return whether it does. Any thread may call."""
        name, frames = service_frame(service), body_frames(body)
        self._serving()
        if self._given - self._ended >= self._limit:
            return False
        self._given += 1
        self._node.inbox.post(Requested(self._given, (name, *frames)))
        return True

    async def recv(self, timeout: Duration | None = None) -> tuple[str, bytes | list[bytes]]:
        """Return service and body of the next reply.

        Args:
            timeout: Seconds to wait at most; None: until a reply comes or a request is lost.

        Raises:
            NoReply: A request got no reply: each lost request ends one call. Or ``timeout`` passed.
            ClosedError: The client is not started or was closed.
        """
        timeout = in_seconds(timeout)
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while (reply := self._try_recv()) is None:
            try:
                async with asyncio.timeout_at(until):
                    await self._wait()
            except TimeoutError:
                raise NoReply(
                    f"no reply from {self._node.connect[0]} within {timeout:g} s; check that the "
                    "broker at this address runs, and that it has workers of the services"
                ) from None
        return reply

    def _try_recv(self) -> tuple[str, bytes | list[bytes]] | None:
        """Return the next reply, None if there is none yet. Any thread may call this method."""
        if self._replies:
            return self._replies.popleft()
        if self._lost:
            self._lost -= 1
            raise NoReply(
                f"a request to {self._node.connect[0]} got no reply: the broker was silent for "
                f"{self._machine.timeout:g} s; send the request again if it may run twice"
            )
        self._serving()
        return None

    def _serving(self) -> None:
        self._node.serving()
        if not self._node.running:
            self._node.raise_error()
            raise ClosedError("the client is closed")

    async def _wait(self) -> None:
        assert self._changed is not None
        self._changed.clear()
        await self._changed.wait()

    def _answer(self, action: EndRequest) -> None:
        assert self._changed is not None
        if action.frames is None:
            self._lost += action.tries
            self._ended += action.tries
        else:
            self._ended += 1
            service = bytes(action.frames[0]).decode("utf-8", "replace")
            self._replies.append((service, from_body(action.frames[1:])))
        self._changed.set()

    def _halted(self, error: Exception | None) -> None:
        if self._changed is not None:
            self._changed.set()

    async def close(self) -> None:
        """Close the socket. Requests without a reply are given up. Idempotent."""
        await self._node.stop()
        self._halted(None)

    async def _abort(self) -> None:
        await self.close()

    def statistics(self) -> MajordomoPipelinedStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()
