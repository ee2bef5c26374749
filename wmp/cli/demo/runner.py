"""The steps of ``wmp demo``, without its flags and tables."""

from __future__ import annotations

import sysconfig
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from wmp.cli.common.progress import ProgressBar
from wmp.cli.demo.node import count
from wmp.cli.demo.processes import ChildMessage, DemoProcess, DemoProcesses
from wmp.errors import ConfigError, WMPError
from wmp.message import counted

_MAX_SILENCE: Final = 1.5
"""Seconds of silence after which the managers give the killed worker up."""

PING: Final = 0.4
"""Seconds between two PINGs of a worker."""

SLOTS: Final = 2

_WINDOW: Final = 4
"""Number of jobs that a worker may hold beyond its slots.

By default a worker would hold more of such short jobs. Then a few workers would take all jobs, and
the demo would show less.
"""

_ANYWHERE: Final = "tcp://127.0.0.1:*"

STALL: Final = 30.0
"""Seconds without a message after which the demo fails."""

_KILL_AT: Final = 0.3
"""Part of the results after which a worker is killed."""

_FEW: Final = 200
"""With fewer files than this number, the worker is killed during its first job."""


def source_files(limit: int | None = None) -> list[str]:
    """Return the standard library's source files, by name."""
    home = Path(sysconfig.get_path("stdlib"))
    files = sorted(
        str(path)
        for path in home.rglob("*.py")
        if not {"site-packages", "dist-packages"} & set(path.relative_to(home).parts)
        and path.is_file()
    )
    if not files:
        raise ConfigError(
            f"{home} has no source files of the standard library; use a Python that has them"
        )
    return files[:limit]


