"""The folder of a report: it is made, checked, and locked against other reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wmp.errors import ConfigError
from wmp.spark.journals.tables import is_far

if sys.platform != "win32":
    import fcntl

_LOCK: Final = ".lock"
"""Name of a file that is locked while a report is written."""


def check_out(out: str | Path) -> str:
    """Return the directory or URL to write to; make the directory if it does not exist.

    Raises:
        ConfigError: It is not a directory, or cannot be made or written to.
    """
    if is_far(str(out)):
        return str(out)
    where = Path(out).resolve()
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot make the folder {out}: {reason}") from error
    if not os.access(where, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write to the folder {out}: permission denied")
    return str(where)


@contextmanager
def alone(where: str) -> Iterator[None]:
    """Lock a folder against other reports during the block; there is no lock for a URL.

    Raises:
        ConfigError: Another process writes a report there.
    """
    # Windows has no such locks, so several reports could write here.
    if sys.platform == "win32" or is_far(where):
        yield
        return
    with open(Path(where, _LOCK), "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another process writes a report to {where}; name another folder, or wait for "
                "that report"
            ) from None
        yield  # the system releases the lock of a process that is killed
