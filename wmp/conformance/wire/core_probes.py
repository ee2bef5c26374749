"""Probes: a child process on each core, which shows how long a testee on that core cannot run.

:class:`~wmp.conformance.script.stalls.StallWatch` measures the delays of the kit itself. A testee
may starve on another core than the kit. A probe sleeps and does a little work in turns, as a testee
does, and reports how late it is. The delays of a core count for a testee that ran there at that
time. Where the system cannot bind a process to a core, there are no probes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from pathlib import Path
from threading import Lock, Thread
from typing import Final

from attrs import define, field

_PROBE: Final = """\
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
step, work, small, parent = 0.02, 0.0005, 0.002, os.getppid()
before = time.monotonic()
while os.getppid() == parent:
    time.sleep(step)
    until = time.thread_time() + work
    while time.thread_time() < until:
        pass
    now = time.monotonic()
    lost = now - before - step - work
    if lost > small:
        os.write(1, b"%f %f\\n" % (now, lost))
    before = now
"""
_KEPT: Final = 50_000
_NEAR: Final = 0.15
"""Seconds around a delay in which the testee must have been on the core."""

Stay = tuple[float, int]
"""A time at which a testee was on a core, and the core."""


def core_of(process: int) -> int | None:
    """Return the core on which a process last ran; None where the system does not report it."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
        return int(status.rpartition(")")[2].split()[36])
    except (OSError, ValueError, IndexError):
        return None


def waited_for_core(process: int) -> float | None:
    """Return the seconds for which a process that could run has waited for a core so far.

    Returns:
        The time of its first thread; None where the system does not report it.
    """
    try:
        status = Path(f"/proc/{process}/schedstat").read_text(encoding="ascii", errors="replace")
        return int(status.split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


@define(eq=False)
class CoreProbes:
    """The probes of all cores on which a process of this one may run.

    They run during conversations.
    """

    _lost: dict[int, deque[tuple[float, float]]] = field(factory=dict, init=False)
    """(time, seconds) of each delay, by core. The time is that of the end of the delay."""
    _children: list[subprocess.Popen[bytes]] = field(factory=list, init=False)
    _users: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def begin(self) -> None:
        """Begin to measure, until the matching ``end``."""
        with self._lock:
            self._users += 1
            if self._users == 1 and hasattr(os, "sched_getaffinity"):
                for core in sorted(os.sched_getaffinity(0)):
                    self._start(core)

    def end(self) -> None:
        """End the probes if no conversation is left."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            for child in self._children:
                child.kill()
                child.wait()
            self._children.clear()
            self._lost.clear()

    def note(self, core: int, at: float, lost: float) -> None:
        """Record a delay on a core and the time of its end."""
        self._lost.setdefault(core, deque(maxlen=_KEPT)).append((at, lost))

    def longest(self, stays: list[Stay], since: float) -> float:
        """Return the longest delay since a time, in seconds, on a core where the testee was then.

        Args:
            stays: The times at which the testee was seen on a core, in order.
            since: The time.
        """
        longest = 0.0
        for core in {core for _, core in stays}:
            times = [at for at, number in stays if number == core]
            for at, lost in list(self._lost.get(core, ())):
                near = any(at - lost - _NEAR <= time <= at + _NEAR for time in times)
                if at >= since and lost > longest and near:
                    longest = lost
        return longest

    def _start(self, core: int) -> None:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROBE, str(core)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches only the kit, which then ends the probe
        )
        self._children.append(child)
        Thread(target=self._read, args=(child, core), daemon=True).start()

    def _read(self, child: subprocess.Popen[bytes], core: int) -> None:
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                at, lost = line.split()
                self.note(core, float(at), float(lost))


PROBES: Final = CoreProbes()
"""The probes that all conversations of this process share."""
