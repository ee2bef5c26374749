"""The driver of a machine that speaks another protocol: raw frames in place of WMP messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

import zmq

from wmp.events import Cancelled, Submitted
from wmp.foreign import Arrived, Emit, EndRequest, Frames, Left, Settled, Unsent
from wmp.message import Frame
from wmp.runtime.driver.driver import Action, Driver
from wmp.runtime.driver.inbox import Event
from wmp.runtime.driver.performers import Executors, Submitters
from wmp.runtime.sockets.ports import Port, Sent

_BATCH = 256
"""Maximum number of messages of one socket in a turn."""

_SETTLED: Final = Settled()

_DRAWN: Final = b"\0"
"""The first byte of the routing ids that libzmq draws, each for one connection."""


class ForeignDriver(Driver):
    """Runs one machine of another protocol; see :class:`~wmp.runtime.driver.driver.Driver`.

    The ROUTER has the number 0, and so has the first DEALER: a node has only one of both.

    Args:
        answer: Takes the ends of requests. None for a machine without requests.
        submit: Takes the jobs of a door. None for a machine that is not a door. Only a door gets
            ``Settled`` after the messages of a turn.
        cancel: Takes the numbers of a door's jobs for which no client waits.
        report_lost: Whether the machine gets ``Left`` when the connection of a DEALER ends.
        others: Arguments of the driver.
    """

    from_peers: ClassVar[tuple[type[Event], ...]] = (Arrived, Unsent, Left, Settled)
    others: ClassVar[str] = ""
    router_is_foreign: ClassVar[bool] = True
    """Whether messages of the ROUTER are frames for the machine."""

    def __init__(
        self,
        *args: Any,
        answer: Callable[[EndRequest], None] | None = None,
        submit: Callable[[Submitted], None] | None = None,
        cancel: Callable[[Cancelled], None] | None = None,
        report_lost: bool = False,
        **others: Any,
    ) -> None:
        self._own: dict[type[Action], Callable[[Any], None] | None] = {
            Emit: self._emit,
            EndRequest: answer,
            Submitted: submit,
            Cancelled: cancel,
        }
        self._ends: dict[Port, int] = {}
        """The number of each ROUTER whose machine gets ``Left``."""
        self._begun: Counter[Port] = Counter()
        """Number of connections of each of these ROUTERs so far."""
        self._parting: dict[tuple[Port, bytes], int] = {}
        """Connections that ended, until the machine got ``Left``; and that number at their end."""
        self._settles = submit is not None
        super().__init__(*args, lost=self._lost if report_lost else None, **others)
        router = self._sockets.router
        if self.router_is_foreign and self._link_events and router is not None:
            self._report_ends(router, 0)

    def feed(self, event: Any) -> None:
        """Let the machine take an event now; call this on the loop, and not from the machine."""
        self._feed(event)
        self._inbox.schedule()  # the machine may have another deadline now

    def _lost(self, number: int) -> None:
        self._late.append(Left(number, b""))
        self._inbox.schedule()

    def _take_posted(self) -> None:
        # A message that came before a request is not a reply to the request.
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
            messages = self._receive_all(port)
            if port in self._ends and any(peer[:1] != _DRAWN for peer, _ in messages):
                # A connection may have ended, and its peer may have connected again under the
                # routing id that it chose, before these messages were received.
                port.look_at_connections()
            for peer, frames in messages:
                if self._parting:
                    self._begin_anew(port, number, peer)
                self._feed(Arrived(number, peer, frames))
                if not self.running:
                    return
        if self._parting:
            self._report_left()
        self._settle()

    def _receive_all(self, port: Port) -> list[tuple[bytes, Frames]]:
        """Return the messages that wait in a socket, each with the routing id of its peer."""
        router = port.index is None
        messages: list[tuple[bytes, Frames]] = []
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
            if router:
                messages.append((bytes(frames[0]), tuple(frames[1:])))
            else:
                messages.append((b"", tuple(frames)))
        else:
            self._sockets.readable[port] = None
        return messages

    def _settle(self) -> None:
        """Report to the machine that the messages of a turn have arrived."""
        if self._settles:
            self._feed(_SETTLED)

    # -- the ends of connections

    def _report_ends(self, port: Port, number: int) -> None:
        """Report to the machine the ends of the connections of a ROUTER."""
        self._ends[port] = number
        self._sockets.report_ends(
            port, partial(self._ended_connection, port), partial(self._begun_connection, port)
        )

    def _ended_connection(self, port: Port, peer: bytes, garbled: bool) -> None:
        # Last messages of the connection may still wait in the socket.
        self._parting[port, peer] = self._begun[port]
        self._sockets.readable[port] = None
        self._inbox.schedule()

    def _begun_connection(self, port: Port) -> None:
        self._begun[port] += 1

    def _begin_anew(self, port: Port, number: int, peer: bytes) -> None:
        """Report the end of a connection before the first message of the next one.

        Both have the same routing id, which the peer chose. A message that was sent over the old
        connection may count as one of the new connection: else the machine would forget a peer that
        is connected.
        """
        begun = self._parting.get((port, peer))
        if begun is not None and begun < self._begun[port] and not peer.startswith(_DRAWN):
            del self._parting[port, peer]
            self._feed(Left(number, peer))

    def _report_left(self) -> None:
        """Report the ends of connections whose last messages have been read."""
        readable = self._sockets.readable
        for port, peer in [key for key in self._parting if key[0] not in readable]:
            del self._parting[port, peer]
            self._feed(Left(self._ends[port], peer))

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
        self._late.append(Unsent(action.port, action.peer, action.frames))
        self._inbox.schedule()
