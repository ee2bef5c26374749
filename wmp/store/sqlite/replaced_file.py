"""The checks for a file of a store that was replaced, before SQLite opens it and afterwards.

A mark beside the store states to which file the log beside it belongs (STORE-9.9).

SQLite copies a log into whatever file has the right name. So a backup that was put in place beside
an old log would be damaged, or its content would be undone. Therefore log and file are compared
before SQLite opens them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from attrs import frozen

from wmp.errors import StoreUnusable
from wmp.store.sqlite import schema
from wmp.store.sqlite.file_access import FileAccess

_APPLICATION_AT: Final = slice(68, 72)
"""Place of ``application_id`` in the file."""
_IDENTITY: Final = 16
"""Bytes of the identity of a store."""


@frozen
class BareMeta:
    """The identity in the file of a store, without the changes in its log."""

    identity: bytes
    copied: bool
    """Whether the file is a backup that no process has opened."""


@frozen
class _Mark:
    identity: bytes
    inode: int
    own: int
    """Inode of the mark itself: another one after somebody copied the whole folder."""
    restoring: bool


class FileMark:
    """The mark of a store.

    Args:
        path: The file of the store.
    """

    def __init__(self, path: Path) -> None:
        self._store = path
        self._path = path.with_name(path.name + "-mark")

    def write(
        self,
        identity: bytes,
        *,
        inode: int = 0,
        restoring: bool = False,
        access: FileAccess | None = None,
    ) -> None:
        """Replace the mark in one step.

        Args:
            identity: The identity of the store.
            inode: The inode of the file to which the log belongs.
            restoring: Whether a restoration is under way, so that nobody may open the store.
            access: Mode and group; None for those of the file of the store.

        Raises:
            OSError: The mark cannot be written.
        """
        part = self._path.with_name(self._path.name + ".part")
        part.unlink(missing_ok=True)
        descriptor = (access or FileAccess.of(self._store)).open_new(part)
        try:
            own = os.fstat(descriptor).st_ino
            body = {"store": identity.hex(), "inode": inode, "own": own, "restoring": restoring}
            os.write(descriptor, json.dumps(body).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(part, self._path)
        sync_folder(self._path.parent)

    def renew(self, identity: bytes, inode: int) -> None:
        """Write the mark if it is missing, or is the mark of another file.

        Raises:
            OSError: The mark cannot be written.
        """
        mark = self._read()
        if (
            mark is None
            or (mark.identity, mark.inode) != (identity, inode)
            or mark.own != (os.stat(self._path).st_ino)
        ):
            self.write(identity, inode=inode)

    def copy_to(self, path: Path) -> None:
        """Write the same mark for a second name of the file.

        Raises:
            OSError: The mark cannot be written.
        """
        mark = self._read()
        if mark is not None and not mark.restoring:
            FileMark(path).write(mark.identity, inode=mark.inode)

    def check(self) -> None:
        """Check that the log belongs to the file. SQLite must not open the file before.

        Raises:
            StoreUnusable: The log belongs to another file.
            OSError: The file is gone.
        """
        name = self._store.name
        mark = self._read()
        if mark is not None and mark.restoring:
            raise StoreUnusable(
                f"a restoration of the store {self._store} was interrupted; run `wmp jobs restore "
                f"COPY {name}` again"
            )
        if not _size(Path(f"{self._store}-wal")):
            return
        if not self._belongs(mark):
            raise StoreUnusable(
                f"the log {name}-wal does not belong to the file {self._store}: the file was "
                "replaced, for example by a backup. Nothing was changed. Run `wmp jobs restore "
                f"COPY {name}` to put a backup in place, or put back the file that belongs to the "
                "log"
            )

    def _belongs(self, mark: _Mark | None) -> bool:
        if mark is None:
            meta = bare_meta(self._store)
            return meta is None or not meta.copied
        if mark.inode != os.stat(self._store).st_ino and mark.own == os.stat(self._path).st_ino:
            return False
        if not is_store(self._store):
            return False
        meta = bare_meta(self._store)
        # After a loss of power pages of the file may be torn. The log has them whole.
        return meta is None or (meta.identity == mark.identity and not meta.copied)

    def _read(self) -> _Mark | None:
        try:
            body = json.loads(self._path.read_bytes())
            return _Mark(
                bytes.fromhex(body["store"]),
                int(body["inode"]),
                int(body["own"]),
                bool(body["restoring"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None


class FileInPlace:
    """The file and the log of an open store: whether they are still those that were opened.

    Args:
        path: The file of the store.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = f"{path}-wal"
        self._inode = self._log_inode = 0
        self.size = 0
        """Bytes of the file and its log at the last look."""
        self.log_size = 0
        """Bytes of the log at the last look."""

    def check_reopened(self) -> int:
        """Return the inode of the file that is to be opened, perhaps again.

        Raises:
            StoreUnusable: It is another file than the file that was opened before.
            OSError: The file is gone.
        """
        inode = os.stat(self._path).st_ino
        if self._inode not in (0, inode):
            raise self._replaced()
        return inode

    def opened(self, inode: int) -> None:
        """Remember the file and its log, which were just opened."""
        self._inode = inode
        try:
            self._log_inode = os.stat(self._log).st_ino
        except FileNotFoundError:
            self._log_inode = 0

    def look(self) -> bool:
        """Return whether the file and its log are there, and read their sizes.

        Raises:
            StoreUnusable: Another file or log is there.
        """
        try:
            file, log = os.stat(self._path), os.stat(self._log)
        except OSError:
            return False
        if (file.st_ino, log.st_ino) != (self._inode, self._log_inode):
            raise self._replaced()
        self.size = file.st_size + log.st_size
        self.log_size = log.st_size
        return True

    def _replaced(self) -> StoreUnusable:
        return StoreUnusable(
            f"the file of the store {self._path}, or its log, was replaced while this process used "
            "it; start the process again"
        )


def is_store(path: Path) -> bool:
    """Return whether the file itself, without its log, states that it is a store."""
    with path.open("rb") as file:
        head = file.read(_APPLICATION_AT.stop)
    return head[_APPLICATION_AT] == schema.APPLICATION.to_bytes(4, "big")


def bare_meta(path: Path) -> BareMeta | None:
    """Read the identity in the file of a store, without its log; None if it cannot be read."""
    uri = f"{path.absolute().as_uri()}?immutable=1"
    with (
        contextlib.suppress(sqlite3.Error, ValueError, TypeError),
        closing(sqlite3.connect(uri, uri=True)) as file,
    ):
        row = file.execute("SELECT identity, copied FROM meta").fetchone()
        # A page that a loss of power has torn may have a row of anything.
        if row is not None and isinstance(row[0], bytes) and len(row[0]) == _IDENTITY:
            return BareMeta(row[0], bool(row[1]))
    return None


def sync_folder(folder: Path) -> None:
    """Make the names of new files in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
