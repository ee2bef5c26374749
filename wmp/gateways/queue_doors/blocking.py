# Twin of wmp/gateways/queue_doors/aio.py; written by specs/build_blocking.py.
"""The front door of a manager, for code without an event loop (specs/pirates.md).

::

    import wmp
    from wmp.gateways import FrontDoor

    with wmp.Manager("tcp://127.0.0.1:5555") as manager:
        with FrontDoor("tcp://127.0.0.1:5556", manager=manager):
            input("Press Enter to end. ")

:mod:`wmp.gateways.aio` has the same name for asyncio.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from wmp.blocking.manager import Manager
from wmp.duration import Duration
from wmp.gateways.common.blocking import BlockingDrainingPart
from wmp.gateways.queue_doors import aio
from wmp.gateways.queue_doors.client_door_machine import FrontDoorStatistics
from wmp.gateways.queue_doors.settings import SERVICE
from wmp.runtime.sockets.socket_settings import SocketOptions, shows_socket_options


class FrontDoor(BlockingDrainingPart[aio.FrontDoor]):
    """Takes the requests of REQ sockets, for example those of Lazy Pirate clients, as jobs of a
    manager, and sends their results as replies.

    The door stands in the place of a Pirate queue for its clients. A job that ends without a result
    sends no reply, because these protocols have no message for errors.

    Args:
        bind: Endpoints for the clients.
        manager: Takes the jobs. It must be started before the door. If the manager is one of a
            pair, each request is a vote, and a request at the passive manager is dropped.
        role: Role of the jobs. Their handlers get a body of one frame as ``bytes``, and a body of
            several frames as a list.
        needs: Amounts of a worker's resources that a job takes; by default one slot.
        priority: Jobs of a higher priority are granted first.
        max_worker_losses: Number of lost leases that a job survives. With 0 no request runs twice.
        timeout: Seconds within which a job must end; None for no limit.
        limit: Maximum number of requests in progress. Further requests are dropped.
        client_limit: Maximum number of requests of one connection.
        full: Reply to a request above a limit, for example ``b"FULL"`` as at a ping-pong broker; by
            default none.
        join: Whether a request with the body of a request in progress waits for the same job. The
            newest of them gets the reply. Then a request that is sent again runs once, also when it
            takes longer than the client waits.
        as_list: Whether a body of one frame is a list for the handler, too.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        *bind: str,
        manager: Manager,
        role: str = SERVICE.kind.role,
        needs: Mapping[str, int] | None = None,
        priority: int = SERVICE.priority,
        max_worker_losses: int = SERVICE.max_worker_losses,
        timeout: Duration | None = SERVICE.timeout,
        limit: int = SERVICE.limit,
        client_limit: int = SERVICE.client_limit,
        full: bytes | None = SERVICE.full,
        join: bool = SERVICE.join,
        as_list: bool = SERVICE.as_list,
        **options: Unpack[SocketOptions],
    ) -> None:
        inner = aio.FrontDoor(
            *bind,
            manager=manager._inner,
            role=role,
            needs=needs,
            priority=priority,
            max_worker_losses=max_worker_losses,
            timeout=timeout,
            limit=limit,
            client_limit=client_limit,
            full=full,
            join=join,
            as_list=as_list,
            **options,
        )
        super().__init__("front door", inner, inner.close)

    def start(self) -> None:
        """Bind and begin to serve; ``with`` calls this method. Idempotent.

        Raises:
            ConfigError: An endpoint cannot be bound.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The door was closed, or the manager is not started.
        """
        super().start()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which clients can connect, with the actual ports.

        Raises:
            ClosedError: The door is not started, and the system has not chosen an address yet.
        """
        return self._look(lambda: self._inner.endpoints)

    def statistics(self) -> FrontDoorStatistics:
        """Return a snapshot of the counts of requests and dropped messages."""
        return self._look(self._inner.statistics)
