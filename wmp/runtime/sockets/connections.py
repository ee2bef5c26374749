"""The connections of a socket: the bytes of unfinished messages on each connection, and the closing
of abusive connections.

libzmq bounds a frame (``ZMQ_MAXMSGSIZE``) and the number of messages in a pipe (``ZMQ_RCVHWM``). It
does not bound a message: libzmq keeps the frames of a message that never ends, and never delivers
them. The kernel counts the bytes that each connection has received. A connection that receives
bytes and delivers no message has an unfinished message.

The kernel is asked only if the memory of this process has grown. The kernel's counts are used only
after the socket was found empty, because until then the bytes may belong to whole messages that
wait to be read. Where the system has no such counters (other systems than Linux, or ipc), nothing
is bounded here.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from typing import Final

from wmp.runtime.sockets.old_connections import OldConnections

_GROWTH: Final = 16 << 20
"""Bytes by which the memory must grow before all connections are checked."""

_TURNS: Final = 20
"""Number of checks within which a busy socket has delivered a message of each connection.

libzmq reads the connections in turn.
"""

_ALERT: Final = 600
"""Number of checks after the end of an abusive connection for which the kernel is asked even if
the memory has not grown.
"""

_MAX_ENDED: Final = 1000
"""Limit of the remembered connections that ended before their first message was read."""

_DRAWN: Final = b"\0"
"""The first byte of the routing ids that libzmq draws, each for one connection."""

_OLD_GREETINGS: Final = frozenset(range(2, 64)) - {10, 11}
"""Bytes after which the greeting of a peer with ZMTP 1 or 2 may have ended.

