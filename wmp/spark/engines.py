"""Where a report is made: by tasks of Spark, or in this process for few lines.

Spark starts in about ten seconds of CPU time, and divides lines among tasks of 16 MiB. Fewer lines
are read and folded in this process, by the same code.
"""

from __future__ import annotations

import pickle
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow
from attrs import define, field

from wmp.spark.folds import Folded, FoldTask
from wmp.spark.garbage_collector import rare_collections
from wmp.spark.journals import Source
from wmp.spark.reading import ROW, Numbered, ReadPart, ReadTask, packed, process_number
from wmp.spark.tables import Parts

if typing.TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Engine", "InProcess", "OnSpark"]

_MakeTask = Callable[[], FoldTask]


class Engine(Protocol):
    """Reads lines, and then folds them."""

    def read(self, source: Source, where: str, buckets: int, *, distinct: bool) -> list[ReadPart]:
        """Read lines, of identical lines one if ``distinct``; return what each task found."""

    def fold(self, make: _MakeTask, states: Sequence[Numbered]) -> list[Folded]:
        """Fold the lines that were read after the states; return what each task found."""

    def close(self) -> None:
        """Forget the lines."""


@define(eq=False)
class InProcess:
    """Reads and folds lines in this process."""

    _rows: list[Numbered] = field(factory=list)

    def read(self, source: Source, where: str, buckets: int, *, distinct: bool) -> list[ReadPart]:
        """Read all lines."""
        lines: Iterable[tuple[str, bytes]] = source.lines()
        if distinct:
            lines = {text: (file, text) for file, text in lines}.values()
        task = ReadTask(Parts(where), buckets)
        with rare_collections():
            self._rows = [row for rows in task.read(lines) for row in rows]
        return [task.found]

    def fold(self, make: _MakeTask, states: Sequence[Numbered]) -> list[Folded]:
        """Fold all lines, and then the facts of the jobs to which these belong."""
        task = make()
        place = lambda row: (task.group(row), row[3])  # noqa: E731
        lines = [*self._rows, *(row for row in states if row[0] != "fact")]
        with rare_collections():
            facts = [row for rows in task.run(sorted(lines, key=place)) for row in rows]
            new = {row[1] for row in facts}
            again = (row for row in states if row[0] == "fact")
            facts += [row for row in again if task.settles or row[1] in new]
            assert not any(task.run(sorted(facts, key=place)))
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

    def read(self, source: Source, where: str, buckets: int, *, distinct: bool) -> list[ReadPart]:
        """Run a job of Spark that reads all lines, and keeps their parts."""
        self.close()
        self._tasks = source.tasks
        self._frame = source.parts(self.spark, where, buckets, distinct=distinct).persist()
        return _found(self._frame)

    def fold(self, make: _MakeTask, states: Sequence[Numbered]) -> list[Folded]:
        """Run a job of Spark in two steps: it folds the lines, and then the facts of jobs."""
        from pyspark.sql import functions as F

        assert self._frame is not None
        known = make().sink.known.items()
        managers = [process_number(*key) for key, one in known if one.kind == "manager"]
        devices = [process_number(*key) for key, one in known if one.kind == "device"]
        is_line = F.col("kind") == "line"
        apart = is_line & F.col("process").isin(managers)

        def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            task, passed = make(), []

            def rows() -> Iterator[Numbered]:
                for batch in batches:
                    for row in zip(*(one.to_pylist() for one in batch.columns), strict=True):
                        if row[0] == "found":
                            passed.append(row)  # what an earlier step found
                        else:
                            yield row

            with rare_collections():
                yield from map(packed, filter(None, task.run(rows())))
            yield packed([*passed, ("found", 0, 0, 0, pickle.dumps(task.end()))])

        def folded(frame: DataFrame, kind: str) -> DataFrame:
            some = [row for row in states if (row[0] == "fact") == (kind == "fact")]
            if some:
                table = pyarrow.Table.from_batches([packed(some)])
                frame = frame.unionAll(self.spark.createDataFrame(table))
            frame = frame.withColumn("other", F.when(apart, F.col("peer")).otherwise(F.lit(0)))
            one = self._tasks == 1
            frame = frame.coalesce(1) if one else frame.repartition(self._tasks, "process", "other")
            frame = frame.sortWithinPartitions("kind", "process", "other", "rank")
            return frame.drop("other").mapInArrow(run, ROW)

        by_device = is_line & F.col("process").isin(devices)
        lines = self._frame.where(~by_device & (F.col("kind") != "found"))
        return _found(folded(folded(lines, "line"), "fact"))

    def close(self) -> None:
        """Forget the lines."""
        if self._frame is not None:
            self._frame.unpersist()
            self._frame = None


def _found(frame: DataFrame) -> list[Any]:
    """Return what tasks found."""
    # Ctrl-C during `toArrow` would raise an error of Java instead of KeyboardInterrupt.
    rows = frame.where("kind = 'found'").select("body").collect()
    return [pickle.loads(row.body) for row in rows]
