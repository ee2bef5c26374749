"""Clients and workers of Majordomo 0.1 (specs/majordomo.md), for asyncio."""

from __future__ import annotations

import asyncio
import functools
from itertools import count
from typing import Unpack

from wmp.aio.node import AsyncPart
from wmp.duration import Duration
from wmp.errors import ClosedError, NoReply
from wmp.foreign import EndRequest, Requested, Withdrawn
from wmp.gateways.common.aio import Body, from_body, make_node
from wmp.gateways.common.request_client import LazyClientStatistics
from wmp.gateways.majordomo.aio_worker import body_frames, service_frame
from wmp.gateways.majordomo.client_machine import MajordomoClientMachine
from wmp.message import counted
from wmp.runtime.common.checks import check_count, check_seconds
from wmp.runtime.driver.foreign_driver import ForeignDriver
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    SocketSettings,
    shows_socket_options,
)


class MajordomoClient(AsyncPart):
    """Sends requests to the services of a Majordomo broker, and sends a request again if no reply
    comes.

    A reply has no number, so each request in progress has a socket of its own.

    Args:
        endpoint: Address of the broker.
        timeout: Seconds of one try.
        tries: Sends of a request in all. Each try but the first has a new socket.
        sockets: Maximum number of requests in progress. Further requests wait, in the order of the
            calls. A socket is opened when it is needed first.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        *,
        timeout: Duration = 2.5,
        tries: int = 3,
        sockets: int = 16,
        **options: Unpack[SocketOptions],
    ) -> None:
        self._machine = MajordomoClientMachine(
            check_seconds("timeout", timeout, zero=False),
            check_count("tries", tries, 1),
            check_count("sockets", sockets, 1),
        )
        super().__init__(
            make_node(
                "majordomo client",
                connect=(endpoint,),
                sockets=SocketSettings.of(options),
            )
        )
        self._futures: dict[int, asyncio.Future[bytes | list[bytes]]] = {}
        self._services: dict[int, bytes] = {}
        self._numbers = count(1)

    async def start(self) -> None:
        """Open the first socket; ``async with`` calls this method. Idempotent.

        Raises:
            ConfigError: The endpoint cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The client was closed.
        """
        self._node.check_open()
        if self._node.driver is None:
            make_driver = functools.partial(ForeignDriver, answer=self._answer)
            self._node.start(
                self._machine, link_events=True, make_driver=make_driver, on_halt=self._halted
            )

    async def request(self, service: str | bytes, body: Body) -> bytes | list[bytes]:
        """Send a request and wait for its reply.

        Args:
            service: Name of the service.
            body: One frame, or a list of frames.

        Returns:
            The reply: one frame, or a list of several frames.

        Raises:
            NoReply: No reply came within ``timeout`` in the last try.
            ClosedError: The client is not started, was closed, or was closed during the call.
            ConfigError: The service is not a name.
            TypeError: The body is not a body.
        """
        name, frames = service_frame(service), body_frames(body)
        self._node.serving()
        if not self._node.running:
            self._node.raise_error()
            raise ClosedError("the client is closed")
        number = next(self._numbers)
        future: asyncio.Future[bytes | list[bytes]] = asyncio.get_running_loop().create_future()
        self._futures[number], self._services[number] = future, name
        self._node.inbox.post(Requested(number, (name, *frames)))
        try:
            return await future
        except asyncio.CancelledError:
            self._node.inbox.post(Withdrawn((number,)))
            raise
        finally:
            del self._futures[number], self._services[number]

    async def has(self, service: str | bytes) -> bool:
        """Return whether the broker has a worker of a service (8/MMI).

        Raises:
            NoReply: No reply came within ``timeout`` in the last try.
            ClosedError: As for ``request``.
            ConfigError: The service is not a name.
        """
        return await self.request("mmi.service", service_frame(service)) == b"200"

    def _answer(self, action: EndRequest) -> None:
        future = self._futures.get(action.id)
        if future is None or future.done():
            return
        if action.frames is not None:
            future.set_result(from_body(action.frames))
            return
        service = self._services[action.id].decode("utf-8", "replace")
        future.set_exception(
            NoReply(
                f"no reply of the service {service!r} from {self._node.connect[0]} in "
                f"{counted(action.tries, 'try', 'tries')} of {self._machine.timeout:g} s; check "
                "that the broker at this address runs, and that it has a worker of this service"
            )
        )

    def _halted(self, error: Exception | None) -> None:
        for future in self._futures.values():
            if not future.done():
                future.set_exception(ClosedError("the client was closed during the request"))

    async def close(self) -> None:
        """Close the sockets. Requests in progress raise ``ClosedError``. Idempotent."""
        await self._node.stop()

    async def _abort(self) -> None:
        await self.close()

    def statistics(self) -> LazyClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()
