"""The folds of the pipeline: the lines of each process, the messages, the facts of jobs.

All are plain Python. The machines' own tables and the observer of the simulations are shared with
the rest of the library, so the rules have one implementation. :mod:`wmp.spark.pipeline.engines`
runs the folds in Spark's workers, or in this process.

A fold continues where an earlier call ended: its state is a part like the new lines. So a journal
that grows is folded once, line by line, and a complete journal is one call without a state.
"""

from __future__ import annotations

import marshal
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec
import pyarrow
from attrs import define, field

from wmp.spark.folds.device_fold import DeviceFold
from wmp.spark.folds.facts import Counts, Fact, FoldSink, JobKey, ProcessKey, process_number
from wmp.spark.folds.job_fold import JobFold, is_settled
from wmp.spark.folds.manager_fold import ManagerFold
from wmp.spark.folds.message_fold import MessageFold, parts_of_messages
from wmp.spark.folds.process_fold import ProcessFold
from wmp.spark.folds.process_lines import LineNumbers
from wmp.spark.folds.reading import Numbered
from wmp.spark.folds.stories import bounded
from wmp.spark.folds.worker_fold import WorkerFold
from wmp.spark.journals.lines import in_order, steps
from wmp.spark.journals.tables import Parts, Written, arrow_table
from wmp.spark.session.arrow import Values

STATE: Final = -(1 << 62)
"""The rank of a state, which stands before all new parts of its group."""
_SOME: Final = 1024
"""Number of rows from which they are converted to columns, which need less memory."""
_FULL: Final = 16_384
"""Number of rows of a table, or of steps, after which a task writes rows."""
FOLDS: Final[dict[str, type[ProcessFold]]] = {
    "manager": ManagerFold, "worker": WorkerFold, "device": DeviceFold,
}  # fmt: skip
_COLLECTED: Final[tuple[str, ...]] = ("violations", "silence", "partings")
"""Rows that the calling process needs, and no task writes."""
_FACTS: Final = msgspec.msgpack.Decoder(list[tuple[JobKey, list[Fact]]])
_order: Final = attrgetter("side", "node", "epoch", "n")

Group = tuple[str, int, int]
"""(kind, process, peer), as in ``ROW``."""


@define(eq=False)
class OpenGroup:
    """The facts of a group that may still get lines."""

    state: bytes
    tables: dict[str, pyarrow.Table]
    """Its rows so far, by table; they may still change."""
    rows: dict[str, list[Values]]
    """Its rows so far that no task writes."""
    counts: Counts
    """Its counts so far."""


@define(eq=False)
class Folded:
    """The findings of a task, beside the facts of jobs."""

    rows: dict[str, list[Values]] = field(factory=dict)
    counts: Counts = field(factory=dict)
    written: list[Written] = field(factory=list)
    open: dict[Group, OpenGroup | None] = field(factory=dict)
    """The groups that were continued; None for a group that has ended."""
    closed: defaultdict[tuple[Any, ...], LineNumbers] = field(
        factory=lambda: defaultdict(LineNumbers)
    )
    """The jobs, and the messages without a target, that were reported for good."""
    late: int = 0
    """As in the sink."""


