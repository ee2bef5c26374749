"""The server, the worker and the client of round robin (specs/round-robin.md), for asyncio."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Unpack

from wmp.actions import Drop
from wmp.aio.node import AsyncPart
from wmp.duration import Duration
from wmp.errors import ClosedError, ConfigError, NoReply
from wmp.foreign import Arrived, Emit, EndRequest, Frames, Requested, Withdrawn
from wmp.gateways.common.aio import ForeignProgram, make_node
from wmp.gateways.gateway.aio import Gateway
from wmp.gateways.gateway.machine import GatewayMachine
from wmp.gateways.round_robin.client_machine import (
    RoundRobinClientMachine,
    RoundRobinClientStatistics,
)
from wmp.gateways.round_robin.door import MAX_SLOTS, Command, RoundRobinDoor, TableRow
from wmp.gateways.round_robin.lmq_link import LinkTimes
from wmp.gateways.round_robin.server_machine import RoundRobinDoorMachine
from wmp.gateways.round_robin.wire import LmqType, read_lmq
from wmp.gateways.round_robin.worker_machine import (
    RoundRobinWorkerMachine,
    RoundRobinWorkerStatistics,
)
from wmp.runtime.common.checks import check_count, check_seconds
from wmp.runtime.driver.foreign_driver import ForeignDriver
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    SocketSettings,
    shows_socket_options,
)


def _as_command(value: object) -> bytes:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255:
        return bytes((value,))
    if isinstance(value, bytes) and 0 < len(value) <= 255:
        return value
    raise ConfigError(f"a command is {value!r}; expected a number from 0 to 255, or bytes")


def _routing_id_of(endpoint: str) -> Callable[[], bytes]:
    """Return a function that makes routing ids as the original programs do (RR-1.2)."""
    return lambda: f"{endpoint}:{secrets.randbelow(10**12) + 1}".encode()


def _shown(address: bytes) -> str:
    try:
        text = address.decode()
    except UnicodeDecodeError:
        return address.hex()
    return text if text.isprintable() else address.hex()


class RoundRobinServer(Gateway):
    """Passes messages of clients on to workers in turn.

    It is a :class:`~wmp.gateways.aio.Gateway` with one door.

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
        self._watch = watch
        door = RoundRobinDoor(
            bind,
            name=name,
            commands={_as_command(command): role for command, role in (commands or {}).items()},
            max_queue=max_queue,
            max_worker_losses=max_worker_losses,
            timeout=timeout,
            busy_timeout=busy_timeout,
            max_slots=max_slots,
            heartbeat=heartbeat,
            open=open,
            keys=options.get("security") is not None,
        )
        super().__init__(door, bind=workers_of_wmp, **options)

    def _make(self, identity: bytes, label: str, max_silence: float) -> GatewayMachine:
        machine = super()._make(identity, label, max_silence)
        (door,) = machine.doors
        assert isinstance(door, RoundRobinDoorMachine)
        self._door = door
        if self._watch is not None:
            # A line about each message costs as much as the message itself.
            machine.doors = [_WatchedDoor(door, self._watch)]
        return machine

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses to which clients and workers can connect, with the actual ports.

        Raises:
            ClosedError: The server is not started.
        """
        return self.doors[0]

    def table(self) -> list[TableRow]:
        """Return the table of workers, those with a free slot first."""
        rows = self._door.table.rows()
        return [TableRow(_shown(row.peer), row.free, row.slots) for row in rows]


class _WatchedDoor:
    """Describes each message to a watcher.

    Args:
        door: The machine of the door.
        watch: Gets the lines.
    """

    def __init__(self, door: RoundRobinDoorMachine, watch: Callable[[str], None]) -> None:
        self._door = door
        self._watch = watch
        self.deadline = door.deadline
        self.statistics = door.statistics
        self.open_requests = door.open_requests
        self.attendances = door.attendances
        self.dismisses = door.dismisses

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Let the door take an event, and describe its messages."""
        if isinstance(event, Arrived):
            self._watch(f"{_described(event.frames)} from {_shown(event.peer)}")
        actions = self._door.handle(event, now)
        for action in actions:
            if isinstance(action, Emit):
                self._watch(f"{_described(action.frames)} to {_shown(action.peer)}")
            elif isinstance(action, Drop):
                self._watch(f"dropped a message: {action.reason}")
        return actions


_COMMANDS = {b"\x07": "INCREMENT", b"\x08": "REGISTER", b"\x09": "DEREGISTER"}


def _described(frames: Frames) -> str:
    message = read_lmq(frames)
    if message is None:
        return "a message with another form"
    if message.type not in (LmqType.EXEC, LmqType.TRACKEXEC):
        return message.type.name
    command = message.command
    return f"{message.type.name} {_COMMANDS.get(command) or 'of command ' + command.hex()}"


