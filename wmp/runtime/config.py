"""Definitions of devices in TOML: the content of a ``device.toml``, and its errors.

::

    [device]                                  # [[device]] for several in one process
    bind = "tcp://127.0.0.1:5571"             # one address or a list
    connect = ["tcp://127.0.0.1:5570"]
    identity = "proxy"                        # stable name on the wire, by default random
    label = "proxy"                           # name for people
    max_hops = 16
    journal = "journal"                       # a folder, relative to this file

    [device.security]                         # CURVE keys, files relative to this one
    secret = "device.key_secret"
    server = "manager.key"                    # of the nodes to connect to
    allowed = "workers"                       # a folder with keys of the peers that may connect

    [device.transport]                        # options of the sockets
    high_water_mark = 1000
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from attrs import field, frozen

from wmp.errors import ConfigError
from wmp.message import Limits
from wmp.runtime.endpoints import check_endpoints
from wmp.runtime.security import Security, is_local
from wmp.runtime.transport import Transport

__all__ = ["EVERY_INTERFACE", "DeviceDefinition", "load_devices", "meets"]

_REMEDY: Final = (
    "make keys with `wmp keys` and name them under [device.security], "
    "or bind to tcp://127.0.0.1:PORT"
)

EVERY_INTERFACE: Final = ("*", "0.0.0.0", "[::]")
"""Hosts that mean every address of this machine."""

_ADDRESSES: Final = 'an address such as "tcp://127.0.0.1:5571", or a list of them'


@frozen(kw_only=True)
class DeviceDefinition:
    """One device as its definition describes it; the arguments of :class:`wmp.aio.Device`."""

    bind: tuple[str, ...]
    connect: tuple[str, ...]
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
        ConfigError: The file cannot be read, is not TOML, or has an unknown key or a wrong value.
            The text names the file, the key, the value found and the value expected.
    """
    path = Path(path)
    document = _read(path)
    top = _ConfigTable(path, "", document)
    stray = [key for key in document if key in attrs.fields_dict(DeviceDefinition)]
    if stray:
        raise ConfigError(
            f"{path}: the key {stray[0]} belongs to a device; write the line [device] above the key"
        )
    top.only(("device",))
    found = document.get("device")
    match found:
        case dict():
            return (_device(_ConfigTable(path, "device", found)),)
        case [_, *_] if all(isinstance(one, dict) for one in found):
            tables = [
                _ConfigTable(path, f"device[{index}]", one) for index, one in enumerate(found)
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
        one.removeprefix("tcp://").replace("localhost", "127.0.0.1").rsplit(":", 1)
        for one in (connect, bind)
    )
    if port != own or port in ("*", "0"):
        return False
    return (
        there == here
        or (here in EVERY_INTERFACE and is_local(f"tcp://{there}:{port}"))
        or there in EVERY_INTERFACE
    )


def _check_apart(tables: Iterable[_ConfigTable], devices: Iterable[DeviceDefinition]) -> None:
    """Refuse two devices that would bind one address."""
    bound: dict[str, _ConfigTable] = {}
    for table, device in zip(tables, devices, strict=True):
        for endpoint in device.bind:
            for other, owner in bound.items():
                if owner is not table and (meets(endpoint, other) or meets(other, endpoint)):
                    raise ConfigError(
                        f"{table.file}: {table.name}.bind is {endpoint}, an address of "
                        f"{owner.name}; give each device an address of its own"
                    )
            bound[endpoint] = table


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read {path}: {reason}; expected a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        text = str(error)
        raise ConfigError(f"{path} is not TOML: {text[:1].lower()}{text[1:]}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not TOML: the file is not UTF-8 text") from error


def _device(table: _ConfigTable) -> DeviceDefinition:
    table.only(attrs.fields_dict(DeviceDefinition))
    security = _security(table)
    bind = table.addresses("bind", bind=True, security=security)
    connect = table.addresses("connect", bind=False, security=security)
    for endpoint in connect:
        if any(meets(endpoint, own) for own in bind):
            raise ConfigError(
                f"{table.file}: {table.name}.connect is {endpoint}, an address of this device; "
                "expected the address of a manager, or of another device"
            )
    return DeviceDefinition(
        bind=bind,
        connect=connect,
        identity=table.text("identity", Limits.IDENTITY),
        label=table.text("label", Limits.LONG_TEXT),
        max_hops=table.count("max_hops", Limits.HOPS, most=Limits.HOPS),
        security=security,
        transport=_transport(table),
        journal=table.path("journal"),
    )


