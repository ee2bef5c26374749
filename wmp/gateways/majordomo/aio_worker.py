"""The worker of Majordomo for asyncio, with a handler or with ``recv``."""

from __future__ import annotations

import asyncio
from typing import Unpack

from wmp.actions import Interrupt, Recall, Run
from wmp.duration import Duration, in_seconds
from wmp.errors import ClosedError, ConfigError
from wmp.events import Finished, Recalled
from wmp.foreign import Frames
from wmp.gateways.common.aio import (
    DRAIN_TIMEOUT,
    Body,
    ForeignProgram,
    as_body,
    from_body,
    make_node,
)
from wmp.gateways.common.body import from_payload, to_payload
from wmp.gateways.common.serial_worker import ForeignWorkerStatistics
from wmp.gateways.majordomo.wire import MAX_BODY
from wmp.gateways.majordomo.worker_machine import MajordomoTimes, MajordomoWorkerMachine
from wmp.message import Limits, Outcome
from wmp.runtime.common.checks import check_count, check_seconds
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    SocketSettings,
    shows_socket_options,
)


def service_frame(name: object) -> bytes:
    """Return the frame of a service's name.

    Raises:
        ConfigError: The value is not a name.
    """
    if isinstance(name, str | bytes):
        frame = name.encode(errors="replace") if isinstance(name, str) else name
        if 0 < len(frame) <= Limits.TEXT and not (isinstance(name, str) and not name.isprintable()):
            return frame
    raise ConfigError(
        f"a service is {name!r}; expected 1 to {Limits.TEXT} bytes, or a text of printable "
        "characters of this size"
    )


def body_frames(body: object) -> Frames:
    """Return the frames of the body of a request or a reply.

    Raises:
        TypeError: The value is not a body.
    """
    frames = as_body(body)
    if len(frames) > MAX_BODY:
        raise TypeError(f"a body has {len(frames)} frames; expected {MAX_BODY} at most")
    return frames


class _RequestHolder:
    """Keeps the request of a worker for ``recv``, in place of a pool of handlers."""

    def __init__(self, worker: MajordomoWorker) -> None:
        self._worker = worker

    def run(self, action: Run) -> None:
        self._worker._given = action
        self._worker._changed.set()

    def recall(self, action: Recall) -> None:
        self._worker._node.inbox.post(Recalled(action.lane, ()))

    def interrupt(self, action: Interrupt) -> None:
        worker = self._worker
        run = worker._given
        if run is None or worker._taken:
            return  # The caller of ``recv`` has the request; the machine drops its reply.
        worker._given = None
        worker._give_up(run)


