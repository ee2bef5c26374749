"""A gateway: clients and workers of other protocols, and nodes of WMP, serve each other.

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

from wmp.blocking.manager import BlockingPairNode
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.common.blocking import BlockingForeignProgram
from wmp.gateways.gateway import aio
from wmp.gateways.gateway.door import Door
from wmp.gateways.gateway.machine import GatewayStatistics
from wmp.runtime.common.journal import Journal
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.sockets.zmq_context import Context


class Gateway(BlockingForeignProgram[aio.Gateway]):
    """Stands in the place of a queue or broker of another protocol.

    See :class:`wmp.gateways.aio.Gateway`.

    Args:
        doors: The doors for clients and workers.
        bind: Endpoints for workers of WMP and devices.
        connect: Endpoints of managers and devices whose jobs the foreign workers do.
        identity: Name in messages of WMP, the same at every start; by default 16 random bytes.
        label: Name for people; by default host and process.
        max_silence: Seconds of silence after which a worker of WMP is given up.
        star: A node of a Binary Star (:class:`~wmp.gateways.BinaryStar`), which decides whether
            this gateway serves its clients.
        security: CURVE keys, for the connections of WMP and for doors with ``keys=True``.
        context: A ``zmq.Context`` to share.
        transport: Options of the sockets.
        journal: Folder for the files of the journals.
    """

    def __init__(
        self,
        *doors: Door,
        bind: str | Sequence[str] = (),
        connect: str | Sequence[str] = (),
        identity: bytes | str | None = None,
        label: str | None = None,
        max_silence: float = 6.0,
        star: BlockingPairNode | None = None,
        security: Security | None = None,
        context: Context | None = None,
        transport: Transport | None = None,
        journal: Journal | str | PathLike[str] | None = None,
    ) -> None:
        inner = aio.Gateway(
            *doors,
            bind=bind,
            connect=connect,
            identity=identity,
            label=label,
            max_silence=max_silence,
            star=None if star is None else star._inner,
            security=security,
            context=context,
            transport=transport,
            journal=journal,
        )
        super().__init__(inner)

    def run(self, drain_timeout: float | None = None) -> None:
        """Serve until the gateway is asked to end.

        See :meth:`wmp.gateways.aio.Gateway.run`.
        """
        self._serve(lambda: self._inner.run(drain_timeout))

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which workers of WMP can connect, with the actual ports."""
        return self._inner.endpoints

    @property
    def doors(self) -> tuple[tuple[str, ...], ...]:
        """Addresses of the doors, in their order, with the actual ports."""
        return self._inner.doors

    def workers(self) -> dict[str, dict[bytes, Attendance]]:
        """Return the foreign workers: their states by routing id, by the name of their group."""
        return self._look(self._inner.workers)

    def dismiss(self, worker: bytes) -> bool:
        """Ask a worker to end, as by EXIT of ping-pong; return whether such a worker is here.

        Args:
            worker: The routing id of the worker.
        """
        return self._look(lambda: self._inner.dismiss(worker))

    def statistics(self) -> GatewayStatistics:
        """Return a snapshot of the counts of all doors and of the machines inside."""
        return self._look(self._inner.statistics)
