# Twin of wmp/gateways/pirates/aio.py; written by specs/build_blocking.py.
"""Clients, servers and workers of the Pirate patterns (specs/pirates.md).

::

    from wmp.gateways import LazyClient, LazyServer

    with LazyServer("tcp://127.0.0.1:5555", handler=bytes.upper):
        with LazyClient("tcp://127.0.0.1:5555") as client:
            print(client.request(b"hello"))

:mod:`wmp.gateways.aio` has the same names for asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from wmp.duration import Duration
from wmp.gateways.common.blocking import (
    BlockingForeignProgram,
    BlockingForeignWorker,
    BlockingRequester,
)
from wmp.gateways.common.request_client import LazyClientStatistics
from wmp.gateways.common.server_machine import LazyServerStatistics
from wmp.gateways.pirates import aio
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.socket_settings import SocketOptions, shows_socket_options


class LazyClient(BlockingRequester[aio.LazyClient]):
    """Sends requests to a server or a queue, and sends a request again if no reply comes.

    The requests of one client go out one after the other, in the order of the calls. For requests
    at the same time use several clients.

    Args:
        endpoint: Address of a REP or ROUTER socket.
        timeout: Seconds of one try.
        tries: Sends of a request in all. Each try but the first has a new socket.
        on_retry: Called on the loop with the number of each try but the first, before the try.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        *,
        timeout: Duration = 2.5,
        tries: int = 3,
        on_retry: Callable[[int], object] | None = None,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.LazyClient(endpoint, timeout=timeout, tries=tries, on_retry=on_retry, **options)
        super().__init__("lazy client", inner, lambda _: inner.close())

    def statistics(self) -> LazyClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)


class LazyServer(BlockingForeignProgram[aio.LazyServer]):
    """Answers the requests of REQ sockets, for example those of Lazy Pirate clients.

    Args:
        bind: Endpoints of the server.
        handler: Does a request: ``f(body)`` or ``f(body, job)``, ``def`` or ``async def``. A body
            of one frame is ``bytes``; a body of several frames is a list.
        slots: Number of requests that are done at the same time.
        pool: ``"thread"``; ``"process"`` for handlers that compute; ``"inline"`` for tiny ones.
        as_list: Whether the handler gets a list also for a body of one frame, and may return one.
        limit: Maximum number of requests that wait. Further requests are dropped.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        *bind: str,
        handler: Handler,
        slots: int = 1,
        pool: str = "thread",
        as_list: bool = False,
        limit: int = 1000,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.LazyServer(
            *bind,
            handler=handler,
            slots=slots,
            pool=pool,
            as_list=as_list,
            limit=limit,
            **options,
        )
        super().__init__("lazy server", inner, inner.close)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which clients can connect, with the actual ports.

        Raises:
            ClosedError: The server is not started, and the system has not chosen an address yet.
        """
        return self._look(lambda: self._inner.endpoints)

    def statistics(self) -> LazyServerStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)


class SimpleWorker(BlockingForeignWorker[aio.SimpleWorker]):
    """Does the requests of a Simple Pirate queue, one at a time.

    Args:
        endpoint: Address of the queue's socket for workers.
        handler: Does a request; see :class:`LazyServer`.
        pool: ``"thread"``, ``"process"`` or ``"inline"``.
        as_list: Whether the handler gets a list also for a body of one frame, and may return one.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        handler: Handler,
        *,
        pool: str = "thread",
        as_list: bool = False,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.SimpleWorker(endpoint, handler, pool=pool, as_list=as_list, **options)
        super().__init__("simple worker", inner, inner.close)


class ParanoidWorker(BlockingForeignWorker[aio.ParanoidWorker]):
    """Does the requests of a Paranoid Pirate queue (6/PPP), one at a time.

    Args:
        endpoint: Address of the queue's socket for workers.
        handler: Does a request; see :class:`LazyServer`.
        heartbeat: Seconds between two signs of life.
        liveness: Number of heartbeats without a message of the queue after which the queue counts
            as dead.
        reopen: Seconds before the socket is replaced then. The wait doubles each time.
        reopen_max: Longest wait in seconds.
        pool: ``"thread"``, ``"process"`` or ``"inline"``.
        as_list: Whether the handler gets a list also for a body of one frame, and may return one.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        handler: Handler,
        *,
        heartbeat: Duration = 1.0,
        liveness: int = 3,
        reopen: Duration = 1.0,
        reopen_max: Duration = 32.0,
        pool: str = "thread",
        as_list: bool = False,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.ParanoidWorker(
            endpoint,
            handler,
            heartbeat=heartbeat,
            liveness=liveness,
            reopen=reopen,
            reopen_max=reopen_max,
            pool=pool,
            as_list=as_list,
            **options,
        )
        super().__init__("paranoid worker", inner, inner.close)