class MajordomoWorker(ForeignProgram[MajordomoWorkerMachine]):
    """Does the requests for one service of a Majordomo broker, one at a time.

    With a handler, each request is a call of the handler. Without one, the program calls ``recv``
    for each request, as with the worker API of the guide.

    Args:
        endpoint: Address of the broker.
        service: Name of the service.
        handler: Does a request: ``f(body)`` or ``f(body, job)``, ``def`` or ``async def``. A
            request whose handler fails gets no reply: the worker takes leave and comes back.
        heartbeat: Seconds between two signs of life.
        liveness: Number of heartbeats without a message of the broker after which the broker
            counts as dead.
        heartbeat_while_busy: Whether signs of life go on while a request is done. By default a
            worker that is stuck falls silent.
        reconnect: Seconds before the socket of a dead broker is replaced. The wait doubles each
            time.
        reconnect_max: Longest wait in seconds.
        pool: ``"thread"``; ``"process"`` for handlers that compute; ``"inline"`` for tiny ones.
        as_list: Whether the handler gets a list also for a body of one frame, and may return one.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        service: str | bytes,
        handler: Handler | None = None,
        *,
        heartbeat: Duration = 2.5,
        liveness: int = 3,
        heartbeat_while_busy: bool = False,
        reconnect: Duration = 2.5,
        reconnect_max: Duration = 32.0,
        pool: str = "thread",
        as_list: bool = False,
        **options: Unpack[SocketOptions],
    ) -> None:
        interval = check_seconds("heartbeat", heartbeat, zero=False)
        times = MajordomoTimes(
            interval,
            interval * check_count("liveness", liveness, 1),
            check_seconds("reconnect", reconnect, zero=False),
            check_seconds("reconnect_max", reconnect_max, zero=False),
            heartbeat_while_busy,
        )
        machine = MajordomoWorkerMachine(service_frame(service), times, as_list=as_list)
        node = make_node(
            "majordomo worker",
            connect=(endpoint,),
            sockets=SocketSettings.of(options),
        )
        self._receives = handler is None
        self._as_list = as_list
        self._given: Run | None = None
        """The request that ``recv`` returns next, or whose reply it needs."""
        self._taken = False
        """Whether ``recv`` has returned this request."""
        self._changed = asyncio.Event()
        super().__init__(machine, node, _no_handler if handler is None else handler, 1, pool)

    async def start(self) -> None:
        """Open the socket and begin to serve; ``run`` and ``async with`` call this method.
        Idempotent.

        Raises:
            ConfigError: The endpoint cannot be used, or a process pool cannot import the handler.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The worker was closed.
        """
        if not self._receives:
            await super().start()
            return
        self._node.check_open()
        if self._node.driver is None:
            self._node.start(
                self._machine,
                executors=_RequestHolder(self),
                link_events=True,
                make_driver=self._make_driver,
                on_halt=lambda error: self._changed.set(),
            )

    async def recv(
        self, reply: Body | None = None, timeout: Duration | None = None
    ) -> bytes | list[bytes]:
        """Send the reply to the last request, and return the next request.

        Args:
            reply: The reply: one frame, or a list of frames. None in the first call.
            timeout: Seconds to wait for a request; None for no limit.

        Raises:
            ConfigError: The worker has a handler, the reply to the last request is missing, or no
                request waits for a reply.
            ClosedError: The worker is not started, was closed or has ended.
            TimeoutError: No request came in time. The reply was sent; call again without one.
            TypeError: The reply is not a body.
        """
        if not self._receives:
            raise ConfigError("this worker has a handler; make a worker without one to call recv()")
        self._node.serving()
        if self._taken and reply is None:
            raise ConfigError(
                "recv() needs the reply to the last request, so that the client gets it"
            )
        if not self._taken and reply is not None:
            raise ConfigError("recv() got a reply, and no request waits for one; call recv() first")
        if reply is not None:
            codec, payload = to_payload(body_frames(reply), as_list=False)
            run, self._given, self._taken = self._given, None, False
            assert run is not None
            done = Finished(run.lane, run.ids, [Outcome.OK], [payload], codec=codec)
            self._node.inbox.post(done)
        async with asyncio.timeout(in_seconds(timeout)):
            while self._given is None:
                if not self._node.running:
                    self._node.raise_error()
                    raise ClosedError("the worker has ended")
                self._changed.clear()
                await self._changed.wait()
        self._taken = True
        body = from_payload(self._given.kind.codec, self._given.payloads[0])
        return [bytes(frame) for frame in body] if self._as_list else from_body(body)

    def _client_address(self) -> bytes:
        """Return the address of the client whose request the handler does; empty for none."""
        envelope = self._machine._envelope
        return bytes(envelope[0]) if envelope else b""

    async def close(self, timeout: Duration = DRAIN_TIMEOUT) -> None:
        """Drain for at most ``timeout`` seconds, then stop. Idempotent, and bounded in time.

        A request that ``recv`` returned, and that has no reply yet, is given up at once: the broker
        gives it to another worker. In a fork of this process the call does nothing.
        """
        run = self._given
        if run is not None and not self._node.forked:
            self._given, self._taken = None, False
            self._give_up(run)
        await super().close(timeout)

    def _give_up(self, run: Run) -> None:
        self._node.inbox.post(Finished(run.lane, run.ids, [Outcome.CANCELLED], [b""]))

    def statistics(self) -> ForeignWorkerStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._machine.statistics()


def _no_handler(body: bytes) -> bytes:
    """Stand in the place of a handler at a worker that receives."""
    raise NotImplementedError
