"""The common part of the objects of other protocols for asyncio."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from wmp.aio.node import AsyncPart, AsyncProgram
from wmp.codec import unpack_error
from wmp.duration import Duration, in_seconds
from wmp.errors import ConfigError, Reject, RetryLater
from wmp.events import Finished
from wmp.foreign import ForeignAction, Frames
from wmp.gateways.common.serial_worker import ForeignWorkerStatistics
from wmp.gateways.common.worker_machine import (
    ForeignWorkerMachine,
    SignTimes,
)
from wmp.gateways.common.worker_wire import WorkerWire
from wmp.message import DEFAULT_ROLE, Outcome
from wmp.runtime.common.threads import aside
from wmp.runtime.driver.foreign_driver import ForeignDriver
from wmp.runtime.executors import (
    CANCEL_GRACE,
    KINDS,
    Pool,
    PoolEvent,
    make_process_limits,
    open_pool,
)
from wmp.runtime.executors.handlers import Handler, serve
from wmp.runtime.node.node import Node
from wmp.runtime.sockets.socket_settings import (
    SocketSettings,
)

logger = logging.getLogger("wmp")

DRAIN_TIMEOUT = 5.0
"""Seconds that ``close`` and the end of a ``with`` block leave to the requests in progress."""

_VERDICTS = (Reject.__name__, RetryLater.__name__)
"""Names of the errors by which a handler declines a request. They need no traceback."""

_POOL_TIMEOUT = 2.0
"""Seconds within which a pool must stop."""

Body = bytes | str | Sequence[bytes]
"""A request or a reply: one frame, or a list of frames."""


class ForeignMachine(Protocol):
    """A machine that a :class:`~wmp.runtime.driver.foreign_driver.ForeignDriver` runs."""

    @property
    def settings(self) -> None: ...
    def handle(self, event: Any, now: float) -> list[ForeignAction]: ...
    def deadline(self) -> float | None: ...


_MachineT = TypeVar("_MachineT", bound=ForeignMachine)


def as_body(value: object) -> Frames:
    """Return the frames of a body.

    Raises:
        TypeError: The value is not a body.
    """
    if isinstance(value, str):
        return (value.encode(),)
    if isinstance(value, bytes | bytearray | memoryview):
        return (bytes(value),)
    if (
        isinstance(value, Sequence)
        and value
        and all(isinstance(frame, bytes | bytearray | memoryview) for frame in value)
    ):
        return tuple(bytes(frame) for frame in value)
    raise TypeError(
        f"a body is of type {type(value).__name__}; expected bytes, str, or a list of one frame or "
        "more, each of them bytes"
    )


def from_body(frames: Frames) -> bytes | list[bytes]:
    """Return a body as its receiver gets it: one frame as bytes, several as a list."""
    return bytes(frames[0]) if len(frames) == 1 else [bytes(frame) for frame in frames]


def make_node(
    name: str,
    *,
    bind: Sequence[str] = (),
    connect: Sequence[str] = (),
    sockets: SocketSettings,
    make_routing_id: Callable[[], bytes] | None = None,
    routing_id: bytes | None = None,
) -> Node:
    """Make the node of a machine of another protocol."""
    return Node(
        name,
        bind=bind,
        connect=connect,
        sockets=sockets,
        journal=None,
        make_routing_id=make_routing_id,
        routing_id=routing_id,
    )


class DrainingPart(AsyncPart):
    """An object that can finish the requests in progress before it ends."""

    _IN_PROGRESS: ClassVar[str] = "requests are still in progress"
    """Words of an error for work that is left at the end of the time."""

    @property
    def name(self) -> str:
        """Name of this object in log lines."""
        return self._node.name

    async def drain(self, timeout: Duration | None = None) -> None:
        """Take no further request, finish the requests in progress, and end.

        Args:
            timeout: Seconds to wait at most. After this time the requests still go on.

        Raises:
            TimeoutError: Some requests were still in progress after ``timeout`` seconds.
        """
        self._node.serving()
        self._node.drain()
        timeout = in_seconds(timeout)
        if not await self._node.wait_ended(timeout):
            raise TimeoutError(
                f"{self._IN_PROGRESS} after {timeout} s; call drain() again, or close()"
            )
        self._node.raise_error()

    async def close(self, timeout: Duration = DRAIN_TIMEOUT) -> None:
        """Drain for at most ``timeout`` seconds, then stop. Idempotent, and bounded in time.

        Requests that are still in progress then get no reply. In a fork of this process the call
        does nothing.
        """
        if self._node.forked:
            return  # The node runs in the parent process.
        timeout = in_seconds(timeout)
        try:
            if self._node.running and timeout > 0:
                self._node.drain()
                await self._node.wait_ended(timeout)
        finally:
            await self._node.stop()
            await self._ended()

    async def _ended(self) -> None:
        """Release everything but the sockets, which are closed."""

    async def _abort(self) -> None:
        await self.close(0.0)


class DrainingProgram(DrainingPart, AsyncProgram):
    """A program of another protocol: the first signal drains, the second stops at once."""

    def interrupt(self) -> None:
        """Act as after a signal. The first call drains. The second call stops at once.

        Call this method on the loop.
        """
        if self._node.draining:
            logger.warning("%s: stopping at once; requests in progress get no reply", self.name)
            self._node.halted(None)
        else:
            work = self._under_way()
            what = f"; {work}" if work else ""
            logger.info(
                "%s: draining%s; a second signal stops the %s at once", self.name, what, self.name
            )
            self._node.drain()

    def _under_way(self) -> str:
        """Return what keeps a program that drains from its end; empty for nothing."""
        return ""


class ForeignProgram(DrainingProgram, Generic[_MachineT]):
    """A worker or server of another protocol.

    Args:
        machine: Its machine.
        node: Serves the machine.
        handler: Does the requests; or handlers by role.
        slots: Number of handlers that run at the same time.
        pool: ``"thread"``, ``"process"`` or ``"inline"``, as at :class:`wmp.aio.Worker`.
    """

    _IN_PROGRESS = "handlers still run"

    def __init__(
        self,
        machine: _MachineT,
        node: Node,
        handler: Handler | Mapping[str, Handler],
        slots: int,
        pool: str,
    ) -> None:
        super().__init__(node)
        if pool not in KINDS:
            raise ConfigError(f"pool is {pool!r}; expected one of {', '.join(KINDS)}")
        handlers = handler if isinstance(handler, Mapping) else {DEFAULT_ROLE: handler}
        for role, role_handler in handlers.items():
            serve(role, role_handler)
        self._machine = machine
        self._handlers = handlers
        self._make_driver: Callable[..., ForeignDriver] = ForeignDriver
        self._slots = slots
        self._pool_kind = pool
        self._pool: Pool | None = None
        self._starting = False
        self._cleared: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the pool, open the socket and begin to serve. Idempotent.

        ``run`` and ``async with`` call this method.

        Raises:
            ConfigError: The endpoint cannot be used, or a process pool cannot import the handler.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The object was closed.
        """
        self._node.check_open()
        if self._node.driver is not None or self._starting:
            return
        self._starting = True
        pool = open_pool(
            self._pool_kind,
            self._handlers,
            self._slots,
            self._post,
            make_process_limits(
                self._pool_kind,
                max_jobs_per_child=None,
                memory_per_child=None,
                cancel_grace=CANCEL_GRACE,
            ),
            max_result=self._node.sockets.transport.payload,
        )
        try:
            if self._pool_kind == "process":
                # Children import the handler's module on another thread, so that the loop need not
                # wait.
                await asyncio.to_thread(pool.start)
            else:
                pool.start()
            self._pool = pool
            self._node.start(
                self._machine,
                executors=pool,
                link_events=True,
                make_driver=self._make_driver,
                on_halt=self._halted,
            )
        except BaseException:
            self._starting = False
            self._pool = None
            await asyncio.to_thread(pool.close, 0.0)
            raise

    def _halted(self, error: Exception | None) -> None:
        """Act on the end of the machine. Most programs have nothing to do."""
        return

    def _post(self, event: PoolEvent) -> None:
        if type(event) is not Finished:
            return  # No message of these protocols reports a begun job or its progress.
        if event.outcomes[0] is not Outcome.OK:
            self._log_failure(event)
        self._node.inbox.post(event)

    def _log_failure(self, event: Finished) -> None:
        """Log a request without a reply: no protocol has a message for errors."""
        if event.outcomes[0] is Outcome.ERROR:
            kind, text, traceback = unpack_error(event.payloads[0])
            cause = f"{kind}: {text}" if kind in _VERDICTS else traceback.rstrip() or kind
        elif event.outcomes[0] is Outcome.LOST:
            cause = bytes(event.payloads[0]).decode("utf-8", "replace")
        else:
            return
        logger.error("%s: the handler failed, so its request gets no reply: %s", self.name, cause)

    async def _ended(self) -> None:
        if self._cleared is None:
            self._cleared = asyncio.create_task(self._close_pool())
        # A second caller waits for the same end.
        await asyncio.shield(self._cleared)

    async def _close_pool(self) -> None:
        if self._pool is not None:
            act = functools.partial(self._pool.close, _POOL_TIMEOUT)
            await aside(act, f"{self.name}-pool-close", _POOL_TIMEOUT + 1.0)


class ForeignWorker(ForeignProgram[ForeignWorkerMachine]):
    """A worker of another protocol, which does one request at a time.

    Args:
        name: Name for log lines and errors.
        endpoint: Address of the queue's or broker's socket for workers.
        handler: Does a request.
        wire: Messages of the protocol.
        times: Times of the signs of life; None for a protocol without them.
        pool: ``"thread"``, ``"process"`` or ``"inline"``.
        as_list: Whether the handler gets a list also for a body of one frame.
        sockets: Settings of the socket.
    """

    def __init__(
        self,
        name: str,
        endpoint: str,
        handler: Handler,
        wire: WorkerWire,
        times: SignTimes | None,
        *,
        pool: str,
        as_list: bool,
        sockets: SocketSettings,
    ) -> None:
        node = make_node(name, connect=(endpoint,), sockets=sockets)
        machine = ForeignWorkerMachine(wire, times, as_list=as_list)
        super().__init__(machine, node, handler, 1, pool)

    def statistics(self) -> ForeignWorkerStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()
