# Twin of wmp/gateways/majordomo/aio_client.py; written by specs/build_blocking.py.
# Twin of wmp/gateways/majordomo/aio_pipelined.py; written by specs/build_blocking.py.
# Twin of wmp/gateways/majordomo/aio_worker.py; written by specs/build_blocking.py.
"""Clients and workers of Majordomo 0.1 (specs/majordomo.md).

::

    from wmp.gateways import Gateway, MajordomoClient, MajordomoDoor, MajordomoWorker

    address = "tcp://127.0.0.1:5555"
    with (
        Gateway(MajordomoDoor(address)),
        MajordomoWorker(address, "upper", bytes.upper),
        MajordomoClient(address) as client,
    ):
        print(client.request("upper", b"hello"))

:mod:`wmp.gateways.aio` has the same names for asyncio.
"""

from __future__ import annotations

from typing import Unpack

from wmp.blocking.node import BlockingPart
from wmp.duration import Duration
from wmp.gateways.common.aio import DRAIN_TIMEOUT, Body
from wmp.gateways.common.blocking import BlockingForeignProgram
from wmp.gateways.common.request_client import LazyClientStatistics
from wmp.gateways.common.serial_worker import ForeignWorkerStatistics
from wmp.gateways.majordomo import aio_client, aio_pipelined, aio_worker
from wmp.gateways.majordomo.pipelined_machine import MajordomoPipelinedStatistics
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.socket_settings import SocketOptions, shows_socket_options


class MajordomoClient(BlockingPart[aio_client.MajordomoClient]):
    """Sends requests to the services of a Majordomo broker, and sends a request again if no reply
    comes.

    A reply has no number, so each request in progress has a socket of its own.

    Args:
        endpoint: Address of the broker.
        timeout: Seconds of one try.
        tries: Sends of a request in all. Each try but the first has a new socket.
        sockets: Maximum number of requests in progress. Further requests wait, in the order of the
            calls. A socket is opened when it is needed first.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        *,
        timeout: Duration = 2.5,
        tries: int = 3,
        sockets: int = 16,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio_client.MajordomoClient(
            endpoint,
            timeout=timeout,
            tries=tries,
            sockets=sockets,
            **options,
        )
        super().__init__("majordomo client", inner, lambda _: inner.close())

    def start(self) -> None:
        """Open the first socket; ``with`` calls this method. Idempotent.

        Raises:
            ConfigError: The endpoint cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The client was closed.
        """
        super().start()

    def request(self, service: str | bytes, body: Body) -> bytes | list[bytes]:
        """Send a request and wait for its reply.

        Args:
            service: Name of the service.
            body: One frame, or a list of frames.

        Returns:
            The reply: one frame, or a list of several frames.

        Raises:
            NoReply: No reply came within ``timeout`` in the last try.
            ClosedError: The client is not started, was closed, or was closed during the call.
            ConfigError: The service is not a name.
            TypeError: The body is not a body.
        """
        return self._portal.call(self._inner.request(service, body))

    def has(self, service: str | bytes) -> bool:
        """Return whether the broker has a worker of a service (8/MMI).

        Raises:
            NoReply: No reply came within ``timeout`` in the last try.
            ClosedError: As for ``request``.
            ConfigError: The service is not a name.
        """
        return self._portal.call(self._inner.has(service))

    def close(self) -> None:
        """Close the sockets. Requests in progress raise ``ClosedError``. Idempotent."""
        self._shut(0.0)

    def statistics(self) -> LazyClientStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)


class MajordomoPipelinedClient(BlockingPart[aio_pipelined.MajordomoPipelinedClient]):
    """Sends many requests to a Majordomo broker over one socket, as the second client of the guide.

    Replies come in the order in which the workers end, and have no number: a reply names its
    service only. No request is sent again. Outside of asyncio one thread at a time may use the
    client.

    Args:
        endpoint: Address of the broker.
        timeout: Seconds without a reply after which all requests that were sent count as lost.
        window: Maximum number of requests at the broker. Further requests wait here.
        limit: Maximum number of requests without a reply. ``send`` waits above it.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        *,
        timeout: Duration = 7.5,
        window: int = 500,
        limit: int = 100_000,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio_pipelined.MajordomoPipelinedClient(
            endpoint,
            timeout=timeout,
            window=window,
            limit=limit,
            **options,
        )
        super().__init__("majordomo pipelined client", inner, lambda _: inner.close())

    def start(self) -> None:
        """Open the socket; ``with`` calls this method. Idempotent.

        Raises:
            ConfigError: The endpoint cannot be used.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The client was closed.
        """
        super().start()

    def send(self, service: str | bytes, body: Body) -> None:
        """Send a request, and do not wait for its reply.

        Args:
            service: Name of the service.
            body: One frame, or a list of frames.

        Raises:
            ClosedError: The client is not started or was closed.
            ConfigError: The service is not a name.
            TypeError: The body is not a body.
        """
        if not self._inner._try_send(service, body):
            self._portal.call(self._inner.send(service, body))

    def recv(self, timeout: Duration | None = None) -> tuple[str, bytes | list[bytes]]:
        """Return service and body of the next reply.

        Args:
            timeout: Seconds to wait at most; None: until a reply comes or a request is lost.

        Raises:
            NoReply: A request got no reply: each lost request ends one call. Or ``timeout`` passed.
            ClosedError: The client is not started or was closed.
        """
        result = self._inner._try_recv()
        return self._portal.call(self._inner.recv(timeout)) if result is None else result

    def close(self) -> None:
        """Close the socket. Requests without a reply are given up. Idempotent."""
        self._shut(0.0)

    def statistics(self) -> MajordomoPipelinedStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)


class MajordomoWorker(BlockingForeignProgram[aio_worker.MajordomoWorker]):
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
        inner = aio_worker.MajordomoWorker(
            endpoint,
            service,
            handler,
            heartbeat=heartbeat,
            liveness=liveness,
            heartbeat_while_busy=heartbeat_while_busy,
            reconnect=reconnect,
            reconnect_max=reconnect_max,
            pool=pool,
            as_list=as_list,
            **options,
        )
        super().__init__("majordomo worker", inner, inner.close)

    def start(self) -> None:
        """Open the socket and begin to serve; ``run`` and ``with`` call this method.
        Idempotent.

        Raises:
            ConfigError: The endpoint cannot be used, or a process pool cannot import the handler.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The worker was closed.
        """
        super().start()

    def recv(
        self,
        reply: Body | None = None,
        timeout: Duration | None = None,
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
        return self._portal.call(self._inner.recv(reply, timeout))

    def close(self, timeout: Duration = DRAIN_TIMEOUT) -> None:
        """Drain for at most ``timeout`` seconds, then stop. Idempotent, and bounded in time.

        A request that ``recv`` returned, and that has no reply yet, is given up at once: the broker
        gives it to another worker. In a fork of this process the call does nothing.
        """
        self._shut(timeout)

    def statistics(self) -> ForeignWorkerStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)
