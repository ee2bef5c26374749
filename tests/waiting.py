"""Wait for a condition and look up processes, without sleeps that replace synchronisation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

WAIT = 100.0
"""Seconds after which a wait counts as a hang. A test that waits for a fact waits at most so long.

Beside thirty busy processes a program takes ten seconds to start, instead of half a second. Only a
hang reaches this limit even there. The timeout of pytest (setup.cfg) is longer, because the failure
of a wait names the fact, and a timeout of pytest does not.
"""

RUN = 500.0
"""Seconds after which a whole run of a program counts as a hang: of a demo, of the kit, of a test
that kills many processes.
"""

WAIT_MS = round(1000 * WAIT)
"""The same limit in milliseconds, as sockets take it."""


def wait_until(holds: Callable[[], bool], what: str = "the condition") -> None:
    """Check until a condition holds. If it never does, the test fails and names the condition."""
    until = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < until, f"{what}: not within {WAIT:g} s"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Return whether a process has ended and its parent has read the exit code (no zombie)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def runs(pid: int) -> bool:
    """Return whether a process exists and has not ended: a zombie does not run."""
    try:
        state, _ = _state(Path(f"/proc/{pid}/stat"))
    except OSError:
        return False
    return state != "Z"


def children(pid: int) -> set[int]:
    """Return the processes whose parent is ``pid`` and that have not ended."""
    names = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = _state(path)
        except OSError:
            continue
        if parent == pid and state != "Z":
            names.add(int(path.parent.name))
    return names


def _state(path: Path) -> tuple[str, int]:
    # The fields are: pid (name) state ppid …; the name may have spaces and brackets.
    state, parent = path.read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)
