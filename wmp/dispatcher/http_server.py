"""An application behind a bound socket, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from wmp.dispatcher.targets import network_address
from wmp.errors import ConfigError

logger = logging.getLogger("wmp")

_GRACE: Final = 2
"""Seconds that requests in progress have when the server stops."""
HEAD_TIME: Final = 20.0
"""Seconds that a client has at most to send the head of a request."""
MAX_CONNECTIONS: Final = 1_000
"""Connections that a server has at most (DSP-6.7)."""
_AT_ONCE: Final = 16
"""Connections that the loop accepts at once: without a limit they take all descriptors."""
_QUEUE: Final = 1_024
"""Connections that the system keeps until they are accepted."""
_REMIND: Final = 30.0


def quiet_libraries() -> None:
    """Have the libraries of HTTP log no requests: neither good ones, nor those that are no HTTP."""
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # A client gets 400 and the reason; a line for each such request would fill a disk.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


def max_connections() -> int:
    """Return how many connections a server has at most: half of the process's descriptors."""
    try:
        import resource
    except ImportError:
        return MAX_CONNECTIONS  # This system has no such limit.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, limit // 2))


class _QuietServer(uvicorn.Server):
    """A server that leaves signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _ImpatientProtocol(H11Protocol):
    """A connection that is closed when a head takes too long, or nothing of an answer is taken.

    Uvicorn limits only the time between two requests. Without these limits, clients that send or
    read nothing take all descriptors of the process. When too many are open, the connection that
    has waited for its client for the longest time is closed.
    """

    complained_at = float("-inf")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._last: tuple[object, int] | None = None
        self._since = self.loop.time()
        self._look()
        if len(self.connections) > max_connections():
            self._close_longest_waiting()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def _close_longest_waiting(self) -> None:
        """Close the connection that has waited for its client for the longest time.

        It is one of the network address with the most of them: one address ends its own (DSP-6.7).
        """
        waiting: list[_ImpatientProtocol] = [
            connection
            for connection in self.connections
            if isinstance(connection, _ImpatientProtocol) and connection._waits_for_client()
        ]
        counts = Counter(connection._address() for connection in waiting)
        most = max(counts.values(), default=0)
        chosen = [each for each in waiting if counts[each._address()] == most]
        min(chosen, key=lambda connection: connection._since, default=self).transport.abort()
        if self._since - _ImpatientProtocol.complained_at >= _REMIND:
            _ImpatientProtocol.complained_at = self._since
            logger.warning(
                "http: more than %d connections are open; those that wait for their clients for "
                "the longest time are closed",
                max_connections(),
            )

    def _address(self) -> str | None:
        """Return the network address of the client."""
        return network_address(self.client[0] if self.client else None)

    def _waits_for_client(self) -> bool:
        cycle: Any = self.cycle
        waits = cycle is None or cycle.response_complete or cycle.more_body
        return waits and not self.transport.is_closing()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(error)

    def _look(self) -> None:
        """Close the connection if it has waited for its client since the last look."""
        cycle: Any = self.cycle
        unsent = self.transport.get_write_buffer_size()
        waits = cycle is None or cycle.response_complete or unsent
        state = (cycle, unsent) if waits else None
        if waits and self._last == state:
            self.transport.abort()
            return
        self._last = state
        self._timer = self.loop.call_later(HEAD_TIME / 2, self._look)


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket of TCP that is bound to an address and does not listen yet.

    Raises:
        ConfigError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The loop sends small packets at once only if the socket names its protocol.
    tcp_socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    tcp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        tcp_socket.bind((host, port))
    except OSError as error:
        tcp_socket.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another address with "
            "--http, or end the program that has it"
        ) from error
    return tcp_socket


class HttpServer:
    """Serves an application. ``async with`` serves in the background.

    Args:
        app: An ASGI application.
        host: Name or address to listen on.
        port: The port; 0 for any that is free.
        bound: The socket that :func:`bound_socket` returned for host and port, for an application
            that has to know the port; None for a new one.

    Raises:
        ConfigError: The address cannot be used.
    """

    def __init__(self, app: Any, host: str, port: int, bound: socket.socket | None = None) -> None:
        self._app = app
        self._socket = bound_socket(host, port) if bound is None else bound
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
            http=_ImpatientProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_AT_ONCE,
            timeout_graceful_shutdown=_GRACE,
        )
        self._server = _QuietServer(config)
        self._task = asyncio.get_running_loop().create_task(
            self._server.serve(sockets=[self._socket])
        )
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.005)
        self._socket.listen(_QUEUE)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.should_exit = True
        await self._task
        self._socket.close()
