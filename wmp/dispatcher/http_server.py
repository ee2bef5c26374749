"""An application behind a bound socket, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn

from wmp.errors import ConfigError

__all__ = ["HttpServer", "quiet_libraries"]

_GRACE: Final = 2
"""Seconds that requests in progress have when the server stops."""


def quiet_libraries() -> None:
    """Have the libraries of HTTP log warnings only: each request is no line of a log."""
    for name in ("httpx", "httpcore", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _QuietServer(uvicorn.Server):
    """A server that leaves signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves an application. ``async with`` serves in the background.

    Args:
        app: An ASGI application.
        host: Name or address to listen on.
        port: The port; 0 for any that is free.

    Raises:
        ConfigError: The address cannot be used.
    """

    def __init__(self, app: Any, host: str, port: int) -> None:
        self._app = app
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another address, or end "
                "the program that has it"
            ) from error
        self.host = host
        self.port: int = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        """Address of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def __aenter__(self) -> HttpServer:
        config = uvicorn.Config(
            self._app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
        )
        self._server = _QuietServer(config)
        self._task = asyncio.get_running_loop().create_task(
            self._server.serve(sockets=[self._socket])
        )
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.should_exit = True
        await self._task
        self._socket.close()
