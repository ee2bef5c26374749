"""The common part of the clients of other protocols for asyncio: requests and their replies."""

from __future__ import annotations

import asyncio
import functools
from abc import abstractmethod
from itertools import count
from typing import Generic, TypeVar

from wmp.aio.node import AsyncPart
from wmp.errors import ClosedError, NoReply
from wmp.foreign import EndRequest, Requested, Withdrawn
from wmp.gateways.common.aio import Body, ForeignMachine, as_body, from_body
from wmp.runtime.driver.foreign_driver import ForeignDriver
from wmp.runtime.node.node import Node

_MachineT = TypeVar("_MachineT", bound=ForeignMachine)


class Requester(AsyncPart, Generic[_MachineT]):
    """Sends requests by a machine.

    Args:
        machine: Gives an ``EndRequest`` to each ``Requested``.
        node: Serves the machine.
        report_lost: Whether the machine gets ``Left`` when a connection ends.
    """

    def __init__(self, machine: _MachineT, node: Node, *, report_lost: bool = False) -> None:
        super().__init__(node)
        self._report_lost = report_lost
        self._machine = machine
        self._futures: dict[int, asyncio.Future[bytes | list[bytes]]] = {}
        self._numbers = count(1)

    async def start(self) -> None:
        """Open the sockets; ``async with`` calls this method. Idempotent.

        Raises:
            ConfigError: An endpoint cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The client was closed.
        """
        self._node.check_open()
        if self._node.driver is None:
            make_driver = functools.partial(
                ForeignDriver, answer=self._answer, report_lost=self._report_lost
            )
            self._node.start(
                self._machine, link_events=True, make_driver=make_driver, on_halt=self._halted
            )

    async def request(self, body: Body) -> bytes | list[bytes]:
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
        frames = as_body(body)
        self._node.serving()
        if not self._node.running:
            self._node.raise_error()
            raise ClosedError("the client is closed")
        number = next(self._numbers)
        future: asyncio.Future[bytes | list[bytes]] = asyncio.get_running_loop().create_future()
        self._futures[number] = future
        self._node.inbox.post(Requested(number, frames))
        try:
            return await future
        except asyncio.CancelledError:
            self._node.inbox.post(Withdrawn((number,)))
            raise
        finally:
            del self._futures[number]

    def _answer(self, action: EndRequest) -> None:
        future = self._futures.get(action.id)
        if future is None or future.done():
            return
        if action.frames is not None:
            future.set_result(from_body(action.frames))
        else:
            future.set_exception(NoReply(self._explain(action)))

    @abstractmethod
    def _explain(self, action: EndRequest) -> str:
        """Return the text of the error of a request without a reply."""

    def _halted(self, error: Exception | None) -> None:
        for future in self._futures.values():
            if not future.done():
                future.set_exception(ClosedError("the client was closed during the request"))

    async def close(self) -> None:
        """Close the sockets. Requests in progress raise ``ClosedError``. Idempotent."""
        await self._node.stop()

    async def _abort(self) -> None:
        await self.close()
