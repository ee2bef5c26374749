"""Many worlds, one after the other or in several processes, and what they came to."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, field

from wmp.testing.faults import Fault
from wmp.testing.world import WorldReport, simulate

__all__ = ["CampaignResult", "replay_command", "reports"]

_KEPT = 20
"""Violations that are reported in full."""


@define(eq=False)
class CampaignResult:
    """The sum of many reports."""

    schedules: int = 0
    hours: float = 0.0
    """Virtual."""
    steps: int = 0
    """Events that machines handled."""
    messages: int = 0
    """Put on a connection: by every node on the way."""
    jobs: int = 0
    executions: int = 0
    longest_wait: float = 0.0
    """Seconds that an idle worker and a job it could do waited for each other at most, once
    the faults were over."""
    faults: Counter[str] = field(factory=lambda: Counter({fault.value: 0 for fault in Fault}))
    ends: Counter[str] = field(factory=Counter)
    violations: Counter[str] = field(factory=Counter)
    """By name of the invariant."""
    failed: list[WorldReport] = field(factory=list)
    """The first of those with a violation."""

    def add(self, report: WorldReport) -> None:
        """Count one world."""
        self.schedules += 1
        self.hours += report.hours
        self.steps += report.steps
        self.messages += report.messages
        self.jobs += report.jobs
        self.executions += report.begun
        self.longest_wait = max(self.longest_wait, report.met)
        self.faults.update(report.faults)
        self.ends.update(report.ends)
        if report.violation is not None:
            self.violations[report.violation.name] += 1
            if len(self.failed) < _KEPT:
                self.failed.append(report)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schedules": self.schedules,
            "simulated_hours": round(self.hours, 4),
            "events": self.steps,
            "messages": self.messages,
            "jobs": self.jobs,
            "executions": self.executions,
            "longest_wait": round(self.longest_wait, 3),
            "ends": dict(sorted(self.ends.items())),
            "faults": dict(self.faults),
            "violations": dict(self.violations),
            "failed": [
                {
                    "seed": report.seed,
                    "invariant": report.violation.name,
                    "detail": report.violation.detail,
                    "digest": report.digest,
                    "replay": replay_command(report.seed),
                    "last_steps": list(report.trace),
                }
                for report in self.failed
                if report.violation is not None
            ],
        }


def replay_command(seed: int) -> str:
    """What plays the world of a seed again and prints all of it."""
    return f"python -m wmp.testing --seeds {seed} --trace"


def reports(
    seeds: Sequence[int],
    *,
    processes: int = 1,
    keep: int | None = 30,
    journal: Path | None = None,
) -> Iterator[WorldReport]:
    """Play the worlds of ``seeds``; their reports come in the order of the seeds.

    Args:
        seeds: Which worlds.
        processes: How many at once; each world stays in one process.
        keep: How many steps of a trace are kept; None for all.
        journal: Where each world writes the journals of its nodes, in a folder of its own.
    """
    play: Callable[[int], WorldReport] = partial(simulate, keep=keep, journal=journal)
    if processes <= 1 or len(seeds) < 2:
        yield from map(play, seeds)
        return
    # Fresh interpreters: worlds must not depend on what the parent has in memory.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(play, seeds, chunksize=8)
