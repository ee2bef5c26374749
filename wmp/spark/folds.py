"""The folds of the pipeline in Spark: the lines of each process, the messages, the facts of jobs.

All run plain Python in Spark's workers. The machines' own tables and the observer of the
simulations are shared with the rest of the library, so the rules have one implementation.

A fold continues where an earlier call ended: its state is a part like the new lines. So a journal
that grows is folded once, line by line, and a complete journal is one call without a state.
"""

from __future__ import annotations

import marshal
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import Any, Final

import pyarrow
from attrs import define, field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wmp.spark.arrow import Values
from wmp.spark.facts import Fact, FoldSink, Process
from wmp.spark.job_fold import JobFold, is_settled
from wmp.spark.lines import LineRow, in_order, steps
from wmp.spark.manager_fold import ManagerFold
from wmp.spark.message_fold import MessageFold
from wmp.spark.process_lines import LineNumbers
from wmp.spark.reading import ROW, Numbered, packed, process_number
from wmp.spark.tables import Parts, Written, arrow_table
from wmp.spark.worker_fold import WorkerFold

__all__ = ["STATE", "Folded", "Group", "OpenGroup", "add_counts", "fold_group", "folded"]

STATE: Final = -(1 << 62)
"""The rank of a state, which stands before all new parts of its group."""
_FULL: Final = 16_384
"""Number of rows of a table after which a task writes them."""
_FOLDS: Final = {"manager": ManagerFold, "worker": WorkerFold}
_COLLECTED: Final = ("violations", "silence")
"""Rows that this process needs, and no task writes."""

Group = tuple[str, int, int]
"""(kind, process, peer), as in ``ROW``."""
_Counts = dict[tuple[Any, ...], list[int]]


@define(eq=False)
class OpenGroup:
    """The facts of a group that may still get lines."""

    state: bytes
    rows: dict[str, list[Values]]
    """Its rows so far, by table; they may still change."""
    counts: _Counts
    """Its counts so far."""


@define(eq=False)
class Folded:
    """The findings of a task, beside the facts of jobs."""

    rows: dict[str, list[Values]] = field(factory=dict)
    counts: _Counts = field(factory=dict)
    written: list[Written] = field(factory=list)
    open: dict[Group, OpenGroup | None] = field(factory=dict)
    """The groups that were continued; None for a group that has ended."""
    closed: dict[Process, LineNumbers] = field(factory=dict)
    """The jobs that were reported for good."""
    late: int = 0
    """Number of facts about jobs that had been reported for good."""


