# Twin of wmp/gateways/titanic/aio.py; written by specs/build_blocking.py.
"""Titanic (9/TSP): requests to a Majordomo broker that outlive every process.

::

    from wmp.gateways import Titanic

    Titanic("tcp://127.0.0.1:5555", store="titanic.db").run()

:mod:`wmp.gateways.aio` has the same class for asyncio.
"""

from __future__ import annotations

import os
from typing import Unpack

from wmp.blocking.node import BlockingProgram
from wmp.duration import Duration
from wmp.gateways.titanic import aio
from wmp.gateways.titanic.aio import TitanicStatistics
from wmp.gateways.titanic.requests import TitanicLimits
from wmp.runtime.common.journal import Journal
from wmp.runtime.sockets.socket_settings import SocketOptions, shows_socket_options
from wmp.store.contract import Store


class Titanic(BlockingProgram[aio.Titanic]):
    """Stores requests for the services of a Majordomo broker, and does them when it can.

    Clients use the services ``titanic.request``, ``titanic.reply`` and ``titanic.close`` of the
    broker. This server is their worker, and sends the stored requests to the broker as a client. So
    it works with any Majordomo broker, and workers change nothing. Several servers may share a
    broker and a store.

    Args:
        endpoint: Address of the broker.
        store: File of a store on SQLite, which is made if it is missing, or a
            :class:`~wmp.SqliteStore`. Nothing else may use this file.
        timeout: Seconds within which a service must reply. After that its request is sent again.
        in_flight: Maximum number of requests that are sent and have no reply.
        heartbeat: Seconds between two signs of life to the broker.
        limits: Limits of the stored requests: number, bytes and lifetimes; None for the defaults.
        journal: Folder for the files of the journal, or a
            :class:`~wmp.runtime.common.journal.Journal`. The stored requests are its jobs.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        endpoint: str,
        *,
        store: Store | str | os.PathLike[str],
        timeout: Duration = 60.0,
        in_flight: int = 16,
        heartbeat: Duration = 2.5,
        limits: TitanicLimits | None = None,
        journal: Journal | str | os.PathLike[str] | None = None,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.Titanic(
            endpoint,
            store=store,
            timeout=timeout,
            in_flight=in_flight,
            heartbeat=heartbeat,
            limits=limits,
            journal=journal,
            **options,
        )
        super().__init__("titanic", inner, lambda _: inner.close())

    def start(self) -> None:
        """Open the store, connect and begin to serve; ``run`` and ``with`` call this method.
        Idempotent.

        Raises:
            ConfigError: The endpoint or the store cannot be used, or no journal can be written.
            StoreError: The store cannot be opened.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The server was closed.
        """
        super().start()

    def interrupt(self) -> None:
        """Act as after a signal: end. Requests without a reply stay in the store.

        Any thread may call this method.
        """
        self._portal.post(self._inner.interrupt)

    def close(self) -> None:
        """Stop. Requests without a reply stay in the store, and are sent again. Idempotent."""
        self._shut(0.0)

    def statistics(self) -> TitanicStatistics:
        """Return a snapshot of the counts."""
        return self._look(self._inner.statistics)
