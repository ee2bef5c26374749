"""Journals as a source of Spark: ``spark.read.format("wmp").load(dir)``, or ``spark.readStream``.

Spark finds the source through the module ``pyspark_wmp``. Rows are those of the table ``events`` of
:mod:`wmp.spark.journals.schema`; bad lines are skipped. With the option ``lines`` the rows are
plain lines, which :func:`wmp.spark.journals.lines.parse` reads.

A stream follows growing files. Its position is a byte of each segment, so that a query that is
started again continues exactly at its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from wmp.errors import ConfigError
from wmp.spark.journals import byte_ranges
from wmp.spark.journals.byte_ranges import ByteRange, pieces
from wmp.spark.journals.lines import event_table, parse
from wmp.spark.journals.schema import ddl
from wmp.spark.rows.row_sink import RowSink, RowStreamSink
from wmp.spark.session.arrow import schema_of, to_batch

_BATCH: Final = 4096
_PIECE: Final = 32 << 20
_OPTIONS: Final = ("path", "paths", "node", "lines", "maxbytes")
_LINES: Final = "file string, value string"
_WORDS: Final = {"true": True, "false": False}

# Without pyspark its classes count as Any, so that types can still be checked.


class JournalSource(DataSource):  # type: ignore[misc]
    """The format ``wmp``.

    Options, besides the path or paths, each a folder or a file:

    - ``node``: only lines of the node with this identity;
    - ``lines``: ``true`` for plain lines in columns ``file`` and ``value``;
    - ``maxBytes``: for a stream, the limit of the bytes in a batch, all segments together.

    To write, the format takes the rows of a DataFrame as jobs (:mod:`wmp.spark.rows.row_sink`).
    """

    @classmethod
    def name(cls) -> str:
        """``wmp``."""
        return "wmp"

    def schema(self) -> str:
        """Return the schema of the table ``events``, or of plain lines."""
        return _LINES if _SourceOptions(self.options).lines else ddl("events")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of all present lines."""
        return _JournalRows(_SourceOptions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of all present and future lines."""
        return _JournalStreamReader(_SourceOptions(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> RowSink:
        """Return a writer that has workers do the rows.

        Raises:
            ConfigError: The mode is ``overwrite``, or an option is wrong.
        """
        if overwrite:
            raise ConfigError("the format wmp cannot overwrite; set mode('append')")
        return RowSink(self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowStreamSink:
        """Return a writer that has workers do the rows of each batch of a stream.

        Raises:
            ConfigError: An option is wrong.
        """
        return RowStreamSink(self.options)


class _SourceOptions:
    """Parse the options.

    Raises:
        ConfigError: An option is unknown, or its value is wrong or missing.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = {name.lower(): value for name, value in dict(options).items()}
        for name in given:
            if name not in _OPTIONS:
                raise ConfigError(
                    f"the format wmp has no option {name!r}; expected path, node, lines, maxBytes"
                )
        paths = [*json.loads(given.get("paths", "[]")), given.get("path", "")]
        self.paths = [path.removeprefix("file://") for path in paths if path]
        if not self.paths:
            raise ConfigError('the path is missing; expected a folder, as in load("journal")')
        self.node = given.get("node")
        word = given.get("lines", "false").lower()
        if word not in _WORDS:
            raise ConfigError(f"lines is {word!r}; expected true or false")
        self.lines = _WORDS[word]
        if self.lines and self.node is not None:
            raise ConfigError(
                "the options node and lines exclude each other: plain lines have no column node; "
                "leave one of them out"
            )
        limit = given.get("maxbytes", "0")
        if not (limit.isascii() and limit.isdecimal()):
            raise ConfigError(f"maxBytes is {limit!r}; expected a number of bytes")
        self.limit = int(limit) or None

    def read(self, span: ByteRange | None) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of a range in batches."""
        if span is None:
            return
        name, texts = Path(span.path).name, byte_ranges.read(span)
        while some := list(islice(texts, _BATCH)):
            if self.lines:
                values = [text.decode(errors="replace") for text in some]
                yield to_batch([[name] * len(values), values], schema_of(_LINES))
                continue
            rows = [
                line
                for line in parse(some, [name] * len(some))
                if not isinstance(line, str) and self.node in (None, line.node)
            ]
            if rows:
                yield from event_table(rows, [name] * len(rows)).to_batches()


class _SpanReader:
    def __init__(self, options: _SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read one part of a journal; runs at a worker of Spark."""
        return self._options.read(partition.value)


class _JournalRows(_SpanReader, DataSourceReader):  # type: ignore[misc]
    def partitions(self) -> list[InputPartition]:
        """Return a partition for each part of a segment; an empty one if there is no segment."""
        segments = byte_ranges.find(self._options.paths).values()
        spans = [span for path, size in segments for span in pieces(path, 0, size, _PIECE)]
        return list(map(InputPartition, spans)) or [InputPartition(None)]


class _JournalStreamReader(_SpanReader, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    _last: dict[str, tuple[str, int]] | None = None
    """With the trigger ``availableNow``: the end positions at the start of the query."""

    def initialOffset(self) -> dict[str, int]:
        """Return the empty position: no byte was read."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the value of ``maxBytes``."""
        limit = self._options.limit
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the stream at the present end of the files."""
        self._last = byte_ranges.find(self._options.paths)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the position up to which the next batch reads."""
        segments = self._last if self._last is not None else byte_ranges.find(self._options.paths)
        maximum = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return byte_ranges.advance(start, segments, maximum)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return a partition for each part of a segment."""
        segments = byte_ranges.find(self._options.paths)
        gone = self._options.paths[0]
        return [
            InputPartition(span)
            for name, at in end.items()
            for span in pieces(
                segments[name][0] if name in segments else f"{gone}/{name}",
                start.get(name, 0), at, _PIECE,
            )
        ]  # fmt: skip
