"""Where a report is made: by tasks of Spark, or in this process for few lines.

Spark starts in about ten seconds of CPU time, and divides lines among tasks of 16 MiB or more.
Fewer lines are read and folded in this process, by the same code.
"""

from __future__ import annotations

import gc
import pickle
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, islice
from typing import Any, Final

import pyarrow
from attrs import define, field

from wmp.journal.schema import SUFFIX
from wmp.spark.folds.facts import process_number
from wmp.spark.folds.folds import Folded, FoldTask
from wmp.spark.folds.reading import ROW, Numbered, ReadPart, ReadTask
from wmp.spark.journals.journals import JournalLine, Source, bytes_of_task
from wmp.spark.journals.tables import Parts
from wmp.spark.session.arrow import schema_of, to_batch

if typing.TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RARE: Final = (100_000, 50, 1000)
"""As in :func:`gc.set_threshold`."""
_LINES: Final = "file string, value binary"
_BATCH: Final = 4096
"""Number of lines that a task hands over at a time."""

_MakeTask = Callable[[], FoldTask]


@define(eq=False)
class InProcess:
    """Reads and folds lines in this process."""

    _rows: list[Numbered] = field(factory=list)

    def bytes(self, source: Source) -> int:
        """Return the size of all lines."""
        return source.bytes

    def read(self, source: Source, where: str, buckets: int, *, distinct: bool) -> list[ReadPart]:
        """Read lines, of identical lines one if ``distinct``; return what each task found."""
        lines: Iterable[JournalLine] = chain.from_iterable(map(source.lines, source.tasks))
        if distinct:
            lines = {text: (file, text) for file, text in lines}.values()
        task = ReadTask(Parts(where), buckets)
        with _rare_collections():
            self._rows = list(chain.from_iterable(task.read(lines)))
        return [task.result]

    def fold(self, make: _MakeTask, states: Sequence[Numbered]) -> list[Folded]:
        """Fold the lines that were read after the states; return what each task found."""
        task = make()
        order = lambda row: (task.group(row), row[3])  # noqa: E731
        lines = [*self._rows, *(row for row in states if row[0] != "fact")]
        with _rare_collections():
            facts = list(chain.from_iterable(task.run(sorted(lines, key=order))))
            new = {row[1] for row in facts}
            again = (row for row in states if row[0] == "fact")
            facts += [row for row in again if task.settles or row[1] in new]
            assert not any(task.run(sorted(facts, key=order)))
        return [task.end()]

    def close(self) -> None:
        """Forget the lines."""
        self._rows = []