A peer with ZMTP 3 sends 10 bytes, then 11 or 12 at the most while it waits, and then 64 and more.
ZMTP 2 has 12 bytes and a frame with the routing id, ZMTP 1 only this frame.
"""

_GREETED: Final = 3
"""Number of checks without a further byte after which such a greeting has ended."""

_RECEIVED: Final = 128
"""Place of ``tcpi_bytes_received`` in ``struct tcp_info``."""


class Connections:
    """The connections of one socket, by their file descriptors.

    Args:
        max_message: Limit of the unfinished bytes of one connection.
        max_open: Limit of the unfinished bytes of all connections.
        max_silent: Limit of the connections that have not sent a message yet.
        closed: Called with a reason and a description for each connection that is closed.

    Attributes:
        active: Keys of connections from which a message came since the last used check. The port
            adds keys.
        descriptors: File descriptors by the key of the connection.
        users: Public keys of the peers by the key of the connection, if there is an allow list.
        pending: Bytes that each connection had received at a check; not empty while that check
            waits to be used.
    """

    def __init__(
        self,
        max_message: int,
        max_open: int,
        max_silent: int,
        closed: Callable[[str, str], None],
    ) -> None:
        self._max_message = max_message
        self._max_open = max_open
        self._max_silent = max_silent
        self._closed = closed
        self._silent: dict[int, None] = {}
        """Connections that have sent no message, oldest first."""
        self._open: dict[int, int] = {}
        """Number of bytes of the unfinished message of each connection, as far as known."""
        self._received: dict[int, int] = {}
        """Number of bytes that each connection had received at the last check."""
        self.descriptors: dict[bytes, int] = {}
        self.users: dict[bytes, bytes] = {}
        self._keys: dict[int, bytes] = {}
        self.active: set[bytes] = set()
        self._garbled: set[bytes] = set()
        """Keys of connections that sent frames that are not a message."""
        self._ended: set[bytes] = set()
        """Keys of connections that ended before their first message was read."""
        self._parted: set[bytes] = set()
        """Keys of connections that ended, without those that a peer chose: no other connection
        will have them."""
        self.pending: dict[int, int] = {}
        self.old = OldConnections(_bytes_received)
        self.parted: Callable[[bytes], None] | None = None
        """Called with the key of a connection of ZMTP 1 or 2 that must have ended."""
        self._greeting = (0, 0)
        """Bytes of the greeting at the last check, and number of checks with these bytes."""
        self._turns = 0
        self._alert = 0
        self._memory = 0

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, descriptor: int) -> None:
        """Record a new connection."""
        self._open[descriptor] = self._received[descriptor] = 0
        self._silent[descriptor] = None
        self._greeting = (0, 0)
        if len(self._silent) > self._max_silent:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            self._close(oldest, "silent", "too many connections have sent no message")

    def came(self, key: bytes) -> None:
        """Record a message whose descriptor libzmq does not name: its peer has ZMTP 1 or 2."""
        unknown = [descriptor for descriptor in self._open if descriptor not in self._keys]
        descriptor, parted = self.old.came(key, unknown)
        if descriptor is not None:
            self._silent.pop(descriptor, None)
            self.descriptors[key] = descriptor
            self._keys[descriptor] = key
        self._part(parted)

    def ended_old(self, descriptor: int, *, failed: bool) -> bool:
        """Look whether a connection that ended was one of ZMTP 1 or 2, and report its peer.

        Args:
            descriptor: The descriptor.
            failed: Whether libzmq reported a failed handshake just before: it does so at the end
                of each connection of ZMTP 1 or 2.

        Returns:
            Whether it was.
        """
        if descriptor in self._keys:
            return failed
        parted = self.old.ended(descriptor, old=failed)
        self._part(parted)
        return bool(parted)

    def _part(self, keys: list[bytes]) -> None:
        for key in keys:
            if self.parted is not None:
                self.parted(key)

    def greeted_as_old(self) -> bool:
        """Return whether the peer of a DEALER has sent the greeting of ZMTP 1 or 2, and waits.

        libzmq reports no end of the handshake with such a peer.
        """
        descriptor = next(iter(self._open), None)
        count = None if descriptor is None else _bytes_received(descriptor)
        if count is None:
            return False
        last, checks = self._greeting
        checks = checks + 1 if count == last else 0
        self._greeting = count, checks
        return checks >= _GREETED and count in _OLD_GREETINGS

    def spoil(self, key: bytes) -> bool:
        """Record a connection's frames that are not a message; return whether it is open."""
        if key in self.descriptors:
            self._garbled.add(key)
        elif key in self._ended:
            self._ended.discard(key)
            return False
        return True

    def useless(self, descriptor: int) -> bool:
        """Return whether a connection has sent nothing, or frames that are not a message."""
        return descriptor not in self._keys or self.is_garbled(descriptor)

    def is_garbled(self, descriptor: int) -> bool:
        """Return whether a connection has sent frames that are not a message."""
        return self._keys.get(descriptor) in self._garbled

    def gone(self, descriptor: int) -> bytes | None:
        """Remove a connection that ended; return its key if it is known."""
        for table in (self._silent, self._open, self._received, self.pending):
            table.pop(descriptor, None)
        key = self._keys.pop(descriptor, None)
        if key is not None:
            self.descriptors.pop(key, None)
            self.users.pop(key, None)
            self.active.discard(key)
            self._garbled.discard(key)
            if key.startswith(_DRAWN):
                if len(self._parted) >= _MAX_ENDED:
                    self._parted.clear()
                self._parted.add(key)
        return key

    def learn(self, key: bytes, descriptor: int, user: bytes = b"") -> None:
        """Record the descriptor of a connection, and the public key of its peer if it is known."""
        if user:
            self.users[key] = user
        if descriptor in self._open and key not in self._parted:
            # Else the descriptor may belong to another connection by now.
            if self.old.candidates:
                self._part(self.old.learned(descriptor))
            self._silent.pop(descriptor, None)
            self.descriptors[key] = descriptor
            self._keys[descriptor] = key
            return
        if len(self._ended) >= _MAX_ENDED:
            for ended in self._ended:
                self.users.pop(ended, None)
            self._ended.clear()
        self._ended.add(key)

    def close(self, key: bytes, reason: str, detail: str) -> bool:
        """Close a connection by its key; return whether it was known."""
        descriptor = self.descriptors.get(key)
        return descriptor is not None and self._close(descriptor, reason, detail)

    def look(self) -> None:
        """Record the received bytes of all connections when this process's memory has grown."""
        if self.pending:
            self._turns += 1
            if self._turns >= _TURNS:
                self.emptied()
            return
        memory = _memory()
        self._memory = min(self._memory or memory, memory)
        # Freed memory stays with this process. The next attack would fill the freed memory, and the
        # process would not grow.
        self._alert -= self._alert > 0
        if memory - self._memory < _GROWTH and not self._alert:
            return
        self._memory, self._turns = memory, 0
        for descriptor in self._open:
            received = _bytes_received(descriptor)
            if received is not None:
                self.pending[descriptor] = received

    def emptied(self) -> None:
        """Count the bytes of unfinished messages, and close connections above a limit.

        ``pending`` maps each connection to the bytes that it had received at the last check. All
        messages that were complete at that check have been read since then. So a connection that
        has delivered no message has received only bytes of an unfinished message.
        """
        self.old.emptied()
        if not self.pending:
            return
        look, self.pending = self.pending, {}
        for descriptor, received in look.items():
            if self._keys.get(descriptor) in self.active:
                self._open[descriptor] = 0
            else:
                self._open[descriptor] += received - self._received[descriptor]
            self._received[descriptor] = received
        self.active.clear()
        total = sum(self._open.values())
        for descriptor, size in sorted(self._open.items(), key=lambda entry: -entry[1]):
            if size <= self._max_message and total <= self._max_open:
                break
            total -= size
            text = (
                f"a message has more than {size} bytes and has not ended; the connection was closed"
            )
            self._close(descriptor, "unfinished message", text)

    def _close(self, descriptor: int, reason: str, detail: str) -> bool:
        # libzmq reads the end of the stream, and then closes the connection, frees its memory and
        # closes this descriptor. Until then no other file can get this descriptor.
        if descriptor not in self._open or not _shut(descriptor):
            return False
        self._open[descriptor] = 0
        self._alert = _ALERT
        self._closed(reason, detail)
        return True


def _memory() -> int:
    """Return the resident bytes of this process; 0 if the system does not report them."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _bytes_received(descriptor: int) -> int | None:
    """Return the number of bytes that a TCP connection received; None for any other descriptor."""
    try:
        stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)
    except OSError:
        return None
    try:
        info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED + 8)
        if len(info) < _RECEIVED + 8:
            return None
        return int.from_bytes(info[_RECEIVED:], "little")
    except (OSError, AttributeError):
        return None
    finally:
        stream.detach()


def _shut(descriptor: int) -> bool:
    """End a connection that libzmq owns; libzmq closes the descriptor."""
    try:
        stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)
    except OSError:
        return False
    try:
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)
            return True
        return False
    finally:
        stream.detach()
