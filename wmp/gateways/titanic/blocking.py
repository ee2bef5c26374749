"""Titanic (9/TSP): requests to a Majordomo broker that outlive every process.

::

    from wmp.gateways import Titanic

    Titanic("tcp://127.0.0.1:5555", store="titanic.db").run()

:mod:`wmp.gateways.aio` has the same class for asyncio.
"""

from __future__ import annotations

import os

from wmp.blocking.node import BlockingProgram
from wmp.gateways.titanic import aio
from wmp.gateways.titanic.aio import TitanicStatistics
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.sockets.zmq_context import Context
from wmp.store.contract import Store


class Titanic(BlockingProgram[aio.Titanic]):
    """Stores requests for the services of a Majordomo broker, and does them when it can.

    See :class:`wmp.gateways.aio.Titanic`.

    Args:
        endpoint: Address of the broker.
        store: File of a store on SQLite, which is made if it is missing, or a
            :class:`~wmp.SqliteStore`. Nothing else may use this file.
        timeout: Seconds within which a service must reply. After that its request is sent again.
        under_way: Largest number of requests that are sent and have no reply.
        heartbeat: Seconds between two signs of life to the broker.
        security: CURVE keys, with ``server_key``.
        context: A ``zmq.Context`` to share.
        transport: Options of the sockets.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        store: Store | str | os.PathLike[str],
        timeout: float = 60.0,
        under_way: int = 16,
        heartbeat: float = 2.5,
        security: Security | None = None,
        context: Context | None = None,
        transport: Transport | None = None,
    ) -> None:
        inner = aio.Titanic(
            endpoint,
            store=store,
            timeout=timeout,
            under_way=under_way,
            heartbeat=heartbeat,
            security=security,
            context=context,
            transport=transport,
        )
        super().__init__("titanic", inner, lambda timeout: inner.close())

    def statistics(self) -> TitanicStatistics:
        """Return a snapshot of the counts."""
        return self._look(self._inner.statistics)
