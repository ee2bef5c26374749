"""A proxy between a store and its server of PostgreSQL, which counts round trips and makes faults.

The proxy reads the messages of the protocol, and passes them on unchanged.
"""

from __future__ import annotations

import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

__all__ = ["PostgresProxy"]

_SOCKET = ".s.PGSQL.5432"
_SSL, _GSS = 80877103, 80877104
"""Requests for encryption, which a server answers with one byte."""


class PostgresProxy:
    """Listens on a socket in a folder of its own; ``url`` leads through it.

    Attributes:
        trips: Number of times that a client waited for the server and got its answer.
        loses: Decides by the text of a request whether its answer is lost: the server does the
            request, and then the connection is cut.
        hole: While it is set, nothing arrives in either direction, and nothing is cut.
        pause: Seconds by which each piece of an answer is late.
        lost: Number of answers that were lost.
    """

    def __init__(self, url: str) -> None:
        head, _, host = url.partition("host=")
        folder, _, rest = host.partition("&")
        self._server = f"{folder}/{_SOCKET}"
        self.folder = Path(tempfile.mkdtemp(prefix="wmp-px-", dir="/tmp"))
        self.url = f"{head}host={self.folder}" + (f"&{rest}" if rest else "")
        self.trips = self.lost = 0
        self.loses: Callable[[str], bool] = lambda request: False
        self.pause = 0.0
        self._open = threading.Event()
        self._open.set()
        self._ended = threading.Event()
        self._lines: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / _SOCKET))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def hole(self) -> bool:
        """Whether nothing arrives."""
        return not self._open.is_set()

    @hole.setter
    def hole(self, closed: bool) -> None:
        if closed:
            self._open.clear()
        else:
            self._open.set()

    def cut(self) -> None:
        """Cut all connections."""
        lines, self._lines = self._lines, []
        for line in lines:
            _shut(line)

    def close(self) -> None:
        """End the proxy. Idempotent."""
        self._ended.set()
        self._open.set()
        _shut(self._listener)
        self._listener.close()
        self.cut()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._server)
            except OSError:  # the server is down
                client.close()
                server.close()
                continue
            self._lines += [client, server]
            threading.Thread(target=_Line(self, client, server).pass_requests, daemon=True).start()


class _Line:
    """One connection."""

    def __init__(self, proxy: PostgresProxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.loses = False
        """Whether the next answer is lost."""

    def pass_requests(self) -> None:
        """Pass on what the client sends, until the connection ends."""
        answers = threading.Thread(target=self.pass_answers, daemon=True)
        try:
            while True:
                (size,) = struct.unpack("!I", head := _read(self.client, 4))
                body = _read(self.client, size - 4)
                self.server.sendall(head + body)
                if struct.unpack("!I", body[:4])[0] not in (_SSL, _GSS):
                    break
                self.client.sendall(_read(self.server, 1))
            answers.start()
            while True:
                head = _read(self.client, 5)
                body = _read(self.client, struct.unpack("!I", head[1:])[0] - 4)
                if head[:1] in (b"Q", b"P"):
                    self.loses = self.proxy.loses(body.decode(errors="replace")) or self.loses
                self.proxy._open.wait()
                self.server.sendall(head + body)
        except OSError:
            pass
        finally:
            self.end()
            if answers.ident is not None:
                answers.join()
            self.client.close()
            self.server.close()

    def pass_answers(self) -> None:
        """Pass on what the server sends, message by message."""
        try:
            while True:
                head = _read(self.server, 5)
                body = _read(self.server, struct.unpack("!I", head[1:])[0] - 4)
                if self.loses:
                    if head[:1] == b"Z":  # the server has done the request
                        self.proxy.lost += 1
                        self.end()
                        return
                    continue
                self.proxy._ended.wait(self.proxy.pause)
                self.proxy._open.wait()
                self.proxy.trips += head[:1] == b"Z"
                self.client.sendall(head + body)
        except OSError:
            self.end()

    def end(self) -> None:
        """Cut the connection."""
        for connection in (self.client, self.server):
            _shut(connection)


def _read(line: socket.socket, size: int) -> bytes:
    """Read so many bytes.

    Raises:
        OSError: The connection was cut.
    """
    data = b""
    while len(data) < size:
        piece = line.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the other end has closed the connection")
        data += piece
    return data


def _shut(line: socket.socket) -> None:
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the other end was faster
