"""Space on the disk that a store keeps for ends and purges (STORE-8.4)."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

from wmp.store.sqlite.file_access import FileAccess

PER_JOB: Final = 4096
"""Bytes that are kept for the end of each reserved job."""

_STEP: Final = 1 << 20
_BLOCK: Final = bytes(1 << 16)


class SpaceReserve:
    """A file without content that takes space, and gives it up when the disk is full.

    The caller holds the lock of all processes.

    Args:
        path: The file of the store.
        size: Minimum of the bytes to keep; 0 for no reserve.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._store = path
        self._path = path.with_name(path.name + "-reserve")
        self._size = size

    def keep(self, log: int, reserved: int) -> bool:
        """Make the reserve whole; return whether it is whole.

        Args:
            log: Bytes of the log, which a full disk could not copy into the file otherwise.
            reserved: Number of reserved jobs.

        Raises:
            OSError: The file cannot be written, for another cause than a full disk.
        """
        if not self._size:
            return True
        wanted = max(self._size, log + _STEP, reserved * PER_JOB)
        held = self._held()
        if held >= wanted:
            return True
        try:
            descriptor = self._opened()
            try:
                _allocate(descriptor, held, wanted)
            except OSError:
                os.ftruncate(descriptor, held)
                raise
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return False
            raise
        return True

    def give(self) -> bool:
        """Give up a part of the reserve; return whether there was one."""
        held = self._held()
        if not held:
            return False
        os.truncate(self._path, max(0, held - max(_STEP, held // 16)))
        return True

    def _held(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _opened(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        return FileAccess.of(self._store).open_new(self._path)


def _allocate(descriptor: int, start: int, end: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, end - start)
        return
    os.lseek(descriptor, start, os.SEEK_SET)
    while start < end:
        start += os.write(descriptor, _BLOCK[: end - start])
