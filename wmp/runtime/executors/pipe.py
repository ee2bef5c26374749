"""Messages between a parent and its worker processes: pickled tuples, each behind its length.

Pickle is safe here: both ends are one program of one user, and the socket pair between them has no
name that another process could open. No bytes from the network are unpickled.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

CHUNK: Final = 1 << 18
"""Bytes of one read: more than a socket buffer holds."""

_LENGTH: Final = struct.Struct("!Q")


def pack(message: tuple[Any, ...]) -> bytes:
    """Return a message as bytes."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class PipeReader:
    """Cuts the bytes of a socket into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """Add bytes; yield the messages that are complete now."""
        buffer = self._buffer
        buffer += data
        begin, size = 0, _LENGTH.size
        while len(buffer) - begin >= size:
            end = begin + size + _LENGTH.unpack_from(buffer, begin)[0]
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                message = pickle.loads(view[begin + size : end])
            begin = end
            yield message
        del buffer[:begin]


def receive(sock: socket.socket) -> Iterator[tuple[Any, ...]]:
    """Yield the messages of a blocking socket until its other end is closed."""
    frames = PipeReader()
    while True:
        try:
            data = sock.recv(CHUNK)
        except ConnectionError:
            return
        if not data:
            return
        yield from frames.feed(data)
