"""Definitions of gateways in TOML: the content of a ``gateway.toml``, and its errors.

::

    [gateway]
    bind = "tcp://127.0.0.1:5570"             # for WMP workers; one address or a list
    connect = ["tcp://127.0.0.1:5580"]        # managers whose jobs the foreign workers do
    identity = "orders"                       # stable name on the wire, by default random
    label = "orders"                          # name for people
    journal = "journal"                       # a folder, relative to this file
    control = "orders.control"                # a Unix socket for `wmp gateway kill`
    drain_timeout = 60.0
    titanic = "titanic.db"                    # the store of Titanic; or the table below

    [gateway.titanic]                         # the store of Titanic, with its settings
    store = "titanic.db"                      # relative to this file
    reserve = 67108864                        # bytes on the disk for replies; 0 for none
    group = "jobs"                            # may use a new store, too
    reply_ttl = 86400                         # and the other wmp.gateways.TitanicLimits

    [[gateway.clients]]                       # the settings of wmp.gateways.ClientDoor
    bind = "tcp://127.0.0.1:5555"

    [[gateway.workers]]                       # the settings of wmp.gateways.WorkerDoor
    bind = "tcp://127.0.0.1:5556"
    protocol = "paranoid-pirate"

    [[gateway.majordomo]]                     # the settings of wmp.gateways.majordomo.door
    bind = "tcp://127.0.0.1:5557"

    [[gateway.majordomo.services]]            # the terms of a service of this door
    name = "payment"
    max_worker_losses = 0

    [[gateway.round_robin]]                   # those of wmp.gateways.round_robin.door
    bind = "tcp://127.0.0.1:6714"

    [gateway.star]                            # one of two gateways serves: wmp.gateways.BinaryStar
    role = "primary"
    local = "tcp://127.0.0.1:5003"
    remote = "tcp://127.0.0.1:5004"
    key = "star.key"                          # the same file at both gateways, mode 0600

    [gateway.security]                        # CURVE keys, files relative to this one
    [gateway.transport]                       # options of the sockets
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs
from attrs import field, frozen

from wmp.errors import ConfigError
from wmp.gateways.doors import DOORS
from wmp.gateways.gateway.door import Door
from wmp.gateways.titanic.majordomo_door import NO_BROKER, broker_number
from wmp.gateways.titanic.requests import TitanicLimits
from wmp.message import Limits
from wmp.runtime.node.config_table import ConfigTable, read_toml
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.transport import Transport
from wmp.store.contract import Store
from wmp.store.opening import make_store, store_opener

DRAIN_SECONDS: Final = 60.0
"""Seconds that requests in progress have after the first signal."""

_REMEDY: Final = (
    "make keys with `wmp keys` and name them under [gateway.security], write open = true for a "
    "door without keys, or bind to tcp://127.0.0.1:PORT"
)

_TITANIC_STORE: Final = ("store", "reserve", "group")
"""The keys of the table ``titanic`` that are about its store."""

_ROLES: Final = ("primary", "backup")
_ROLE: Final = '"primary" or "backup"'


@frozen(kw_only=True)
class StarDefinition:
    """A node of a Binary Star; arguments of :class:`~wmp.gateways.aio.BinaryStar`."""

    role: str
    local: str
    remote: str
    heartbeat: float = 1.0
    max_silence: float | None = None
    key: Path | None = None
    """The file of the key that both nodes share; None for no key."""


@frozen(kw_only=True)
class TitanicDefinition:
    """The store of Titanic beside the first Majordomo broker."""

    store: Path
    reserve: int | None = None
    """Bytes on the disk that are kept for replies when the disk is full; None for the default."""
    group: str | None = None
    """Name or number of the group that may use a new store, too; None for nobody but the user."""
    limits: TitanicLimits = field(factory=TitanicLimits)
    """Limits of the stored requests: number, bytes and lifetimes."""

    def opener(self) -> Callable[[], Store]:
        """Return what opens the store; the call waits for the disk, and may raise
        :class:`~wmp.errors.ConfigError` and :class:`~wmp.errors.StoreError`."""
        path = os.fspath(self.store)
        opened = store_opener(path, reserve=self.reserve, group=self.group)
        return opened or functools.partial(make_store, path)


@frozen(kw_only=True)
class GatewayDefinition:
    """A gateway as its definition describes it; most are arguments of a gateway."""

    doors: tuple[Door, ...]
    bind: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    identity: str | None = None
    label: str | None = None
    star: StarDefinition | None = None
    security: Security | None = None
    transport: Transport = field(factory=Transport)
    journal: Path | None = None
    """The folder of the journals; None for no journal."""
    control: Path | None = None
    """The Unix socket for operators; None for none."""
    titanic: TitanicDefinition | None = None
    """Titanic beside the first Majordomo broker; None for no Titanic."""
    drain_timeout: float = DRAIN_SECONDS
    """Seconds that requests in progress have after the first signal; 0 for no limit."""


def load_gateway(path: str | os.PathLike[str]) -> GatewayDefinition:
    """Read the gateway that a TOML file defines.

    Only this file and the files of keys are opened.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or has an unknown key or a wrong value.
            The text names the file, the key, the value found and the value expected.
    """
    path = Path(path)
    top = ConfigTable(path, "", read_toml(path))
    top.only(("gateway",))
    table = top.table("gateway")
    if table is None:
        raise ConfigError(f"{path}: there is no [gateway] table; expected one")
    known = {*attrs.fields_dict(GatewayDefinition), *DOORS} - {"doors"}
    table.only(sorted(known))
    connects = "connect" in table.values
    security = table.security(connects=connects)
    doors = tuple(
        _door(kind, below, security) for name, kind in DOORS.items() for below in table.tables(name)
    )
    timeout = table.seconds("drain_timeout") if "drain_timeout" in table.values else DRAIN_SECONDS
    return GatewayDefinition(
        doors=doors,
        bind=table.addresses("bind", bind=True, security=security, remedy=_REMEDY, optional=True),
        connect=table.addresses(
            "connect", bind=False, security=security, remedy=_REMEDY, optional=True
        ),
        identity=table.text("identity", Limits.IDENTITY // 2),
        label=table.text("label", Limits.LONG_TEXT // 2),
        star=_star(table, security),
        security=security,
        transport=table.transport(),
        journal=table.path("journal"),
        control=table.path("control"),
        titanic=_titanic(table, doors),
        drain_timeout=timeout,
    )


def _titanic(table: ConfigTable, doors: Sequence[Door]) -> TitanicDefinition | None:
    """Return the store of Titanic: the path under ``titanic``, or the table of this name.

    Raises:
        ConfigError: No Majordomo broker without keys takes clients and workers, or a setting of
            the store is wrong.
    """
    if "titanic" not in table.values:
        return None
    if broker_number(doors) is None:
        raise table.wrong("titanic", NO_BROKER)
    if not isinstance(table.values["titanic"], dict):
        path = table.path("titanic")
        assert path is not None
        return TitanicDefinition(store=path)
    below = table.table("titanic")
    assert below is not None
    limits = attrs.fields_dict(TitanicLimits)
    below.only((*_TITANIC_STORE, *limits))
    store = below.path("store")
    if store is None:
        raise below.missing("store", "the name of a file, relative to this one")
    given: dict[str, float] = {
        key: below.seconds(key) if key.endswith("_ttl") else below.count(key, 1)
        for key in limits.keys() & below.values.keys()
    }
    try:
        titanic_limits = TitanicLimits(**given)  # type: ignore[arg-type]
    except ConfigError as error:
        raise ConfigError(f"{below.file}: {below.name}.{error}") from error
    return TitanicDefinition(
        store=store,
        limits=titanic_limits,
        reserve=below.amount("reserve"),
        group=below.text("group", Limits.IDENTITY),
    )


def _star(above: ConfigTable, security: Security | None) -> StarDefinition | None:
    """Return the node of the table ``star``; None without this table."""
    table = above.table("star")
    if table is None:
        return None
    table.only(attrs.fields_dict(StarDefinition))
    role = table.text("role", Limits.IDENTITY)
    if role not in _ROLES:
        raise (table.missing("role", _ROLE) if role is None else table.wrong("role", _ROLE))
    (local,) = table.addresses("local", bind=True, security=security, remedy=_REMEDY)
    (remote,) = table.addresses("remote", bind=False, security=security, remedy=_REMEDY)
    return StarDefinition(
        role=role,
        local=local,
        remote=remote,
        heartbeat=table.seconds("heartbeat") if "heartbeat" in table.values else 1.0,
        max_silence=table.seconds("max_silence") if "max_silence" in table.values else None,
        key=table.path("key"),
    )


def _door(kind: type[Door], table: ConfigTable, security: Security | None) -> Door:
    """Return a door; errors name its table."""
    table.only([name for name, attribute in attrs.fields_dict(kind).items() if attribute.init])
    given = kind.settings_of(table)
    given["bind"] = table.addresses(
        "bind",
        bind=True,
        security=security if given.get("keys") is True else None,
        remedy=_REMEDY,
        open=given.get("open") is True,
    )
    try:
        return kind(**given)
    except ConfigError as error:
        raise ConfigError(f"{table.file}: {table.name}.{error}") from error
