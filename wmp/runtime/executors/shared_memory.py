"""Memory that a parent shares with a worker process, and that outlives the process.

multiprocessing has shared arrays too, but their modules make each start of a process slower.
"""

from __future__ import annotations

import os
from mmap import mmap
from multiprocessing import reduction
from typing import Any


class SharedMemory:
    """A number of bytes, all 0 at first. The object may be an argument of a new process.

    Args:
        size: Number of bytes.

    Raises:
        OSError: The system has no memory or descriptor left.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._file = _new_file()
        try:
            os.ftruncate(self._file, size)
            self.view = memoryview(mmap(self._file, size))
            """The bytes."""
        except BaseException:
            self.close_file()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._size, reduction.DupFd(self._file))

    def close_file(self) -> None:
        """Close the descriptor, which no further process can get then. The bytes stay."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _attach(size: int, file: Any) -> memoryview:
    """Return the bytes, in the new process."""
    descriptor = file.detach()
    try:
        return memoryview(mmap(descriptor, size))
    finally:
        os.close(descriptor)


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("wmp-worker")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
