"""Finds journals, and hands their lines to tasks of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyarrow.dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wmp.errors import ConfigError
from wmp.journal.reader import segments_in
from wmp.spark import byte_ranges
from wmp.spark.byte_ranges import ByteRange, pieces
from wmp.spark.line_parser import MAPS, text_of
from wmp.spark.reading import ROW, parsed_rows, parsed_spans
from wmp.spark.tables import Parts

__all__ = ["Source", "find_segments"]

_TASK: Final = 16 << 20
"""Number of bytes that one task reads."""
_BATCH: Final = 4096
_LINES: Final = "file string, value string"


def find_segments(paths: Sequence[str | Path]) -> list[str]:
    """Return the segments in these files and directories, sorted; names with a dot are included.

    If two segments have one name, one of them counts: the finished segment, or else the longer. A
    path with a scheme (``s3://…``) is returned unchanged, for Spark to read.

    Raises:
        ConfigError: A path does not exist.
    """
    far: list[str] = []
    near: dict[str, tuple[tuple[bool, int], str]] = {}
    for path in map(str, paths):
        if "://" in path:
            far.append(path)
            continue
        for file in _files(Path(path)):
            name = file.name.removeprefix(".")
            if not file.exists():  # the segment has been finished since it was found
                file = file.with_name(name)
            rank = (not file.name.startswith("."), file.stat().st_size)
            if name not in near or rank > near[name][0]:
                near[name] = rank, str(file.resolve())
    return sorted(far) + sorted(file for _, file in near.values())


def _files(path: Path) -> Iterable[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(segments_in(path))
    raise ConfigError(f"there is no journal at {path}: no such file or directory")


class Source:
    """Lines of journals: byte ranges of files, and paths that only Spark can open."""

    def __init__(
        self,
        spans: Sequence[ByteRange] = (),
        far: Sequence[str] = (),
        *,
        events: Sequence[str] = (),
        torn: bool = False,
    ) -> None:
        """Describe lines.

        Args:
            spans: Parts of the files of this machine.
            far: URLs of files and directories.
            events: Files of the table ``events``, whose lines are read again.
            torn: Whether a last line without a line feed counts, too.
        """
        self._torn = torn
        self._far = far
        self._events = events
        self.bytes = sum(span.end - span.begin for span in spans)
        tasks: list[list[ByteRange]] = [[]]
        size = 0
        for whole in spans:
            for span in pieces(whole.path, whole.begin, whole.end, _TASK):
                if size + span.end - span.begin > _TASK and tasks[-1]:
                    tasks.append([])
                    size = 0
                tasks[-1].append(span)
                size += span.end - span.begin
        self._spans = tasks

    @classmethod
    def of(cls, segments: Sequence[str]) -> Source:
        """Return all lines of segments, as :func:`find_segments` names them."""
        far = [path for path in segments if "://" in path]
        spans = []
        for path in map(Path, segments[len(far) :]):
            plain = path.with_name(path.name.removeprefix("."))
            size = (path if path.exists() else plain).stat().st_size
            spans.append(ByteRange(str(plain), 0, size))
        return cls(spans, far, torn=True)

    @property
    def tasks(self) -> int:
        """Number of tasks for which there is work."""
        return max(len(self._spans), len(self._events) // 4)

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
        if not (distinct or self._far or self._events):
            read = parsed_spans(self._spans, Parts(where), buckets, torn=self._torn)
            return self._numbered(spark).mapInArrow(read, ROW)
        lines = self._numbered(spark).mapInArrow(self._rows(), _LINES)
        if self._events:
            files = spark.createDataFrame([(path,) for path in self._events], "path string")
            lines = files.repartition(self.tasks).mapInArrow(_lines_again, _LINES)
        if self._far:
            lines = lines.unionAll(_far_lines(spark, self._far))
        if distinct:
            lines = lines.dropDuplicates(["value"])
        return lines.mapInArrow(parsed_rows(Parts(where), buckets), ROW)

    def _numbered(self, spark: SparkSession) -> DataFrame:
        return spark.range(0, self.tasks, 1, self.tasks)

    def _rows(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        spans, torn = self._spans, self._torn

        def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for span in spans[number]:
                        name, lines = span.path.rpartition("/")[2], []
                        for line in byte_ranges.read(span, torn=torn):
                            lines.append(text_of(line))
                            if len(lines) == _BATCH:
                                yield _batch(name, lines)
                                lines = []
                        yield _batch(name, lines)

        return read


def _batch(name: str, lines: list[str]) -> pyarrow.RecordBatch:
    columns = [
        pyarrow.array([name] * len(lines), pyarrow.string()),
        pyarrow.array(lines, pyarrow.string()),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, names=["file", "value"])


def _lines_again(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the lines of files of the table ``events``."""
    for batch in batches:
        for path in batch.column(0).to_pylist():
            for some in pyarrow.dataset.dataset(path, format="parquet").to_batches(
                batch_size=_BATCH
            ):
                rows = some.to_pylist()
                files = [row.pop("file") for row in rows]
                columns = [
                    pyarrow.array(files, pyarrow.string()),
                    pyarrow.array([_line_again(row) for row in rows], pyarrow.string()),
                ]
                yield pyarrow.RecordBatch.from_arrays(columns, names=["file", "value"])


def _line_again(row: dict[str, Any]) -> str:
    line = {name: value for name, value in row.items() if value is not None}
    for name in MAPS & line.keys():
        line[name] = dict(line[name])
    if "last" in line:
        line["ids"] = line["ids"][:1]
    return json.dumps(line)


def _far_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Read lines with Spark's own reader, which opens every URL but skips names with a dot."""
    reader = spark.read.option("recursiveFileLookup", True).option("lineSep", "\n")
    text = reader.text(list(paths), wholetext=False)
    valid = F.when(F.is_valid_utf8("value"), F.col("value")).otherwise(
        F.concat(F.lit("\N{REPLACEMENT CHARACTER}"), F.make_valid_utf8("value"))
    )
    return text.select(F.col("_metadata.file_name").alias("file"), valid.alias("value"))
