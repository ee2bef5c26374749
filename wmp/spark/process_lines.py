"""The facts of one process that its own lines show, collected line by line; they can be merged."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import Any, Final

from attrs import define, field

__all__ = ["LineNumbers", "ProcessLines"]

_WORKS: Final = frozenset({"READY", "GIVE", "DONE"})
_MANAGES: Final = frozenset({"WAKE", "TAKE", "PONG"})
_IGNORED: Final = frozenset({"received", "undelivered", "garbled", "drop"})


@define(eq=False)
class LineNumbers:
    """A set of line numbers, as runs of consecutive numbers."""

    runs: list[tuple[int, int]] = field(factory=list)
    """(first, last) of each run; sorted and disjoint only after :meth:`tidy`."""

    def add(self, n: int) -> None:
        """Add a number; numbers mostly come in order."""
        if self.runs and self.runs[-1][1] + 1 == n:
            self.runs[-1] = (self.runs[-1][0], n)
        else:
            self.runs.append((n, n))

    def tidy(self) -> list[tuple[int, int]]:
        """Join the runs; return the ranges of numbers that were there more than once."""
        joined: list[tuple[int, int]] = []
        twice = []
        for first, last in sorted(self.runs):
            if joined and first <= joined[-1][1] + 1:
                before, end = joined[-1]
                if first <= end:
                    twice.append((first, min(last, end)))
                joined[-1] = (before, max(last, end))
            else:
                joined.append((first, last))
        self.runs = joined
        return twice

    def __contains__(self, n: int) -> bool:
        """Return whether tidy runs have a number."""
        place = bisect_right(self.runs, (n, 1 << 62)) - 1
        return place >= 0 and n <= self.runs[place][1]

    @property
    def highest(self) -> int:
        """The greatest number of tidy runs, 0 without a number."""
        return self.runs[-1][1] if self.runs else 0

    @property
    def missing(self) -> int:
        """How many numbers from 1 to the greatest are absent from tidy runs."""
        return self.highest - sum(last - first + 1 for first, last in self.runs)


@define(eq=False)
class ProcessLines:
    """A process that wrote a journal."""

    node: str
    epoch: int
    numbers: LineNumbers = field(factory=LineNumbers)
    lines: int = 0
    segments: int = 0
    start: dict[str, Any] | None = None
    """The ``start`` line of the first segment."""
    first: int = 1 << 62
    """The least ``at``, and then the greatest."""
    last: int = -(1 << 62)
    wall: tuple[int, int] = (1 << 62, 0)
    """(number, wall clock minus ``at``) of the first line."""
    works: int = 0
    """Lines that only a worker writes, and then those that only a manager writes."""
    manages: int = 0
    served: int = 0
    """Messages that it heeded."""
    ends: dict[str, int] = field(factory=dict)
    """How many lines of each kind end the process."""
    reason: str | None = None
    named: Counter[tuple[str, int | None]] = field(factory=Counter)
    """Number of the lines that name each process as source or target."""
    drops: Counter[str] = field(factory=Counter)
    """Number of the messages that it ignored, by reason."""

    def add(self, line: dict[str, Any], what: str) -> None:
        """Add a line."""
        n, at, get = line["n"], line["at"], line.get
        self.lines += 1
        if n > 0:
            self.numbers.add(n)
        self.first, self.last = min(at, self.first), max(at, self.last)
        if n < self.wall[0]:
            self.wall = (n, line["wall"] - at)
        if what == "received":
            if (source := get("source")) is not None:
                self.named[source, get("source_epoch")] += 1
            if "reason" not in line:
                self.served += 1
        elif what == "send":
            if (target := get("target")) is not None:
                self.named[target, get("target_epoch")] += 1
            if get("source") == self.node:
                self.works += line["command"] in _WORKS
                self.manages += line["command"] in _MANAGES
        elif what == "start":
            self.segments += 1
            if self.start is None or line["segment"] < self.start["segment"]:
                self.start = line
        elif what == "run":
            self.works += 1
        elif what in ("submitted", "resolve"):
            self.manages += 1
        elif what in ("stop", "closed", "halt"):
            self.ends[what] = self.ends.get(what, 0) + 1
            if what == "halt":
                self.reason = max(self.reason or "", get("reason") or "") or None
        if what in _IGNORED and (reason := get("reason")) is not None:
            self.drops[reason] += 1

    def merge(self, other: ProcessLines) -> None:
        """Add the lines of another part of the journal."""
        self.numbers.runs += other.numbers.runs
        self.lines += other.lines
        self.segments += other.segments
        for start in (other.start,):
            if start and (self.start is None or start["segment"] < self.start["segment"]):
                self.start = start
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.wall = min(self.wall, other.wall)
        self.works += other.works
        self.manages += other.manages
        self.served += other.served
        for what, count in other.ends.items():
            self.ends[what] = self.ends.get(what, 0) + count
        self.reason = max(self.reason or "", other.reason or "") or None
        self.named.update(other.named)
        self.drops.update(other.drops)

    @property
    def key(self) -> tuple[str, int]:
        """(identity, epoch)."""
        return self.node, self.epoch

    @property
    def start_columns(self) -> dict[str, Any]:
        """The columns of its ``start`` line; empty without such a line."""
        return self.start or {}

    @property
    def kind(self) -> str:
        """The kind: manager, worker or device; without a ``start`` line its lines show the kind."""
        kind = self.start_columns.get("kind")
        if kind in ("manager", "worker", "device"):
            return str(kind)
        return "manager" if self.manages else "worker" if self.works else "device"

    @property
    def is_over(self) -> bool:
        """Whether the process ended, and its journal lacks no line."""
        return self.end is not None and self.start is not None and not self.numbers.missing

    @property
    def end(self) -> str | None:
        """How the process ended, as in ``nodes.end``."""
        if self.ends.get("halt") and self.reason is not None:
            return "halt"
        if self.ends.get("closed"):
            return "close"
        return "stop" if self.ends else None
