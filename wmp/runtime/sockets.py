"""ZeroMQ sockets of a node: their options, addresses and monitors, and nothing of WMP.

Every error of ZeroMQ becomes a :class:`~wmp.errors.ConfigError` (the caller can fix it) or a
:class:`~wmp.errors.TransportError` here.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import socket as sockets
import struct
from collections.abc import Iterable
from enum import Enum
from functools import cache
from typing import Final

import zmq

from wmp.errors import ConfigError, TransportError, WMPError
from wmp.message import Limits
from wmp.runtime.connections import Connections
from wmp.runtime.security import Security, is_local
from wmp.runtime.transport import Transport

__all__ = [
    "Context",
    "Port",
    "Sent",
    "check_endpoints",
    "dealer",
    "describe",
    "router",
]

Context = zmq.Context[zmq.Socket[bytes]]

_COPY_BELOW = 32 * 1024
"""Bytes below which passing a frame to libzmq by copy is faster than by reference."""

_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/\s]+):(?P<port>\*|\d{1,5})")

_IPC_PATH = 107
"""Limit of the bytes of a Unix socket's path: ``sun_path`` without its last byte."""


class Sent(Enum):
    """Result of sending a message."""

    OK = "ok"
    FULL = "full"
    UNREACHABLE = "unreachable"


