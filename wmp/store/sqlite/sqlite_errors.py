"""Errors of SQLite and of the system in the words of a store."""

from __future__ import annotations

import errno
import sqlite3
from typing import Final

from wmp.errors import StoreError, StoreFull, StoreUnavailable, StoreUnusable

BUSY: Final = 5.0
"""Seconds to wait for another process, of this library or a foreign one."""

_SHM_SIZE: Final = sqlite3.SQLITE_IOERR | 19 << 8
"""SQLITE_IOERR_SHMSIZE: there is no space for the index of the log."""


DATABASE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""Errors of a database. The text of SQLite's own error may contain bytes of a corrupted file."""


def in_words(error: Exception, name: str) -> StoreError:
    """Return the error of the library for an error of SQLite or of the system."""
    if isinstance(error, StoreError):
        return error
    whole_code = getattr(error, "sqlite_errorcode", None) or 0
    code = whole_code & 0xFF
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or code == sqlite3.SQLITE_FULL or whole_code == _SHM_SIZE:
        return StoreFull(
            f"there is no space for the store {name}: the disk is full, or the file has its "
            "maximum size; make space, purge ended jobs, or keep results for a shorter time"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(
            f"another program has locked the store {name} for {BUSY:g} s; end its transaction"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreUnavailable(
            f"the store {name} is read-only; make the file and its folder writable"
        )
    if code in (sqlite3.SQLITE_CANTOPEN,) or isinstance(error, FileNotFoundError):
        return StoreUnavailable(
            f"the store {name} cannot be opened ({error}); put the file back, or check the "
            "permissions of its folder"
        )
    if isinstance(error, OSError):
        return StoreUnavailable(
            f"the store {name} cannot be opened: {error.strerror}; check the folder and its "
            "permissions"
        )
    if isinstance(error, UnicodeDecodeError):
        return unreadable(error, name)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreUnusable(f"the store {name} is corrupted ({error}); restore a backup")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailable(
            f"the store {name} cannot be read or written ({error}); check the disk, its quotas and "
            "limits of file sizes; the outcome of the last write is not known, and the same write "
            "can be made again"
        )
    if "no such table" in str(error) or "no such column" in str(error):
        return StoreUnusable(f"{name} is not a store of wmp ({error}); restore a backup")
    return StoreUnavailable(
        f"the store {name} failed: {error}; the outcome of the last write is not known, and the "
        "same write can be made again"
    )


def unreadable(error: Exception, name: str) -> StoreUnusable:
    """Return the error for a row whose values have no meaning."""
    return StoreUnusable(
        f"the store {name} is corrupted (a row cannot be read: {error}); restore a backup"
    )