@define(eq=False)
class OnSpark:
    """Reads and folds lines in tasks of Spark."""

    spark: SparkSession
    _frame: DataFrame | None = None
    _tasks: int = 1
    """Number of tasks that fold."""

    def bytes(self, source: Source) -> int:
        """Return the size of all lines, also of those below URLs; Spark lists their files."""
        if not source.far:
            return source.bytes
        plan: Any = _far_text(self.spark, source.far)._jdf.queryExecution().optimizedPlan()
        return source.bytes + int(str(plan.stats().sizeInBytes()))

    def read(self, source: Source, where: str, buckets: int, *, distinct: bool) -> list[ReadPart]:
        """Run a job of Spark that reads all lines, and keeps their parts."""
        self.close()
        tasks = len(source.tasks)
        size = self.bytes(source)
        self._tasks = max(tasks, -(-size // bytes_of_task(size)))

        def read(lines: Iterable[JournalLine]) -> Iterator[list[Numbered]]:
            task = ReadTask(Parts(where), buckets)
            yield from task.read(lines)
            yield [_result(task.result)]

        def own(rows: Iterable[tuple[int]]) -> Iterator[JournalLine]:
            return chain.from_iterable(source.lines(source.tasks[number]) for (number,) in rows)

        frame = self.spark.range(0, tasks, 1, tasks)
        if distinct or source.far:
            lines = _mapped(frame, lambda rows: _some_at_a_time(own(rows)), _LINES)
            if source.far:
                lines = lines.unionAll(_far_lines(self.spark, source.far))
            if distinct:
                lines = lines.dropDuplicates(["value"])
            self._frame = _mapped(lines, read)
        else:
            self._frame = _mapped(frame, lambda rows: read(own(rows)))
        return _results(self._frame.persist())

    def fold(self, make: _MakeTask, states: Sequence[Numbered]) -> list[Folded]:
        """Run a job of Spark in two steps: it folds the lines, and then the facts of jobs."""
        from pyspark.sql import functions as F

        assert self._frame is not None
        known = make().sink.known.items()
        managers = [process_number(*key) for key, process in known if process.kind == "manager"]
        devices = [process_number(*key) for key, process in known if process.kind == "device"]
        is_line = F.col("kind") == "line"
        apart = is_line & F.col("process").isin(managers)

        def fold(rows: Iterable[Numbered]) -> Iterator[list[Numbered]]:
            task, results = make(), []

            def parts() -> Iterator[Numbered]:
                for row in rows:
                    if row[0] == "found":
                        results.append(row)  # of an earlier step
                    else:
                        yield row

            yield from task.run(parts())
            yield [*results, _result(task.end())]

        def folded(frame: DataFrame, kind: str) -> DataFrame:
            some = [row for row in states if (row[0] == "fact") == (kind == "fact")]
            if some:
                table = pyarrow.Table.from_batches([_batch(some, schema_of(ROW))])
                frame = frame.unionAll(self.spark.createDataFrame(table))
            frame = frame.withColumn("other", F.when(apart, F.col("peer")).otherwise(F.lit(0)))
            single = self._tasks == 1
            frame = (
                frame.coalesce(1) if single else frame.repartition(self._tasks, "process", "other")
            )
            frame = frame.sortWithinPartitions("kind", "process", "other", "rank")
            return _mapped(frame.drop("other"), fold)

        by_device = is_line & F.col("process").isin(devices)
        lines = self._frame.where(~by_device & (F.col("kind") != "found"))
        return _results(folded(folded(lines, "line"), "fact"))

    def close(self) -> None:
        """Forget the lines."""
        if self._frame is not None:
            self._frame.unpersist()
            self._frame = None


Engine = InProcess | OnSpark
"""Reads lines, and then folds them: first the lines, and then the facts of jobs."""


def _mapped(
    frame: DataFrame, work: Callable[[Iterator[Any]], Iterable[Sequence[Any]]], columns: str = ROW
) -> DataFrame:
    """Run work on the rows of each task; it yields lists of rows."""
    schema = schema_of(columns)

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        rows = (
            row
            for batch in batches
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        _freeze()
        with _rare_collections():
            for some in filter(None, work(rows)):
                yield _batch(some, schema)

    return frame.mapInArrow(run, columns)


def _batch(rows: Sequence[Sequence[Any]], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    return to_batch(list(zip(*rows, strict=True)), schema)


def _some_at_a_time(lines: Iterator[JournalLine]) -> Iterator[list[JournalLine]]:
    while some := list(islice(lines, _BATCH)):
        yield some


def _far_text(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Open URLs with Spark's own reader, which opens every URL but skips names with a dot."""
    reader = spark.read.option("recursiveFileLookup", True).option("pathGlobFilter", f"*{SUFFIX}")
    return reader.text(list(paths), lineSep="\n")


def _far_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the lines below URLs, with the names of their segments."""
    from pyspark.sql import functions as F

    text = _far_text(spark, paths)
    return text.select(F.col("_metadata.file_name").alias("file"), F.col("value").cast("binary"))


def _result(result: ReadPart | Folded) -> Numbered:
    """Return what a task found as a row."""
    return "found", 0, 0, 0, pickle.dumps(result)


def _results(frame: DataFrame) -> list[Any]:
    """Return what tasks found."""
    # Ctrl-C during `toArrow` would raise an error of Java instead of KeyboardInterrupt.
    rows = frame.where("kind = 'found'").select("body").collect()
    return [pickle.loads(row.body) for row in rows]


@cache
def _freeze() -> None:
    """Let the garbage collector skip all present objects from now on.

    Spark collects garbage after each task. The objects of all modules take 0.03 s each time.
    """
    gc.freeze()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the garbage collector run rarely during the block.

    A task holds some hundred thousand lines and facts. They make no circles, so a collector that
    looks at all of them again and again finds nothing. At its usual rate it takes a third of the
    CPU time.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_RARE)
    try:
        yield
    finally:
        gc.set_threshold(*before)
