"""The process that sends beats for a worker whose own process does not run (WMP-9.17).

Python starts this file by itself and without ``site``, so it imports nothing but built-in modules
until it has to send: an idle child takes a few milliseconds of start and few megabytes. It reads
records from its stdin, each a length and marshalled values. The first record is a ``Setup`` of
:mod:`wmp.runtime.node.beat_child`, and each later record has the beats that are due when no other
record follows in time. The process ends with its stdin, and with its parent.
"""

from __future__ import annotations

import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import of typing would take longer than all others together
    from typing import Any

_LENGTH = 4
"""Bytes of the length of a record."""

_PATIENCE = 1.5
"""Number of intervals without a record after which the worker counts as stalled."""


class _Records:
    """The records of stdin."""

    def __init__(self) -> None:
        self._bytes = b""

    def first(self) -> Any:
        """Return the oldest record that was not read; wait for it."""
        record = self._take()
        while record is None:
            self._read(None)
            record = self._take()
        return record

    def newest(self, seconds: float) -> Any:
        """Return the newest complete record of the next ``seconds``, or None."""
        self._read(seconds)
        newest = record = self._take()
        while record is not None:
            newest, record = record, self._take()
        return newest

    def _read(self, seconds: float | None) -> None:
        """Read what waits in the pipe.

        Raises:
            EOFError: The worker closed the pipe, or ended.
        """
        if not self._whole() and select.select([0], [], [], seconds)[0]:
            more = os.read(0, 1 << 16)
            if not more:
                raise EOFError
            self._bytes += more

    def _whole(self) -> bool:
        """Return whether a whole record waits."""
        size = int.from_bytes(self._bytes[:_LENGTH], "big")
        return len(self._bytes) >= _LENGTH + size > _LENGTH

    def _take(self) -> Any:
        if not self._whole():
            return None
        end = _LENGTH + int.from_bytes(self._bytes[:_LENGTH], "big")
        record = marshal.loads(self._bytes[_LENGTH:end])
        self._bytes = self._bytes[end:]
        return record


class _Sender:
    """Sockets to the managers, opened for the time of a stall."""

    def __init__(self, path: list[str], keys: tuple[bytes, bytes, bytes] | None) -> None:
        sys.path[:] = path
        import zmq

        self._zmq = zmq
        self._keys = keys
        self._context = zmq.Context()
        self._sockets: dict[str, Any] = {}

    def send(self, endpoint: str, frames: list[bytes]) -> None:
        """Send a beat, or drop it if there is no connection yet."""
        zmq = self._zmq
        socket = self._sockets.get(endpoint)
        try:
            if socket is None:
                socket = self._context.socket(zmq.DEALER)
                socket.setsockopt(zmq.LINGER, 0)
                socket.setsockopt(zmq.SNDHWM, 2)
                socket.setsockopt(zmq.IPV6, 1)
                if self._keys is not None:
                    server, public, secret = self._keys
                    socket.setsockopt(zmq.CURVE_SERVERKEY, server)
                    socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
                    socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
                socket.connect(endpoint)
                self._sockets[endpoint] = socket
            socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            pass  # the next beat may leave

    def close(self) -> None:
        """Close all sockets."""
        self._context.destroy(linger=0)


def _runs(parent: int) -> bool:
    """Return whether the worker's process exists and is not stopped, as far as can be known."""
    if os.getppid() != parent:
        return False
    try:
        with open(f"/proc/{parent}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return True  # there is no /proc on this system; the manager bounds the beats
    return state not in (b"T", b"t", b"Z", b"X")


def main() -> None:
    """Send beats until the worker ends."""
    records = _Records()
    parent, path, keys = records.first()
    interval, stalled_at = 1.0, 0.0
    beats: list[tuple[str, float, list[bytes]]] = []
    sender: _Sender | None = None
    while os.getppid() == parent:
        record = records.newest(interval if sender else _PATIENCE * interval)
        now = time.monotonic()
        if record is not None:
            interval, beats = record
            if sender is not None:
                sender.close()
                sender = None
            continue
        if not beats or not _runs(parent):
            continue
        if sender is None:
            sender, stalled_at = _Sender(path, keys), now
        for endpoint, bound, frames in beats:
            if now - stalled_at < bound:
                sender.send(endpoint, frames)


if __name__ == "__main__":
    try:
        main()
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        pass
    os._exit(0)
