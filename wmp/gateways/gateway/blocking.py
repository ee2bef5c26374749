# Twin of wmp/gateways/gateway/aio.py; written by specs/build_blocking.py.
"""A gateway: clients and workers of other protocols, and WMP nodes, serve each other.

::

    from wmp.gateways import ClientDoor, Gateway, WorkerDoor

    gateway = Gateway(
        ClientDoor("tcp://127.0.0.1:5555"),
        WorkerDoor("tcp://127.0.0.1:5556", protocol="paranoid-pirate"),
    )
    gateway.run()

:mod:`wmp.gateways.aio` has the same class for asyncio.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Unpack

from wmp.blocking.manager import BlockingPairNode
from wmp.duration import Duration
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.common.blocking import BlockingDrainingProgram
from wmp.gateways.gateway import aio
from wmp.gateways.gateway.door import Door
from wmp.gateways.gateway.machine import GatewayStatistics
from wmp.runtime.common.journal import Journal
from wmp.runtime.sockets.socket_settings import SocketOptions, shows_socket_options


class Gateway(BlockingDrainingProgram[aio.Gateway]):
    """Stands in the place of a queue or broker of another protocol.

    Requests of clients become jobs of a manager inside the gateway. Workers of the other protocol
    and WMP workers may do these jobs. With ``connect`` the foreign workers also do the jobs of
    other managers.

    Args:
        doors: The doors for clients and workers.
        bind: Endpoints for WMP workers and devices.
        connect: Endpoints of managers and devices whose jobs the foreign workers do.
        identity: Name in WMP messages, the same at every start; by default 16 random bytes.
        label: Name for people; by default host and process.
        max_silence: Seconds of silence after which a WMP worker is given up.
        star: A node of a Binary Star (:class:`~wmp.gateways.BinaryStar`), which decides whether
            this gateway serves its clients. The gateway starts and closes the node, and ends with
            the error of the node.
        journal: Folder for the files of the journals, or a
            :class:`~wmp.runtime.common.journal.Journal`. The manager and each group of foreign
            workers have a journal of their own there.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.
            The keys are used for WMP connections and for doors with ``keys=True``.

    Raises:
        ConfigError: A setting is wrong, or the doors do not fit together.
    """

    @shows_socket_options
    def __init__(
        self,
        *doors: Door,
        bind: str | Sequence[str] = (),
        connect: str | Sequence[str] = (),
        identity: bytes | str | None = None,
        label: str | None = None,
        max_silence: Duration = 6.0,
        star: BlockingPairNode | None = None,
        journal: Journal | str | PathLike[str] | None = None,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.Gateway(
            *doors,
            bind=bind,
            connect=connect,
            identity=identity,
            label=label,
            max_silence=max_silence,
            star=None if star is None else star._inner,
            journal=journal,
            **options,
        )
        super().__init__("gateway", inner, inner.close)

    def run(self, drain_timeout: Duration | None = None) -> None:
        """Serve until drained, closed or ended by a signal.

        In the main thread SIGTERM and Ctrl-C have the effect of ``interrupt``.

        Args:
            drain_timeout: Seconds that requests in progress have after the first signal. None for
                no limit.

        Raises:
            ConfigError: As for ``start``.
            ClosedError: As for ``start``.
            Superseded: Another process has the identity of this gateway.
            StarConflict: Both nodes of its Binary Star are active, or both are passive.
            TimeoutError: Some requests were still in progress after ``drain_timeout``.
        """
        self._serve(lambda: self._inner.run(drain_timeout))

    def interrupt(self) -> None:
        """Act as after a signal. The first call drains. The second call stops at once.

        Any thread may call this method.
        """
        self._portal.post(self._inner.interrupt)

    def start(self) -> None:
        """Bind, connect and begin to serve; ``run`` and ``with`` call this method.
        Idempotent.

        Raises:
            ConfigError: An address cannot be used, or no journal can be written.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The gateway was closed.
        """
        super().start()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which WMP workers can connect, with the actual ports.

        Raises:
            ClosedError: The gateway is not started, and the system has not chosen an address yet.
        """
        return self._look(lambda: self._inner.endpoints)

    @property
    def doors(self) -> tuple[tuple[str, ...], ...]:
        """Addresses of the doors, in their order, with the actual ports.

        Raises:
            ClosedError: The gateway is not started.
        """
        return self._look(lambda: self._inner.doors)

    def workers(self) -> dict[str, dict[bytes, Attendance]]:
        """Return the foreign workers: their states by routing id, by the name of their group."""
        return self._look(self._inner.workers)

    def dismiss(self, worker: bytes) -> bool:
        """Ask a worker to end, as by EXIT of ping-pong; return whether such a worker is here.

        Any thread may call this method.

        Args:
            worker: The routing id of the worker.
        """
        return self._look(lambda: self._inner.dismiss(worker))

    def statistics(self) -> GatewayStatistics:
        """Return a snapshot of the counts of all doors and of the machines inside."""
        return self._look(self._inner.statistics)
