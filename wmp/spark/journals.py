"""Finds journals, and hands their lines to tasks of Spark."""

from __future__ import annotations

import json
import pickle
import typing
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyarrow.dataset

from wmp.spark import byte_ranges
from wmp.spark.arrow import schema_of, to_batch
from wmp.spark.byte_ranges import ByteRange, pieces
from wmp.spark.garbage_collector import rare_collections
from wmp.spark.lines import MAPS
from wmp.spark.reading import ROW, ReadTask, packed
from wmp.spark.tables import Parts

if typing.TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Source", "find_segments"]

_TASK: Final = 16 << 20
"""Number of bytes that one task reads."""
_LINE: Final = 300
"""Bytes of a usual line."""
_BATCH: Final = 4096
_LINES: Final = "file string, value binary"

_Piece = ByteRange | tuple[str, int]
"""A part of a segment, or a file of the table ``events`` with its number of rows."""
_Line = tuple[str, bytes]
"""(file, line)."""
_Batches = Iterator[pyarrow.RecordBatch]


def find_segments(paths: Sequence[str | Path]) -> list[str | ByteRange]:
    """Return all lines of the segments in these files and directories.

    If two segments have one name, one of them counts: the finished segment, or else the longer. A
    path with a scheme (``s3://…``) is returned unchanged, for Spark to read.

    Raises:
        ConfigError: A journal does not exist.
    """
    far = sorted(path for path in map(str, paths) if "://" in path)
    near = byte_ranges.find([path for path in paths if "://" not in str(path)])
    return [*far, *(ByteRange(path, 0, size) for path, size in near.values())]


class Source:
    """Lines of journals: byte ranges of files, and paths that only Spark can open."""

    def __init__(
        self,
        lines: Sequence[str | ByteRange] = (),
        *,
        events: Sequence[tuple[str, int]] = (),
        torn: bool = False,
    ) -> None:
        """Describe lines.

        Args:
            lines: Parts of the files of this machine, and URLs of files and directories.
            events: Files of the table ``events`` with their numbers of rows, whose lines are read
            again.
            torn: Whether a last line without a line feed counts, too.
        """
        self._torn = torn
        self._far = [one for one in lines if isinstance(one, str)]
        self._tasks: list[list[_Piece]] = [[]]
        self.bytes, full = 0, _TASK
        cut: list[_Piece] = list(events)
        for span in lines:
            if isinstance(span, ByteRange):
                cut += pieces(span.path, span.begin, span.end, _TASK)
        for piece in cut:
            size = _LINE * piece[1] if isinstance(piece, tuple) else piece.end - piece.begin
            if self.bytes + size > full and self._tasks[-1]:
                self._tasks.append([])
                full = self.bytes + _TASK
            self._tasks[-1].append(piece)
            self.bytes += size

    @classmethod
    def of(cls, lines: Sequence[str | ByteRange]) -> Source:
        """Return all lines that :func:`find_segments` has found."""
        return cls(lines, torn=True)

    @property
    def tasks(self) -> int:
        """Number of tasks for which there is work."""
        return len(self._tasks)

    @property
    def is_small(self) -> bool:
        """Whether one task reads all lines, so that Spark could not divide the work."""
        return not self._far and len(self._tasks) == 1

    def lines(self) -> Iterator[_Line]:
        """Return all lines, in this process."""
        return chain.from_iterable(_lines_of(task, self._torn) for task in self._tasks)

    def parts(
        self, spark: SparkSession, where: str, buckets: int, *, distinct: bool = False
    ) -> DataFrame:
        """Return the parts for the folds; the tasks write events.

        Args:
            spark: The session.
            where: Directory or URL of the tables.
            buckets: Number of the parts into which messages are divided.
            distinct: Whether identical lines count once.
        """
        tasks, torn = self._tasks, self._torn
        numbered = spark.range(0, len(tasks), 1, len(tasks))

        def own(batches: _Batches) -> Iterator[_Line]:
            for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
                yield from _lines_of(tasks[number], torn)

        def read(lines: Iterable[_Line]) -> _Batches:
            task = ReadTask(Parts(where), buckets)
            with rare_collections():
                yield from map(packed, task.read(lines))
            yield packed([("found", 0, 0, 0, pickle.dumps(task.found))])

        if not (distinct or self._far):
            return numbered.mapInArrow(lambda batches: read(own(batches)), ROW)
        lines = numbered.mapInArrow(lambda batches: _rows_of(own(batches)), _LINES)
        if self._far:
            lines = lines.unionAll(_far_lines(spark, self._far))
        if distinct:
            lines = lines.dropDuplicates(["value"])
        return lines.mapInArrow(
            lambda batches: read(
                line
                for batch in batches
                for line in zip(*(column.to_pylist() for column in batch.columns), strict=True)
            ),
            ROW,
        )


def _lines_of(task: Iterable[_Piece], torn: bool) -> Iterator[_Line]:
    """Yield the lines of one task."""
    for piece in task:
        if isinstance(piece, ByteRange):
            name = piece.path.rpartition("/")[2]
            for line in byte_ranges.read(piece, torn=torn):
                yield name, line
            continue
        events = pyarrow.dataset.dataset(piece[0], format="parquet")
        for batch in events.to_batches(batch_size=_BATCH):
            for row in batch.to_pylist():
                yield row.pop("file"), _line_again(row)


def _rows_of(lines: Iterable[_Line]) -> _Batches:
    """Pack lines as ``_LINES``."""
    left = iter(lines)
    while some := list(islice(left, _BATCH)):
        yield to_batch(list(zip(*some, strict=True)), schema_of(_LINES))


def _line_again(row: dict[str, Any]) -> bytes:
    line = {name: value for name, value in row.items() if value is not None}
    for name in MAPS & line.keys():
        line[name] = dict(line[name])
    if "last" in line:
        line["ids"] = line["ids"][:1]
    return json.dumps(line).encode()


def _far_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Read lines with Spark's own reader, which opens every URL but skips names with a dot."""
    from pyspark.sql import functions as F

    reader = spark.read.option("recursiveFileLookup", True).option("lineSep", "\n")
    text = reader.text(list(paths), wholetext=False)
    return text.select(F.col("_metadata.file_name").alias("file"), F.col("value").cast("binary"))
