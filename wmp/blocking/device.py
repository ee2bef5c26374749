# Twin of wmp/aio/device.py; written by specs/build_blocking.py.
"""The device for code without an event loop: stands between workers and managers."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Unpack

from wmp import aio
from wmp.blocking.node import BlockingServer
from wmp.core.device import DeviceStatistics
from wmp.duration import Duration
from wmp.message import Limits
from wmp.runtime.common.journal import Journal
from wmp.runtime.sockets.socket_settings import SocketOptions, shows_socket_options


class Device(BlockingServer[aio.Device]):
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
        inner = aio.Device(
            bind=bind,
            connect=connect,
            bind_managers=bind_managers,
            max_managers=max_managers,
            max_silence=max_silence,
            identity=identity,
            label=label,
            max_hops=max_hops,
            journal=journal,
            **options,
        )
        super().__init__("device", inner, lambda _: inner.close())

    def start(self) -> None:
        """Bind, connect and begin to serve; ``run`` and ``with`` call this method.
        Idempotent.

        Raises:
            ConfigError: An endpoint cannot be used.
            ClosedError: The device was closed.
        """
        super().start()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Addresses to which workers can connect, with the actual ports.

        Raises:
            ClosedError: The device is not started, and the system has not chosen an address yet.
        """
        return self._look(lambda: self._inner.endpoints)

    @property
    def manager_endpoints(self) -> tuple[str, ...]:
        """Addresses to which managers can dial in, with the actual ports; none before the start."""
        return self._look(lambda: self._inner.manager_endpoints)

    def interrupt(self) -> None:
        """End as after a signal; ``run`` then returns. Any thread may call this method."""
        self._portal.post(self._inner.interrupt)

    def close(self) -> None:
        """Stop the device.

        Idempotent, and bounded in time, because a device has no jobs to wait for.
        """
        self._shut(0.0)

    def statistics(self) -> DeviceStatistics:
        """Return a snapshot of the counts of messages that were passed on or dropped."""
        return self._look(self._inner.statistics)
