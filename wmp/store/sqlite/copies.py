"""Copies of a store, and the generation by which a restored copy differs from its original."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from wmp.errors import ConfigError, StoreError
from wmp.store.sqlite.file_access import FileAccess
from wmp.store.store_settings import NUMBERS_FROM, NUMBERS_SHIFT


def write_copy(source: Path, target: Path) -> None:
    """Write a consistent copy of a store, marked as a copy, while others go on.

    Raises:
        ConfigError: The target exists.
        StoreError: The store cannot be read, or the copy cannot be written.
    """
    if target.exists():
        raise ConfigError(f"{target} exists; name a new file for the copy of the store")
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    try:
        os.close(FileAccess.of(source).open_new(part))  # SQLite takes an empty file, too
        with closing(connect(source, "ro")) as connection:
            connection.execute("VACUUM INTO ?", (str(part),))
        with closing(connect(part, "rw")) as connection:
            connection.execute("UPDATE meta SET copied = 1")
        descriptor = os.open(part, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(part, target)
    except (sqlite3.Error, OSError) as error:
        part.unlink(missing_ok=True)
        raise StoreError(
            f"the copy {target} of the store {source} cannot be written: {error}; check the path "
            "and the free space"
        ) from error


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open a file that no other process uses, or one to read: mode "rw" or "ro"."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None
    )


def notice(connection: sqlite3.Connection, now: int, inode: int) -> None:
    """Raise the generation if the file is a copy, inside the caller's transaction."""
    copied, known = connection.execute("SELECT copied, inode FROM meta").fetchone()
    if copied or known != inode:
        raise_generation(connection, now, inode)


def raise_generation(connection: sqlite3.Connection, now: int, inode: int) -> None:
    """Begin a new generation, inside the caller's transaction.

    All instances end. The numbers of new jobs begin above every number that was given after the
    copy was made, since numbers grow by less than 2**30 a second.
    """
    connection.execute(
        "UPDATE meta SET generation = max(generation + 1, ?), copied = 0, inode = ?,"
        " next_id = max(next_id, ?)",
        (now, inode, max(now // 1000 - NUMBERS_FROM, 0) << NUMBERS_SHIFT),
    )
    connection.execute("UPDATE instances SET ended = ? WHERE ended IS NULL", (now,))
