"""``wmp demo --chaos``: every process is killed in turn, and no job is lost."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from attrs import define, field

from wmp.cli.demo.processes import ChildMessage, DemoProcess
from wmp.cli.demo.runner import SLOTS, DemoRunner
from wmp.errors import ConfigError
from wmp.message import counted
from wmp.store.contract import JobFilter
from wmp.store.opening import open_reader

_LENGTH: Final = 12.0
"""Seconds that the demo should take without kills."""

_LONGEST: Final = 0.2
"""Maximum number of seconds by which a job is made longer."""

_ROUNDS: Final = 2
"""Number of kills of each process, if there are enough files."""

_BETWEEN: Final = 3
"""Minimum number of results between two kills."""

_MAX_WORKER_LOSSES: Final = 100
"""Worker losses that a job survives: more than the number of kills."""


@define(eq=False)
class Chaos(DemoRunner):
    """Managers, device and workers are killed in turn, and started again.

    A manager's jobs end with its process. The demo submits the jobs without a result again to the
    new process, from the list of inputs. With a store the jobs go on: the new process asks for
    their results by the keys of the jobs.
    """

    seed: int = 0
    """Seed of the order of the kills."""
    killed: Counter[str] = field(factory=Counter)
    """Number of kills, by label."""
    resubmitted: Counter[str] = field(factory=Counter)
    """Number of jobs that a manager held when it was killed, by label."""
    back: dict[str, float] = field(factory=dict)
    """Longest absence in seconds, by label."""
    first: int = 0
    """Number of stored jobs that were done in their first attempt."""
    spared: list[str] = field(factory=list)
    """Nodes that were not killed before the last result."""
    _there: dict[str, DemoProcess] = field(factory=dict)
    """Processes that run, by label."""
    _gone_at: dict[str, float] = field(factory=dict)
    _bound: dict[str, str] = field(factory=dict)
    """Addresses of the nodes that bind; a restarted node binds to the same address."""
    _given: dict[str, set[int]] = field(factory=dict)
    """Files that a manager has without a result so far."""
    _counting: set[str] = field(factory=set)
    """Managers that still have files, or have not reported all results."""

    def __attrs_post_init__(self) -> None:
        self.max_worker_losses = _MAX_WORKER_LOSSES
        self.pause = min(_LONGEST, _LENGTH * self.count * SLOTS / len(self.names))

    @property
    def labels(self) -> list[str]:
        """The labels of all processes, managers first."""
        assert self.device is not None
        return [child.label for child in (*self.managers, self.device, *self.workers)]

    def run(self) -> None:
        """Start all processes, distribute the files, kill them in turn, wait for all results.

        Raises:
            ConfigError: There are too few files.
            WMPError: A process ended that was not killed, or nothing happened for too long.
        """
        total, everybody = len(self.names), 3 + self.count
        rounds = min(_ROUNDS, total // (_BETWEEN * everybody))
        if not rounds:
            raise ConfigError(
                f"{counted(total, 'file is', 'files are')} too few to kill {everybody} processes: "
                f"set --files to {_BETWEEN * everybody} or more, or lower --workers"
            )
        self._print(
            f"starting 2 managers, 1 device, {counted(self.count, 'worker')}; seed {self.seed}"
        )
        self._bound = {child.label: endpoint for child, endpoint in self._start().items()}
        self._there = {
            child.label: child for child in self.children.all if child.label in self.labels
        }
        plan = deque(self._plan(rounds))
        self._print(
            f"{total} files; each of {everybody} processes will be killed {counted(rounds, 'time')}"
        )
        begin = time.monotonic()
        for index, manager in enumerate(self.managers):
            self._give(manager, set(range(total)[index :: len(self.managers)]))
        kills = len(plan)
        while len(self.seen) < total or self._counting or self._gone_at:
            self._take(*self._receive())
            self.seconds = time.monotonic() - begin
            if len(self.seen) == total:
                continue
            # The n-th process is killed when this part of the results has come.
            if plan and len(self.seen) * (kills + 1) >= total * (kills - len(plan) + 1):
                self._kill(plan)
        self.spared = list(plan)
        while self._unchecked:
            self._check()
        if missing := total - len(self.seen):
            self.wrong.append(f"{counted(missing, 'result is', 'results are')} missing")
        if self.store is not None:
            self._check_store(self.store)

    def _check_store(self, path: str) -> None:
        """Compare the numbers of jobs in the store with the number of files."""
        reader = open_reader(path)
        try:
            counts = {state.name.lower(): n for state, n in reader.counts().items()}
            jobs = reader.list(JobFilter(), limit=len(self.names))
            self.first = sum(job.attempt == 1 for job in jobs)
        finally:
            reader.close()
        if counts != {"ok": len(self.names)}:
            self.wrong.append(
                f"the store has the jobs {counts}; expected {len(self.names)} that are ok"
            )

    def _plan(self, rounds: int) -> Iterator[str]:
        draw = Random(self.seed)
        for _ in range(rounds):
            labels = self.labels
            draw.shuffle(labels)
            yield from labels

    def _kill(self, plan: deque[str]) -> None:
        """Kill the first process of the plan that still runs."""
        label = next((label for label in plan if label in self._there), None)
        if label is None:
            return
        plan.remove(label)
        child = self._there.pop(label)
        self._gone_at[label] = time.monotonic()
        child.kill()
        self.killed[label] += 1
        self._print(f"{len(self.seen) / len(self.names):4.0%}  {label} was killed (SIGKILL)")

    def _take(self, child: DemoProcess, message: ChildMessage) -> None:
        """Take the message of a child."""
        label = child.label
        if "done" in message:
            self._note(message)
            rows: list[list[Any]] = [*message["done"], *message["failed"]]
            self._given[label].difference_update(row[0] for row in rows)
        elif "requeued" in message:
            self.requeued.update(message["requeued"])
            self.dropped.update(message["dropped"])
            self._counting.discard(label)
        elif "ended" in message:
            # All messages of the killed process have been read.
            bind = {"bind": self._bound[label]} if label in self._bound else {}
            self.children.again(child, **bind)
        elif "bound" in message or "started" in message:
            self._there[label] = child
            away = time.monotonic() - self._gone_at.pop(label)
            self.back[label] = max(away, self.back.get(label, 0.0))
            left = self._given.get(label)
            what = "submitted again" if self.store is None else "asked for again"
            again = f", {counted(len(left), 'job')} {what}" if left else ""
            self._print(f"{'':4}  {label} is back after {away:.1f} s{again}")
            if left is not None:
                self.resubmitted[label] += len(left)
                self._give(child, left)

    def _give(self, manager: DemoProcess, files: set[int]) -> None:
        """Send files to a manager."""
        self._given[manager.label] = files
        self._counting.add(manager.label)
        manager.send(files=[(index, self.names[index]) for index in sorted(files)])