def _security(device: _ConfigTable) -> Security | None:
    table = device.table("security")
    if table is None:
        return None
    table.only(("secret", "server", "allowed"))
    secret = table.path("secret")
    if secret is None:
        raise table.missing("secret", "the .key_secret file of this device")
    server = table.path("server")
    if server is None:
        raise table.missing("server", "the .key file of the nodes that the device connects to")
    try:
        return Security.load(secret, server=server, allowed=table.path("allowed"))
    except ConfigError as error:
        raise ConfigError(f"{table.file}: {table.name}: {error}") from error


def _transport(device: _ConfigTable) -> Transport:
    table = device.table("transport")
    if table is None:
        return Transport()
    fields = attrs.fields_dict(Transport)
    table.only(fields)
    given: dict[str, int | float] = {}
    for key in table.values:
        if isinstance(fields[key].default, float):
            given[key] = table.seconds(key)
        else:
            given[key] = table.count(key, 0)
    try:
        return Transport(**given)  # type: ignore[arg-type]
    except ConfigError as error:
        raise ConfigError(f"{table.file}: {table.name}.{error}") from error


@frozen
class _ConfigTable:
    """One table of a file. Its errors contain the name of the table."""

    file: Path
    name: str
    values: Mapping[str, Any]

    def _key(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def wrong(self, key: str, expected: str) -> ConfigError:
        """Return the error for a wrong value."""
        value = self.values[key]
        shown = "a table" if isinstance(value, dict) else repr(value)
        if len(shown) > 80:
            shown = shown[:79] + "…"
        return ConfigError(f"{self.file}: {self._key(key)} is {shown}; expected {expected}")

    def missing(self, key: str, expected: str) -> ConfigError:
        """Return the error for a missing key."""
        return ConfigError(f"{self.file}: {self._key(key)} is missing; expected {expected}")

    def only(self, known: Iterable[str]) -> None:
        """Refuse unknown keys: a misspelt key must not silently select a default."""
        known = list(known)
        for key in self.values:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]}" if near else f"expected {', '.join(known)}"
                raise ConfigError(f"{self.file}: {self._key(key)} is not a known key; {hint}")

    def table(self, key: str) -> _ConfigTable | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(key, f"a table [{self._key(key)}]")
        return _ConfigTable(self.file, self._key(key), value)

    def addresses(self, key: str, *, bind: bool, security: Security | None) -> tuple[str, ...]:
        match self.values.get(key):
            case None:
                raise self.missing(key, _ADDRESSES)
            case str(one) if one:
                found = [one]
            case [_, *_] as several if all(isinstance(one, str) and one for one in several):
                found = several
            case _:
                raise self.wrong(key, _ADDRESSES)
        try:
            check_endpoints(found, bind=bind, security=security, shared=False, remedy=_REMEDY)
        except ConfigError as error:
            raise ConfigError(f"{self.file}: {self._key(key)}: {error}") from error
        return tuple(found)

    def text(self, key: str, most: int) -> str | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not 1 <= len(value.encode()) <= most:
            raise self.wrong(key, f"text of 1 to {most} bytes")
        return value

    def path(self, key: str) -> Path | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "the name of a file, relative to this one")
        return self.file.parent / value

    def count(self, key: str, default: int, *, most: int | None = None) -> int:
        value = self.values.get(key, default)
        # In Python the TOML value true is an int too.
        if type(value) is not int or value < 1 or (most is not None and value > most):
            limit = "of at least 1" if most is None else f"from 1 to {most}"
            raise self.wrong(key, f"a whole number {limit}")
        return value

    def seconds(self, key: str) -> float:
        value = self.values[key]
        if type(value) not in (int, float) or not 0 <= value < float("inf"):
            raise self.wrong(key, "a number of seconds, of at least 0")
        return float(value)
