"""A node's ports: one socket for each port, and the messages that wait because a pipe is full.

Sending never blocks (WMP-1.6). A message that cannot be delivered comes back as ``Undelivered``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections import deque
from collections.abc import Callable, Collection
from enum import Enum
from typing import Final, Protocol

import zmq

from wmp import codec
from wmp.actions import Send
from wmp.errors import WMPError
from wmp.message import Frame, Limits, Link, Message, counted
from wmp.runtime.sockets.connections import Connections
from wmp.runtime.sockets.endpoints import bind
from wmp.runtime.sockets.host_names import NamedEndpoint
from wmp.runtime.sockets.local_ids import LocalIds
from wmp.runtime.sockets.socket_paths import FileIdentity, file_identity
from wmp.runtime.sockets.transport import Transport

# Members of an enum, which pyzmq's flags are, cost as much to combine as a frame to send. So does
# the method of the socket that looks for further arguments.
_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_POLLIN: Final = int(zmq.POLLIN)
_send: Final[Callable[..., object]] = zmq.backend.Socket.send

_COPY_BELOW = 32 * 1024
"""Size in bytes below which a copy of a frame to libzmq is faster than a reference."""

_RETRY = 0.002
_RETRY_MAX = 0.1
"""Seconds between two attempts at full pipes, because libzmq does not report when a pipe of a
ROUTER can take more.
"""


_SKIP = 64
"""Number of messages of ignored connections after which ``receive`` returns."""


_OVERHEAD = 512
"""Bytes that a waiting message takes in addition to its frames."""


_open: Final[set[zmq.Socket[bytes]]] = set()
"""The sockets of all ports that are not closed.

