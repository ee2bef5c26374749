"""Locks on files: one for all transactions of a store, and one for each living instance.

The locks are those of ``flock``. The system releases them when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import weakref
from pathlib import Path
from typing import Final

from wmp.errors import StoreUnavailable
from wmp.store.sqlite.file_access import FileAccess
from wmp.store.sqlite.sqlite_errors import in_words

_FIRST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.005


class FileLock:
    """A lock on a file, which is made if it is missing.

    Args:
        path: The file.
        store: The file of the store, whose mode and group the lock file gets.
        group: Number of the group that shares a new store; None for nobody.
    """

    def __init__(self, path: Path, store: Path, group: int | None = None) -> None:
        self.path = path
        self._store = store
        self._group = group
        self._descriptor: int | None = None
        _of_this_process.add(self)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None and self._locked

    _locked = False

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether this object holds it now."""
        if self._descriptor is None:
            self._descriptor = self._opened()
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._locked = True
        return True

    def _opened(self) -> int:
        while True:
            with contextlib.suppress(FileNotFoundError):
                return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            with contextlib.suppress(FileExistsError):
                return FileAccess.of(self._store, self._group).open_new(self.path)

    def acquire(self, until: float) -> bool:
        """Wait for the lock until a time of the monotonic clock; return whether it was taken."""
        pause = _FIRST_PAUSE
        while not self.try_acquire():
            if time.monotonic() >= until:
                return False
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        return True

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        if self._descriptor is not None and self._locked:
            self._locked = False
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, which gives the lock back too. Idempotent."""
        if self._descriptor is not None:
            self._locked = False
            os.close(self._descriptor)
            self._descriptor = None


class TransactionLock:
    """The lock of all transactions of a store that write, taken in turns.

    A process that waits holds the second file. The process that has just written needs this file
    too before it can write again, so that it cannot overtake the one that waits.
    """

    def __init__(self, path: Path, timeout: float, group: int | None = None) -> None:
        self._lock = FileLock(path.with_name(path.name + "-lock"), path, group)
        self._turn = FileLock(path.with_name(path.name + "-turn"), path, group)
        self._name = path.name
        self._timeout = timeout

    def acquire(self) -> None:
        """Wait for the lock.

        Raises:
            StoreUnavailable: Other processes held the lock for longer than the timeout.
        """
        until = time.monotonic() + self._timeout
        try:
            taken = self._turn.acquire(until) and self._lock.acquire(until)
        except OSError as error:
            raise in_words(error, self._name) from error
        finally:
            self._turn.release()
        if not taken:
            raise StoreUnavailable(
                f"another process has locked the store {self._name} for {self._timeout:g} s; the "
                "write is tried again"
            )

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        self._lock.release()

    def close(self) -> None:
        """Close both files. Idempotent."""
        self._lock.close()
        self._turn.close()


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock on a file; False if there is no file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _forked() -> None:
    """In a forked child: close the files, or the locks would outlive the parent."""
    for lock in list(_of_this_process):
        # LOCK_UN would take the lock from the parent too. Closing the child's descriptor does not.
        lock.close()


_of_this_process: Final[weakref.WeakSet[FileLock]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
