"""Definitions of devices in TOML: the content of a ``device.toml``, and its errors.

::

    [device]                                  # [[device]] for several in one process
    bind = "tcp://127.0.0.1:5571"             # one address or a list
    connect = ["tcp://127.0.0.1:5570"]
    identity = "proxy"                        # stable name on the wire, by default random
    label = "proxy"                           # name for people
    max_hops = 16
    bind_managers = "tcp://127.0.0.1:5572"    # for managers that dial in
    max_managers = 1000
    journal = "journal"                       # a folder, relative to this file

    [device.security]                         # CURVE keys, files relative to this one
    secret = "device.key_secret"
    server = "manager.key"                    # of the nodes to connect to
    allowed = "workers"                       # a folder with keys of the peers that may connect
    managers = "managers"                     # a folder with keys of the managers that may dial in

    [device.transport]                        # options of the sockets
    high_water_mark = 1000
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs
from attrs import field, frozen

from wmp.errors import ConfigError
from wmp.message import Limits
from wmp.runtime.node.config_table import ConfigTable, read_toml
from wmp.runtime.sockets.security import Security, is_local
from wmp.runtime.sockets.transport import Transport

_REMEDY: Final = (
    "make keys with `wmp keys` and name them under [device.security], "
    "or bind to tcp://127.0.0.1:PORT"
)

EVERY_INTERFACE: Final = ("*", "0.0.0.0", "[::]")
"""Hosts that mean every address of this machine."""


@frozen(kw_only=True)
class DeviceDefinition:
    """One device as its definition describes it; the arguments of :class:`wmp.aio.Device`."""

    bind: tuple[str, ...]
    connect: tuple[str, ...] = ()
    bind_managers: tuple[str, ...] = ()
    """Addresses for managers that dial in; at least one here or in ``connect``."""
    max_managers: int = Limits.MANAGERS
    identity: str | None = None
    label: str | None = None
    max_hops: int = Limits.HOPS
    security: Security | None = None
    transport: Transport = field(factory=Transport)
    journal: Path | None = None
    """The folder of the journal; None for no journal."""


def load_devices(path: str | os.PathLike[str]) -> tuple[DeviceDefinition, ...]:
    """Read the devices that a TOML file defines; there must be at least one.

    Only this file and the files of keys are opened.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or contains an unknown key or a wrong
            value. The text names the file, the key, the value found and the value expected.
    """
    path = Path(path)
    document = read_toml(path)
    top = ConfigTable(path, "", document)
    stray = [key for key in document if key in attrs.fields_dict(DeviceDefinition)]
    if stray:
        raise ConfigError(
            f"{path}: the key {stray[0]} belongs to a device; write the line [device] above the key"
        )
    top.only(("device",))
    value = document.get("device")
    match value:
        case dict():
            return (_device(ConfigTable(path, "device", value)),)
        case [_, *_] if all(isinstance(table, dict) for table in value):
            tables = [
                ConfigTable(path, f"device[{index}]", table) for index, table in enumerate(value)
            ]
            devices = tuple(map(_device, tables))
            _check_apart(tables, devices)
            return devices
        case None:
            raise ConfigError(f"{path}: there is no [device] table; expected at least one")
        case _:
            raise top.wrong("device", "a table [device], or several [[device]]")


def meets(connect: str, bind: str) -> bool:
    """Return whether ``connect`` reaches ``bind`` on this machine."""
    if not connect.startswith("tcp://") or not bind.startswith("tcp://"):
        return connect == bind
    (there, port), (here, own) = (
        endpoint.removeprefix("tcp://").replace("localhost", "127.0.0.1").rsplit(":", 1)
        for endpoint in (connect, bind)
    )
    if port != own or port in ("*", "0"):
        return False
    return (
        there == here
        or (here in EVERY_INTERFACE and is_local(f"tcp://{there}:{port}"))
        or there in EVERY_INTERFACE
    )


def _check_apart(tables: Iterable[ConfigTable], devices: Iterable[DeviceDefinition]) -> None:
    """Refuse two devices that would bind one address."""
    bound: dict[str, ConfigTable] = {}
    for table, device in zip(tables, devices, strict=True):
        for endpoint in (*device.bind, *device.bind_managers):
            for other, owner in bound.items():
                if owner is not table and (meets(endpoint, other) or meets(other, endpoint)):
                    raise ConfigError(
                        f"{table.file}: {table.name} binds {endpoint}, an address of "
                        f"{owner.name}; give each device its own address"
                    )
            bound[endpoint] = table


def _device(table: ConfigTable) -> DeviceDefinition:
    table.only(attrs.fields_dict(DeviceDefinition))
    dialed = "bind_managers" in table.values
    security = table.security(connects="connect" in table.values or not dialed, managers=True)
    bind = table.addresses("bind", bind=True, security=security, remedy=_REMEDY)
    connect = table.addresses(
        "connect", bind=False, security=security, remedy=_REMEDY, optional=dialed
    )
    managers = table.addresses(
        "bind_managers", bind=True, security=security, remedy=_REMEDY, optional=True
    )
    if dialed and security is not None and security.allowed and security.managers is None:
        raise ConfigError(
            f"{table.file}: {table.name}.security.managers is missing; expected a folder with the "
            "keys of the managers that may dial in, because the table has allowed"
        )
    for endpoint in managers:
        if any(meets(endpoint, own) for own in bind):
            raise ConfigError(
                f"{table.file}: {table.name}.bind_managers is {endpoint}, the address for workers; "
                "give managers their own address"
            )
    for endpoint in connect:
        if any(meets(endpoint, own) for own in (*bind, *managers)):
            raise ConfigError(
                f"{table.file}: {table.name}.connect is {endpoint}, an address of this device; "
                "expected the address of a manager, or of another device"
            )
    return DeviceDefinition(
        bind=bind,
        connect=connect,
        bind_managers=managers,
        max_managers=table.count("max_managers", Limits.MANAGERS),
        identity=table.text("identity", Limits.IDENTITY),
        label=table.text("label", Limits.LONG_TEXT),
        max_hops=table.count("max_hops", Limits.HOPS, maximum=Limits.HOPS),
        security=security,
        transport=table.transport(),
        journal=table.path("journal"),
    )
