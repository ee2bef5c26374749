"""The modes and the group of a store's files."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Final

from attrs import frozen

from wmp.errors import ConfigError

logger = logging.getLogger("wmp")

_PRIVATE: Final = 0o600
_SHARED: Final = 0o660
_BITS: Final = 0o666
_OPEN: Final = 0o077
"""The permissions of the group and of all others."""

_warned: Final[set[Path]] = set()


@frozen
class FileAccess:
    """The mode and the group of the files of one store.

    The lock files and the log get the mode and the group of the store's file (STORE-9.8).
    """

    mode: int = _PRIVATE
    """Permissions of a file."""
    group: int | None = None
    """Number of the group; None for the group that the system chooses."""

    @classmethod
    def of(cls, path: Path, group: int | None = None) -> FileAccess:
        """Return the access to an existing store, or to a new one that a group shares.

        Args:
            path: The file of the store.
            group: Number of the group that shares a new store; None for nobody.
        """
        try:
            status = os.stat(path)
        except OSError:
            return cls(_PRIVATE if group is None else _SHARED, group)
        return cls(status.st_mode & _BITS, status.st_gid)

    def open_new(self, path: Path) -> int:
        """Make a file, and return its descriptor.

        Raises:
            OSError: There is such a file, or the file cannot be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(path, flags, _PRIVATE)
        try:
            self._give(descriptor)
            os.fchmod(descriptor, self.mode)  # the umask may have removed permissions
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def make_folder(self, path: Path) -> None:
        """Make a folder if it is missing, which the readers of the files may enter.

        Raises:
            OSError: The folder cannot be made.
        """
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            self._give(path)
            path.chmod(self.mode | (self.mode & 0o444) >> 2)

    def share(self, path: Path) -> None:
        """Give a file that SQLite made to the group of the store, if this process owns the file."""
        with contextlib.suppress(OSError):
            status = os.stat(path)
            if status.st_uid == os.geteuid() and status.st_gid != self.group:
                self._give(path)

    def _give(self, file: int | Path) -> None:
        if self.group is None:
            return
        with contextlib.suppress(PermissionError):  # a file of a group without this user
            os.chown(file, -1, self.group)


def group_number(group: str | int | None) -> int | None:
    """Return the number of a group.

    Raises:
        ConfigError: The system knows no such group.
    """
    if group is None or isinstance(group, int):
        return group
    import grp

    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(
            f"there is no group {group!r} for the files of the store; name a group of this host"
        ) from None


def warn_if_open(path: Path, group: int | None) -> None:
    """Log one warning in this process if others than the user may read an existing store."""
    status = os.stat(path)
    more = status.st_mode & _OPEN
    if group is not None and status.st_gid == group:
        more &= 0o007
    if more and path not in _warned:
        _warned.add(path)
        logger.warning(
            "the store %s has the mode %03o, so other users can read payloads and results; "
            "chmod 600 it with its -wal, -shm and -mark files, unless you want to share the store",
            path,
            status.st_mode & 0o777,
        )
