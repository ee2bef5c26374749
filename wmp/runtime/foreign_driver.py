"""The driver of a machine that speaks another protocol: raw frames in place of messages of WMP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import zmq

from wmp.events import Cancelled, Submitted
from wmp.foreign import Answer, Arrived, Emit, Left, Settled, Unsent
from wmp.message import Frame
from wmp.runtime.driver import Action, Driver
from wmp.runtime.inbox import Event
from wmp.runtime.performers import Executors, Submitters
from wmp.runtime.ports import Port, Sent

__all__ = ["ForeignDriver"]

_BATCH = 256
"""Largest number of messages of one socket in a turn."""

_SETTLED: Final = Settled()


class ForeignDriver(Driver):
    """Runs one machine of another protocol; see :class:`~wmp.runtime.driver.Driver`.

    The ROUTER has the number 0, and so has the first DEALER: a node has only one of both.

    Args:
        answer: Takes the ends of requests. None for a machine without requests.
        submit: Takes the jobs of a door. None for a machine that is no door.
        cancel: Takes the numbers of jobs of a door that nobody waits for.
        report_lost: Whether the machine gets ``Left`` when the connection of a DEALER ends.
        others: Arguments of the driver.
    """

    from_peers: ClassVar[tuple[type[Event], ...]] = (Arrived, Unsent, Left, Settled)
    others: ClassVar[str] = ""

    def __init__(
        self,
        *args: Any,
        answer: Callable[[Answer], None] | None = None,
        submit: Callable[[Submitted], None] | None = None,
        cancel: Callable[[Cancelled], None] | None = None,
        report_lost: bool = False,
        **others: Any,
    ) -> None:
        self._own: dict[type[Action], Callable[[Any], None] | None] = {
            Emit: self._emit,
            Answer: answer,
            Submitted: submit,
            Cancelled: cancel,
        }
        super().__init__(*args, **others)
        if report_lost:
            self._sockets.lost = self._lost

    def _lost(self, number: int) -> None:
        self._late.append(Left(number, b""))
        self._inbox.schedule()

    def _take_posted(self) -> None:
        # A message that came before a request is no reply to the request.
        if self._inbox.entries:
            self._sockets.look()
            if self._sockets.readable:
                self._take_received()
        super()._take_posted()

    def _take_received(self) -> None:
        readable = self._sockets.readable
        ports = list(readable)
        readable.clear()
        self._take_raw([(port, port.index or 0) for port in ports])

    def _take_raw(self, ports: list[tuple[Port, int]]) -> None:
        """Give the machine the messages of these sockets, which are listed with their numbers.

        The requests of a turn are one event of their manager.
        """
        for port, number in ports:
            router = port.index is None
            for count in range(_BATCH):
                # In most cases there is one message, and a check for more is cheaper than a receive
                # that fails.
                if count == 1 and not port.readable():
                    self._send_queue.touched.pop(port, None)
                    break
                try:
                    frames: list[Frame] = port.receive()
                except zmq.Again:
                    break
                except zmq.ZMQError as error:
                    if self.running:
                        self._count("transport", f"cannot receive on {port.name}: {error}")
                    break
                peer = bytes(frames.pop(0)) if router else b""
                self._feed(Arrived(number, peer, tuple(frames)))
                if not self.running:
                    return
            else:
                self._sockets.readable[port] = None
        self._feed(_SETTLED)

    def _part(self, routing_id: bytes) -> None:
        self._feed(Left(0, routing_id))

    def _make_performers(
        self, submitters: Submitters | None, executors: Executors | None
    ) -> dict[type[Action], Callable[[Any], None]]:
        performers = super()._make_performers(submitters, executors)
        performers |= {kind: act for kind, act in self._own.items() if act is not None}
        return performers

    def _port_of(self, action: Emit) -> Port | None:
        """Return the socket of a message."""
        return self._sockets.router if action.peer else self._sockets.dealers.get(action.port)

    def _emit(self, action: Emit) -> None:
        port = self._port_of(action)
        if port is None or not port.connected:
            self._unsent(action, "not connected")
            return
        self._send_queue.touched[port] = None
        sent = self._send(port, action)
        if sent is Sent.FULL:
            self._unsent(action, "pipe full")
        elif sent is Sent.UNREACHABLE:
            self._unsent(action, "no such connection")
        elif sent is Sent.FAILED:
            self._count("transport", port.failure)
            self._unsent(action, "no such connection")

    def _send(self, port: Port, action: Emit) -> Sent:
        return port.send(list(action.frames), action.peer or None)

    def _unsent(self, action: Emit, why: str) -> None:
        self._count(why, "a message could not be delivered")
        self._late.append(Unsent(action.port, action.peer))
        self._inbox.schedule()
