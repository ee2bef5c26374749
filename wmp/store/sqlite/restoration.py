"""Put a copy of a store in the place of a store (STORE-10.6)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from wmp.errors import ConfigError, StoreError, StoreUnavailable, StoreUnusable
from wmp.store.sqlite import copies
from wmp.store.sqlite.file_access import FileAccess
from wmp.store.sqlite.file_lock import TransactionLock, is_locked
from wmp.store.sqlite.replaced_file import FileMark, sync_folder
from wmp.store.sqlite.sqlite_errors import BUSY, in_words
from wmp.store.sqlite.sqlite_reader import SqliteReader


def restore(copy: Path, path: Path) -> Path | None:
    """Put a copy in the place of a store, as a new generation. This blocks.

    The file that was there is kept with its log under another name.

    Args:
        copy: A backup, or another file of a store. It stays as it is.
        path: The place of the store. There may be no file yet.

    Returns:
        The name under which the earlier file is kept; None if there was none.

    Raises:
        ConfigError: The copy is missing, or is the store itself.
        StoreUnavailable: A process uses the store.
        StoreUnusable: The copy is damaged, or is not a store.
        StoreError: The copy cannot be put in place.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and copy.exists() and os.path.samefile(copy, path):
        raise ConfigError(f"{copy} is the store itself; name a copy of the store")
    _check_copy(copy)
    lock = TransactionLock(path, BUSY)
    lock.acquire()
    try:
        _check_unused(path)
        return _exchange(copy, path)
    except (sqlite3.Error, OSError) as error:
        raise in_words(error, str(path)) from error
    finally:
        lock.release()
        lock.close()


def _check_copy(copy: Path) -> None:
    reader = SqliteReader.open(copy)
    try:
        damage = reader.check()
    finally:
        reader.close()
    if damage:
        raise StoreUnusable(f"the copy {copy} is damaged ({damage[0]}); take another one")


def _check_unused(path: Path) -> None:
    folder = path.with_name(path.name + "-instances")
    with contextlib.suppress(FileNotFoundError):
        if any(is_locked(file) for file in folder.iterdir()):
            raise StoreUnavailable(
                f"a process uses the store {path}; end its managers and dispatchers first"
            )


def _exchange(copy: Path, path: Path) -> Path | None:
    """Exchange the files. A process that is killed here leaves a mark that forbids the store."""
    access, mark = FileAccess.of(path), FileMark(path)
    part = path.with_name(path.name + "-new")
    for end in ("", "-journal"):
        Path(f"{part}{end}").unlink(missing_ok=True)
    copies.write_copy(copy, part)
    part.chmod(access.mode)
    inode = part.stat().st_ino
    with closing(copies.connect(part, "rw")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        copies.raise_generation(connection, int(time.time() * 1000), inode)
        (identity,) = connection.execute("SELECT identity FROM meta").fetchone()
        connection.execute("COMMIT")
    kept = None
    if path.exists():
        kept = _free_name(path)
        _keep(path, kept)
    mark.write(identity, restoring=True)
    for end in ("-wal", "-shm", "-journal"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    os.replace(part, path)
    sync_folder(path.parent)
    mark.write(identity, inode=inode)
    return kept


def _keep(path: Path, kept: Path) -> None:
    """Give the earlier file and its log second names, and a mark."""
    for end in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            os.link(f"{path}{end}", f"{kept}{end}")
    FileMark(path).copy_to(kept)


def _free_name(path: Path) -> Path:
    name = f"{path.name}.before-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1000):
        free_path = path.with_name(f"{name}-{number}" if number else name)
        if not free_path.exists():
            return free_path
    raise StoreError(f"there are too many files {name}; remove some of them")
