"""The file of a new store, which appears at its path in one step (STORE-9.10)."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from wmp.errors import StoreUnusable
from wmp.store.sqlite import schema
from wmp.store.sqlite.file_access import FileAccess
from wmp.store.sqlite.replaced_file import FileMark, is_store, sync_folder


def make_if_new(path: Path, access: FileAccess, identity: bytes, now: int) -> bool:
    """Make the file of a store if there is none, or one without tables.

    The caller holds the lock of all processes. A process that is killed here leaves no store, or a
    whole one.

    Args:
        path: The file of the store.
        access: Mode and group of a new file.
        identity: Identity of the new store.
        now: Milliseconds since 1970.

    Returns:
        Whether a store was made.

    Raises:
        StoreUnusable: The log of a store is there without its file.
        OSError: The file cannot be made.
        sqlite3.Error: The same, or the existing file is not a database.
    """
    log = Path(f"{path}-wal")
    exists = path.exists()
    if log.exists() and log.stat().st_size and not (exists and path.stat().st_size):
        raise StoreUnusable(
            f"the store {path} is {'empty' if exists else 'gone'}, and its log {log.name} is "
            "there; put the file back, or remove the log to begin an empty store"
        )
    if exists:
        if is_store(path):
            return False
        FileMark(path).check()
        if not _is_empty(path):
            return False
    part = path.with_name(path.name + "-new")
    _remove(part)
    try:
        inode = _write(part, access, identity, now)
        FileMark(path).write(identity, inode=inode, access=access)
        if exists:
            # The rest of a first start that was interrupted.
            for end in ("-wal", "-shm"):
                Path(f"{path}{end}").unlink(missing_ok=True)
            os.replace(part, path)
        else:
            publish(part, path)
        sync_folder(path.parent)
    finally:
        _remove(part)
    return True


def publish(part: Path, path: Path) -> None:
    """Give a whole file its name, unless there is such a file.

    Raises:
        FileExistsError: Another program made the file meanwhile.
        OSError: The name cannot be given.
    """
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise
        os.rename(part, path)  # some file systems have no links
    else:
        part.unlink()


def _write(part: Path, access: FileAccess, identity: bytes, now: int) -> int:
    descriptor = access.open_new(part)
    inode = os.fstat(descriptor).st_ino
    os.close(descriptor)
    uri = f"{part.as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        # The file has no name that counts before it is whole, so it needs no journal.
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        schema.create(connection, identity, now, inode)
        connection.execute("COMMIT")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreUnusable(
            f"SQLite cannot use a write-ahead log for {part} (mode {mode}); put the store on a "
            "disk of this host"
        )
    descriptor = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return inode


def _is_empty(path: Path) -> bool:
    """Return whether a file has no table, and is not the file of another program."""
    if not path.stat().st_size:
        return True
    uri = f"{path.as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application not in (0, schema.APPLICATION):
            return False
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return not tables


def _remove(part: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        Path(f"{part}{end}").unlink(missing_ok=True)
