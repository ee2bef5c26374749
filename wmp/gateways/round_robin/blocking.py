# Twin of wmp/gateways/round_robin/aio.py; written by specs/build_blocking.py.
"""The server, the worker and the client of round robin (specs/round-robin.md).

::

    from wmp.gateways.round_robin.blocking import RoundRobinClient, RoundRobinServer,
    RoundRobinWorker

    address = "tcp://127.0.0.1:6714"
    with (
        RoundRobinServer(address),
        RoundRobinWorker(address, {0x20: lambda frames: frames[1].upper()}),
        RoundRobinClient(address) as client,
    ):
        print(client.call(0x20, "hello"))

:mod:`wmp.gateways.aio` has the same names for asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Unpack, cast

from wmp.blocking.node import BlockingPart
from wmp.duration import Duration
from wmp.gateways.common.blocking import BlockingForeignProgram
from wmp.gateways.gateway.blocking import Gateway
from wmp.gateways.round_robin import aio
from wmp.gateways.round_robin.client_machine import RoundRobinClientStatistics
from wmp.gateways.round_robin.door import Command, TableRow
from wmp.gateways.round_robin.worker_machine import RoundRobinWorkerStatistics
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.socket_settings import SocketOptions, shows_socket_options


class RoundRobinServer(Gateway):
    """Passes messages of clients on to workers in turn.

    It is a :class:`~wmp.gateways.Gateway` with one door.

    Args:
        bind: Endpoints for clients and workers.
        name: Name of the server for original clients and workers; by default its first address.
        commands: Roles of the messages by command, for WMP workers.
        max_queue: Maximum number of messages that wait; the newest is dropped. None: no limit.
        max_worker_losses: Number of lost workers that a TRACKEXEC survives.
        timeout: Seconds within which a message must be done; None for no limit.
        busy_timeout: Seconds after which a message at a worker counts as lost; None: no limit.
        max_slots: Maximum number of slots of one worker. A worker that registers more gets so many.
        heartbeat: Seconds of silence after which a worker gets PING. After three such times the
            worker has left.
        workers_of_wmp: Endpoints for WMP workers and devices.
        watch: Called on the loop with a line about each message, for people.
        open: Whether the door may be open to the network without keys.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        *bind: str,
        name: str = "",
        commands: Mapping[Command, str] | None = None,
        max_queue: int | None = None,
        max_worker_losses: int = 3,
        timeout: Duration | None = None,
        busy_timeout: Duration | None = 3600.0,
        max_slots: int = 1000,
        heartbeat: Duration = 30.0,
        workers_of_wmp: str | Sequence[str] = (),
        watch: Callable[[str], None] | None = None,
        open: bool = False,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.RoundRobinServer(
            *bind,
            name=name,
            commands=commands,
            max_queue=max_queue,
            max_worker_losses=max_worker_losses,
            timeout=timeout,
            busy_timeout=busy_timeout,
            max_slots=max_slots,
            heartbeat=heartbeat,
            workers_of_wmp=workers_of_wmp,
            watch=watch,
            open=open,
            **options,
        )
        BlockingPart.__init__(self, "round robin server", inner, inner.close)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses to which clients and workers can connect, with the actual ports.

        Raises:
            ClosedError: The server is not started.
        """
        inner = cast(aio.RoundRobinServer, self._inner)
        return self._look(lambda: inner.addresses)

    def table(self) -> list[TableRow]:
        """Return the table of workers, those with a free slot first."""
        inner = cast(aio.RoundRobinServer, self._inner)
        return self._look(inner.table)


class RoundRobinWorker(BlockingForeignProgram[aio.RoundRobinWorker]):
    """Does the messages of a server of round robin.

    A handler gets a list of frames: the command and its arguments. The result is one frame, or a
    list of frames; one empty frame is a RESPONSE without a frame. A handler that fails sends none.

    Args:
        endpoint: Address of the server.
        handlers: Handlers by command: ``f(frames)`` or ``f(frames, job)``.
        slots: Number of messages at the same time. A server of this library gives 1000 at most,
            unless its ``max_slots`` is larger.
        timeout: Seconds until REGISTER is sent again.
        tries: Sends of the first registration in all.
        handshake: Seconds within which the server must answer PING.
        heartbeat: Seconds of silence after which the server gets PING.
        pool: ``"thread"``; ``"process"`` for handlers that compute; ``"inline"`` for tiny ones.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        handlers: Mapping[Command, Handler],
        *,
        slots: int = 10,
        timeout: Duration = 5.0,
        tries: int = 3,
        handshake: Duration = 10.0,
        heartbeat: Duration = 120.0,
        pool: str = "thread",
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.RoundRobinWorker(
            endpoint,
            handlers,
            slots=slots,
            timeout=timeout,
            tries=tries,
            handshake=handshake,
            heartbeat=heartbeat,
            pool=pool,
            **options,
        )
        super().__init__("round robin worker", inner, inner.close)

    def start(self) -> None:
        """Connect, register at the server and begin to serve. Idempotent.

        ``run`` and ``with`` call this method.

        Raises:
            NoReply: The server did not answer.
            ConfigError: The endpoint cannot be used, or a process pool cannot import a handler.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The worker was closed.
        """
        super().start()

    def statistics(self) -> RoundRobinWorkerStatistics:
        """Return a snapshot of the counts of messages."""
        return self._look(self._inner.statistics)


class RoundRobinClient(BlockingPart[aio.RoundRobinClient]):
    """Sends messages to a server of round robin, or to any server of the LMQ layer.

    Many messages may be in progress.

    Args:
        endpoint: Address of the server.
        timeout: Seconds within which the answer to a tracked message must come.
        handshake: Seconds within which the server must answer PING.
        heartbeat: Seconds of silence after which the server gets PING.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        *,
        timeout: Duration = 15.0,
        handshake: Duration = 10.0,
        heartbeat: Duration = 120.0,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.RoundRobinClient(
            endpoint,
            timeout=timeout,
            handshake=handshake,
            heartbeat=heartbeat,
            **options,
        )
        super().__init__("round robin client", inner, lambda _: inner.close())

    def start(self) -> None:
        """Open the socket; ``with`` calls this method. Idempotent.

        Raises:
            ConfigError: The endpoint cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The client was closed.
        """
        super().start()

    def call(self, command: Command, *arguments: bytes | str, tracked: bool = True) -> list[bytes]:
        """Send a message, and wait for its answer if it is tracked.

        Args:
            command: Command of the application.
            arguments: Further frames.
            tracked: Whether an answer is wanted: TRACKEXEC, else EXEC.

        Returns:
            The frames of the answer; none for a message that is not tracked.

        Raises:
            NoReply: No answer came within ``timeout``, or the message could not be sent.
            ClosedError: The client is not started, was closed, or was closed during the call.
            ConfigError: The command is not a command.
            TypeError: An argument is not bytes or text.
        """
        return self._portal.call(self._inner.call(command, *arguments, tracked=tracked))

    def close(self) -> None:
        """Close the socket. Calls in progress raise ``ClosedError``. Idempotent."""
        self._shut(0.0)

    def statistics(self) -> RoundRobinClientStatistics:
        """Return a snapshot of the counts of messages."""
        return self._look(self._inner.statistics)
