"""The device for asyncio: stands between workers and managers, and keeps no state of their jobs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from os import PathLike
from typing import Unpack

from wmp.aio.node import AsyncServer
from wmp.core.device import DeviceMachine as Machine
from wmp.core.device import DeviceStatistics
from wmp.core.protocol.settings import DeviceSettings
from wmp.duration import Duration
from wmp.errors import ConfigError
from wmp.message import Limits
from wmp.runtime.common.journal import Journal
from wmp.runtime.driver.device_driver import DeviceDriver
from wmp.runtime.driver.driver import Driver
from wmp.runtime.node.node import Node, make_identity, make_label, make_settings, new_epoch
from wmp.runtime.sockets.socket_settings import (
    SocketOptions,
    SocketSettings,
    shows_socket_options,
)

logger = logging.getLogger("wmp")


class Device(AsyncServer[DeviceSettings]):
    """Passes messages on between the workers below and the managers (or devices) above.

    Args:
        bind: Endpoints for workers and lower devices.
        connect: Endpoints of managers and upper devices.
        bind_managers: Endpoints for managers that dial in: ``Manager(connect=…)``. The device needs
            one endpoint at least in ``connect`` or here.
        max_managers: Maximum number of managers that may have dialed in.
        max_silence: Seconds of silence after which a manager that dialed in is forgotten.
        identity: Stable name on the wire; by default 16 random bytes.
        label: Name for people; by default host and process.
        max_hops: Devices that a message may pass.
        options: ``security``, ``context`` and ``transport``; see :class:`wmp.SocketOptions`.
        journal: Folder for the files of the device's journal, or a
            :class:`~wmp.runtime.common.journal.Journal`. ``wmp journal`` reads these files.

    Raises:
        ConfigError: A setting is wrong.
    """

    @shows_socket_options
    def __init__(
        self,
        *,
        bind: str | Sequence[str],
        connect: str | Sequence[str] = (),
        bind_managers: str | Sequence[str] = (),
        max_managers: int = Limits.MANAGERS,
        max_silence: Duration = 6.0,
        identity: bytes | str | None = None,
        label: str | None = None,
        max_hops: int = Limits.HOPS,
        journal: Journal | str | PathLike[str] | None = None,
        **options: Unpack[SocketOptions],
    ) -> None:
        below = (bind,) if isinstance(bind, str) else tuple(bind)
        above = (connect,) if isinstance(connect, str) else tuple(connect)
        dialed = (bind_managers,) if isinstance(bind_managers, str) else tuple(bind_managers)
        if not below or not (above or dialed):
            raise ConfigError(
                "a device needs at least one endpoint in bind=, and at least one in connect= or "
                "bind_managers="
            )
        sockets = SocketSettings.of(options)
        security = sockets.security
        if dialed and security is not None and security.allowed and security.managers is None:
            raise ConfigError(
                "security sets allowed= but not managers=, so no list names the managers that may "
                "dial in to bind_managers=; add their public keys as managers="
            )
        for endpoint in above:
            if endpoint in below:
                raise ConfigError(
                    f"bind and connect both have {endpoint}; name another node in connect, "
                    "because a device cannot connect to itself"
                )
        chosen = make_settings(
            DeviceSettings,
            "device",
            {"max_hops": max_hops, "max_managers": max_managers, "max_silence": max_silence},
            identity=make_identity(identity),
            epoch=new_epoch(),
            label=make_label(label),
            upstreams=len(above),
        )
        node = Node(
            "device",
            bind=below,
            connect=above,
            above=dialed,
            sockets=sockets,
            journal=journal,
        )
        super().__init__(chosen, node)
        self._machine = Machine(chosen)

    async def start(self) -> None:
        """Bind, connect and begin to serve; ``run`` and ``async with`` call this method.
        Idempotent.

        Raises:
            ConfigError: An endpoint cannot be used.
            ClosedError: The device was closed.
        """
        self._node.check_open()
        if self._node.driver is None:
            make_driver = DeviceDriver if self._node.above else Driver
            self._node.start(self._machine, forwards=True, make_driver=make_driver)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which workers can connect, with the actual ports.

        Raises:
            ClosedError: The device is not started, and the system has not chosen an address yet.
        """
        return self._node.addresses

    @property
    def manager_endpoints(self) -> tuple[str, ...]:
        """Addresses to which managers can dial in, with the actual ports; none before the start."""
        return self._node.upper_endpoints

    def interrupt(self) -> None:
        """End as after a signal; ``run`` then returns. Call this method on the loop."""
        logger.info("device: stopping")
        self._node.drain()

    async def close(self) -> None:
        """Stop the device.

        Idempotent, and bounded in time, because a device has no jobs to wait for.
        """
        await self._node.stop()

    async def _abort(self) -> None:
        await self.close()

    def statistics(self) -> DeviceStatistics:
        """Return a snapshot of the counts of messages that were passed on or dropped."""
        return self._with_drops(self._machine.statistics())
