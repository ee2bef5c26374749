"""Messages that leave a node, and messages that wait because a pipe is full.

Sending never blocks (WMP-1.6). A message that cannot be delivered comes back as ``Undelivered``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from wmp import codec
from wmp.actions import Send
from wmp.errors import TransportError
from wmp.message import Frame, Link, Message
from wmp.runtime.local_ids import LocalIds
from wmp.runtime.sockets import Port, Sent
from wmp.runtime.transport import Transport

__all__ = ["SendQueue"]

_RETRY = 0.002
_RETRY_MAX = 0.1
"""Seconds between two attempts at full pipes: libzmq does not report when a pipe of a ROUTER has
room again."""


_OVERHEAD = 512
"""Bytes that a message takes here beside its frames."""


class _WaitingMessages:
    """Messages that wait for room in the pipe to one peer."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages: deque[tuple[Message, list[Frame], int]] = deque()
        self.size = 0


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
        sent: Called after a retry: sending may have consumed a descriptor's report.
        local_ids: A device's names for the connections of its ROUTER.

    Attributes:
        touched: Ports that were sent on; the driver checks and removes them.
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
    ) -> None:
        self.touched: dict[Port, None] = {}
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
        """Bytes of all messages that are parked."""
        self._pause = _RETRY
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def send(self, action: Send) -> None:
        """Send a message, behind the messages that wait for the same peer."""
        link, message = action.link, action.message
        if not self._connected(link):
            self._undelivered(link, message, "not connected")
            return
        frames: list[Frame] = list(codec.encode(message))
        if link in self._parked:
            self._park(link, message, frames)
            return
        sent = self._transmit(link, frames)
        if sent is Sent.OK:
            return
        if sent is Sent.UNREACHABLE:
            self._undelivered(link, message, "no such connection")
        elif self._parks:
            self._park(link, message, frames)
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
        """Try once more to send parked messages, then drop them."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for link in list(self._parked):
            self._flush(link)
        self._parked.clear()
        self._size = 0

    def _close(self, link: Link) -> None:
        """Close the connection of a peer that does not read; what waits for it counts as lost."""
        parked = self._parked.get(link)
        port = self._router if isinstance(link, bytes) else self._dealers.get(link)
        if parked is None or not parked.messages or port is None or port.connections is None:
            return
        text = f"{len(parked.messages)} messages waited for a peer that reads none"
        if port.connections.close(link if isinstance(link, bytes) else b"", "unread", text):
            messages = [message for message, _, _ in parked.messages]
            self.forget(link)
            for message in messages:
                self._undelivered(link, message, "pipe full")

    def _connected(self, link: Link) -> bool:
        # libzmq itself reports a connection of a ROUTER that has gone.
        return isinstance(link, bytes) or (link in self._dealers and self._dealers[link].connected)

    def _transmit(self, link: Link, frames: list[Frame]) -> Sent:
        if isinstance(link, bytes):
            port, ids = self._router, self._local_ids
            frames = [link if ids is None else ids.routing(link), *frames]
        else:
            port = self._dealers.get(link)
        if port is None:
            return Sent.UNREACHABLE
        self.touched[port] = None
        try:
            return port.send(frames)
        except TransportError as error:
            self._count("transport", str(error))
            return Sent.UNREACHABLE

    def _undelivered(self, link: Link, message: Message, why: str) -> None:
        self._count(why, f"{message.command.name} was not delivered")
        self._report(link, message)

    def _park(self, link: Link, message: Message, frames: list[Frame]) -> None:
        parked = self._parked.get(link)
        if parked is None:
            parked = self._parked[link] = _WaitingMessages()
        size = _OVERHEAD + sum(map(len, frames))
        limits = self._transport
        if len(parked.messages) >= limits.parked or parked.size + size > limits.parked_bytes:
            self._undelivered(link, message, "pipe full")
            self._close(link)
            return
        if self._size + size > limits.parked_total:
            self._undelivered(link, message, "pipe full")
            # The peer that waits with the most is most likely the one that reads nothing.
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
        progress = False
        while parked.messages:
            message, frames, size = parked.messages[0]
            sent = self._transmit(link, frames)
            if sent is Sent.FULL and self._connected(link):
                return progress
            parked.messages.popleft()
            parked.size -= size
            self._size -= size
            progress = True
            if sent is not Sent.OK:
                self._undelivered(link, message, "no such connection")
        del self._parked[link]
        return progress