@define(eq=False)
class FoldTask:
    """The work of one task.

    Args:
        sink: Knows the processes.
        parts: The files of the task.
        buckets: Number of parts into which jobs are divided.
        follows: Whether more lines may come later.
        settles: Whether to fold the jobs again that got no line.
    """

    sink: FoldSink
    parts: Parts
    buckets: int
    follows: bool = False
    settles: bool = False
    folded: Folded = field(factory=Folded)
    """Complete after :meth:`end`."""
    _processes: dict[int, ProcessKey] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._processes = {process_number(*key): key for key in self.sink.known}

    def run(self, rows: Iterable[Numbered]) -> Iterator[list[Numbered]]:
        """Fold the parts of whole groups, one group after the other; yield the facts of jobs."""
        for group, some in groupby(rows, key=self.group):
            if group[0] == "fact":
                self._fold_jobs(group, some)
            elif group[0] == "message":
                self._fold_messages(group, some)
            else:
                yield from self._fold_lines(group, some)
            yield self._flush()

    def group(self, row: Numbered) -> Group:
        """Return the group of a part: a manager's lines are folded with each peer apart."""
        kind, number, peer = row[:3]
        process = self._processes.get(number)
        apart = process is not None and self.sink.known[process].kind == "manager"
        return kind, number, peer if apart else 0

    def end(self) -> Folded:
        """Write all rows that are left; return the findings."""
        assert not self._flush(last=True)
        self.folded.counts = self.sink.counts
        self.folded.late += self.sink.late
        self.folded.written = self.parts.close()
        return self.folded

    # -- the lines of a process

    def _fold_lines(self, group: Group, rows: Iterator[Numbered]) -> Iterator[list[Numbered]]:
        me = self.sink.known[self._processes[group[1]]]
        if me.kind not in FOLDS:
            return
        first = next(rows)
        fold: ProcessFold
        if first[3] == STATE:
            fold = pickle.loads(first[4])
            fold.attach(me, self.sink)
        else:
            fold = FOLDS[me.kind](me, self.sink)
            rows = chain([first], rows)
        self.sink.begin()
        for number, some in enumerate(steps(in_order(map(itemgetter(4), rows))), 1):
            fold.step(some)
            if number % _FULL == 0:
                yield self._flush()
        if not self.follows or (me.end is not None and me.whole):
            fold.finish()
            self.folded.open[group] = None
            return
        fold.attach(None, None)
        state, apart = pickle.dumps(fold), self.sink.apart()
        fold.attach(me, apart)
        fold.finish()
        self.folded.open[group] = _open_group(state, apart)

    # -- messages

    def _fold_messages(self, group: Group, rows: Iterable[Numbered]) -> None:
        fold = MessageFold()
        for row in rows:
            fold.add(row[4])
        self.sink.begin()
        for message, numbers in fold.report(self.sink, last=not self.follows).items():
            self.folded.closed[message].runs += numbers.runs
        self.folded.open[group] = None
        if state := fold.state:
            apart = self.sink.apart()
            fold.report_open(apart)
            self.folded.late += apart.late
            self.folded.open[group] = _open_group(state, apart)

    # -- the facts of jobs

    def _fold_jobs(self, group: Group, rows: Iterable[Numbered]) -> None:
        jobs: defaultdict[JobKey, list[Fact]] = defaultdict(list)
        new = self.settles
        for *_, rank, body in rows:
            new = new or rank != STATE
            for job, facts in _FACTS.decode(body):
                jobs[job] += facts
        if not new:
            return
        kept: dict[JobKey, list[Fact]] = {}
        for job, facts in jobs.items():
            facts.sort(key=_order)
            before = self.sink.closed.get(job[:2])
            if before is not None and job[2] in before:
                self.sink.late += len(facts)
            elif self.follows and not is_settled(facts, self.sink.known):
                kept[job] = facts
            else:
                JobFold(job, facts, self.sink).fold()
                if self.follows:
                    self.folded.closed[job[:2]].add(job[2])
        self.folded.open[group] = None
        if kept:
            apart = self.sink.apart()
            for job, facts in kept.items():
                JobFold(job, facts, apart).fold()
            state = msgspec.msgpack.encode(list(kept.items()))
            self.folded.open[group] = _open_group(state, apart)

    # -- results

    def _flush(self, *, last: bool = False) -> list[Numbered]:
        """Write the rows of full tables, return the facts of jobs; at the end, write all rows."""
        facts = _packed_facts(self.sink.facts.items(), self.buckets)
        self.sink.facts.clear()
        for table, rows in self.sink.rows.items():
            if not rows or (len(rows) < _SOME and not last):
                continue
            if table in _COLLECTED:
                collected = self.folded.rows.setdefault(table, [])
                collected += rows
                if table == "violations":
                    self.folded.rows[table] = bounded(collected)
            else:
                self.sink.tables[table].append(arrow_table(table, rows))
            rows.clear()
        for table, some in self.sink.tables.items():
            if some and (last or sum(map(len, some)) >= _FULL):
                self.parts.write(table, pyarrow.concat_tables(some))
                some.clear()
                self.sink.add_up()
        return facts


def _open_group(state: bytes, apart: FoldSink) -> OpenGroup:
    collected = {name: apart.rows.pop(name) for name in _COLLECTED if name in apart.rows}
    tables = {name: arrow_table(name, rows) for name, rows in apart.rows.items()}
    tables |= {name: pyarrow.concat_tables(some) for name, some in apart.tables.items()}
    return OpenGroup(state, tables, collected, apart.counts)


def _packed_facts(facts: Iterable[tuple[JobKey, list[Fact]]], buckets: int) -> list[Numbered]:
    parts: defaultdict[int, list[tuple[JobKey, list[Fact]]]] = defaultdict(list)
    for job, some in facts:
        # Jobs of one manager are numbered one after the other.
        parts[(process_number(*job[:2]) + job[2]) % buckets].append((job, some))
    return [("fact", bucket, 0, 0, msgspec.msgpack.encode(some)) for bucket, some in parts.items()]


def divided(states: Iterable[Numbered], buckets: int) -> list[Numbered]:
    """Return the states of messages and jobs as those of another number of parts."""
    facts: list[tuple[JobKey, list[Fact]]] = []
    messages: list[tuple[tuple[Any, ...], bytes]] = []
    for kind, *_, body in states:
        if kind == "fact":
            facts += _FACTS.decode(body)
        else:
            messages += marshal.loads(body)
    parts = parts_of_messages(messages, buckets)
    rows = [("message", part, 0, STATE, ends) for part, ends in parts]
    return rows + [(*row[:3], STATE, row[4]) for row in _packed_facts(facts, buckets)]
