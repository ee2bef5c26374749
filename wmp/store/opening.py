"""A store by its place: the path of a file, or the URL of a database."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, unquote

from wmp.errors import ConfigError
from wmp.store.contract import JobFilter, KnownInstance, StoredJob
from wmp.store.stored_job import StoredJobState
from wmp.store.transaction import TransactingStore

_PARAMETER: Final = re.compile("([^?&=]*)=[^&]*")
"""The key and the value of a parameter of a URL."""


class ReadableStore(Protocol):
    """A store as its readers see it."""

    identity: bytes
    generation: int

    @property
    def name(self) -> str:
        """The path or the URL without a password, for people."""

    def list(
        self,
        where: JobFilter = JobFilter(),  # noqa: B008 - a frozen value
        *,
        after: int = 0,
        limit: int = 1000,
        payloads: bool = False,
    ) -> list[StoredJob]:
        """Return jobs in the order of their numbers."""

    def instances(self) -> Sequence[KnownInstance]:
        """Return the instances that the store knows, oldest first."""

    def counts(self) -> dict[StoredJobState, int]:
        """Return the number of jobs in each state."""

    def size(self) -> int:
        """Return the bytes of the store on its disk."""

    def check(self) -> Sequence[str]:
        """Read the whole store; return what is damaged."""

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a consistent copy of the store, while it is used."""

    def close(self) -> None:
        """Release all resources. Idempotent."""


class WritableStore(TransactingStore, Protocol):
    """A store that an operator opened."""

    def restored(self) -> None:
        """Begin a new generation, because the content was replaced by an old copy."""


def is_url(address: str | os.PathLike[str]) -> bool:
    """Return whether an address is the URL of a database.

    Raises:
        ConfigError: The address is a URL of another sort.
    """
    if not isinstance(address, str) or "://" not in address:
        return False
    scheme = address.partition("://")[0]
    if scheme not in ("postgresql", "postgres"):
        raise ConfigError(
            f"the place of a store begins with {scheme}://; expected the path of a file, or "
            "postgresql://USER@HOST:PORT/DATABASE"
        )
    return True


def printable_address(address: str | os.PathLike[str]) -> str:
    """Return the address of a store for people: a URL without user, password and parameters.

    A password that was not quoted may contain ``/``, ``?`` or ``@``, and no part of it is returned.
    """
    text = os.fspath(address)
    scheme, mark, rest = text.partition("://")
    if not mark:
        return text
    location, _, query = _PARAMETER.sub(_hidden, rest).rpartition("@")[2].partition("?")
    schema = dict(parse_qsl(query)).get("schema")
    return f"{scheme}://{location}" + (f"?schema={schema}" if schema else "")


def _hidden(parameter: re.Match[str]) -> str:
    """Return a parameter; empty if it is a password, whose key may be percent-encoded."""
    return "" if unquote(parameter[1]).lower().endswith("password") else parameter[0]


def make_store(address: str | os.PathLike[str], **settings: Any) -> WritableStore:
    """Open a store, which is made if it is missing. This blocks.

    Args:
        address: The path of a file of SQLite, or the URL of a database of PostgreSQL.
        settings: Settings that all stores have: ``grace`` and ``max_bytes``.

    Raises:
        ConfigError: There can be no store at the address, or an extra is missing.
        StoreError: The store cannot be opened.
    """
    # Imported here, because a process needs one of the two, and most need none.
    if is_url(address):
        from wmp.store.postgres.postgres_store import PostgresStore

        return PostgresStore(os.fspath(address), **settings)
    from wmp.store.sqlite.sqlite_store import SqliteStore

    return SqliteStore(address, **settings)


def store_opener(
    address: str, *, reserve: int | None = None, group: str | None = None
) -> Callable[[], WritableStore] | None:
    """Return what opens a store with settings that only files have; None if there are none.

    Args:
        address: The path of a file of SQLite, or the URL of a database of PostgreSQL.
        reserve: Bytes on the disk that are kept for ends and purges; None for the default.
        group: The group that may use a new store, too; None for nobody but the user.

    Raises:
        ConfigError: A setting is given for a database.
    """
    settings: dict[str, Any] = {} if reserve is None else {"reserve": reserve}
    if group is not None:
        settings["group"] = int(group) if group.isdecimal() else group
    if not settings:
        return None
    if is_url(address):
        raise ConfigError(
            f"a store on PostgreSQL has no {' and no '.join(settings)}; the server decides who may "
            "use its tables and how much space they take"
        )
    return functools.partial(make_store, address, **settings)


def open_writer(address: str | os.PathLike[str]) -> WritableStore:
    """Open an existing store.

    Raises:
        ConfigError: There is no store at the address.
        StoreError: The store cannot be opened.
    """
    if is_url(address):
        open_reader(address).close()
    elif not Path(address).is_file():
        raise ConfigError(f"there is no store {address}; wmp.Manager(store=…) makes one")
    return make_store(address)


def restore_store(copy: str | os.PathLike[str], address: str | os.PathLike[str]) -> Path | None:
    """Put a copy in the place of a store on SQLite; see :mod:`wmp.store.sqlite.restoration`.

    Returns:
        The name under which the earlier file is kept; None if there was none.

    Raises:
        ConfigError: The address is the URL of a database, or the copy is missing.
        StoreError: The copy cannot be put in place.
    """
    if is_url(address) or is_url(copy):
        raise ConfigError(
            "a store on PostgreSQL is restored by the tools of the server; afterwards run "
            "`wmp jobs restore --in-place URL`"
        )
    from wmp.store.sqlite.restoration import restore

    return restore(Path(copy), Path(address))


def open_reader(address: str | os.PathLike[str]) -> ReadableStore:
    """Open an existing store to read it.

    Raises:
        ConfigError: There is no store at the address.
        StoreError: The store cannot be read.
    """
    if is_url(address):
        from wmp.store.postgres.postgres_reader import PostgresReader

        return PostgresReader.open(os.fspath(address))
    from wmp.store.sqlite.sqlite_reader import SqliteReader

    return SqliteReader.open(address)
