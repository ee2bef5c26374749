"""Opening the ZeroMQ sockets of a node: their options, and the meaning of their failures.

Every error of ZeroMQ becomes a :class:`~wmp.errors.ConfigError` (the caller can correct it) or a
:class:`~wmp.errors.TransportError` here.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket as sockets
from collections.abc import Iterable
from functools import cache
from typing import Final

import zmq

from wmp.errors import ConfigError, TransportError
from wmp.runtime.common.permissions import Act
from wmp.runtime.sockets.host_names import NamedEndpoint
from wmp.runtime.sockets.ports import Port
from wmp.runtime.sockets.security import is_local
from wmp.runtime.sockets.socket_settings import SocketSettings

_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_ACCEPTED = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_ACCEPT_FAILED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
)
_LISTENERS = zmq.EVENT_LISTENING | zmq.EVENT_CLOSED
_LINK = (
    _FAILURES
    | zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
)


def describe(event: int, value: int, *, connects: bool) -> str | None:
    """Return the meaning of a failed handshake, and the remedy.

    Args:
        event: Number of the monitor's event.
        value: The event's value.
        connects: Whether this node connected; else the peer connected to this node.

    Returns:
        A line for people; None for any other event.
    """
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and connects:
        return (
            f"the peer did not admit the key of this node (ZAP status {value}); "
            "add the public key of this node to the peer's allow list"
        )
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return (
            f"the allow list refused the key of a peer (ZAP status {value}); "
            "add the public key of that peer if it may connect"
        )
    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
        for code, cause in _PROTOCOL_ERRORS:
            if code == value:
                return cause
        return (
            f"the ZMTP handshake was broken off (code {value:#x}); check that the other end is a "
            "ZeroMQ socket"
        )
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        if value in (errno.EPIPE, errno.ECONNRESET) and connects:
            return (
                "the other end closed the connection during the handshake; check that both ends "
                "have CURVE keys or neither has, and that the server key here is the public key of "
                "the node at that address"
            )
        if value in (errno.EPIPE, errno.ECONNRESET):
            return (
                "a peer closed its connection during the handshake, as a program that ends or "
                "gives up does; if this goes on, check that both ends have CURVE keys or neither "
                "has"
            )
        reason = os.strerror(value) if value > 0 else "no reason given"
        return (
            f"the ZMTP handshake failed ({reason}); check that both ends have CURVE keys or "
            "neither has"
        )
    return None


_PROTOCOL_ERRORS: Final = (
    (
        zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC,
        (
            "a CURVE handshake could not be decrypted; check that the connecting peer names "
            "the public key of the bound node as its server key"
        ),
    ),
    (
        zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH,
        "one end uses CURVE keys and the other does not; give keys to both ends or to neither",
    ),
)
"""Causes that libzmq names, with the remedy."""


@cache
def _seed_routing_ids() -> None:
    """Make the routing ids that libzmq gives to connections unpredictable, once for each process.

    A ROUTER numbers its connections from a value of C's ``rand()``, which libzmq does not seed. If
    a peer claims the number of a later connection as its own routing id, libzmq aborts the process
    when that connection arrives (an assertion in ``socket_base.cpp``). With a random seed a peer
    would have to guess one of 2**32 numbers. Without access to the C library the numbers stay
    predictable.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "big"))


def router(
    settings: SocketSettings,
    endpoints: Iterable[str],
    *,
    routing_id: bytes | None = None,
    act: Act = Act.CONNECT_WORKER,
) -> Port:
    """Open a ROUTER and bind it to all ``endpoints``.

    Args:
        settings: Settings of the socket, with its context.
        endpoints: Addresses.
        routing_id: Name that peers with a ROUTER use for this one. Empty: the first address, with
            the actual port.
        act: What a peer does by connecting; dialing managers have an allow list of their own.

    Raises:
        ConfigError: An address is in use, or is not an address of this machine.
        TransportError: ZeroMQ refused for another reason.
    """
    _seed_routing_ids()
    kind = zmq.ROUTER
    return _bound(kind, settings, endpoints, routing_id, act)


def publisher(
    settings: SocketSettings,
    endpoints: Iterable[str],
) -> Port:
    """Open a PUB socket and bind it to all ``endpoints``; see :func:`router`."""
    return _bound(zmq.PUB, settings, endpoints, None)


def _bound(
    kind: int,
    settings: SocketSettings,
    endpoints: Iterable[str],
    routing_id: bytes | None,
    act: Act = Act.CONNECT_WORKER,
) -> Port:
    names = tuple(endpoints)
    socket = _open(settings, kind, ipv6=any("[" in name for name in names))
    try:
        if kind == zmq.ROUTER:
            # WMP-1.7: a message to an unreachable peer is reported as an error and not dropped in
            # silence.
            socket.router_mandatory = True
        if settings.security is not None:
            settings.security.serve(socket, act)
        if routing_id == b"":
            names = (_with_port(names[0]), *names[1:])
        if routing_id is not None:
            socket.routing_id = routing_id or names[0].encode()
        port = Port(socket, None, ", ".join(names), _FAILURES | _ACCEPTED | _LISTENERS)
    except Exception:
        socket.close(linger=0)
        raise
    try:
        for name in names:
            port.bind(name)
    except Exception:
        port.close(0)
        raise
    port.name = ", ".join(port.endpoints)
    return port