class Port:
    """One socket, with its monitor.

    Attributes:
        index: Number of a DEALER, None for the ROUTER.
        name: Endpoint, for people.
        connections: The open connections.
        connected: Whether a DEALER has a peer, as far as the monitor reported.
        met: Whether it ever had one.
        warned: Whether a warning that no peer answers was logged.
        endpoints: Endpoints that a ROUTER is bound to, with the actual ports.
        paused: Whether a ROUTER accepts no connections for a while.
        descriptor: Becomes readable at a change of the socket, edge-triggered.
        monitor_descriptor: The same for its monitor.
    """

    __slots__ = (
        "_files",
        "_monitor",
        "connected",
        "connections",
        "descriptor",
        "endpoints",
        "index",
        "met",
        "monitor_descriptor",
        "name",
        "paused",
        "socket",
        "warned",
    )

    def __init__(
        self, socket: zmq.Socket[bytes], index: int | None, name: str, events: int
    ) -> None:
        self.socket = socket
        self.index = index
        self.name = name
        self.connected = index is None
        self.met = self.warned = self.paused = False
        self.endpoints: list[str] = []
        self.connections: Connections | None = None
        self._files: list[tuple[str, tuple[int, int]]] = []
        self._monitor: zmq.Socket[bytes] = socket.get_monitor_socket(events)
        self.descriptor = _descriptor(socket)
        self.monitor_descriptor = _descriptor(self._monitor)

    def receive(self, *, heads: bool = False) -> list[bytes | memoryview]:
        """Return the frames of the next message, the routing id of a ROUTER included.

        Routing id, head and columns are copied: they are small or are taken apart anyway. The
        frames behind them are payloads above 4 kB, which stay where libzmq received them.

        Args:
            heads: Whether only heads are decoded. Then columns are not copied either, unless they
                are so small that they would keep more of libzmq's memory than they have bytes.

        Raises:
            zmq.Again: No message waits.
        """
        socket, connections = self.socket, self.connections
        copied = (self.index is None) + (not heads)
        try:
            first = socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            self._emptied()
            raise
        frames: list[bytes | memoryview] = [first]
        if connections is not None:
            key = first if self.index is None else b""
            connections.active.add(key)
            if self.index is None and key not in connections.descriptors:
                copied -= self._learn(key, frames)
        while socket.get(zmq.RCVMORE):
            if copied:
                copied -= 1
                frames.append(socket.recv(zmq.NOBLOCK))
            elif len(frames) <= Limits.FRAMES + 1:
                frame = socket.recv(zmq.NOBLOCK, copy=False)
                frames.append(frame.buffer if len(frame) >= Limits.INLINE else frame.bytes)
            else:
                # More frames than a message may have. One frame above the limit is kept, so that
                # the decoder refuses the message; the rest is dropped.
                socket.recv(zmq.NOBLOCK, copy=False)
        return frames

    def send(self, frames: list[bytes | memoryview]) -> Sent:
        """Send frames, the routing id first on a ROUTER. Never blocks.

        Only the first frame can be refused for a full pipe. When a pipe breaks in the middle of a
        message, libzmq drops the frames so far.

        Raises:
            TransportError: ZeroMQ refused for a reason that no peer can cause.
        """
        socket = self.socket
        last = len(frames) - 1
        try:
            for index, frame in enumerate(frames):
                flags = zmq.NOBLOCK if index == last else zmq.NOBLOCK | zmq.SNDMORE
                whole: object = frame.obj if type(frame) is memoryview else None
                if isinstance(whole, zmq.Frame) and len(whole) == len(frame):
                    # This frame was received: libzmq shares its own message, and copies nothing.
                    socket.send(whole, flags, copy=False)
                else:
                    socket.send(frame, flags, copy=len(frame) < _COPY_BELOW)
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Sent.UNREACHABLE
            raise TransportError(f"cannot send on {self.name}: {error}") from error
        return Sent.OK

    def readable(self) -> bool:
        """Return whether a message waits; unlike the descriptor, this is not edge-triggered."""
        events = self.socket.get(zmq.EVENTS)
        assert isinstance(events, int)
        if events & zmq.POLLIN:
            return True
        self._emptied()
        return False

    def _emptied(self) -> None:
        if self.connections is not None and self.connections.pending:
            self.connections.emptied()

    def _learn(self, key: bytes, frames: list[bytes | memoryview]) -> bool:
        """Receive one more frame, if there is one, and record to which connection it belongs."""
        assert self.connections is not None
        if not self.socket.get(zmq.RCVMORE):
            return False
        frame = self.socket.recv(zmq.NOBLOCK, copy=False)
        frames.append(frame.bytes)
        with contextlib.suppress(zmq.ZMQError):
            self.connections.learn(key, int(frame.get(zmq.SRCFD)))
        return True

    def happenings(self) -> list[tuple[int, int]]:
        """Return the monitor's events since the last call: (event, value) each."""
        seen: list[tuple[int, int]] = []
        while True:
            try:
                frames = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return seen
            if len(frames[0]) == 6:
                event, value = struct.unpack("=Hi", frames[0])
                seen.append((event, value))

    def pause(self) -> None:
        """Accept no further connections until ``resume``; existing ones stay."""
        self.paused = True
        for endpoint in self.endpoints:
            with contextlib.suppress(zmq.ZMQError):
                self.socket.unbind(endpoint)

    def resume(self) -> None:
        """Listen again on every endpoint.

        Raises:
            ConfigError: Another process has taken an address meanwhile.
            TransportError: ZeroMQ refused for another reason.
        """
        endpoints, self.endpoints = self.endpoints, []
        self._files.clear()
        try:
            for endpoint in endpoints:
                self.bind(endpoint)
        except WMPError:
            self.endpoints = endpoints
            self.pause()
            raise
        self.paused = False

    def bind(self, endpoint: str) -> None:
        """Bind the socket to one more endpoint.

        Raises:
            ConfigError: The address is in use or not of this machine.
            TransportError: ZeroMQ refused for another reason.
        """
        self.endpoints.append(_bind(self.socket, endpoint))
        path = endpoint.removeprefix("ipc://")
        # Abstract names have no file, and libzmq removes the files whose names it chose itself.
        if path != endpoint and not path.startswith(("@", "*")):
            path = os.path.abspath(path)
            with contextlib.suppress(OSError):
                self._files.append((path, _file(path)))

    def close(self, linger: float) -> None:
        """Close the socket and its monitor; queued messages have ``linger`` seconds to leave."""
        # libzmq leaves the files of ipc behind. Before the socket closes, no other process can have
        # bound the path; if the file was replaced nevertheless, it is another file now.
        for path, file in self._files:
            with contextlib.suppress(OSError):
                if _file(path) == file:
                    os.unlink(path)
        self._files.clear()
        with contextlib.suppress(zmq.ZMQError):
            self.socket.disable_monitor()
        self._monitor.close(linger=0)
        self.socket.close(linger=int(linger * 1000))


def _file(path: str) -> tuple[int, int]:
    """Return what identifies a file; a device and inode number alone may be used again."""
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns


def _descriptor(socket: zmq.Socket[bytes]) -> int:
    """Return the descriptor that a loop can watch for a socket."""
    descriptor = socket.get(zmq.FD)
    assert isinstance(descriptor, int)
    return descriptor


_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_ACCEPTED = zmq.EVENT_ACCEPTED | zmq.EVENT_ACCEPT_FAILED | zmq.EVENT_DISCONNECTED
_LINK = (
    _FAILURES
    | zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
)


