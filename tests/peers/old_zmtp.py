"""Peers that speak ZMTP 1.0 (libzmq 2) or ZMTP 2.0 (libzmq 3, jeromq 0.3), over bare TCP.

They know nothing of ``wmp`` and use no ZeroMQ.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

REQ: Final = 3
DEALER: Final = 5
ROUTER: Final = 6

_INTERVAL: Final = 0.1
"""Seconds between two signs of life of a worker."""

SIGNATURE: Final = b"\xff" + bytes(7) + b"\x01\x7f"


class OldConnection:
    """One connection, as an end of a REQ, DEALER or ROUTER.

    Args:
        stream: The TCP connection.
        version: 1 or 2.
        kind: Number of the socket type; ZMTP 1 does not send it.
        identity: Routing id of this end.
    """

    def __init__(
        self, stream: socket.socket, version: int, kind: int, identity: bytes = b""
    ) -> None:
        self.stream, self.version = stream, version
        if stream.family != socket.AF_UNIX:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = SIGNATURE + bytes((1, kind)) if version == 2 else b""
        stream.sendall(greeting + self._frame(identity, more=False))
        if version == 2:
            self._read(12)
        self._receive_frame()  # the routing id of the other end

    def send(self, frames: list[bytes]) -> None:
        """Send a message."""
        last = len(frames) - 1
        data = [self._frame(frame, more=index < last) for index, frame in enumerate(frames)]
        self.stream.sendall(b"".join(data))

    def receive(self) -> list[bytes]:
        """Return the next message.

        Raises:
            OSError: The connection ended.
        """
        frames, more = [], True
        while more:
            frame, more = self._receive_frame()
            frames.append(frame)
        return frames

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)
        self.stream.close()

    def _frame(self, body: bytes, *, more: bool) -> bytes:
        size = len(body)
        if self.version == 2:
            if size < 256:
                return bytes((more, size)) + body
            return bytes((more | 2,)) + struct.pack(">Q", size) + body
        if size < 254:
            return bytes((size + 1, more)) + body
        return b"\xff" + struct.pack(">Q", size + 1) + bytes((more,)) + body

    def _receive_frame(self) -> tuple[bytes, bool]:
        if self.version == 2:
            (flags,) = self._read(1)
            size = struct.unpack(">Q", self._read(8))[0] if flags & 2 else self._read(1)[0]
            return self._read(size), bool(flags & 1)
        (size,) = self._read(1)
        if size == 255:
            (size,) = struct.unpack(">Q", self._read(8))
        (flags,) = self._read(1)
        return self._read(size - 1), bool(flags & 1)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.stream.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the other end closed the connection")
            data += part
        return data


def connect(endpoint: str, version: int, kind: int, identity: bytes = b"") -> OldConnection:
    """Connect to ``tcp://HOST:PORT`` or ``ipc://PATH``."""
    if endpoint.startswith("ipc://"):
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(endpoint.removeprefix("ipc://"))
        return OldConnection(stream, version, kind, identity)
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return OldConnection(socket.create_connection((host, int(port))), version, kind, identity)


class OldWorker:
    """A worker: sends its first message, and answers each request by a function.

    Args:
        endpoint: Address of the queue or broker.
        version: 1 or 2.
        ready: The first message.
        answer: Returns the reply to a message; None for no reply.
        identity: Routing id.
        sign: A sign of life, which the worker sends ten times a second; None for none.
    """

    def __init__(
        self,
        endpoint: str,
        version: int,
        ready: list[bytes],
        answer: Callable[[list[bytes]], list[bytes] | None],
        identity: bytes = b"",
        *,
        sign: list[bytes] | None = None,
    ) -> None:
        self._connection = connect(endpoint, version, DEALER, identity)
        self._answer = answer
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.done = 0
        self._connection.send(ready)
        if sign is not None:
            threading.Thread(target=self._beat, args=(sign,), daemon=True).start()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection without a word, as a killed process does."""
        self._ended.set()
        self._connection.close()
        self._thread.join()

    def wait(self) -> None:
        """Wait for the end of the connection."""
        self._thread.join()

    def _work(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                message = self._connection.receive()
                with self._lock:
                    reply = self._answer(message)
                    if reply is not None:
                        self._connection.send(reply)
                        self.done += 1

    def _beat(self, sign: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while not self._ended.wait(_INTERVAL):
                with self._lock:  # a worker sends no sign while it works
                    self._connection.send(sign)


class OldBroker:
    """A ROUTER that answers each message of each peer by a function.

    Args:
        version: 1 or 2.
        answer: Returns the replies to a message.
    """

    def __init__(self, version: int, answer: Callable[[list[bytes]], list[list[bytes]]]) -> None:
        self._version, self._answer = version, answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self.connections: list[OldConnection] = []
        self.received: list[list[bytes]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self.connections:
            connection.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                stream, _ = self._server.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):
                connection = OldConnection(stream, self._version, ROUTER)
                self.connections.append(connection)
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: OldConnection) -> None:
        with contextlib.suppress(OSError):
            while True:
                message = connection.receive()
                self.received.append(message)
                for reply in self._answer(message):
                    connection.send(reply)
