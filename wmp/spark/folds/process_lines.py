"""The facts of one process that its own lines show, collected from lines; they can be merged."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from attrs import define, field

from wmp.spark.folds.line_order import LineOrder
from wmp.spark.journals.lines import LineRow

_WORKS: Final = frozenset({"READY", "GIVE", "DONE"})
_MANAGES: Final = frozenset({"WAKE", "TAKE", "PONG"})
_IGNORED: Final = ("undelivered", "garbled", "drop")
_ENDS: Final = ("stop", "closed", "halt")
_source: Final = attrgetter("source", "source_epoch")
_target: Final = attrgetter("target", "target_epoch")
_STATED: Final = (
    "kind", "label", "host", "pid", "release", "roles", "resources", "endpoints", "settings",
)  # fmt: skip
"""Columns of a `start` line that are equal in all segments of a process."""


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

    def add_all(self, numbers: Sequence[int]) -> None:
        """Add numbers, in one step if each is the next one."""
        if numbers and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            self.runs.append((numbers[0], numbers[-1]))
        else:
            for n in numbers:
                self.add(n)

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
        index = bisect_right(self.runs, (n, 1 << 62)) - 1
        return index >= 0 and n <= self.runs[index][1]

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
    start: LineRow | None = None
    """The ``start`` line of the first segment."""
    first: int = 1 << 62
    """The least ``at``."""
    last: int = -(1 << 62)
    """The greatest ``at``."""
    wall: tuple[int, int] = (1 << 62, 0)
    """(number, wall clock minus ``at``) of the first line."""
    works: int = 0
    """Number of the lines that only a worker writes."""
    manages: int = 0
    """Number of the lines that only a manager writes."""
    served: int = 0
    """Number of the messages that it did not ignore."""
    stop: int | None = None
    """The number of the first ``stop`` line."""
    ends: Counter[str] = field(factory=Counter)
    """How many lines of each kind end the process."""
    reason: str | None = None
    named: Counter[tuple[str, int | None]] = field(factory=Counter)
    """Number of the lines that name each process as source or target."""
    drops: Counter[str] = field(factory=Counter)
    """Number of the messages that it ignored, by reason."""
    order: LineOrder = field(factory=LineOrder)
    conflict: str | None = None
    """How two of its `start` lines contradict each other."""
    parts: set[int] = field(factory=set)
    """The numbers of its segments."""
    losses: int = 0
    """Number of its `lost` lines."""
    lost: tuple[int, int, int] = (0, 0, 0)
    """(number of lost lines, number of the line, its time) of the ``beat`` or ``stop`` that counts
    the most.
    """

    def add(self, lines: Sequence[LineRow]) -> None:
        """Add lines, in the order of the journal."""
        kinds: defaultdict[str, list[LineRow]] = defaultdict(list)
        for line in lines:
            kinds[line.what].append(line)
        self.numbers.add_all([line.n for line in lines if line.n > 0])
        self.order.add(lines)
        self.losses += len(kinds["lost"])
        self.parts.update(line.segment for line in kinds["start"])
        for line in (*kinds["beat"], *kinds["stop"]):
            self.lost = max(self.lost, (line.lines, line.n, line.at))
        received, sent = kinds["received"], kinds["send"]
        own = [line.command for line in sent if line.source == self.node]
        self.lines += len(lines)
        self.segments += len(kinds["start"])
        ignored = [line.reason for line in received if line.reason is not None]
        self.drops.update(ignored)
        self.served += len(received) - len(ignored)
        self.works += len(kinds["run"]) + sum(map(_WORKS.__contains__, own))
        self.manages += len(kinds["submitted"]) + len(kinds["resolve"])
        self.manages += sum(map(_MANAGES.__contains__, own))
        self.ends.update({what: len(kinds[what]) for what in _ENDS if kinds[what]})
        self._add_stops([line.n for line in kinds["stop"]])
        for named in (Counter(map(_source, received)), Counter(map(_target, sent))):
            self.named.update({who: count for who, count in named.items() if who[0] is not None})
        for what in _IGNORED:
            self.drops.update(x.reason for x in kinds[what] if x.reason is not None)
        times, first = [line.at for line in lines], min(map(attrgetter("n"), lines))
        self._extend(
            kinds["start"], [line.reason or "" for line in kinds["halt"]], min(times), max(times),
            (first, min(line.wall - line.at for line in lines if line.n == first)),
        )  # fmt: skip

    def merge(self, other: ProcessLines) -> None:
        """Add the lines of another part of the journal."""
        self.numbers.runs += other.numbers.runs
        self.order.merge(other.order)
        self.losses += other.losses
        self.parts |= other.parts
        self.lost = max(self.lost, other.lost)
        self.conflict = self.conflict or other.conflict
        self.lines += other.lines
        self.segments += other.segments
        self.works += other.works
        self.manages += other.manages
        self.served += other.served
        self.ends.update(other.ends)
        self._add_stops([] if other.stop is None else [other.stop])
        self.named.update(other.named)
        self.drops.update(other.drops)
        starts = [] if other.start is None else [other.start]
        self._extend(starts, [other.reason or ""], other.first, other.last, other.wall)

    def _add_stops(self, numbers: Sequence[int]) -> None:
        self.stop = min((*numbers, *(() if self.stop is None else (self.stop,))), default=None)

    def _extend(
        self, starts: Sequence[LineRow], reasons: Sequence[str], first: int, last: int,
        wall: tuple[int, int],
    ) -> None:  # fmt: skip
        """Widen the bounds of the process."""
        for start in starts:
            if start.step:
                self.conflict = f"the start line of segment {start.segment} is in step {start.step}"
            if self.start is not None and self.conflict is None:
                self.conflict = _conflict(self.start, start)
            if self.start is None or start.segment < self.start.segment:
                self.start = start
        self.reason = max(self.reason or "", *reasons, "") or None
        self.first, self.last = min(self.first, first), max(self.last, last)
        self.wall = min(self.wall, wall)

    @property
    def key(self) -> tuple[str, int]:
        """(identity, epoch)."""
        return self.node, self.epoch

    @property
    def start_columns(self) -> dict[str, Any]:
        """The columns of its ``start`` line; empty without such a line."""
        columns: dict[str, Any] = {} if self.start is None else msgspec.to_builtins(self.start)
        return columns

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
        return self.stopped and self.start is not None and not self.numbers.missing

    @property
    def stopped(self) -> bool:
        """Whether the journal has its ``stop`` line, so that no last line is lost."""
        return bool(self.ends.get("stop"))

    @property
    def end(self) -> str | None:
        """How the process ended, as in ``nodes.end``."""
        if self.ends.get("halt") and self.reason is not None:
            return "halt"
        if self.ends.get("closed"):
            return "close"
        return "stop" if self.ends else None


def _conflict(start: LineRow, other: LineRow) -> str | None:
    """Return how two ``start`` lines of a process contradict each other; None if they do not."""
    for name in _STATED:
        first, second = getattr(start, name), getattr(other, name)
        if first != second:
            begin = f"segment {start.segment} begins with {name} {first}"
            return f"{begin}, and segment {other.segment} with {second}"
    return None
