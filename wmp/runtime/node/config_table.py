"""One table of a TOML file, whose errors name the file, the table and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from attrs import frozen

from wmp.errors import ConfigError
from wmp.runtime.common.renamed import remedy_for
from wmp.runtime.sockets.endpoints import check_endpoints
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.transport import Transport

_ADDRESSES: Final = 'an address such as "tcp://127.0.0.1:5571", or a list of them'


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: The file cannot be read, or is not TOML.
    """
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


@frozen
class ConfigTable:
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
                remedy = remedy_for(key, known)
                raise ConfigError(f"{self.file}: {self._key(key)} is not a known key; {remedy}")

    def table(self, key: str) -> ConfigTable | None:
        """Return a table below this one; None if there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(key, f"a table [{self._key(key)}]")
        return ConfigTable(self.file, self._key(key), value)

    def security(self, *, connects: bool = True, managers: bool = False) -> Security | None:
        """Return the CURVE keys of the table ``security``; None without this table.

        Args:
            connects: Whether the node connects to others, so that their key is needed.
            managers: Whether managers may dial in to the node, so that their keys may be listed.
        """
        table = self.table("security")
        if table is None:
            return None
        node = self.name.partition("[")[0]
        table.only(("secret", "server", "allowed", *(["managers"] if managers else [])))
        secret = table.path("secret")
        if secret is None:
            raise table.missing("secret", f"the .key_secret file of this {node}")
        server = table.path("server")
        if server is None and connects:
            expected = f"the .key file of the nodes that the {node} connects to"
            raise table.missing("server", expected)
        try:
            return Security.load(
                secret,
                server=server,
                allowed=table.path("allowed"),
                managers=table.path("managers"),
            )
        except ConfigError as error:
            raise ConfigError(f"{table.file}: {table.name}: {error}") from error

    def transport(self) -> Transport:
        """Return the options of the sockets in the table ``transport``."""
        table = self.table("transport")
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

    def addresses(
        self,
        key: str,
        *,
        bind: bool,
        security: Security | None,
        remedy: str,
        optional: bool = False,
        open: bool = False,
    ) -> tuple[str, ...]:
        """Return one address or several, which are checked.

        Args:
            key: The key.
            bind: Whether the addresses are bound.
            security: CURVE keys.
            remedy: Advice for missing keys.
            optional: Whether the key may be missing.
            open: Whether the addresses may be open to the network without keys.
        """
        match self.values.get(key):
            case None if optional:
                return ()
            case None:
                raise self.missing(key, _ADDRESSES)
            case str(address) if address:
                addresses = [address]
            case [_, *_] as several if all(isinstance(entry, str) and entry for entry in several):
                addresses = several
            case _:
                raise self.wrong(key, _ADDRESSES)
        try:
            check_endpoints(
                addresses, bind=bind, security=security, shared=False, open=open, remedy=remedy
            )
        except ConfigError as error:
            raise ConfigError(f"{self.file}: {self._key(key)}: {error}") from error
        return tuple(addresses)

    def tables(self, key: str) -> list[ConfigTable]:
        """Return the tables of a list; an empty list for a missing key."""
        match self.values.get(key):
            case None:
                return []
            case [*tables] if all(isinstance(table, dict) for table in tables):
                return [
                    ConfigTable(self.file, f"{self._key(key)}[{number}]", table)
                    for number, table in enumerate(tables)
                ]
            case _:
                raise self.wrong(key, f"tables [[{self._key(key)}]]")

    def text(self, key: str, maximum: int) -> str | None:
        """Return text of 1 to ``maximum`` bytes; None for a missing key."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not 1 <= len(value.encode()) <= maximum:
            raise self.wrong(key, f"text of 1 to {maximum} bytes")
        return value

    def path(self, key: str) -> Path | None:
        """Return a path, relative to the file; None for a missing key."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "the name of a file, relative to this one")
        return self.file.parent / value

    def count(self, key: str, default: int, *, maximum: int | None = None) -> int:
        """Return a whole number of at least 1."""
        value = self.values.get(key, default)
        # In Python the TOML value true is an int too.
        if type(value) is not int or value < 1 or (maximum is not None and value > maximum):
            limit = "of at least 1" if maximum is None else f"from 1 to {maximum}"
            raise self.wrong(key, f"a whole number {limit}")
        return value

    def amount(self, key: str) -> int | None:
        """Return a whole number of at least 0; None for a missing key."""
        value = self.values.get(key)
        if value is not None and (type(value) is not int or value < 0):
            raise self.wrong(key, "a whole number of at least 0")
        return value

    def seconds(self, key: str) -> float:
        """Return a number of seconds."""
        value = self.values[key]
        if type(value) not in (int, float) or not 0 <= value < float("inf"):
            raise self.wrong(key, "a number of seconds, of at least 0")
        return float(value)