def describe(event: int, value: int, *, connects: bool) -> str | None:
    """Return the meaning of a failed handshake, and what to check.

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
        return f"the ZMTP handshake broke off (code {value:#x}); check that both ends speak ZeroMQ"
    if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        if value in (errno.EPIPE, errno.ECONNRESET) and connects:
            return (
                "the other end closed the connection during the handshake; check that both ends "
                "have CURVE keys or neither has, and that the server key here is the public key of "
                "the node at that address"
            )
        reason = os.strerror(value) if value > 0 else "no reason given"
        return f"the ZMTP handshake failed ({reason}); check that both ends are secured alike"
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
"""Causes that libzmq names, and what to check."""


_REMEDY = (
    "pass security=Security(...) with CURVE keys (Security.generate() makes a pair), "
    "or bind to tcp://127.0.0.1:PORT"
)


def check_endpoints(
    endpoints: Iterable[str],
    *,
    bind: bool,
    security: Security | None,
    shared: bool = True,
    remedy: str = _REMEDY,
) -> None:
    """Check addresses before anything is opened.

    Args:
        endpoints: ``tcp://host:port``, ``ipc://path`` or ``inproc://name``.
        bind: Whether they are to be bound (and not connected to).
        security: CURVE keys, without which only local addresses may be bound.
        shared: Whether another node may share the context: inproc needs that.
        remedy: Advice for missing keys, in the terms of the caller.

    Raises:
        ConfigError: One is malformed, double, open to the network without CURVE, or can reach no
            peer.
    """
    verb = "bind to" if bind else "connect to"
    seen: set[str] = set()
    for endpoint in endpoints:
        scheme, separator, rest = endpoint.partition("://")
        if not separator or scheme not in ("tcp", "ipc", "inproc") or not rest:
            raise ConfigError(
                f"cannot {verb} {endpoint!r}: expected tcp://HOST:PORT, ipc://PATH or inproc://NAME"
            )
        if endpoint in seen and not endpoint.endswith(":*"):
            raise ConfigError(f"{endpoint} is listed twice; list every endpoint once")
        seen.add(endpoint)
        if scheme == "inproc" and not shared:
            raise ConfigError(
                f"cannot {verb} {endpoint}: inproc reaches only nodes of the same process; "
                "use ipc://PATH or tcp://127.0.0.1:PORT"
            )
        if scheme == "tcp":
            _check_tcp(endpoint, verb, bind)
        elif scheme == "ipc" and len(os.fsencode(rest)) > _IPC_PATH:
            raise ConfigError(
                f"cannot {verb} {endpoint}: the path has more than {_IPC_PATH} bytes; "
                "choose a shorter path"
            )
        if bind and security is None and not is_local(endpoint):
            raise ConfigError(
                f"refused to bind to {endpoint} without keys: every host on the network could "
                f"connect; {remedy}"
            )


def _check_tcp(endpoint: str, verb: str, bind: bool) -> None:
    match = _TCP.fullmatch(endpoint)
    if match is None:
        raise ConfigError(f"cannot {verb} {endpoint!r}: expected tcp://HOST:PORT")
    port = match["port"]
    if port == "*" or int(port) == 0:
        if not bind:
            raise ConfigError(
                f"cannot connect to {endpoint}: the port is missing; "
                "the endpoints of the bound node show it"
            )
    elif int(port) > 65535:
        raise ConfigError(f"cannot {verb} {endpoint}: a port is at most 65535; name a smaller one")
    if not bind and match["host"] == "*":
        raise ConfigError(f"cannot connect to {endpoint}: the host is missing; name the host")


@cache
def _seed_routing_ids() -> None:
    """Make the routing ids that libzmq gives to connections unpredictable, once a process.

    A ROUTER numbers its connections from a value of C's ``rand()``, which libzmq does not seed. A
    peer that claims the number of a later connection as its own routing id makes libzmq abort the
    process when that connection arrives (an assertion in ``socket_base.cpp``). With a random seed a
    peer would have to guess one of 2**32 numbers. Without access to the C library the numbers stay
    predictable.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "big"))