def dealer(
    settings: SocketSettings,
    index: int,
    endpoint: str,
    *,
    routing_id: bytes | None = None,
) -> Port:
    """Open the DEALER number ``index`` and begin to connect it to ``endpoint``.

    Args:
        settings: Settings of the socket, with its context.
        index: Number of the DEALER.
        endpoint: Address.
        routing_id: Name of this connection at the peer; None for a name that the peer chooses.

    Raises:
        ConfigError: The address cannot be resolved or the keys are wrong.
        TransportError: ZeroMQ refused for another reason.
    """
    return _connected(zmq.DEALER, settings, index, endpoint, routing_id)


def subscriber(
    settings: SocketSettings,
    index: int,
    endpoint: str,
) -> Port:
    """Open a SUB socket for all messages, and begin to connect it; see :func:`dealer`."""
    return _connected(zmq.SUB, settings, index, endpoint, None)


def _connected(
    kind: int,
    settings: SocketSettings,
    index: int,
    endpoint: str,
    routing_id: bytes | None,
) -> Port:
    socket = _open(settings, kind, ipv6="[" in endpoint)
    port = None
    try:
        if kind == zmq.SUB:
            socket.subscribe(b"")
        # ZMQ_IMMEDIATE is not set. With this option libzmq would drop received messages that this
        # node has not read when the peer closes, for example the last messages of a manager. The
        # option would also refuse messages while there is no connection. The send queue does this
        # itself, because an old READY helps no manager.
        if routing_id is not None:
            socket.routing_id = routing_id
        socket.reconnect_ivl = int(settings.transport.reconnect * 1000)
        longest = settings.transport.reconnect_max
        if longest is None:
            longest = 0.1 if is_local(endpoint) else 1.0
        socket.reconnect_ivl_max = int(longest * 1000)
        # A ROUTER with keys speaks CURVE on ipc as well; inproc has no security.
        if settings.security is not None and not endpoint.startswith("inproc://"):
            settings.security.join(socket)
        port = Port(socket, index, endpoint, _LINK)
        port.named = NamedEndpoint.of(endpoint)
        if port.named is None:
            socket.connect(endpoint)
        else:  # the node looks the host up, and then connects to one of its addresses
            socket.connect_timeout = int(settings.transport.handshake * 1000)
    except zmq.ZMQError as error:
        port.close(0) if port is not None else socket.close(linger=0)
        raise ConfigError(f"cannot connect to {endpoint}: {error.strerror.lower()}") from error
    except Exception:
        port.close(0) if port is not None else socket.close(linger=0)
        raise
    # libzmq sends no monitor events for inproc. An inproc socket connects at once, or when its peer
    # binds.
    port.connected = endpoint.startswith("inproc://")
    return port


def _with_port(endpoint: str) -> str:
    """Return an address with a free port, if the system shall choose one.

    libzmq takes the routing id of a ROUTER when the socket is bound, so the port must be known
    before.
    """
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if not endpoint.startswith("tcp://") or port not in ("*", "0"):
        return endpoint
    family = sockets.AF_INET6 if host.startswith("[") else sockets.AF_INET
    name = "" if host == "*" else host.strip("[]")
    try:
        with sockets.socket(family) as probe:
            probe.bind((name, 0))
            return f"tcp://{host}:{probe.getsockname()[1]}"
    except OSError:
        return endpoint  # the error of the bind names the cause


def _open(settings: SocketSettings, kind: int, *, ipv6: bool) -> zmq.Socket[bytes]:
    transport, context = settings.transport, settings.context
    assert context is not None
    try:
        socket: zmq.Socket[bytes] = context.socket(kind)
    except zmq.ZMQError as error:
        raise TransportError(f"cannot open a socket: {error.strerror.lower()}") from error
    socket.linger = int(transport.linger * 1000)
    socket.sndhwm = socket.rcvhwm = transport.high_water_mark
    socket.maxmsgsize = transport.max_frame
    if kind in (zmq.DEALER, zmq.SUB):
        # These heartbeats serve both ends: a ROUTER answers them, and drops a peer that is silent
        # for the ttl. Heartbeats of the ROUTER would cost a timer for each connection. libzmq
        # searches all timers to end one timer, and with 10,000 connections this search alone keeps
        # a core busy.
        socket.heartbeat_ivl = int(transport.heartbeat * 1000)
        socket.heartbeat_timeout = socket.heartbeat_ttl = int(transport.heartbeat * 3000)
    socket.handshake_ivl = int(transport.handshake * 1000)
    socket.backlog = 4096
    if ipv6:
        socket.ipv6 = True
    return socket