class RoundRobinWorker(ForeignProgram[RoundRobinWorkerMachine]):
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

    _IN_PROGRESS = "handlers still run"

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
        if not handlers:
            raise ConfigError("a worker has no handler; expected one command or more")
        roles = {
            _as_command(command): f"command {_as_command(command).hex()}" for command in handlers
        }
        times = LinkTimes(
            check_seconds("handshake", handshake, zero=False),
            check_seconds("heartbeat", heartbeat, zero=False),
        )
        machine = RoundRobinWorkerMachine(
            roles,
            check_count("slots", slots, 1, MAX_SLOTS),
            times,
            check_seconds("timeout", timeout, zero=False),
            check_count("tries", tries, 1),
        )
        # A full pipe would end the connection. All slots may become free at once.
        sockets = SocketSettings.of(options).with_queue(2 * machine.slots)
        node = make_node(
            "round-robin worker",
            connect=(endpoint,),
            sockets=sockets,
            make_routing_id=_routing_id_of(endpoint),
        )
        by_role = {roles[_as_command(command)]: handler for command, handler in handlers.items()}
        super().__init__(machine, node, by_role, slots, pool)
        self._patience = times.handshake + machine.timeout * machine.tries
        self._registered: asyncio.Future[None] | None = None
        self._make_driver = functools.partial(ForeignDriver, answer=self._answer)

    async def start(self) -> None:
        """Connect, register at the server and begin to serve. Idempotent.

        ``run`` and ``async with`` call this method.

        Raises:
            NoReply: The server did not answer.
            ConfigError: The endpoint cannot be used, or a process pool cannot import a handler.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The worker was closed.
        """
        if self._registered is None:
            self._registered = asyncio.get_running_loop().create_future()
            await super().start()
        try:
            async with asyncio.timeout(self._patience + 1.0):
                await asyncio.shield(self._registered)
        except TimeoutError:
            await self.close(0.0)
            raise NoReply(
                f"no answer from {self._node.connect[0]} in {self._patience:g} s; check that a "
                "server of round robin runs at this address"
            ) from None
        except NoReply:
            await self.close(0.0)
            raise

    def _answer(self, action: EndRequest) -> None:
        if self._registered is not None and not self._registered.done():
            self._registered.set_result(None)

    def _halted(self, error: Exception | None) -> None:
        if self._registered is not None and not self._registered.done():
            cause = error or ClosedError("the worker was closed before it was registered")
            self._registered.set_exception(cause)
            self._registered.exception()  # start() may have been cancelled

    def statistics(self) -> RoundRobinWorkerStatistics:
        """Return a snapshot of the counts of messages."""
        return self._machine.statistics()


class RoundRobinClient(AsyncPart):
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
        self._machine = RoundRobinClientMachine(
            check_seconds("timeout", timeout, zero=False),
            LinkTimes(
                check_seconds("handshake", handshake, zero=False),
                check_seconds("heartbeat", heartbeat, zero=False),
            ),
        )
        super().__init__(
            make_node(
                "round-robin client",
                connect=(endpoint,),
                sockets=SocketSettings.of(options),
                make_routing_id=_routing_id_of(endpoint),
            )
        )
        self._futures: dict[int, asyncio.Future[list[bytes]]] = {}
        self._called: dict[int, bytes] = {}
        """The commands of the calls in progress."""
        self._numbers = count(1)

    async def start(self) -> None:
        """Open the socket; ``async with`` calls this method. Idempotent.

        Raises:
            ConfigError: The endpoint cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The client was closed.
        """
        self._node.check_open()
        if self._node.driver is None:
            make_driver = functools.partial(ForeignDriver, answer=self._answer)
            self._node.start(
                self._machine, link_events=True, make_driver=make_driver, on_halt=self._halted
            )

    async def call(
        self, command: Command, *arguments: bytes | str, tracked: bool = True
    ) -> list[bytes]:
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
        type = LmqType.TRACKEXEC if tracked else LmqType.EXEC
        called = _as_command(command)
        frames = [bytes((type,)), called, *map(_as_frame, arguments)]
        self._node.serving()
        if not self._node.running:
            self._node.raise_error()
            raise ClosedError("the client is closed")
        number = next(self._numbers)
        future: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self._futures[number], self._called[number] = future, called
        self._node.inbox.post(Requested(number, tuple(frames)))
        try:
            return await future
        except asyncio.CancelledError:
            self._node.inbox.post(Withdrawn((number,)))
            raise
        finally:
            del self._futures[number], self._called[number]

    def _answer(self, action: EndRequest) -> None:
        future = self._futures.get(action.id)
        if future is None or future.done():
            return
        if action.frames is not None:
            future.set_result([bytes(frame) for frame in action.frames])
            return
        machine, endpoint = self._machine, self._node.connect[0]
        if machine.up:
            reason = (
                f"no worker answered command {self._called[action.id].hex()} within "
                f"{machine.timeout:g} s at {endpoint}; check that workers with free slots are "
                "registered there, and the logs of the workers: a handler that fails sends no "
                "answer"
            )
        else:
            reason = (
                f"no server could be reached in {machine.timeout:g} s at {endpoint}; check that "
                "the server runs"
            )
        future.set_exception(NoReply(reason))

    def _halted(self, error: Exception | None) -> None:
        for future in self._futures.values():
            if not future.done():
                future.set_exception(ClosedError("the client was closed during the call"))

    async def close(self) -> None:
        """Close the socket. Calls in progress raise ``ClosedError``. Idempotent."""
        await self._node.stop()

    async def _abort(self) -> None:
        await self.close()

    def statistics(self) -> RoundRobinClientStatistics:
        """Return a snapshot of the counts of messages."""
        return self._machine.statistics()


def _as_frame(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"an argument is of type {type(value).__name__}; expected bytes or str")