def router(
    context: Context,
    endpoints: Iterable[str],
    *,
    transport: Transport,
    security: Security | None,
) -> Port:
    """Open a ROUTER and bind it to all ``endpoints``.

    Raises:
        ConfigError: An address is in use or not of this machine.
        TransportError: ZeroMQ refused for another reason.
    """
    names = tuple(endpoints)
    _seed_routing_ids()
    socket = _open(context, zmq.ROUTER, transport, ipv6=any("[" in name for name in names))
    try:
        # WMP-1.7: an unreachable peer is an error and not a silence.
        socket.router_mandatory = True
        if security is not None:
            security.serve(socket)
        port = Port(socket, None, ", ".join(names), _FAILURES | _ACCEPTED)
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
    context: Context,
    index: int,
    endpoint: str,
    *,
    transport: Transport,
    security: Security | None,
) -> Port:
    """Open the DEALER number ``index`` and begin to connect it to ``endpoint``.

    Raises:
        ConfigError: The address cannot be resolved or the keys are wrong.
        TransportError: ZeroMQ refused for another reason.
    """
    socket = _open(context, zmq.DEALER, transport, ipv6="[" in endpoint)
    port = None
    try:
        # Not ZMQ_IMMEDIATE. With it libzmq drops received but unread messages when the peer closes,
        # for example a manager's last ones. The send queue ensures that no message is queued
        # without a connection: a READY of ten minutes ago helps no manager.
        socket.reconnect_ivl = int(transport.reconnect * 1000)
        longest = transport.reconnect_max
        if longest is None:
            longest = 0.1 if is_local(endpoint) else 1.0
        socket.reconnect_ivl_max = int(longest * 1000)
        # A ROUTER with keys speaks CURVE on ipc as well; inproc has no security.
        if security is not None and not endpoint.startswith("inproc://"):
            security.join(socket)
        port = Port(socket, index, endpoint, _LINK)
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        port.close(0) if port is not None else socket.close(linger=0)
        raise ConfigError(f"cannot connect to {endpoint}: {error.strerror.lower()}") from error
    except Exception:
        port.close(0) if port is not None else socket.close(linger=0)
        raise
    # libzmq has no monitor events for inproc: it connects at once or when its peer binds.
    port.connected = endpoint.startswith("inproc://")
    return port


def _open(context: Context, kind: int, transport: Transport, *, ipv6: bool) -> zmq.Socket[bytes]:
    try:
        socket: zmq.Socket[bytes] = context.socket(kind)
    except zmq.ZMQError as error:
        raise TransportError(f"cannot open a socket: {error.strerror.lower()}") from error
    socket.linger = int(transport.linger * 1000)
    socket.sndhwm = socket.rcvhwm = transport.high_water_mark
    socket.maxmsgsize = transport.max_frame
    if kind == zmq.DEALER:
        # These heartbeats serve both ends: a ROUTER answers them, and drops a peer that is silent
        # for the ttl. A ROUTER's own heartbeats would cost a timer for each connection, and libzmq
        # walks through all timers to end one: with 10,000 connections that alone fills a core.
        socket.heartbeat_ivl = int(transport.heartbeat * 1000)
        socket.heartbeat_timeout = socket.heartbeat_ttl = int(transport.heartbeat * 3000)
    socket.handshake_ivl = int(transport.handshake * 1000)
    socket.backlog = 4096
    if ipv6:
        socket.ipv6 = True
    return socket


def _bind(socket: zmq.Socket[bytes], endpoint: str) -> str:
    if endpoint.startswith("ipc://") and _is_served(endpoint.removeprefix("ipc://")):
        # libzmq would unlink the path and take it from the process that serves it.
        raise _in_use(endpoint)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        if error.errno == errno.EADDRINUSE:
            raise _in_use(endpoint) from error
        if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
            raise ConfigError(
                f"cannot bind to {endpoint}: this machine does not have that address; "
                "name an address of this machine"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ConfigError(
                f"cannot bind to {endpoint}: permission denied; choose a port above 1023 "
                "or a path that you may write"
            ) from error
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            folder = os.path.dirname(endpoint.removeprefix("ipc://"))
            raise ConfigError(
                f"cannot bind to {endpoint}: there is no folder {folder}; make it first"
            ) from error
        if error.errno in (errno.EINVAL, errno.ENAMETOOLONG):
            raise ConfigError(f"cannot bind to {endpoint}: {error.strerror.lower()}") from error
        raise TransportError(f"cannot bind to {endpoint}: {error.strerror.lower()}") from error
    bound = socket.get(zmq.LAST_ENDPOINT)
    assert isinstance(bound, bytes)
    return bound.rstrip(b"\0").decode()


def _in_use(endpoint: str) -> ConfigError:
    return ConfigError(
        f"cannot bind to {endpoint}: address already in use; "
        "choose another address, or stop the process that uses it"
    )


def _is_served(path: str) -> bool:
    if path.startswith(("@", "*")) or not hasattr(sockets, "AF_UNIX"):
        return False
    with sockets.socket(sockets.AF_UNIX) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True
