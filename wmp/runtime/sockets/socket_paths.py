"""Paths of Unix sockets: whether a node may bind a path, and which files a node may remove.

ZeroMQ removes the file at the path of an ``ipc`` address before it binds, and asks nobody. So every
binder of a path calls :func:`check_socket_path` first.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import Final

from wmp.errors import ConfigError

_PATIENCE: Final = 0.2
"""Seconds within which the process behind a socket must accept a connection."""

FileIdentity = tuple[int, int]
"""The values that identify a file: device and inode number alone may be used again."""


def file_identity(path: str) -> FileIdentity:
    """Return the values that identify the file at a path; a symbolic link is a file of its own.

    Raises:
        OSError: There is no such file.
    """
    status = os.lstat(path)
    return status.st_ino, status.st_mtime_ns


def check_socket_path(path: str, what: str) -> bool:
    """Check that a socket may be bound at a path: nothing is there, or a socket without a process.

    Args:
        path: The path.
        what: The intention, as the start of an error: ``cannot bind to ipc://jobs``.

    Returns:
        Whether a socket without a process is at the path.

    Raises:
        ConfigError: Another file is at the path, or a process serves the socket there.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False  # the attempt to bind names the cause
    if not stat.S_ISSOCK(mode):
        raise ConfigError(
            f"{what}: {path} is {_kind(mode)}, which the socket would replace; name a path where "
            "no file is"
        )
    if _is_served(path):
        raise ConfigError(
            f"{what}: address already in use; choose another address, or stop the process that "
            "uses it"
        )
    return True


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    return "a folder" if stat.S_ISDIR(mode) else "a file that is not a socket"


def _is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PATIENCE)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            # For example, the queue of a busy process is full, or the socket belongs to another
            # user. Only a refused connection proves that no process is there.
            return True
    return True
