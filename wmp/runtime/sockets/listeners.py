"""The listening descriptors of a socket, and short pauses in which they accept no connection.

libzmq accepts every connection. A connection that comes and goes costs libzmq's thread and this
process about as much as a useful one. If many connections end without a message that this node can
read, the kernel drops the first packet of each new connection for a moment. A filter on the
listening descriptor does this. The address stays bound. TCP sends the dropped packet again after a
second. So a peer that opens one connection after the other becomes slow, and an honest peer
connects a little later.

Only Linux has such filters, and they work for tcp only. Elsewhere nothing is limited here.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from math import inf
from typing import Final

PAUSE: Final = 0.02
"""Seconds of a pause. After a pause connections are accepted for as long as that at least, so that
honest peers connect soon."""

_SECONDS: Final = 5
"""Number of seconds whose budget may be used at once."""

_ATTACH, _DETACH = 26, 27
"""``SO_ATTACH_FILTER`` and ``SO_DETACH_FILTER``."""

_DROP: Final = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
"""A filter of one instruction, which accepts no byte of any packet."""


class Listeners:
    """The listening descriptors of one socket.

    Args:
        limit: Number of connections in a second that may end without a message that this node can
            read. Five times as many may end at once.

    Attributes:
        paused: Whether no connection is accepted at present.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = float(limit * _SECONDS)
        self._since, self._resumed = 0.0, -inf
        self._descriptors: set[int] = set()
        self.paused = False

    def opened(self, descriptor: int) -> None:
        """Record a descriptor that listens from now on."""
        self._descriptors.add(descriptor)
        if self.paused:
            _filter(descriptor, on=True)

    def closed(self, descriptor: int) -> None:
        """Forget a descriptor that no longer listens."""
        self._descriptors.discard(descriptor)

    def useless(self, now: float) -> bool:
        """Count a connection without a message that this node can read.

        Return whether a pause begins now.
        """
        left = self._left + (now - self._since) * self._limit
        self._left, self._since = max(-1.0, min(self._limit * _SECONDS, left) - 1), now
        if self._left >= 0 or self.paused or now < self._resumed + PAUSE:
            return False
        paused = [_filter(descriptor, on=True) for descriptor in self._descriptors]
        self.paused = any(paused)
        return self.paused

    def resume(self, now: float) -> None:
        """Accept connections again."""
        self.paused, self._resumed = False, now
        for descriptor in self._descriptors:
            _filter(descriptor, on=False)


def _filter(descriptor: int, *, on: bool) -> bool:
    """Let the kernel drop every packet to a listening descriptor, or none; return whether it does
    so.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)
    except OSError:
        return False
    try:
        # If libzmq has closed the descriptor, another file may have its number by now.
        if not stream.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        program = struct.pack("HP", 1, ctypes.addressof(_DROP))
        stream.setsockopt(socket.SOL_SOCKET, _ATTACH if on else _DETACH, program)
        return True
    except OSError:
        return False
    finally:
        stream.detach()
