"""Clients and servers of Freelance (specs/freelance.md), for asyncio."""

from __future__ import annotations

from typing import Final, Unpack

from wmp.duration import Duration
from wmp.errors import ConfigError
from wmp.foreign import EndRequest
from wmp.gateways.common.aio import ForeignProgram, make_node
from wmp.gateways.common.client_wire import ClientWire, ReqWire
from wmp.gateways.common.request_client import LazyClientStatistics
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.common.requester import Requester
from wmp.gateways.common.server_machine import LazyServerMachine, LazyServerStatistics
from wmp.gateways.freelance.agent_machine import AgentClientMachine, AgentClientStatistics
from wmp.gateways.freelance.shotgun_machine import ShotgunClientMachine, ShotgunClientStatistics
from wmp.gateways.freelance.wire import AgentWire, ShotgunWire
from wmp.message import counted
from wmp.runtime.common.checks import check_count, check_seconds
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    SocketSettings,
    shows_socket_options,
)

MODELS: Final = ("agent", "shotgun", "failover")
"""The values of ``model`` of a server."""

_FAILOVER_TRIES: Final = 3
"""Number of tries with one server (FREE-2.3)."""


def _check_endpoints(endpoints: tuple[str, ...]) -> tuple[str, ...]:
    if not endpoints:
        raise ConfigError("no endpoint is given; expected the address of one server or more")
    for number, endpoint in enumerate(endpoints):
        if endpoint in endpoints[:number]:
            raise ConfigError(f"the endpoint {endpoint} is given twice; expected different servers")
    return endpoints


class Failover(Requester[LazyClientMachine]):
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
        servers = len(_check_endpoints(endpoints))
        if tries is None:
            tries = _FAILOVER_TRIES if servers == 1 else servers
        machine = LazyClientMachine(
            check_seconds("timeout", timeout, zero=False), check_count("tries", tries, 1), servers
        )
        node = make_node(
            "failover client",
            connect=endpoints,
            sockets=SocketSettings.of(options),
        )
        super().__init__(machine, node)

    def _explain(self, action: EndRequest) -> str:
        return (
            f"no reply from {', '.join(self._node.connect)} in "
            f"{counted(action.tries, 'try', 'tries')} of {self._machine.timeout:g} s; check that a "
            "server runs at one of these addresses"
        )

    def statistics(self) -> LazyClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()


class Shotgun(Requester[ShotgunClientMachine]):
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
        node = make_node(
            "shotgun client",
            connect=_check_endpoints(endpoints),
            sockets=SocketSettings.of(options),
        )
        machine = ShotgunClientMachine(check_seconds("timeout", timeout, zero=False))
        super().__init__(machine, node)

    def _explain(self, action: EndRequest) -> str:
        reached = (
            f"the request was sent to {counted(action.tries, 'server')}"
            if action.tries
            else "there was no connection to any of them"
        )
        return (
            f"no reply from {', '.join(self._node.connect)} in {self._machine.timeout:g} s; "
            f"{reached}; check that a shotgun server runs at one of these addresses"
        )

    def statistics(self) -> ShotgunClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()


class Agent(Requester[AgentClientMachine]):
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
        machine = AgentClientMachine(
            check_seconds("timeout", timeout, zero=False),
            check_seconds("ping", ping, zero=False),
            check_seconds("ttl", ttl, zero=False),
        )
        if machine.ttl <= machine.ping:
            raise ConfigError(
                f"ttl is {machine.ttl:g} s and ping is {machine.ping:g} s; expected a ttl above "
                "ping, so that a server has time for PONG"
            )
        node = make_node(
            "agent",
            connect=_check_endpoints(endpoints) if endpoints else (),
            sockets=SocketSettings.of(options),
        )
        super().__init__(machine, node, report_lost=True)

    async def connect(self, endpoint: str) -> None:
        """Add a server behind those that the agent has. A server that the agent has stays.

        Args:
            endpoint: Address of the server.

        Raises:
            ConfigError: The address cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The agent is not started, or was closed.
        """
        self._node.serving()
        if endpoint not in self._node.connect:
            self._node.add_connection(endpoint)

    @property
    def alive(self) -> tuple[str, ...]:
        """Addresses of the servers that are alive, in their order."""
        return tuple(self._node.connect[port] for port in self._machine.statistics().alive)

    def _explain(self, action: EndRequest) -> str:
        servers = ", ".join(self._node.connect)
        if not servers:
            return "no reply: the agent has no server; call connect() with the address of a server"
        reached = (
            f"the request was sent to {counted(action.tries, 'server')}"
            if action.tries
            else "none of them has answered PING"
        )
        return (
            f"no reply from {servers} in {self._machine.timeout:g} s; {reached}; check that a "
            "server for agents runs at one of these addresses"
        )

    def statistics(self) -> AgentClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()


class FreelanceServer(ForeignProgram[LazyServerMachine]):
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
        machine = LazyServerMachine(
            slots=check_count("slots", slots, 1),
            as_list=as_list,
            limit=check_count("limit", limit, 1),
            wire=_wire_of(model, guide=guide),
            remember=check_seconds("remember", remember),
        )
        if model != "agent" and (name or guide):
            raise ConfigError(f'name and guide are settings of the model "agent", not of "{model}"')
        node = make_node(
            f"{model} server",
            bind=bind,
            sockets=SocketSettings.of(options),
            routing_id=name.encode() if model == "agent" else None,
        )
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


def _wire_of(model: str, *, guide: bool) -> ClientWire:
    if model == "agent":
        return AgentWire(guide=guide)
    if model == "shotgun":
        return ShotgunWire()
    if model == "failover":
        return ReqWire()
    raise ConfigError(f"model is {model!r}; expected one of {', '.join(MODELS)}")
