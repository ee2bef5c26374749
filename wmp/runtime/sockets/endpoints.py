"""Endpoints: the addresses that a node may bind or connect to, and the binding.

Every error of ZeroMQ becomes a :class:`~wmp.errors.ConfigError` (the caller can correct it) or a
:class:`~wmp.errors.TransportError` here.
"""

from __future__ import annotations

import errno
import os
import re
import socket as sockets
from collections.abc import Iterable

import zmq

from wmp.errors import ConfigError, TransportError
from wmp.runtime.sockets.security import Security, is_local
from wmp.runtime.sockets.socket_paths import check_socket_path

_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/\s]+):(?P<port>\*|\d{1,5})")

_IPC_PATH = 107
"""Limit of the bytes of a Unix socket's path: ``sun_path`` without its last byte."""

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
    open: bool = False,
    remedy: str = _REMEDY,
) -> None:
    """Check addresses before any socket is opened.

    Args:
        endpoints: ``tcp://host:port``, ``ipc://path`` or ``inproc://name``.
        bind: Whether the addresses are bound; else the node connects to them.
        security: CURVE keys, without which only local addresses may be bound.
        shared: Whether another node may share the context, which inproc needs.
        open: Whether addresses that are open to the network may be bound without keys.
        remedy: Advice for missing keys, in the terms of the caller.

    Raises:
        ConfigError: An address is malformed, is named twice, is open to the network without CURVE,
            or can reach no peer.
    """
    verb = "bind to" if bind else "connect to"
    seen: set[str] = set()
    for endpoint in endpoints:
        _check_characters(endpoint, verb)
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
        if bind and security is None and not open and not is_local(endpoint):
            raise ConfigError(
                f"refused to bind to {endpoint} without keys: every host on the network could "
                f"connect; {remedy}"
            )


def check_unpickling(what: str, endpoints: Iterable[str], security: Security | None) -> None:
    """Check that a node which unpickles exchanges pickles with this host or with keys only.

    A pickle is a program: its sender can run any code where it is unpickled (CALL-3.5).

    Args:
        what: The part of the program that unpickles, for the error.
        endpoints: Addresses that the node binds or connects to.
        security: CURVE keys.

    Raises:
        ConfigError: An address leads off this host, and no keys are set.
    """
    for endpoint in endpoints:
        if security is None and not is_local(endpoint):
            raise ConfigError(
                f"{what} that runs pickled calls refuses {endpoint} without keys: any host there "
                "could run any code here; pass security=Security(...) with CURVE keys, or call "
                "functions by import path without pickle"
            )


def _check_characters(endpoint: object, verb: str) -> None:
    """Check that ZeroMQ takes the characters of an address."""
    if not isinstance(endpoint, str):
        raise ConfigError(f"cannot {verb} {endpoint!r}: expected text such as tcp://127.0.0.1:5570")
    for position, character in enumerate(endpoint):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            kind = "NUL" if character == "\0" else "half of a surrogate pair"
            raise ConfigError(
                f"cannot {verb} {endpoint!r}: the character at position {position} is {kind}, "
                "which no address can have; choose another address"
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
        raise ConfigError(f"cannot {verb} {endpoint}: the port is above 65535; name a smaller one")
    if not bind and match["host"] == "*":
        raise ConfigError(
            f"cannot connect to {endpoint}: the host is missing; expected tcp://HOST:PORT"
        )


def bind(socket: zmq.Socket[bytes], endpoint: str) -> str:
    """Bind a socket; return the endpoint with its actual port.

    Raises:
        ConfigError: The address is in use, is not an address of this machine, or is the path of
            a file that is not a socket.
        TransportError: ZeroMQ refused for another reason.
    """
    path = endpoint.removeprefix("ipc://")
    # Abstract names have no file, and libzmq chooses a new file for "*".
    if path != endpoint and not path.startswith(("@", "*")) and hasattr(sockets, "AF_UNIX"):
        check_socket_path(path, f"cannot bind to {endpoint}")
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
