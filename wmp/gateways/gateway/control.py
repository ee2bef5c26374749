"""A Unix socket by which an operator of this machine controls a gateway.

A request is a line of JSON, ``{"do": "workers"}`` or ``{"do": "kill", "id": "…"}``. The answer is a
line of JSON, too. Only the user of the gateway's process may connect: the socket has the mode 0600.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from typing import Any, Final

from wmp.errors import ClosedError, ConfigError, TransportError
from wmp.gateways.gateway.aio import Gateway
from wmp.runtime.sockets.socket_paths import FileIdentity, check_socket_path, file_identity

_LONGEST: Final = 64 * 1024
"""Maximum number of bytes of a request."""

_PATIENCE: Final = 5.0
"""Seconds within which a request must come, and its answer."""


class ControlSocket:
    """Answers the requests of operators while a gateway runs.

    Args:
        path: Path of the socket. A file that no process serves any more is replaced.
        gateway: The gateway.
    """

    def __init__(self, path: str | os.PathLike[str], gateway: Gateway) -> None:
        self._path = os.fspath(path)
        self._gateway = gateway
        self._server: asyncio.Server | None = None
        self._file: FileIdentity = (0, 0)

    async def __aenter__(self) -> ControlSocket:
        """Bind the socket.

        Raises:
            ConfigError: The path cannot be used.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._clear()
            # The mode must not be wider for any moment.
            before = os.umask(0o177)
            try:
                listener.bind(self._path)
            finally:
                os.umask(before)
            self._file = file_identity(self._path)
            self._server = await asyncio.start_unix_server(
                self._answer, sock=listener, limit=_LONGEST
            )
        except OSError as error:
            listener.close()
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(
                f"cannot make the control socket {self._path}: {reason}; name a path in a folder "
                "that you may write"
            ) from error
        except BaseException:
            listener.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            # The path names another file if somebody has replaced the socket.
            with contextlib.suppress(OSError):
                if file_identity(self._path) == self._file:
                    os.unlink(self._path)

    def _clear(self) -> None:
        """Remove a socket that a process left behind."""
        if check_socket_path(self._path, f"cannot make the control socket {self._path}"):
            os.unlink(self._path)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.LimitOverrunError, ValueError):
            async with asyncio.timeout(_PATIENCE):
                line = await reader.readline()
                writer.write(json.dumps(self._act(line)).encode() + b"\n")
                await writer.drain()
        writer.close()

    def _act(self, line: bytes) -> dict[str, Any]:
        """Do what a request asks for; return the answer."""
        try:
            request = json.loads(line)
            match request:
                case {"do": "workers"}:
                    return {"workers": self._workers()}
                case {"do": "kill", "id": str(text)}:
                    return self._kill(text)
        except (ValueError, ClosedError) as error:
            return {"error": str(error)}
        return {"error": 'the request is unknown; expected {"do": "workers"} or {"do": "kill"}'}

    def _workers(self) -> list[dict[str, str]]:
        return [
            {"id": id.hex(), "group": group, "state": state.name.lower()}
            for group, workers in self._gateway.workers().items()
            for id, state in workers.items()
        ]

    def _kill(self, text: str) -> dict[str, Any]:
        known = {id: group for group, ids in self._gateway.workers().items() for id in ids}
        id = bytes.fromhex(text)
        if id not in known:
            return {"error": f"there is no worker {text}; `wmp gateway workers` lists the workers"}
        if not self._gateway.dismiss(id):
            return {"error": f"the workers of {known[id]} know no EXIT; end the process itself"}
        return {"killed": text}


def ask(path: str | os.PathLike[str], request: dict[str, str]) -> dict[str, Any]:
    """Send a request to a gateway's control socket; return the answer.

    Raises:
        ConfigError: No gateway has this socket.
        TransportError: The gateway did not answer, or refused the request.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE)
        try:
            connection.connect(os.fspath(path))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(
                f"cannot reach a gateway at {path}: {reason}; start `wmp gateway` with "
                f"--control {path}"
            ) from error
        try:
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer: dict[str, Any] = json.loads(answers.readline())
        except (OSError, ValueError) as error:
            raise TransportError(f"the gateway at {path} did not answer: {error}") from error
    if "error" in answer:
        raise TransportError(str(answer["error"]))
    return answer
