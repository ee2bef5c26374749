"""The nodes and the clients of a Binary Star (specs/binary-star.md), for asyncio."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack

from wmp.aio.node import AsyncPart
from wmp.duration import Duration
from wmp.errors import ConfigError
from wmp.foreign import Emit, EndRequest, Settled, Voted
from wmp.gateways.binary_star.claims import NONCE_BYTES, ClaimSeal
from wmp.gateways.binary_star.election import StarState
from wmp.gateways.binary_star.machine import StarMachine, StarRole, StarStatistics
from wmp.gateways.common.request_client import LazyClientStatistics
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.common.requester import Requester
from wmp.message import counted
from wmp.runtime.common.checks import check_count, check_private, check_seconds
from wmp.runtime.driver.foreign_driver import ForeignDriver
from wmp.runtime.node.node import Node
from wmp.runtime.sockets.ports import Port, Sent
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    SocketSettings,
    shows_socket_options,
)

logger = logging.getLogger("wmp")


class _StarDriver(ForeignDriver):
    """The driver of a node with a PUB and a SUB socket."""

    others = "the other node of the Binary Star at "

    def _port_of(self, action: Emit) -> Port | None:
        return self._sockets.router

    def _send(self, port: Port, action: Emit) -> Sent:
        return port.send(list(action.frames))


class BinaryStar(AsyncPart):
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
        known = [star_role.value for star_role in StarRole]
        if role not in known:
            raise ConfigError(f"the role is {role!r}; expected one of {', '.join(known)}")
        if local == remote:
            raise ConfigError(
                f"local and remote are both {local}; expected the addresses of two nodes"
            )
        heartbeat = check_seconds("heartbeat", heartbeat, zero=False)
        max_silence = (
            2 * heartbeat
            if max_silence is None
            else check_seconds("max_silence", max_silence, zero=False)
        )
        if max_silence <= heartbeat:
            raise ConfigError(
                f"max_silence is {max_silence:g} s and heartbeat is {heartbeat:g} s; expected more "
                "than one heartbeat, so that a late message does not count as silence"
            )
        sockets = SocketSettings.of(options)
        self._machine = StarMachine(
            StarRole(role),
            heartbeat,
            max_silence,
            believed=sockets.security is not None,
            seal=None if key is None else ClaimSeal(_read_key(key), os.urandom(NONCE_BYTES)),
        )
        self._remote = remote
        self._seen = self._machine.state
        self._ends: list[Callable[[Exception], None]] = []
        self._takeovers: list[Callable[[], None]] = []
        self._calls = {StarState.ACTIVE: on_active, StarState.PASSIVE: on_passive}
        super().__init__(
            Node(
                f"binary star ({role})",
                bind=(local,),
                connect=(remote,),
                sockets=sockets,
                journal=None,
                publishes=True,
            )
        )
        self._node.watchers.append(self._look)

    async def start(self) -> None:
        """Bind, connect, and begin to report the state; ``async with`` calls this method.
        Idempotent.

        Raises:
            ConfigError: An address cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The node was closed.
        """
        self._node.check_open()
        if self._node.driver is None:
            machine = self._machine
            machine.believed = machine.believed or _is_private(self._remote)
            driver = self._node.start(self._machine, make_driver=_StarDriver, on_halt=self._halted)
            assert isinstance(driver, ForeignDriver)
            self._driver = driver
            driver.feed(Settled())  # the node begins to report its state

    def vote(self) -> bool:
        """Record that a client has sent a request; return whether this node may serve it.

        Call this method on the loop, once for each request.

        Raises:
            ClosedError: The node is not started, or was closed.
            ConfigError: The node has ended, because both nodes have the same role.
            StarConflict: The node has ended, because both nodes are active or passive.
        """
        self._node.serving()
        self._node.raise_error()
        return self._serves()

    def _serves(self) -> bool:
        """Do the same as :meth:`vote`, but return False before the start and after the end."""
        if self._node.running:
            self._driver.feed(Voted())
        return self._machine.active

    def _on_end(self, call: Callable[[Exception], None]) -> None:
        """Have ``call`` called on the loop when the node ends with an error.

        Call this method before the start.
        """
        self._ends.append(call)

    def _on_takeover(self, call: Callable[[], None]) -> None:
        """Have ``call`` called on the loop when the node becomes active.

        Call this method before the start.
        """
        self._takeovers.append(call)

    @property
    def state(self) -> StarState:
        """The state of this node."""
        return self._machine.state

    @property
    def active(self) -> bool:
        """Whether this node serves the clients."""
        return self._machine.active

    async def wait_ended(self) -> None:
        """Wait until the node has ended: closed, or stopped by an error.

        Raises:
            ConfigError: Both nodes have the same role.
            StarConflict: Both nodes are active, or both are passive.
            ClosedError: The node is not started, or was closed.
        """
        self._node.serving()
        await self._node.wait_ended()
        self._node.raise_error()

    def _look(self, event: object, actions: Sequence[Any], now: float) -> None:
        """Report a change of the state."""
        state = self._machine.state
        if state is self._seen:
            return
        before, self._seen = self._seen, state
        if state is StarState.HALTED:
            return  # the error of the node names the cause
        logger.warning("%s: %s (was %s)", self._node.name, state.name.lower(), before.name.lower())
        calls = self._takeovers if state is StarState.ACTIVE else []
        user = self._calls.get(state)
        for call in (*calls, *((user,) if user is not None else ())):
            call()

    def _halted(self, error: Exception | None) -> None:
        if error is not None:
            for call in self._ends:
                call(error)

    async def close(self) -> None:
        """Close the sockets. Idempotent."""
        await self._node.stop()

    async def _abort(self) -> None:
        await self.close()

    def statistics(self) -> StarStatistics:
        """Return a snapshot of the states and of the counts of requests and dropped messages."""
        return self._machine.statistics()


def _read_key(key: bytes | str | os.PathLike[str]) -> bytes:
    """Return the key of a pair.

    Raises:
        ConfigError: The file cannot be read, or other users can read it.
    """
    if isinstance(key, bytes):
        return key
    path = Path(key)
    try:
        content = path.read_bytes().strip()
        check_private("the key of the Binary Star", path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"the key {path} of the Binary Star cannot be read: {reason}") from error
    return content


def _is_private(endpoint: str) -> bool:
    """Return whether only programs of this user, or of the superuser, can bind an address."""
    scheme, _, path = endpoint.partition("://")
    if scheme != "ipc" or path.startswith("@"):
        return scheme == "inproc"
    folder = Path(os.path.realpath(path)).parent
    for above in (folder, *folder.parents):
        try:
            status = above.stat()
        except OSError:
            return False
        others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a folder such as /tmp nobody can replace the folder of another user.
        if status.st_uid not in (0, os.geteuid()) or (
            others and (above == folder or not status.st_mode & stat.S_ISVTX)
        ):
            return False
    return True


class StarClient(Requester[LazyClientMachine]):
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
        if primary == backup:
            raise ConfigError(
                f"primary and backup are both {primary}; expected the addresses of two nodes"
            )
        machine = LazyClientMachine(
            check_seconds("timeout", timeout, zero=False),
            None if tries is None else check_count("tries", tries, 1),
            2,
            check_seconds("settle", settle),
        )
        node = Node(
            "star client",
            bind=(),
            connect=(primary, backup),
            sockets=SocketSettings.of(options),
            journal=None,
        )
        super().__init__(machine, node, report_lost=True)

    def _explain(self, action: EndRequest) -> str:
        return (
            f"no reply from {' and '.join(self._node.connect)} in "
            f"{counted(action.tries, 'try', 'tries')} of {self._machine.timeout:g} s; check that "
            "one of the two nodes is active"
        )

    def statistics(self) -> LazyClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()
