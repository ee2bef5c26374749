"""Clients, servers and workers of the Pirate patterns (specs/pirates.md), for asyncio."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Unpack

from wmp.duration import Duration
from wmp.events import Ticked
from wmp.foreign import EndRequest
from wmp.gateways.common.aio import ForeignProgram, ForeignWorker, make_node
from wmp.gateways.common.pirate_wire import ParanoidWire, SimpleWire
from wmp.gateways.common.request_client import LazyClientStatistics
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.common.requester import Requester
from wmp.gateways.common.server_machine import LazyServerMachine, LazyServerStatistics
from wmp.gateways.common.worker_machine import SignTimes
from wmp.message import counted
from wmp.runtime.common.checks import check_count, check_seconds
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    SocketSettings,
    shows_socket_options,
)

logger = logging.getLogger("wmp")


class LazyClient(Requester[LazyClientMachine]):
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
        machine = LazyClientMachine(
            check_seconds("timeout", timeout, zero=False), check_count("tries", tries, 1)
        )
        node = make_node(
            "lazy client",
            connect=(endpoint,),
            sockets=SocketSettings.of(options),
        )
        self._on_retry = on_retry
        node.watchers.append(self._watch)
        super().__init__(machine, node)

    def _watch(self, event: object, actions: Sequence[object], now: float) -> None:
        """Report a try without a reply, if another try follows."""
        if type(event) is not Ticked or not actions or any(type(a) is EndRequest for a in actions):
            return
        number, of = self._machine.attempt, self._machine.tries
        logger.warning(
            "lazy client: no reply from %s in %g s; try %d of %d follows",
            self._node.connect[0],
            self._machine.timeout,
            number,
            of,
        )
        if self._on_retry is not None:
            try:
                self._on_retry(number)
            except Exception:
                logger.exception("lazy client: on_retry raised; the request goes on")

    def _explain(self, action: EndRequest) -> str:
        return (
            f"no reply from {self._node.connect[0]} in {counted(action.tries, 'try', 'tries')} of "
            f"{self._machine.timeout:g} s; check that the server at this address runs, and if it "
            "is a queue, that a worker is connected to it"
        )

    def statistics(self) -> LazyClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()


class LazyServer(ForeignProgram[LazyServerMachine]):
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
        machine = LazyServerMachine(
            slots=check_count("slots", slots, 1),
            as_list=as_list,
            limit=check_count("limit", limit, 1),
        )
        node = make_node("lazy server", bind=bind, sockets=SocketSettings.of(options))
        super().__init__(machine, node, handler, slots, pool)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which clients can connect, with the actual ports.

        Raises:
            ClosedError: The server is not started, and the system has not chosen an address yet.
        """
        return self._node.addresses

    def statistics(self) -> LazyServerStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()


class SimpleWorker(ForeignWorker):
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
        super().__init__(
            "simple worker",
            endpoint,
            handler,
            SimpleWire(),
            None,
            pool=pool,
            as_list=as_list,
            sockets=SocketSettings.of(options),
        )


class ParanoidWorker(ForeignWorker):
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
        interval = check_seconds("heartbeat", heartbeat, zero=False)
        times = SignTimes(
            interval,
            interval * check_count("liveness", liveness, 1),
            check_seconds("reopen", reopen, zero=False),
            check_seconds("reopen_max", reopen_max, zero=False),
        )
        super().__init__(
            "paranoid worker",
            endpoint,
            handler,
            ParanoidWire(),
            times,
            pool=pool,
            as_list=as_list,
            sockets=SocketSettings.of(options),
        )
