"""One drill: honest nodes with an attacker, and with an idle attacker for comparison."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

from attrs import frozen

import wmp
from benchmarks.attacks.drills import DRILLS
from benchmarks.attacks.load import Load
from benchmarks.process import memory_of, python

__all__ = ["MEMORY", "Finding", "perform"]

MEMORY = 800
"""Limit of a node's growth in megabytes: one endless message, and the messages that arrive until
the node notices it.
"""

_WARM_UP = 0.5
"""Seconds of work before a measurement begins."""


@frozen
class Finding:
    """The effect of one drill."""

    drill: str
    rate: float
    """Number of honest jobs a second during the attack."""
    baseline: float
    """The same figure beside processes that use as much CPU time and attack no node."""
    share: float
    """CPU time of the attacker, as a share of one core."""
    memory: float
    """Maximum growth of a node in megabytes."""
    kept_cpu: float
    """Number of honest jobs for each second of the honest nodes' CPU time, as a part of the same
    figure of the baseline. Other load on this machine hardly affects it.
    """
    left: int
    """Number of honest jobs that had not ended a minute after the attack."""
    failed: tuple[str, ...]
    """Errors of honest jobs."""
    dropped: dict[str, int]
    """Number of messages that the manager did not act on, by reason."""

    @property
    def kept(self) -> float:
        """The part of the baseline's throughput that remains during the attack."""
        return self.rate / self.baseline if self.baseline else 0.0

    @property
    def withstood(self) -> bool:
        """Whether every honest job ended with its result, and memory stayed within bounds."""
        return not self.left and not self.failed and self.memory <= MEMORY


def perform(name: str, seconds: float, repeats: int = 1) -> Finding:
    """Run one drill; the figures are those of the round with the median ratio."""
    drill = DRILLS[name]
    with contextlib.ExitStack() as stack:
        manager = wmp.Manager()
        stack.callback(manager.close, 0.0)
        manager.start()
        endpoint, pids = manager.endpoints[0], [os.getpid()]
        if drill.through_device:
            device = stack.enter_context(python("benchmarks.node", "device", endpoint))
            endpoint = device.receive()
            pids.append(device.pid)
        pids.append(stack.enter_context(python("benchmarks.node", "worker", endpoint)).pid)
        manager.wait_for_workers(1, timeout=60.0)
        load = stack.enter_context(Load(manager))
        load.rate(min(_WARM_UP, seconds))
        rounds: list[tuple[_Sample, _Sample]] = []
        with _Watch(pids) as watch:
            for _ in range(repeats):
                # One measurement after the other, because other load on this machine then slows
                # both.
                attacked = _beside(load, pids, seconds, name, endpoint)
                shares = ",".join(f"{share:.3f}" for share in attacked.threads) or "0"
                rounds.append((attacked, _beside(load, pids, seconds, "burn", shares)))
        left = load.finish()
        rounds.sort(key=lambda pair: pair[0].rate / max(pair[1].rate, 1.0))
        attacked, calm = rounds[len(rounds) // 2]
        return Finding(
            name,
            attacked.rate,
            calm.rate,
            sum(attacked.threads),
            watch.grown / 2**20,
            attacked.each_cpu / calm.each_cpu if calm.each_cpu else 0.0,
            left,
            tuple(load.failed[:5]),
            dict(manager.statistics().dropped),
        )


@frozen
class _Sample:
    """The honest work of some seconds."""

    rate: float
    """Number of jobs a second."""
    each_cpu: float
    """Number of jobs for each second of the nodes' CPU time."""
    threads: tuple[float, ...]
    """CPU time of each thread of the attacker, as a share of one core.

    Threads with less than a hundredth are left out.
    """


def _beside(load: Load, pids: list[int], seconds: float, name: str, target: str) -> _Sample:
    """Measure honest work beside an attacker."""
    with python("benchmarks.attacks.child", name, target) as attacker:
        attacker.receive()
        load.rate(min(_WARM_UP, seconds))
        own, before, clock = sum(map(_cpu, pids)), _threads(attacker.pid), time.perf_counter()
        ended = load.ended
        rate = load.rate(seconds)
        own, took = sum(map(_cpu, pids)) - own, time.perf_counter() - clock
        jobs, after = load.ended - ended, _threads(attacker.pid)
        shares = [(cpu - before.get(thread, 0.0)) / took for thread, cpu in after.items()]
        threads = tuple(share for share in shares if share >= 0.01)
        return _Sample(rate, jobs / max(own, 1e-6), threads)


def _cpu(pid: int) -> float:
    """Return the seconds of CPU time that all threads of a process have used."""
    return time.clock_gettime(~pid << 3 | 2)


def _threads(pid: int) -> dict[str, float]:
    """Return the seconds of CPU time that each thread of a process has used."""
    seconds = {}
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            seconds[path.parent.name] = int(path.read_text().split()[0]) / 1e9
    return seconds


class _Watch:
    """Records the memory of processes during a ``with`` block."""

    def __init__(self, pids: list[int]) -> None:
        self._before = {pid: memory_of(pid) for pid in pids}
        self.grown = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            for pid, before in self._before.items():
                with contextlib.suppress(OSError):
                    self.grown = max(self.grown, memory_of(pid) - before)
