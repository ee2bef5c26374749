# Twin of wmp/gateways/binary_star/aio.py; written by specs/build_blocking.py.
"""The nodes and the clients of a Binary Star (specs/binary-star.md): one of two nodes serves.

::

    from wmp.gateways import BinaryStar, ClientDoor, Gateway, StarClient, WorkerDoor

    star = BinaryStar("primary", local="tcp://127.0.0.1:5003", remote="tcp://127.0.0.1:5004")
    Gateway(
        ClientDoor("tcp://127.0.0.1:5001"),
        WorkerDoor("tcp://127.0.0.1:5005", protocol="simple-pirate"),
        star=star,
    ).run()

:mod:`wmp.gateways.aio` has the same names for asyncio.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Unpack

from wmp.blocking.node import BlockingPart
from wmp.duration import Duration
from wmp.gateways.binary_star import aio
from wmp.gateways.binary_star.election import StarState
from wmp.gateways.binary_star.machine import StarStatistics
from wmp.gateways.common.blocking import BlockingRequester
from wmp.gateways.common.request_client import LazyClientStatistics
from wmp.runtime.sockets.socket_settings import SocketOptions, shows_socket_options


class BinaryStar(BlockingPart[aio.BinaryStar]):
    """One of two nodes. It decides whether this process serves the clients.

    A gateway and a manager take it as ``star=``. Any other program asks :meth:`vote` before it
    serves a request, and drops the request if the answer is no.

    Args:
        role: ``"primary"`` or ``"backup"``. The two nodes have different roles.
        local: Address for the state of this node; the other node connects to it.
        remote: The ``local`` address of the other node.
        heartbeat: Seconds between two messages with the state.
        max_silence: Seconds without a message of the peer after which a request is a vote; by
            default two heartbeats.
        key: The key of the pair, at least 16 bytes, or a file with it that only its owner can read.
            Both nodes need the same one. With a key, with ``security``, or over ``ipc`` in a folder
            to which only this user can write, a node ends when both nodes are active. Otherwise
            such a claim is logged, since anybody can make it.
        on_active: Called on the loop when this node becomes active.
        on_passive: Called on the loop when this node becomes passive.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`. Both
            nodes need the same pair of keys, and its public key as the ``server_key``.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        role: str,
        *,
        local: str,
        remote: str,
        heartbeat: Duration = 1.0,
        max_silence: Duration | None = None,
        key: bytes | str | os.PathLike[str] | None = None,
        on_active: Callable[[], None] | None = None,
        on_passive: Callable[[], None] | None = None,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.BinaryStar(
            role,
            local=local,
            remote=remote,
            heartbeat=heartbeat,
            max_silence=max_silence,
            key=key,
            on_active=on_active,
            on_passive=on_passive,
            **options,
        )
        super().__init__("binary star", inner, lambda _: inner.close())

    def start(self) -> None:
        """Bind, connect, and begin to report the state; ``with`` calls this method.
        Idempotent.

        Raises:
            ConfigError: An address cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The node was closed.
        """
        super().start()

    def vote(self) -> bool:
        """Record that a client has sent a request; return whether this node may serve it.

        Any thread may call this method, once for each request.

        Raises:
            ClosedError: The node is not started, or was closed.
            ConfigError: The node has ended, because both nodes have the same role.
            StarConflict: The node has ended, because both nodes are active or passive.
        """
        return self._look(self._inner.vote)

    @property
    def state(self) -> StarState:
        """The state of this node."""
        return self._look(lambda: self._inner.state)

    @property
    def active(self) -> bool:
        """Whether this node serves the clients."""
        return self._look(lambda: self._inner.active)

    def wait_ended(self) -> None:
        """Wait until the node has ended: closed, or stopped by an error.

        Raises:
            ConfigError: Both nodes have the same role.
            StarConflict: Both nodes are active, or both are passive.
            ClosedError: The node is not started, or was closed.
        """
        self._portal.call(self._inner.wait_ended())

    def close(self) -> None:
        """Close the sockets. Idempotent."""
        self._shut(0.0)

    def statistics(self) -> StarStatistics:
        """Return a snapshot of the states and of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)


class StarClient(BlockingRequester[aio.StarClient]):
    """Sends requests to the active node of a Binary Star.

    The requests of one client go out one after the other, in the order of the calls.

    Args:
        primary: Address of the primary for clients.
        backup: Address of the backup for clients.
        timeout: Seconds of one try; a quarter of it from the end of its connection on.
        settle: Seconds between the end of a try and the next try, at the other node. Not less than
            ``max_silence`` of the nodes.
        tries: Sends of a request in all; None for no limit.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        primary: str,
        backup: str,
        *,
        timeout: Duration = 1.0,
        settle: Duration = 2.0,
        tries: int | None = None,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.StarClient(
            primary,
            backup,
            timeout=timeout,
            settle=settle,
            tries=tries,
            **options,
        )
        super().__init__("star client", inner, lambda _: inner.close())

    def statistics(self) -> LazyClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)