@define(eq=False)
class _FoldTask:
    """The work of one task.

    Args:
        sink: Knows the processes.
        parts: The files of the task.
        buckets: Number of parts into which jobs are divided.
        follows: Whether more lines may come later.
        closed: The jobs that earlier calls reported for good.
    """

    sink: FoldSink
    parts: Parts
    buckets: int
    follows: bool
    closed: Mapping[Process, LineNumbers]
    found: Folded = field(factory=Folded)
    _processes: dict[int, Process] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._processes = {process_number(*key): key for key in self.sink.known}

    def lines_and_messages(
        self, batches: Iterator[pyarrow.RecordBatch]
    ) -> Iterator[pyarrow.RecordBatch]:
        """Fold lines and messages into facts of jobs; states of jobs are passed on."""
        for (kind, process, peer), rows in _groups(batches):
            if kind == "fact":
                yield packed([(kind, process, peer, rank, body) for rank, body in rows])
            elif kind == "message":
                self._fold_messages((kind, process, 0), rows)
            else:
                yield from self._fold_lines(process, peer, rows)
            yield from self._flush()
        yield from self._flush(last=True)

    def jobs(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Fold the facts of jobs; what another task found is passed on."""
        for (kind, process, peer), rows in _groups(batches):
            if kind == "fact":
                self._fold_jobs((kind, process, 0), rows)
                yield from self._flush()
            else:
                yield packed([(kind, process, peer, rank, body) for rank, body in rows])
        yield from self._flush(last=True)

    # -- the lines of a process

    def _fold_lines(
        self, process: int, peer: int, rows: Iterator[tuple[int, bytes]]
    ) -> Iterator[pyarrow.RecordBatch]:
        me = self.sink.known[self._processes[process]]
        rank, body = next(rows)
        fold: ManagerFold | WorkerFold
        if rank == STATE:
            fold = pickle.loads(body)
            fold.attach(me, self.sink)
            bodies = (one for _, one in rows)
        else:
            fold = _FOLDS[me.kind](me, self.sink)
            bodies = (one for _, one in chain([(rank, body)], rows))
        self.sink.begin()
        for some in steps(in_order(bodies)):
            fold.step(some)
            if self._is_full():
                yield from self._flush()
        if not self.follows:
            fold.finish()
            return
        fold.attach(None, None)
        state = pickle.dumps(fold)
        fold.attach(me, self.sink)
        with self.sink.apart() as (open_rows, open_counts):
            fold.finish()
        group = ("line", process, peer if me.kind == "manager" else 0)
        self.found.open[group] = OpenGroup(state, open_rows, open_counts)

    # -- messages

    def _fold_messages(self, group: Group, rows: Iterator[tuple[int, bytes]]) -> None:
        fold = MessageFold()
        for rank, body in rows:
            if rank == STATE:
                fold.open = pickle.loads(body)
            else:
                fold.add(marshal.loads(body))
        self.sink.begin()
        fold.report(self.sink, last=not self.follows)
        if self.follows:
            with self.sink.apart() as (open_rows, open_counts):
                fold.report_open(self.sink)
            self.found.open[group] = OpenGroup(pickle.dumps(fold.open), open_rows, open_counts)

    # -- the facts of jobs

    def _fold_jobs(self, group: Group, rows: Iterator[tuple[int, bytes]]) -> None:
        jobs: defaultdict[tuple[str, int, int], list[Fact]] = defaultdict(list)
        new = False
        for rank, body in rows:
            new = new or rank != STATE
            for values in marshal.loads(body):
                jobs[values[:3]].append(Fact._make(values))
        if self.follows and not new:
            return
        open_rows: dict[str, list[Values]] = {}
        open_counts: _Counts = {}
        kept: list[tuple[Any, ...]] = []
        for (owner, epoch, job), facts in jobs.items():
            facts.sort(key=_order)
            self.sink.begin()
            if not self.follows:
                JobFold(facts, self.sink).fold()
                continue
            before = self.closed.get((owner, epoch))
            if before is not None and job in before:
                self.found.late += len(facts)
            elif is_settled(facts, self.sink.known):
                JobFold(facts, self.sink).fold()
                self.found.closed.setdefault((owner, epoch), LineNumbers()).add(job)
            else:
                with self.sink.apart() as (some_rows, some_counts):
                    JobFold(facts, self.sink).fold()
                for table, some in some_rows.items():
                    open_rows.setdefault(table, []).extend(some)
                add_counts(open_counts, some_counts)
                kept += map(tuple, facts)
        if self.follows:
            state = OpenGroup(marshal.dumps(kept), open_rows, open_counts) if kept else None
            self.found.open[group] = state

    # -- results

    def _is_full(self) -> bool:
        return any(len(rows) >= _FULL for rows in self.sink.rows.values())

    def _flush(self, *, last: bool = False) -> Iterator[pyarrow.RecordBatch]:
        """Write the rows of full tables, and yield the facts of jobs; at the end, all the rest."""
        for table, rows in self.sink.rows.items():
            if not rows or (len(rows) < _FULL and not last):
                continue
            if table == "fact":
                yield packed(_packed_facts(rows, self.buckets))
            elif table in _COLLECTED:
                self.found.rows.setdefault(table, []).extend(rows)
            else:
                self.parts.write(table, arrow_table(table, rows))
            rows.clear()
        if last:
            self.found.counts = self.sink.counts
            self.found.written = self.parts.close()
            yield packed([("found", 0, 0, 0, pickle.dumps(self.found))])


def add_counts(whole: _Counts, counts: Mapping[tuple[Any, ...], list[int]]) -> None:
    """Add counts to others."""
    for key, (count, total, top) in counts.items():
        entry = whole.get(key)
        if entry is None:
            whole[key] = [count, total, top]
        else:
            entry[0] += count
            entry[1] += total
            entry[2] = max(entry[2], top)


def _order(fact: Fact) -> tuple[Any, ...]:
    # A TAKE that opens a session ends the leases of the old session first.
    return fact.side, fact.node, fact.epoch, fact.n, fact.event == "granted"


def _packed_facts(facts: Iterable[Values], buckets: int) -> list[Numbered]:
    parts: defaultdict[int, list[Values]] = defaultdict(list)
    for fact in facts:
        # Jobs of one manager are numbered one after the other.
        parts[(process_number(fact[0], fact[1]) + fact[2]) % buckets].append(tuple(fact))
    return [("fact", bucket, 0, 0, marshal.dumps(some)) for bucket, some in parts.items()]


def _groups(
    batches: Iterator[pyarrow.RecordBatch],
) -> Iterator[tuple[Group, Iterator[tuple[int, bytes]]]]:
    """Return the parts of each group: (rank, content)."""
    rows = (
        row
        for batch in batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    for _, some in groupby(rows, key=lambda row: (row[0], row[1])):
        first = next(some)
        yield (first[2], first[3], first[4]), (row[5:7] for row in chain([first], some))


def fold_group(group: Iterable[LineRow], sink: FoldSink) -> None:
    """Fold the lines of one group into a sink, without Spark."""
    fold: ManagerFold | WorkerFold | None = None
    sink.begin()
    for some in steps(group):
        if fold is None:
            me = sink.known[some[0].node, some[0].epoch]
            fold = _FOLDS[me.kind](me, sink)
        fold.step(some)
    if fold is not None:
        fold.finish()


def folded(
    rows: DataFrame,
    sink: FoldSink,
    where: str,
    *,
    tasks: int,
    buckets: int,
    follows: bool = False,
    closed: Mapping[Process, LineNumbers] | None = None,
) -> DataFrame:
    """Fold parts, and return what the tasks found, as ``ROW``.

    Args:
        rows: Parts and states, as ``ROW``.
        sink: Knows the processes, and is copied to each task.
        where: Directory or URL of the tables.
        tasks: Number of tasks in each of the two steps.
        buckets: Number of parts into which jobs are divided.
        follows: Whether more lines may come later, so that states are kept.
        closed: The jobs that earlier calls reported for good.
    """
    known = sink.known
    kinds: dict[str, list[int]] = {"manager": [], "device": []}
    for key, process in known.items():
        if process.kind in kinds:
            kinds[process.kind].append(process_number(*key))
    is_line = F.col("kind") == "line"
    manager = is_line & F.col("process").isin(kinds["manager"])
    key = F.when(manager, F.xxhash64("process", "peer")).otherwise(F.col("process"))

    def task(step: Callable[[_FoldTask], Any]) -> Callable[[Iterator[Any]], Iterator[Any]]:
        def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            made: Iterator[pyarrow.RecordBatch] = step(
                _FoldTask(sink, Parts(where), buckets, follows, closed or {})
            )(batches)
            return made

        return run

    def grouped(frame: DataFrame) -> DataFrame:
        frame = frame.repartition(tasks, "key") if tasks > 1 else frame.coalesce(1)
        return (
            frame.sortWithinPartitions("kind", "key", "rank")
            .select("kind", "key", "kind", "process", "peer", "rank", "body")
            .toDF("_kind", "_key", *(name.split()[0] for name in ROW.split(", ")))
        )

    devices = is_line & F.col("process").isin(kinds["device"])
    first = grouped(rows.where(~devices).withColumn("key", key)).mapInArrow(
        task(lambda one: one.lines_and_messages), ROW
    )
    return grouped(first.withColumn("key", F.col("process"))).mapInArrow(
        task(lambda one: one.jobs), ROW
    )
