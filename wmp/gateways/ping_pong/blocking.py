# Twin of wmp/gateways/ping_pong/aio.py; written by specs/build_blocking.py.
"""The worker of the ping-pong protocol (specs/ping-pong.md).

:mod:`wmp.gateways.aio` has the same name for asyncio.
"""

from __future__ import annotations

from typing import Unpack

from wmp.duration import Duration
from wmp.gateways.common.blocking import BlockingForeignWorker
from wmp.gateways.ping_pong import aio
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.sockets.socket_settings import SocketOptions, shows_socket_options


class PingPongWorker(BlockingForeignWorker[aio.PingPongWorker]):
    """Does the jobs of a ping-pong broker, one at a time.

    Args:
        endpoint: Address of the broker's backend.
        handler: Does a job: ``f(body)`` or ``f(body, job)``, ``def`` or ``async def``. A body of
            one frame is ``bytes``; a body of several frames is a list.
        ping: Seconds between two PINGs.
        broker_timeout: Seconds of one period without a message of the broker.
        n_timeouts: Number of such periods in a row after which the socket is replaced.
        pool: ``"thread"``; ``"process"`` for handlers that compute; ``"inline"`` for tiny ones.
        as_list: Whether the handler gets a list also for a body of one frame, and may return one.
        disconnect: Whether the worker sends DISCONNECT when it ends. A gateway of this package
            then forgets the worker at once. A broker that does not know this word takes it for
            the result of the job in progress.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        handler: Handler,
        *,
        ping: Duration = 1.0,
        broker_timeout: Duration = 1.0,
        n_timeouts: int = 3,
        pool: str = "thread",
        as_list: bool = False,
        disconnect: bool = False,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.PingPongWorker(
            endpoint,
            handler,
            ping=ping,
            broker_timeout=broker_timeout,
            n_timeouts=n_timeouts,
            pool=pool,
            as_list=as_list,
            disconnect=disconnect,
            **options,
        )
        super().__init__("ping pong worker", inner, inner.close)