If a node was not closed, the garbage collector finalises the node, its context and its sockets in
any order. A context that is finalised first would wait for its sockets for ever. These sockets
refer only to their context. So the sockets and the context are not garbage until the finaliser of
the node closes them.
"""


class Sent(Enum):
    """Result of sending a message."""

    OK = "ok"
    FULL = "full"
    UNREACHABLE = "unreachable"
    FAILED = "failed"
    """ZeroMQ refused the message for a reason that no peer can cause."""


class Port:
    """One socket, with its monitor.

    Attributes:
        index: Number of a DEALER; None for the ROUTER.
        name: Endpoint, for people.
        connections: The open connections.
        look_at_monitor: Handles the events of the monitor; None while no loop watches the socket.
        connected: Whether a DEALER has a peer, by the last report of the monitor.
        met: Whether the DEALER ever had a peer.
        old: Whether this peer has ZMTP 1 or 2, so that libzmq reports no handshake.
        warned: Whether a warning that no peer answers was logged.
        endpoints: Endpoints to which a ROUTER is bound, with the actual ports.
        named: The address of a DEALER with a host name, which is looked up before it is used.
        failure: Reason why the newest message with the result FAILED was not sent.
        paused: Whether a ROUTER accepts no connections at present.
        skipped: Number of messages of ignored connections that were dropped; the driver counts them
            and sets it to 0.
        descriptor: Becomes readable at a change of the socket, edge-triggered.
        monitor_descriptor: Becomes readable at an event of the monitor, edge-triggered.
    """

    __slots__ = (
        "_files",
        "_monitor",
        "connected",
        "connections",
        "descriptor",
        "endpoints",
        "failure",
        "index",
        "look_at_monitor",
        "met",
        "monitor_descriptor",
        "name",
        "named",
        "old",
        "paused",
        "skipped",
        "socket",
        "warned",
    )

    def __init__(
        self, socket: zmq.Socket[bytes], index: int | None, name: str, events: int
    ) -> None:
        self.socket = socket
        self.index = index
        self.name = name
        self.connected = index is None
        self.met = self.warned = self.paused = self.old = False
        self.endpoints: list[str] = []
        self.named: NamedEndpoint | None = None
        self.skipped = 0
        self.failure = ""
        self.connections: Connections | None = None
        self.look_at_monitor: Callable[[], None] | None = None
        self._files: list[tuple[str, FileIdentity]] = []
        self._monitor: zmq.Socket[bytes] = socket.get_monitor_socket(events)
        _open.update((socket, self._monitor))
        self.descriptor = _descriptor(socket)
        self.monitor_descriptor = _descriptor(self._monitor)

    def receive(
        self, *, heads: bool = False, ignored: Collection[Link] = ()
    ) -> list[bytes | memoryview]:
        """Receive the next message, with the routing id if this is a ROUTER.

        Routing id, head and columns are copied, because they are small or are decoded anyway. The
        frames behind them are payloads above 4 kB, which stay in libzmq's memory.

        Args:
            heads: Whether only heads are decoded. Then columns are not copied either, unless they
                are so small that they would keep more of libzmq's memory than they have bytes.
            ignored: Routing ids whose messages are dropped unread, and counted in ``skipped``.

        Returns:
            The frames; none after some dropped messages.

        Raises:
            zmq.Again: No message waits.
        """
        socket, connections = self.socket, self.connections
        copied = (self.index is None) + (not heads)
        try:
            frame = socket.recv(_NOBLOCK, copy=False)
            first = frame.bytes
            while ignored and first in ignored:
                self._skip(first)
                if self.skipped >= _SKIP:
                    return []
                frame = socket.recv(_NOBLOCK, copy=False)
                first = frame.bytes
        except zmq.Again:
            self._emptied()
            raise
        frames: list[bytes | memoryview] = [first]
        if connections is not None:
            key = first if self.index is None else b""
            connections.active.add(key)
            if self.index is None and key not in connections.descriptors:
                second = self._learn(key, frame, frames)
                if second is not None:
                    copied, frame = copied - 1, second
        # A frame shows by itself whether another one follows: at a third of the cost of an option
        # of the socket.
        while frame.more:
            frame = socket.recv(_NOBLOCK, copy=False)
            if copied:
                copied -= 1
                frames.append(frame.bytes)
            elif len(frames) <= Limits.FRAMES + 1:
                frames.append(frame.buffer if len(frame) >= Limits.INLINE else frame.bytes)
            # Else the message has more frames than allowed. One frame above the limit is kept, so
            # that the decoder refuses the message. The other frames are dropped.
        return frames

    def _skip(self, first: bytes) -> None:
        """Drop a message whose first frame was received."""
        socket = self.socket
        while socket.get(zmq.RCVMORE):
            socket.recv(zmq.NOBLOCK)
        self.skipped += 1
        if self.connections is not None:
            self.connections.active.add(first)

    def send(self, frames: list[bytes | memoryview], routing_id: bytes | None = None) -> Sent:
        """Send frames; on a ROUTER behind the routing id of the peer. Never blocks.

        Only the first frame can be refused because of a full pipe. If a pipe breaks in the middle
        of a message, libzmq drops the frames so far.
        """
        socket = self.socket
        last = len(frames) - 1
        try:
            if routing_id is not None:
                _send(socket, routing_id, _MORE)
            for index, frame in enumerate(frames):
                flags = _NOBLOCK if index == last else _MORE
                whole: object = frame.obj if type(frame) is memoryview else None
                if isinstance(whole, zmq.Frame) and len(whole) == len(frame):
                    # This frame was received from libzmq, which shares its own message and copies
                    # nothing.
                    _send(socket, whole, flags, copy=False)
                else:
                    _send(socket, frame, flags, copy=len(frame) < _COPY_BELOW)
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Sent.UNREACHABLE
            self.failure = f"cannot send on {self.name}: {error}"
            return Sent.FAILED
        return Sent.OK

    def look_at_connections(self) -> None:
        """Handle the events of the monitor that wait, if there are any."""
        events = self._monitor.get(zmq.EVENTS)
        assert isinstance(events, int)
        if events & _POLLIN and self.look_at_monitor is not None:
            self.look_at_monitor()

    def readable(self) -> bool:
        """Return whether a message waits; unlike the descriptor, this is not edge-triggered."""
        events = self.socket.get(zmq.EVENTS)
        assert isinstance(events, int)
        if events & _POLLIN:
            return True
        self._emptied()
        return False

    def _emptied(self) -> None:
        connections = self.connections
        if connections is not None and (connections.pending or connections.old.candidates):
            connections.emptied()

    def user(self, routing_id: bytes) -> bytes | None:
        """Return the public key of a connection of a ROUTER with an allow list, if it is known."""
        return None if self.connections is None else self.connections.users.get(routing_id)

    def _learn(
        self, key: bytes, first: zmq.Frame, frames: list[bytes | memoryview]
    ) -> zmq.Frame | None:
        """Receive one more frame, if there is one, and record to which connection it belongs."""
        assert self.connections is not None
        if not first.more:
            return None
        frame = self.socket.recv(_NOBLOCK, copy=False)
        frames.append(frame.bytes)
        # The monitor reports a connection before the first message arrives. But the message may be
        # read before the report, and the descriptor may have belonged to an earlier connection.
        if self.look_at_monitor is not None:
            self.look_at_monitor()
        user = b""
        with contextlib.suppress(zmq.ZMQError):  # no user is known without a ZAP handler
            user = str(frame.get("User-Id")).encode()
        try:
            descriptor = int(frame.get(zmq.SRCFD))
        except zmq.ZMQError:
            # A message over inproc has no descriptor either.
            if not any(name.startswith("inproc://") for name in self.endpoints):
                self.connections.came(key)
        else:
            self.connections.learn(key, descriptor, user)
        return frame

    def happenings(self) -> list[tuple[int, int]]:
        """Return the events of the monitor since the last call, each as (event, value)."""
        seen: list[tuple[int, int]] = []
        while True:
            try:
                frames = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return seen
            if len(frames[0]) == 6:
                event, value = struct.unpack("=Hi", frames[0])
                seen.append((event, value))

    def pause(self) -> None:
        """Accept no further connections until ``resume``; open connections stay."""
        self.paused = True
        for endpoint in self.endpoints:
            with contextlib.suppress(zmq.ZMQError):
                self.socket.unbind(endpoint)

    def resume(self) -> None:
        """Listen again on every endpoint.

        Raises:
            ConfigError: Another process has taken an address since ``pause``.
            TransportError: ZeroMQ refused for another reason.
        """
        endpoints, self.endpoints = self.endpoints, []
        self._files.clear()
        try:
            for endpoint in endpoints:
                self.bind(endpoint)
        except WMPError:
            self.endpoints = endpoints
            self.pause()
            raise
        self.paused = False

    def bind(self, endpoint: str) -> None:
        """Bind the socket to one more endpoint.

        Raises:
            ConfigError: The address is in use, or is not an address of this machine.
            TransportError: ZeroMQ refused for another reason.
        """
        self.endpoints.append(bind(self.socket, endpoint))
        path = endpoint.removeprefix("ipc://")
        # Abstract names have no file. libzmq itself removes the files whose names it chose.
        if path != endpoint and not path.startswith(("@", "*")):
            path = os.path.abspath(path)
            with contextlib.suppress(OSError):
                self._files.append((path, file_identity(path)))

    @property
    def address(self) -> str:
        """The endpoint to which a DEALER connects; empty while its host is looked up."""
        return self.name if self.named is None else self.named.address

    def redirect(self, addresses: list[str]) -> None:
        """Connect to the next of the addresses of the host, unless the socket does so already.

        The socket must not be connected: what waits in it would be lost.

        Raises:
            zmq.ZMQError: The address cannot be used.
        """
        assert self.named is not None
        old, new = self.named.address, self.named.next_address(addresses)
        if new == old:
            return
        if old:
            with contextlib.suppress(zmq.ZMQError):
                self.socket.disconnect(old)
        self.named.address = ""
        self.socket.ipv6 = "[" in new
        self.socket.connect(new)
        self.named.address = new

    def close(self, linger: float) -> None:
        """Close the socket and its monitor. Queued messages have ``linger`` seconds to leave."""
        # libzmq leaves the files of ipc behind. No other process can bind the path before the
        # socket closes. If the file was replaced nevertheless, the path names another file by now.
        for path, file in self._files:
            with contextlib.suppress(OSError):
                if file_identity(path) == file:
                    os.unlink(path)
        self._files.clear()
        with contextlib.suppress(zmq.ZMQError):
            self.socket.disable_monitor()
        self._monitor.close(linger=0)
        self.socket.close(linger=int(linger * 1000))
        _open.difference_update((self.socket, self._monitor))


def _descriptor(socket: zmq.Socket[bytes]) -> int:
    """Return the descriptor that a loop can watch for a socket."""
    descriptor = socket.get(zmq.FD)
    assert isinstance(descriptor, int)
    return descriptor


class _WaitingMessages:
    """Messages that wait for the pipe to one peer."""

    __slots__ = ("messages", "port", "size")

    def __init__(self, port: Port) -> None:
        self.port = port
        self.messages: deque[tuple[Message, list[Frame], int]] = deque()
        self.size = 0


class UpperRouter(Protocol):
    """The ROUTER of a device to which managers dial in."""

    @property
    def port(self) -> Port:
        """The ROUTER."""

    def routing_id(self, link: int) -> bytes | None:
        """Return the routing id of a connection by its number; None for a DEALER's number."""


