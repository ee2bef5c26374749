# Twin of wmp/gateways/freelance/aio.py; written by specs/build_blocking.py.
"""Clients and servers of Freelance (specs/freelance.md): many servers, and no broker.

::

    from wmp.gateways import Agent, FreelanceServer

    with (
        FreelanceServer("tcp://127.0.0.1:5555", handler=bytes.upper),
        FreelanceServer("tcp://127.0.0.1:5556", handler=bytes.upper),
        Agent("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5556") as agent,
    ):
        print(agent.request(b"hello"))

:mod:`wmp.gateways.aio` has the same names for asyncio.
"""

from __future__ import annotations

from typing import Unpack

from wmp.duration import Duration
from wmp.gateways.common.blocking import BlockingForeignProgram, BlockingRequester
from wmp.gateways.common.request_client import LazyClientStatistics
from wmp.gateways.common.server_machine import LazyServerStatistics
from wmp.gateways.freelance import aio
from wmp.gateways.freelance.agent_machine import AgentClientStatistics
from wmp.gateways.freelance.shotgun_machine import ShotgunClientStatistics
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.socket_settings import SocketOptions, shows_socket_options


class Failover(BlockingRequester[aio.Failover]):
    """Sends a request to one server after the other until one replies.

    The requests of one client go out one after the other, in the order of the calls. The next
    request begins with the server of the last reply.

    Args:
        endpoints: Addresses of the servers.
        timeout: Seconds of one try.
        tries: Sends of a request in all. By default 3 with one server, else one for each server.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        *endpoints: str,
        timeout: Duration = 1.0,
        tries: int | None = None,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.Failover(*endpoints, timeout=timeout, tries=tries, **options)
        super().__init__("failover", inner, lambda _: inner.close())

    def statistics(self) -> LazyClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)


class Shotgun(BlockingRequester[aio.Shotgun]):
    """Sends each request to all servers at once. The first reply counts.

    Requests may be in progress at the same time.

    Args:
        endpoints: Addresses of the servers.
        timeout: Seconds within which the first reply must come.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        *endpoints: str,
        timeout: Duration = 2.5,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.Shotgun(*endpoints, timeout=timeout, **options)
        super().__init__("shotgun", inner, lambda _: inner.close())

    def statistics(self) -> ShotgunClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)


class Agent(BlockingRequester[aio.Agent]):
    """Sends each request to the first server that is alive, and to the next if that one dies.

    Requests may be in progress at the same time.

    Args:
        endpoints: Addresses of the servers, the preferred server first. None is needed:
            :meth:`connect` adds servers.
        timeout: Seconds within which a reply must come, from the call on.
        ping: Seconds without a message of a server after which PING is sent.
        ttl: Seconds without a message after which a server is not alive any more.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        *endpoints: str,
        timeout: Duration = 3.0,
        ping: Duration = 2.0,
        ttl: Duration = 6.0,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.Agent(*endpoints, timeout=timeout, ping=ping, ttl=ttl, **options)
        super().__init__("agent", inner, lambda _: inner.close())

    def connect(self, endpoint: str) -> None:
        """Add a server behind those that the agent has. A server that the agent has stays.

        Args:
            endpoint: Address of the server.

        Raises:
            ConfigError: The address cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The agent is not started, or was closed.
        """
        self._portal.call(self._inner.connect(endpoint))

    @property
    def alive(self) -> tuple[str, ...]:
        """Addresses of the servers that are alive, in their order."""
        return self._look(lambda: self._inner.alive)

    def statistics(self) -> AgentClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)


class FreelanceServer(BlockingForeignProgram[aio.FreelanceServer]):
    """Answers the requests of clients of one model.

    Args:
        bind: Endpoints of the server.
        handler: Does a request: ``f(body)`` or ``f(body, job)``, ``def`` or ``async def``. A body
            of one frame is ``bytes``; a body of several frames is a list.
        model: ``"agent"``, ``"shotgun"`` or ``"failover"``: the model of the clients.
        name: For agents that have a ROUTER, as those of the guide: the address by which they
            connect. By default the first address of ``bind``, with the actual port.
        guide: Whether an empty frame behind the sequence is not part of the body, as the Python
            client of the guide sends it.
        remember: Seconds for which a reply is kept for repetitions of a request of an agent.
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
        model: str = "agent",
        name: str = "",
        guide: bool = False,
        remember: Duration = 6.0,
        slots: int = 1,
        pool: str = "thread",
        as_list: bool = False,
        limit: int = 1000,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.FreelanceServer(
            *bind,
            handler=handler,
            model=model,
            name=name,
            guide=guide,
            remember=remember,
            slots=slots,
            pool=pool,
            as_list=as_list,
            limit=limit,
            **options,
        )
        super().__init__("freelance server", inner, inner.close)

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
