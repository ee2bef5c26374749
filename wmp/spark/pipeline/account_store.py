"""The saved account: a database of SQLite, in which a save replaces what changed in one step.

After a kill the database has the account of the last save that was complete.
"""

from __future__ import annotations

import pickle
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from wmp.errors import ConfigError, WMPError
from wmp.spark.folds.folds import Group, OpenGroup

_VERSION: Final = 4
"""Version of the saved classes, in the name of the file; it grows with each change of them."""
_REST: Final[Group] = ("rest", 0, 0)
"""Stands for the object beside the groups."""
_TABLE: Final = """
create table if not exists groups (
    kind text, process integer, peer integer, body blob, checksum integer,
    primary key (kind, process, peer)
)
"""


class AccountStore:
    """Saves an object and a mapping of groups in a folder."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made if it does not exist."""
        folder.mkdir(exist_ok=True)
        self._path = folder / f"account-{_VERSION}.sqlite"
        self._saved: dict[Group, OpenGroup] = {}

    def load(self) -> tuple[Any, dict[Group, OpenGroup]] | None:
        """Return what was saved last; None if nothing was saved.

        Raises:
            ConfigError: Another version saved an account in this folder, or the file is damaged.
            WMPError: The file cannot be read.
        """
        folder = self._path.parent
        remedy = f"remove the folder {folder}, and the journals are read again from their beginning"
        others = list(folder.glob("account*"))
        if others and not self._path.exists():
            raise ConfigError(
                f"{others[0]} was saved by another release; expected {self._path.name}: {remedy}"
            )
        try:
            with self._database() as database:
                rows = database.execute("select kind, process, peer, body, checksum from groups")
                groups = dict(map(_unpacked, rows))
        except sqlite3.OperationalError as error:
            raise WMPError(f"cannot read the saved report in {self._path}: {error}") from error
        except (sqlite3.DatabaseError, ValueError) as error:
            raise ConfigError(f"the saved report is damaged ({error}): {remedy}") from error
        if _REST not in groups:
            return None
        rest, self._saved = groups.pop(_REST), groups
        return rest, dict(groups)

    def save(self, rest: Any, groups: dict[Group, OpenGroup]) -> None:
        """Save the differences from the saved account.

        Raises:
            WMPError: The file cannot be written.
        """
        changed = [
            (key, value) for key, value in groups.items() if self._saved.get(key) is not value
        ]
        rows = (_packed(key, value) for key, value in [*changed, (_REST, rest)])
        try:
            with self._database() as database, database:
                database.executemany(
                    "delete from groups where kind = ? and process = ? and peer = ?",
                    self._saved.keys() - groups.keys(),
                )
                database.executemany("insert or replace into groups values (?, ?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise WMPError(f"cannot save the report in {self._path}: {error}") from error
        self._saved = dict(groups)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path)
        try:
            database.execute(_TABLE)
            yield database
        finally:
            database.close()


def _packed(key: Group, value: Any) -> tuple[Any, ...]:
    body = pickle.dumps(value, 5)
    return *key, body, _checksum(key, body)


def _unpacked(row: tuple[Any, ...]) -> tuple[Group, Any]:
    """Return a key and its object.

    Raises:
        ValueError: The row is damaged. SQLite itself checks no content.
    """
    kind, process, peer, body, checksum = row
    key = kind, process, peer
    if not isinstance(body, bytes) or checksum != _checksum(key, body):
        raise ValueError("a row has another checksum")
    return key, pickle.loads(body)


def _checksum(key: Group, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(repr(key).encode()))
