"""The gateway for asyncio: doors for other protocols around a manager and WMP workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

import attrs

from wmp.aio.standby import PairNode
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.duration import Duration
from wmp.errors import ClosedError, ConfigError
from wmp.events import Relieved
from wmp.foreign import Dismissed
from wmp.gateways.common.aio import DrainingProgram
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.gateway.backlog import describe_backlog, describe_wait
from wmp.gateways.gateway.door import Door
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.gateway.machine import GatewayMachine, GatewaySettings, GatewayStatistics, Record
from wmp.gateways.gateway.star_guard import StarGuard
from wmp.runtime.common.checks import check_seconds
from wmp.runtime.common.journal import CLOSE, Journal, make_journal
from wmp.runtime.common.threads import aside
from wmp.runtime.driver.gateway_driver import GatewayDriver
from wmp.runtime.manager.unserved_watch import UnservedWatch
from wmp.runtime.node.node import (
    DoorAddress,
    Node,
    make_identity,
    make_label,
    make_settings,
    new_epoch,
)
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    SocketSettings,
    shows_socket_options,
)

if TYPE_CHECKING:
    from wmp.runtime.common.recorder import Recorder

logger = logging.getLogger("wmp")


class Gateway(DrainingProgram):
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
        star: A node of a Binary Star (:class:`~wmp.gateways.aio.BinaryStar`), which decides whether
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
        star: PairNode | None = None,
        journal: Journal | str | PathLike[str] | None = None,
        **options: Unpack[SocketOptions],
    ) -> None:
        below = (bind,) if isinstance(bind, str) else tuple(bind)
        above = (connect,) if isinstance(connect, str) else tuple(connect)
        sockets = SocketSettings.of(options)
        _check(doors, below, above, sockets.security)
        if star is not None:
            _check_star(doors)
        self._doors = doors
        self._star = star
        super().__init__(
            Node(
                "gateway",
                bind=below,
                connect=above,
                sockets=sockets,
                journal=None,
                doors=[
                    DoorAddress(
                        door.bind,
                        sockets.security if door.keys else None,
                        door.open,
                        door.routing_id,
                        door.more_messages,
                    )
                    for door in doors
                ],
            )
        )
        self._journal = make_journal(journal)
        self._recorders: list[Recorder] = []
        self._drain_timeout: float | None = None
        self._drain_bound: asyncio.TimerHandle | None = None
        self.before_drain: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Called after the first signal, and awaited before the gateway drains: the end of programs
        that use this gateway and need no reply any more."""
        self._ending: asyncio.Task[None] | None = None
        """The end of the programs that end before this gateway drains."""
        self._late = ""
        """The reason why requests were given up at the end of the drain timeout."""
        self._machine = self._make(
            make_identity(identity),
            make_label(label),
            check_seconds("max_silence", max_silence, zero=False),
        )

    def _make(self, identity: bytes, label: str, max_silence: float) -> GatewayMachine:
        epoch = new_epoch()
        fronts = [n for n, door in enumerate(self._doors) if door.takes_clients]
        manager = None
        if fronts:
            settings = make_settings(
                ManagerSettings,
                "gateway",
                {"max_silence": max_silence},
                identity=identity,
                epoch=epoch,
                label=label,
            )
            paired = self._star is not None
            manager = ManagerMachine(settings, least_recently_used, standby=paired)
        context = DoorContext(epoch=epoch)
        if manager is not None:
            context = DoorContext(epoch=epoch, home=(identity, epoch), offered=manager.offers)
        doors = [door.make(context) for door in self._doors]
        if self._star is not None:
            for number in fronts:
                doors[number] = StarGuard(doors[number], self._star)
        return GatewayMachine(
            GatewaySettings(
                identity=identity,
                epoch=epoch,
                label=label,
                upstreams=len(self._node.connect),
            ),
            doors,
            fronts,
            manager,
            self._record if self._journal is not None else None,
        )

    def _record(self, settings: ManagerSettings | WorkerSettings | DeviceSettings) -> Record:
        from wmp.runtime.common.recorder import Recorder

        assert self._journal is not None
        endpoints = (*self._node.endpoints, *self._node.connect)
        loop = asyncio.get_running_loop()
        recorder = Recorder.begin(self._journal, settings, endpoints, loop, self._node.inbox.post)
        self._recorders.append(recorder)
        return recorder.step

    async def run(self, drain_timeout: Duration | None = None) -> None:
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
        if drain_timeout is not None:
            self._drain_timeout = check_seconds("drain_timeout", drain_timeout)
        try:
            await super().run()
        finally:
            if self._drain_bound is not None:
                self._drain_bound.cancel()
        if self._late:
            raise TimeoutError(self._late)

    def interrupt(self) -> None:
        """Act as after a signal. The first call drains. The second call stops at once.

        Call this method on the loop.
        """
        if self.before_drain is not None:
            self._ending = asyncio.get_running_loop().create_task(self.before_drain())
            self.before_drain = None
            self._ending.add_done_callback(self._drain_after)
            return
        if self._ending is not None and not self._ending.done():
            self._node.halted(None)  # the second signal
            return
        first = not self._node.draining
        super().interrupt()
        if first:
            if wait := describe_wait(self._machine):
                logger.warning(
                    "gateway: no connected worker can do requests that wait (%s); the gateway "
                    "waits, because a worker may still connect",
                    wait,
                )
            if self._drain_timeout is not None:
                loop = asyncio.get_running_loop()
                self._drain_bound = loop.call_later(self._drain_timeout, self._end_drain)

    def _under_way(self) -> str:
        doors = self._node.door_endpoints
        backlog = describe_backlog(self._machine, doors) if doors else ""
        bound = self._drain_timeout
        limit = "" if bound is None else f" for at most {bound:g} s"
        return f"waiting{limit} for {backlog}" if backlog else ""

    def _drain_after(self, ended: asyncio.Task[None]) -> None:
        if not ended.cancelled() and (error := ended.exception()) is not None:
            logger.error("gateway: before draining: %s: %s", type(error).__name__, error)
        if self._node.running:
            self.interrupt()

    def _end_drain(self) -> None:
        if self._node.running:
            backlog = describe_backlog(self._machine, self.doors) or "ends that are under way"
            self._late = f"the drain timeout of {self._drain_timeout:g} s ended with {backlog}"
            wait = describe_wait(self._machine)
            cause = f" ({wait})" if wait else ""
            logger.warning(
                "gateway: %s%s; stopping; requests in progress get no reply", self._late, cause
            )
            self._node.halted(None)

    async def start(self) -> None:
        """Bind, connect and begin to serve; ``run`` and ``async with`` call this method.
        Idempotent.

        Raises:
            ConfigError: An address cannot be used, or no journal can be written.
            TransportError: Too few file descriptors are left in this process.
            ClosedError: The gateway was closed.
        """
        self._node.check_open()
        if self._node.driver is None:
            if self._journal is not None:
                self._journal.prepare()
            if self._star is not None:
                self._star._on_end(self._node.halted)
                self._star._on_takeover(lambda: self._node.inbox.post(Relieved()))
                await self._star.start()
            self._node.start(self._machine, link_events=True, make_driver=GatewayDriver)
            if self._machine.manager is not None:
                UnservedWatch(self._node, self._machine.manager).start()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which WMP workers can connect, with the actual ports.

        Raises:
            ClosedError: The gateway is not started, and the system has not chosen an address yet.
        """
        return self._node.addresses

    @property
    def doors(self) -> tuple[tuple[str, ...], ...]:
        """Addresses of the doors, in their order, with the actual ports.

        Raises:
            ClosedError: The gateway is not started.
        """
        if not self._node.door_endpoints:
            raise ClosedError("the gateway is not started; use it as a context manager, or start()")
        return self._node.door_endpoints

    def workers(self) -> dict[str, dict[bytes, Attendance]]:
        """Return the foreign workers: their states by routing id, by the name of their group."""
        return {
            group: dict(workers)
            for machine in self._machine.doors
            for group, workers in machine.attendances().items()
        }

    def dismiss(self, worker: bytes) -> bool:
        """Ask a worker to end, as by EXIT of ping-pong; return whether such a worker is here.

        Call this method on the loop.

        Args:
            worker: The routing id of the worker.
        """
        self._node.serving()
        for number, machine in enumerate(self._machine.doors):
            if machine.dismisses and any(
                worker in workers for workers in machine.attendances().values()
            ):
                self._node.inbox.post(Dismissed(number, worker))
                return True
        return False

    async def _ended(self) -> None:
        if self._star is not None:
            await self._star.close()
        recorders, self._recorders = self._recorders, []
        for recorder in recorders:
            recorder.stop()
        for recorder in recorders:
            await aside(recorder.wait, "gateway-journal", CLOSE + 1.0)

    def statistics(self) -> GatewayStatistics:
        """Return a snapshot of the counts of all doors and of the machines inside."""
        seen = self._machine.statistics()
        driver = self._node.driver
        return seen if driver is None else attrs.evolve(seen, dropped=driver.statistics())


def _check_star(doors: Sequence[Door]) -> None:
    for door in doors:
        if not door.pairs:
            raise ConfigError(
                f"the door at {door.bind[0]} is for clients and workers, and a star decides about "
                "clients alone; give the star a gateway of its own"
            )
    if not any(door.takes_clients for door in doors):
        raise ConfigError(
            "the gateway has a star and no door for clients alone, so that the star has nothing to "
            "decide; add a ClientDoor, or leave the star out"
        )


def _check(
    doors: Sequence[Any],
    bind: tuple[str, ...],
    connect: tuple[str, ...],
    security: Security | None,
) -> None:
    """Check that the doors and addresses fit together."""
    for door in doors:
        if not isinstance(door, Door):
            raise ConfigError(f"a door is {door!r}; expected a value such as ClientDoor(...)")
        if door.keys and security is None:
            raise ConfigError(
                f"the door at {door.bind[0]} needs keys, and the gateway has none; "
                "pass security=Security(...)"
            )
    clients = [door for door in doors if door.takes_clients]
    workers = [door for door in doors if door.takes_workers]
    if not doors:
        raise ConfigError("a gateway has no door; expected one door or more")
    if not clients and not connect:
        raise ConfigError(
            "the workers of this gateway would get no jobs; add a door for clients, or connect the "
            "gateway to a manager"
        )
    if not workers and not bind:
        raise ConfigError(
            "no worker could do the requests at this gateway; add a door for workers, or bind an "
            "address for WMP workers"
        )
    if bind and not clients:
        raise ConfigError(
            "the gateway binds an address for WMP workers, and has no jobs for them; add a door "
            "for clients"
        )
    if connect and not workers:
        raise ConfigError(
            "the gateway connects to managers, and has no workers for their jobs; add a door for "
            "workers"
        )
    groups = [door.group for door in workers]
    for group in groups:
        if groups.count(group) > 1:
            raise ConfigError(
                f"two doors have the group {group!r}; give each door for workers a group of its own"
            )
    seen: set[str] = set()
    for endpoint in (*bind, *(address for door in doors for address in door.bind)):
        if endpoint in seen and not endpoint.endswith(":*"):
            raise ConfigError(f"{endpoint} is listed twice; give each door an address of its own")
        seen.add(endpoint)