@define(eq=False)
class DemoRunner:
    """The steps of a demo, and its outcome."""

    children: DemoProcesses
    names: Sequence[str]
    count: int
    """Number of workers."""
    kill: bool
    bar: ProgressBar | None
    pause: float = 0.0
    """Seconds by which each job is made longer."""
    max_worker_losses: int = 3
    store: str | None = None
    """File of the store that both managers use; None without one."""
    managers: list[DemoProcess] = field(factory=list)
    device: DemoProcess | None = None
    workers: list[DemoProcess] = field(factory=list)
    victim: DemoProcess | None = None
    """The killed process, and the job that it ran."""
    held: int = 0
    killed_at: float = 0.0
    """Part of the results that had arrived when the worker was killed."""
    seconds: float = 0.0
    size: int = 0
    """Bytes of the files whose results have arrived."""
    seen: Counter[int] = field(factory=Counter)
    right: set[str] = field(factory=set)
    """Files with a correct result."""
    done: Counter[str] = field(factory=Counter)
    """Number of jobs by worker."""
    again: int = 0
    """Number of jobs whose result came from a second or later attempt."""
    requeued: Counter[str] = field(factory=Counter)
    dropped: Counter[str] = field(factory=Counter)
    wrong: list[str] = field(factory=list)
    _unchecked: deque[tuple[str, list[Any]]] = field(factory=deque)

    def run(self) -> None:
        """Start all processes, distribute the files, kill one worker, wait for all results.

        Raises:
            WMPError: A process ended unexpectedly, or there was no progress for too long.
        """
        self._print(f"starting 2 managers, 1 device, {counted(self.count, 'worker')}")
        self._start()
        self._print(
            f"{counted(len(self.names), 'file')} for {counted(self.count, 'worker')} of {SLOTS} "
            "slots: "
            f"{len(self.workers[::2])} connected to the managers, "
            f"{len(self.workers[1::2])} through the device"
        )
        victim = self.workers[1] if self.kill else None
        if victim is not None and len(self.names) < _FEW:
            victim.send(stand="still")
        begin = time.monotonic()
        for index, manager in enumerate(self.managers):
            manager.send(files=list(enumerate(self.names))[index :: len(self.managers)])
        waiting = set(self.managers)
        requested, quarter = len(self.names) < _FEW, 1
        while waiting:
            child, message = self._receive()
            if "done" in message:
                self._note(message)
                self.seconds = time.monotonic() - begin
                part = len(self.seen) / len(self.names)
                if victim is not None and not requested and part >= _KILL_AT:
                    requested = True
                    victim.send(stand="still")
                while part * 4 >= quarter:
                    if self.bar is not None and not self.bar.live:
                        self._print(f"{quarter * 25} % after {self.seconds:.1f} s")
                    quarter += 1
            elif "requeued" in message:
                self.requeued.update(message["requeued"])
                self.dropped.update(message["dropped"])
                waiting.discard(child)
            elif "holding" in message and self.victim is None:
                child.kill()
                self.victim, self.held = child, message["holding"]
                self.killed_at = len(self.seen) / len(self.names)
                self._print(
                    f"{child.label} was killed (SIGKILL) while it ran job {self.held}; "
                    f"{self.killed_at:.0%} of the jobs were done"
                )
        while self._unchecked:
            self._check()
        missing = len(self.names) - len(self.seen)
        if missing:
            self.wrong.append(f"{counted(missing, 'result is', 'results are')} missing")

    def _start(self) -> dict[DemoProcess, str]:
        """Start all processes; return the addresses of the nodes that bind."""
        start = self.children.start
        self.managers = [
            start(
                "manager",
                label=f"manager {name}",
                bind=_ANYWHERE,
                max_silence=_MAX_SILENCE,
                max_worker_losses=self.max_worker_losses,
                store=self.store,
            )
            for name in ("A", "B")
        ]
        bound = self._gather(self.managers, "bound")
        direct = [bound[child] for child in self.managers]
        self.device = start("device", label="device", bind=_ANYWHERE, connect=direct)
        bound |= self._gather([self.device], "bound")
        through = [bound[self.device]]
        for number in range(self.count):
            self.workers.append(
                start(
                    "worker",
                    label=f"worker {number + 1}",
                    connect=through if number % 2 else direct,
                    slots=SLOTS,
                    window=_WINDOW,
                    ping=PING,
                    pause=self.pause,
                )
            )
        self._gather(self.workers, "started")
        for child in self.managers:
            child.send(meet=self.count)
        self._gather(self.managers, "met")
        return bound

    def _gather(self, children: Iterable[DemoProcess], key: str) -> dict[DemoProcess, Any]:
        """Wait for a message of each child."""
        received: dict[DemoProcess, Any] = {}
        children = set(children)
        while received.keys() != children:
            child, message = self._receive()
            if child in children and key in message:
                received[child] = message[key]
        return received

    def _receive(self) -> tuple[DemoProcess, ChildMessage]:
        while (received := self.children.receive(0.0 if self._unchecked else STALL)) is None:
            if self._unchecked:
                # A comparison must not delay messages, so comparisons are made between messages.
                self._check()
                continue
            raise WMPError(
                f"no progress for {STALL:g} s: {len(self.seen)} of {len(self.names)} "
                "results have come; add --verbose to see the reasons"
            )
        return received

    def _note(self, message: ChildMessage) -> None:
        """Take results as they come."""
        for index, words, digest, label, attempt in message["done"]:
            self.seen[index] += 1
            self.done[label] += 1
            self.again += attempt > 1
            if self.seen[index] > 1:
                self.wrong.append(f"{self.names[index]}: a second result came; expected one")
            self._unchecked.append((self.names[index], [words, digest]))
        for index, text in message["failed"]:
            self.seen[index] += 1
            self.wrong.append(f"{self.names[index]}: {text}")
        if self.bar is not None:
            self.bar.advance(len(message["done"]) + len(message["failed"]))

    def _check(self) -> None:
        """Compare one result with the value computed here."""
        name, came = self._unchecked.popleft()
        data = Path(name).read_bytes()
        self.size += len(data)
        expected = count(data)
        if came == expected:
            self.right.add(name)
        else:
            self.wrong.append(f"{name}: the result is {came}; expected {expected}")

    def _print(self, text: str) -> None:
        if self.bar is not None:
            self.bar.print(f"{text}\n".encode())
            self.bar.flush()
