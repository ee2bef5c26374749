"""The worker side of a forwarding manager: jobs of managers above, for its own workers (§19)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from wmp.actions import Answer, Interrupt, Notify, Recall, Run
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.relay import ForManager, ForWorker, LeaseRelay, RelayEvent
from wmp.core.worker.machine import WorkerMachine
from wmp.core.worker.statistics import WorkerStatistics
from wmp.errors import ConfigError
from wmp.events import FIRST_FORWARDED, Closed, Drained, Forwarded, Retracted, Ticked
from wmp.message import Limits, counted
from wmp.runtime.common.journal import Journal
from wmp.runtime.node.node import Node
from wmp.runtime.sockets.socket_settings import SocketSettings

logger = logging.getLogger("wmp")

_MEASURE: Final = 0.05
"""Seconds from a step of the manager to the measure of what its workers offer. Each change is a
READY to every manager above."""

_SUFFIX: Final = b"/forward"
"""End of the identity of the worker side."""


class Forwarding:
    """Connects to managers as a worker, and hands their jobs to the manager of this process.

    Each side has a node and a machine of its own. Both run on one loop, and the relay between them
    is called there.

    Args:
        connect: Endpoints of the managers above, or of devices.
        settings: The settings of the manager.
        machine: The machine of the manager.
        node: The node of the manager.
        sockets: Settings of the sockets.
        journal: The journal, for a file of its own for this side.
        notify: Takes progress of the manager's own jobs.
    """

    def __init__(
        self,
        connect: tuple[str, ...],
        settings: ManagerSettings,
        machine: ManagerMachine,
        node: Node,
        *,
        sockets: SocketSettings,
        journal: Journal | None,
        notify: Callable[[Notify], None],
    ) -> None:
        identity = settings.identity + _SUFFIX
        if len(identity) > Limits.IDENTITY:
            raise ConfigError(
                f"identity has {len(settings.identity)} bytes; a manager with forward= may have "
                f"{Limits.IDENTITY - len(_SUFFIX)} at most"
            )
        self._settings = WorkerSettings(
            identity=identity,
            epoch=settings.epoch,
            label=settings.label,
            roles=(),
            resources={"slots": 0},
        )
        self._manager = machine
        self._manager_node = node
        self._notify = notify
        self._relay = LeaseRelay()
        self._machine = WorkerMachine(self._settings, len(connect))
        self.node = Node("forwarder", bind=(), connect=connect, sockets=sockets, journal=journal)
        self._measure_timer: asyncio.TimerHandle | None = None
        self._relay_timer: asyncio.TimerHandle | None = None
        node.watchers.append(self._stepped)

    # -- life

    def start(self) -> None:
        """Connect to the managers above, on the running loop.

        Raises:
            ConfigError: An address cannot be used.
            TransportError: ZeroMQ refused, or too few file descriptors are left in this process.
        """
        self.node.start(
            self._machine,
            executors=self,
            gather=self._machine.gather,
            link_events=True,
            owed=self._owed,
            on_halt=self._halted,
        )
        self._measure()

    async def drain(self, timeout: float | None) -> bool:
        """Take no further jobs, and finish or hand back those that are here.

        Returns:
            Whether all jobs have ended within ``timeout`` seconds.
        """
        if self.node.running and not self.node.draining:
            self._relayed(Drained())
            self.node.drain()
        return await self.node.wait_ended(timeout)

    async def close(self, timeout: float) -> None:
        """Drain for at most ``timeout`` seconds, then stop; the managers above get BYE."""
        if self.node.running and timeout > 0 and not await self.drain(timeout):
            jobs = counted(len(self._relay), "forwarded job")
            logger.warning("forwarder: stopping with %s; the managers above grant them again", jobs)
        await self.node.stop()
        self._stop_timers()
        if len(self._relay):
            self._relayed(Closed())

    def end(self) -> None:
        """Send BYE to the managers above, because the manager of this process has ended."""
        if self.node.running and self.node.driver is not None:
            self.node.driver.close_machine()

    def _halted(self, error: Exception | None) -> None:
        """Cancel the jobs of the managers above: nobody takes their results any more."""
        self._relayed(Closed())
        self._stop_timers()

    def _stop_timers(self) -> None:
        for timer in (self._measure_timer, self._relay_timer):
            if timer is not None:
                timer.cancel()
        self._measure_timer = self._relay_timer = None

    def statistics(self) -> WorkerStatistics:
        """Return a snapshot of the jobs and managers of this side."""
        return self._machine.statistics()

    # -- the driver of the worker side

    def run(self, action: Run) -> None:
        """Hand the jobs of a lane to the manager."""
        self._relayed(action)

    def recall(self, action: Recall) -> None:
        """Take jobs back that no worker has begun."""
        self._relayed(action)

    def interrupt(self, action: Interrupt) -> None:
        """Cancel jobs."""
        self._relayed(action)

    def _owed(self, link: int) -> bool:
        """Return whether a manager behind a link still owes a reply."""
        statistics = self._machine.statistics()
        return bool(statistics.unacknowledged) or any(
            row.held or row.locks for row in statistics.managers if row.link == link
        )

    # -- the driver of the manager

    def answer(self, action: Answer) -> None:
        """Pass the ends of jobs to the managers above."""
        self._relayed(action)

    def notify(self, action: Notify) -> None:
        """Pass progress on, to the manager above or to the submitter here."""
        if action.id >= FIRST_FORWARDED:
            self._relayed(action)
        else:
            self._notify(action)

    def _stepped(self, event: object, actions: Sequence[object], now: float) -> None:
        """Measure soon what the workers offer: a step of the manager may have changed it."""
        if self._measure_timer is None and self.node.running:
            loop = asyncio.get_running_loop()
            self._measure_timer = loop.call_later(_MEASURE, self._measure)

    def _measure(self) -> None:
        self._measure_timer = None
        if self.node.running:
            self._relayed(self._manager.offer())

    # -- the relay

    def _relayed(self, event: RelayEvent) -> None:
        """Give the relay an event, and each machine what follows for it."""
        loop = asyncio.get_running_loop()
        for output in self._relay.handle(event, loop.time()):
            self._post(output)
        due = self._relay.deadline()
        if due is not None and self._relay_timer is None:
            self._relay_timer = loop.call_at(due, self._tick)

    def _post(self, output: ForManager | ForWorker) -> None:
        node = self._manager_node if isinstance(output, Forwarded | Retracted) else self.node
        if node.running:
            node.inbox.post(output)

    def _tick(self) -> None:
        self._relay_timer = None
        self._relayed(Ticked())
