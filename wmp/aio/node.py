"""The common part of the nodes for asyncio: start, service, end and statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import attrs

from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.runtime.node.node import Node
from wmp.runtime.node.signals import on_signals

if TYPE_CHECKING:
    from wmp.core.device import DeviceStatistics
    from wmp.core.manager.statistics import ManagerStatistics
    from wmp.core.worker.statistics import WorkerStatistics

_SettingsT = TypeVar("_SettingsT", ManagerSettings, WorkerSettings, DeviceSettings)
_StatisticsT = TypeVar("_StatisticsT", "ManagerStatistics", "WorkerStatistics", "DeviceStatistics")


class AsyncPart(ABC):
    """The life of an object with sockets.

    Args:
        node: Serves the object's machine.

    Attributes:
        node: As the argument, for the other packages of this library.
    """

    def __init__(self, node: Node) -> None:
        self._node = self.node = node

    @abstractmethod
    async def start(self) -> None:
        """Begin to serve."""

    @abstractmethod
    async def close(self) -> None:
        """Stop, and give the work in progress time to end."""

    @abstractmethod
    async def _abort(self) -> None:
        """Stop without waiting."""

    async def __aenter__(self) -> Self:
        self._node.check_open()
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an exception the caller does not wait for results.
        await (self.close() if error is None else self._abort())


class AsyncProgram(AsyncPart):
    """An object that may be a whole program: it serves until it is asked to end."""

    async def run(self) -> None:
        """Serve until drained, closed or ended by a signal.

        In the main thread SIGTERM and Ctrl-C have the effect of ``interrupt``.

        Raises:
            ConfigError: As for ``start``.
            ClosedError: As for ``start``.
            Superseded: Another process has this worker's identity.
        """
        self._node.check_open()
        with on_signals(self.interrupt, self._node.inbox.post):
            await self.start()
            try:
                await self._node.wait_ended()
            finally:
                await self._abort()
        self._node.raise_error()

    @abstractmethod
    def interrupt(self) -> None:
        """Act as after a signal. Call this method on the loop."""


class AsyncNode(AsyncPart, Generic[_SettingsT]):
    """A WMP node.

    Args:
        settings: Settings of the machine.
        node: Serves the machine.
    """

    def __init__(self, settings: _SettingsT, node: Node) -> None:
        super().__init__(node)
        self._settings: _SettingsT = settings

    @property
    def identity(self) -> bytes:
        """Name of this node on the wire."""
        return self._settings.identity

    async def wait_ended(self) -> None:
        """Wait until the node has ended: drained, closed, or stopped by an error.

        Raises:
            WMPError: The error that stopped the node, for example ``StarConflict`` of a manager.
            ClosedError: The node is not started, or was closed.
        """
        self._node.serving()
        await self._node.wait_ended()
        self._node.raise_error()

    def _with_drops(self, statistics: _StatisticsT) -> _StatisticsT:
        """Add the messages that the driver dropped before they reached the machine."""
        driver = self._node.driver
        if driver is None:
            return statistics
        return attrs.evolve(statistics, dropped={**driver.statistics(), **statistics.dropped})


class AsyncServer(AsyncNode[_SettingsT], AsyncProgram):
    """A WMP node that may be a whole program."""
