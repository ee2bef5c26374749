"""Many worlds, one after the other or in several processes, and the sum of their reports."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, field

from wmp.testing.simulator.faults import Fault
from wmp.testing.worlds.world import WorldReport, simulate

_KEPT = 20
"""Maximum number of violations that are reported in full."""


@define(eq=False)
class CampaignResult:
    """The sum of many reports."""

    schedules: int = 0
    hours: float = 0.0
    """Hours of virtual time."""
    steps: int = 0
    """Number of events that machines handled."""
    messages: int = 0
    """Number of messages put on a connection, counted at every node of their routes."""
    jobs: int = 0
    executions: int = 0
    longest_wait: float = 0.0
    """The longest time, in seconds, that an idle worker and a job waited for each other after the
    end of the faults.
    """
    faults: Counter[str] = field(factory=lambda: Counter({fault.value: 0 for fault in Fault}))
    ends: Counter[str] = field(factory=Counter)
    violations: Counter[str] = field(factory=Counter)
    """Number of violations by name of the invariant."""
    failed: list[WorldReport] = field(factory=list)
    """The first reports with a violation."""

    def add(self, report: WorldReport) -> None:
        """Add the report of one world."""
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
        """Return the result for JSON."""
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
                    "replay": replay_command(report),
                    "last_steps": list(report.trace),
                }
                for report in self.failed
                if report.violation is not None
            ],
        }


def replay_command(report: WorldReport) -> str:
    """Return the command that plays a world again and prints all of it."""
    flags = " --timed" * report.timed + " --dialed" * report.dialed + " --paired" * report.paired
    flags += " --forwarded" * report.forwarded
    return f"python -m wmp.testing --seeds {report.seed} --trace{flags}"


def reports(
    seeds: Sequence[int],
    *,
    processes: int = 1,
    timed: bool = False,
    dialed: bool = False,
    forwarded: bool = False,
    paired: bool = False,
    keep: int | None = 30,
    journal: Path | None = None,
) -> Iterator[WorldReport]:
    """Play the worlds of ``seeds``; their reports come in the order of the seeds.

    Args:
        seeds: The seeds of the worlds.
        processes: The number of processes; each world stays in one process.
        timed: Whether jobs have start times, expiries and run limits, fail and are tried again.
        dialed: Whether managers dial in to devices.
        forwarded: Whether there is a forwarding manager.
        paired: Whether the managers are a pair, one of which is on standby.
        keep: The number of steps kept of each trace; None for all.
        journal: A folder in which each world writes its journals, in a folder of its own.
    """
    play: Callable[[int], WorldReport] = partial(
        simulate,
        timed=timed,
        dialed=dialed,
        paired=paired,
        forwarded=forwarded,
        keep=keep,
        journal=journal,
    )
    if processes <= 1 or len(seeds) < 2:
        yield from map(play, seeds)
        return
    # Fresh interpreters: worlds must not depend on the memory of the parent process.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(play, seeds, chunksize=8)