class SendQueue:
    """Sends messages, parks messages for a full pipe, and keeps their order for each peer.

    Args:
        router: The ROUTER, for links that are ``bytes``.
        dealers: The DEALERs by number; the driver replaces entries.
        transport: Limits of parked messages.
        parks: Whether a message for a full pipe is parked (end nodes) or counts as undelivered at
            once (devices).
        undelivered: Called with a link and a message that could not be sent; it must not send.
        count: Called with the reason and a detail of each failure.
        sent: Called after a retry, because sending may have used up a report of a descriptor.
        local_ids: A device's names for the connections of its ROUTER.
        dialed: The upper ROUTER of a device, for the links that are numbers and no DEALER's.

    Attributes:
        touched: Ports over which messages were sent; the driver checks and removes them.
    """

    def __init__(
        self,
        router: Port | None,
        dealers: dict[int, Port],
        transport: Transport,
        *,
        parks: bool,
        undelivered: Callable[[Link, Message], None],
        count: Callable[[str, str], None],
        sent: Callable[[], None],
        local_ids: LocalIds | None = None,
        dialed: UpperRouter | None = None,
    ) -> None:
        self.touched: dict[Port, None] = {}
        self._dialed = dialed
        self._router = router
        self._dealers = dealers
        self._transport = transport
        self._parks = parks
        self._report = undelivered
        self._count = count
        self._sent = sent
        self._local_ids = local_ids
        self._parked: dict[Link, _WaitingMessages] = {}
        self._size = 0
        """Number of bytes of all parked messages."""
        self._pause = _RETRY
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def send(self, action: Send) -> None:
        """Send a message, behind the messages that wait for the same peer."""
        link, message = action.link, action.message
        # A ROUTER counts as connected, because libzmq itself reports a connection that has ended.
        port = self._router if isinstance(link, bytes) else self._dealers.get(link)
        if port is None and self._dialed is not None:
            port = self._dialed.port
        if port is None or not port.connected:
            self._undelivered(link, message, "not connected")
            return
        frames = codec.encode(message)
        if link in self._parked:
            self._park(port, link, message, frames)
            return
        self.touched[port] = None
        sent = port.send(frames, self._routing_id(link))
        if sent is Sent.OK:
            return
        if sent is not Sent.FULL:
            self._lost(port, link, message, sent)
        elif self._parks:
            self._park(port, link, message, frames)
        else:
            self._undelivered(link, message, "pipe full")

    def forget(self, link: Link) -> int:
        """Drop the messages parked for a link; return their number."""
        parked = self._parked.pop(link, None)
        if parked is None:
            return 0
        self._size -= parked.size
        return len(parked.messages)

    def close(self) -> None:
        """Try once more to send parked messages, then drop the rest."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for link in list(self._parked):
            self._flush(link)
        self._parked.clear()
        self._size = 0

    def _close(self, link: Link) -> None:
        """Close the connection of a peer that does not read.

        The messages that wait for the peer are lost.
        """
        parked = self._parked.get(link)
        if parked is None or not parked.messages or parked.port.connections is None:
            return
        text = f"{counted(len(parked.messages), 'message')} waited for a peer that reads nothing"
        if parked.port.connections.close(link if isinstance(link, bytes) else b"", "unread", text):
            messages = [message for message, _, _ in parked.messages]
            self.forget(link)
            for message in messages:
                self._undelivered(link, message, "pipe full")

    def _routing_id(self, link: Link) -> bytes | None:
        """Return the first frame for a ROUTER, None for a DEALER."""
        if not isinstance(link, bytes):
            return None if self._dialed is None else self._dialed.routing_id(link)
        return link if self._local_ids is None else self._local_ids.routing(link)

    def _lost(self, port: Port, link: Link, message: Message, sent: Sent) -> None:
        if sent is Sent.FAILED:
            self._count("transport", port.failure)
        self._undelivered(link, message, "no such connection")

    def _undelivered(self, link: Link, message: Message, why: str) -> None:
        self._count(why, f"{message.command.name} could not be delivered")
        self._report(link, message)

    def _park(self, port: Port, link: Link, message: Message, frames: list[Frame]) -> None:
        parked = self._parked.get(link)
        if parked is None:
            parked = self._parked[link] = _WaitingMessages(port)
        size = _OVERHEAD + sum(map(len, frames))
        limits = self._transport
        if len(parked.messages) >= limits.parked or parked.size + size > limits.parked_bytes:
            self._undelivered(link, message, "pipe full")
            self._close(link)
            return
        if self._size + size > limits.parked_total:
            self._undelivered(link, message, "pipe full")
            # The peer for which most messages wait is most likely the peer that reads nothing.
            self._close(max(self._parked, key=lambda link: self._parked[link].size))
            return
        parked.messages.append((message, frames, size))
        parked.size += size
        self._size += size
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._flush_all)

    def _flush_all(self) -> None:
        self._timer = None
        if self._closed:
            return
        progress = False
        for link in list(self._parked):
            progress |= self._flush(link)
        self._pause = _RETRY if progress else min(2 * self._pause, _RETRY_MAX)
        if self._parked:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._flush_all)
        self._sent()

    def _flush(self, link: Link) -> bool:
        """Send messages parked for ``link`` until its pipe is full; return whether any was sent."""
        parked = self._parked[link]
        port = parked.port
        self.touched[port] = None
        progress = False
        while parked.messages:
            message, frames, size = parked.messages[0]
            sent = port.send(frames, self._routing_id(link))
            if sent is Sent.FULL and port.connected:
                return progress
            parked.messages.popleft()
            parked.size -= size
            self._size -= size
            progress = True
            if sent is not Sent.OK:
                self._lost(port, link, message, sent)
        del self._parked[link]
        return progress
