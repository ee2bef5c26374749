"""A small file system in a mount namespace of this process, which can be full for real."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["SmallMount", "enter_namespace", "in_namespace"]

_MARK = "WMP_CHECK_NAMESPACE"
_STEPS = (1 << 24, 1 << 20, 1 << 16, 1 << 12)


def in_namespace() -> bool:
    """Return whether this process has a mount namespace of its own."""
    return os.environ.get(_MARK) == "1"


def enter_namespace(arguments: list[str]) -> None:
    """Run this program again in a mount namespace of its own, if the system allows that.

    The function returns if the process is in a namespace already, or cannot have one.

    Args:
        arguments: Arguments of ``python``.
    """
    if _MARK in os.environ or shutil.which("unshare") is None:
        return
    # A server of PostgreSQL needs another user than root, so the users stay if they can.
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    trial = [*unshare, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    allowed = subprocess.run(trial, capture_output=True, check=False).returncode == 0
    os.environ[_MARK] = "1" if allowed else "0"
    if allowed:
        os.execvp("unshare", [*unshare, sys.executable, *arguments])


class SmallMount:
    """A file system of a few MiB.

    Args:
        folder: An empty folder, on which the file system is mounted.
        size: Bytes of the file system.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self._filler = folder / "filler"
        folder.mkdir(parents=True, exist_ok=True)
        self._mount(f"size={size}")

    def _mount(self, options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.folder], check=True)

    def resize(self, size: int) -> None:
        """Change the size of the file system."""
        self._mount(f"remount,size={size}")

    def fill(self, left: int = 0) -> None:
        """Fill the file system by a file of another program, apart from ``left`` bytes."""
        descriptor = os.open(self._filler, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            at = os.fstat(descriptor).st_size
            for step in _STEPS:
                while True:
                    try:
                        os.posix_fallocate(descriptor, at, step)
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        break
                    at += step
            os.ftruncate(descriptor, max(0, at - left))
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Remove the file of the other program. Idempotent."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount the file system."""
        subprocess.run(["umount", "-l", self.folder], check=False, capture_output=True)
