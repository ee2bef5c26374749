"""All that the lines so far show, except the rows of the large tables.

A report of complete journals begins with an empty account. A report that follows journals continues
its account.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from attrs import define, field

from wmp.spark.folds.clocks import Clock, ClockSamples, Offset, clocks
from wmp.spark.folds.facts import ALWAYS, Counts, KnownProcess, ProcessKey, Window, process_number
from wmp.spark.folds.folds import STATE, Folded, Group, OpenGroup, divided
from wmp.spark.folds.message_fold import GONE
from wmp.spark.folds.process_lines import LineNumbers
from wmp.spark.folds.processes import known_processes
from wmp.spark.folds.reading import Numbered, ReadPart
from wmp.spark.folds.stories import bounded
from wmp.spark.journals.tables import Written
from wmp.spark.pipeline.totals import Totals, stretch
from wmp.spark.session.arrow import Values

LARGE: Final = (
    "events", "links", "locks", "wakes", "conversations", "jobs", "attempts", "executions",
)  # fmt: skip
"""The tables that tasks write."""
_BUCKET: Final = 4 << 20
"""Bytes of the lines whose messages, or whose jobs, make one part."""
_OPEN: Final = 1 << 16
"""Bytes of the state of a part in a report that follows journals."""
_SHORTER: Final = 8
"""Ratio of the bytes of new lines to those of their state."""
_MIN: Final = 64
"""Minimum number of parts in such a report."""


@define(eq=False)
class Account:
    """The state of a report."""

    window: Window = ALWAYS
    follows: bool = False
    """Whether more lines may come."""
    found: ReadPart = field(factory=ReadPart)
    """The processes and the bad lines."""
    samples: ClockSamples = field(factory=ClockSamples)
    totals: Totals = field(factory=Totals)
    added: list[Counts] = field(factory=list)
    """The counts that the totals got since the account was published."""
    rows: dict[str, list[Values]] = field(
        factory=lambda: {"violations": [], "silence": [], "partings": [], "twice": []}
    )
    """The violations, and what is checked as soon as its lines are in ``events``."""
    files: dict[str, list[Written]] = field(factory=lambda: {name: [] for name in LARGE})
    """The files of the large tables whose rows do not change any more."""
    open: dict[Group, OpenGroup] = field(factory=dict)
    """The groups that may still get lines."""
    buckets: int = _MIN
    """Number of the parts into which messages, and jobs, are divided."""
    closed: dict[tuple[Any, ...], LineNumbers] = field(factory=dict)
    """The jobs, and messages without a target, whose rows do not change any more."""
    offsets: list[Offset] = field(factory=list)
    clocks: dict[ProcessKey, Clock] = field(factory=dict)
    twice: set[ProcessKey] = field(factory=set)
    """The processes with different lines of one number."""
    known: dict[ProcessKey, KnownProcess] = field(factory=dict)
    """The facts of all processes that folds need."""
    repeated: int = 0
    """Number of lines that were left out, because an identical line was read."""
    stale: bool = False
    """Whether the tables must be made again of all lines: rows that were final have changed."""
    stories: dict[str, list[Values]] = field(factory=dict)
    """The story of each violation that was shown."""

    def add_lines(self, new: ReadPart) -> None:
        """Add what was found in new lines, and compare the clocks of their processes."""
        old, folded = dict(self.found.processes), {group[1] for group in new.groups}
        latest = max(
            (process.last + self.clocks[key].clock for key, process in old.items()), default=0
        )
        for key in old.keys() & new.processes.keys():
            runs = new.processes[key].numbers.runs
            again = bool(runs) and runs[0][0] <= old[key].numbers.highest
            over = old[key].is_over and process_number(*key) in folded
            self.stale = self.stale or again or over  # a line came late, or again
        self._add_files(new.written)
        self.samples.add(new.samples)
        self.found.merge(ReadPart(new.processes, new.bad))
        processes = self.found.processes
        for key in new.processes:
            processes[key].numbers.tidy()
        if new.samples or not new.processes.keys() <= self.clocks.keys():
            self._compare_clocks()
        fresh = [
            process.first + self.clocks[key].clock
            for key, process in processes.items()
            if key not in old
        ]
        if old and fresh and min(fresh) < latest - GONE:
            self.stale = True  # the journal of a process came late
        self.known = known_processes(processes.values(), self.clocks, self.twice)
        self._lengthen()

    def _compare_clocks(self) -> None:
        """Find the clocks of all processes.

        A clock that was used stays within its error, so that rows with its times stay right.
        """
        processes = self.found.processes
        if self.follows:
            self.samples.condense(
                lambda key, at: processes[key].is_over or processes[key].last > at + GONE
            )
        self.offsets = self.samples.offsets()
        new = clocks(list(processes.values()), self.offsets)
        for key, clock in new.items():
            old = self.clocks.get(key)
            if old is not None and clock.clock != old.clock:
                error = max(clock.error or 0, old.error or 0)
                near = old.error is not None and abs(clock.clock - old.clock) <= error
                self.stale = self.stale or not near
                new[key] = old if near else clock
        self.clocks = new

    def _lengthen(self) -> None:
        """Choose the stretches of the totals by the time of all lines."""
        known = self.known.values()
        first = min((process.first + process.clock for process in known), default=0)
        last = max((process.last + process.clock for process in known), default=0)
        since, until = max(first, self.window[0]), min(last, self.window[1])
        self.totals.window = self.window
        if (length := stretch(max(until - since, 0) / 1e6)) > self.totals.length:
            self.totals.lengthen(length)

    def divide(self, more: int) -> list[Numbered]:
        """Choose the number of parts by the bytes of open parts, and of new lines.

        So a part has about the same size. The few parts to which a line belongs are folded in the
        same time, whatever is open. Return all open parts if they were divided anew.
        """
        if not self.follows:
            self.buckets = max(1, more // _BUCKET)
            return []
        states = [row for row in self.states() if row[0] != "line"]
        size = more // _SHORTER + sum(len(row[4]) for row in states)
        buckets = max(_MIN, 1 << (size // _OPEN).bit_length())
        if self.buckets // 32 < buckets <= self.buckets:
            return []
        self.buckets = buckets
        self.open = {
            group: open_group for group, open_group in self.open.items() if group[0] == "line"
        }
        return divided(states, buckets)

    def states(self) -> list[Numbered]:
        """Return the states of all open groups."""
        return [(*group, STATE, open_group.state) for group, open_group in self.open.items()]

    def add_folded(self, folded: Folded) -> None:
        """Add what a task of the folds found."""
        self.add_counts(folded.counts)
        for name, rows in folded.rows.items():
            self.rows[name] += rows
        self.rows["violations"] = bounded(self.rows["violations"])
        self._add_files(folded.written)
        for group, state in folded.open.items():
            self.open.pop(group, None)
            if state is not None:
                self.open[group] = state
        for whose, numbers in folded.closed.items():
            self.closed.setdefault(whose, LineNumbers()).runs += numbers.runs
            self.closed[whose].tidy()
        self.stale = self.stale or folded.late > 0

    def add_counts(self, counts: Counts) -> None:
        """Add counts to the totals."""
        self.totals.add(counts)
        self.added.append(counts)

    def _add_files(self, written: Iterable[Written]) -> None:
        for file in written:
            self.files[file[0]].append(file)
