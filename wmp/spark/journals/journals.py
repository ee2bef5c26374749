"""Finds journals, and reads their lines in tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from wmp.spark.journals import byte_ranges
from wmp.spark.journals.byte_ranges import ByteRange
from wmp.spark.journals.lines import MAPS

_MIN: Final = 16 << 20
"""Minimum number of bytes that one task reads, if there are so many."""
_MAX: Final = 64 << 20
_TASKS: Final = 64
"""Number of tasks from which on a task reads more bytes. Each task costs 0.01 s of CPU time."""
_LINE: Final = 300
"""Bytes of a usual line."""
_BATCH: Final = 4096

_Piece = ByteRange | tuple[str, int]
"""A part of a segment, or a file of the table ``events`` with its number of rows."""
JournalLine = tuple[str, bytes]
"""(file, line)."""


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


def bytes_of_task(total: int) -> int:
    """Return the number of bytes that one task reads, or folds, of so many bytes."""
    return min(max(_MIN, -(-total // _TASKS)), _MAX)


class Source:
    """Lines of journals: byte ranges of files, and paths that only Spark can open.

    Args:
        lines: Parts of the files of this machine, and URLs of files and directories.
        events: Files of the table ``events`` with their numbers of rows, whose lines are read
        again.
        torn: Whether a last line without a line feed counts, too.
    """

    def __init__(
        self,
        lines: Sequence[str | ByteRange] = (),
        *,
        events: Sequence[tuple[str, int]] = (),
        torn: bool = False,
    ) -> None:
        self._torn = torn
        self.far = [url for url in lines if isinstance(url, str)]
        spans = [span for span in lines if isinstance(span, ByteRange)]
        self.bytes = sum(span.end - span.begin for span in spans)  # without those of URLs
        self.bytes += sum(_LINE * rows for _, rows in events)
        self.tasks: list[list[_Piece]] = [[]]
        left = maximum = bytes_of_task(self.bytes)

        def add(piece: _Piece, size: int) -> None:
            nonlocal left
            if left <= 0:
                self.tasks.append([])
                left = maximum
            self.tasks[-1].append(piece)
            left -= size

        for name, rows in events:
            add((name, rows), _LINE * rows)
        for span in spans:
            begin = span.begin
            while begin < span.end:
                end = min(begin + (left if left > 0 else maximum), span.end)
                add(ByteRange(span.path, begin, end), end - begin)
                begin = end

    @classmethod
    def of(cls, lines: Sequence[str | ByteRange]) -> Source:
        """Return all lines that :func:`find_segments` has found."""
        return cls(lines, torn=True)

    @property
    def is_small(self) -> bool:
        """Whether one task reads all lines, so that Spark could not divide the work."""
        return not self.far and len(self.tasks) == 1

    def lines(self, task: Iterable[_Piece]) -> Iterator[JournalLine]:
        """Yield the lines of one task."""
        for piece in task:
            if isinstance(piece, ByteRange):
                name = piece.path.rpartition("/")[2]
                yield from zip(repeat(name), byte_ranges.read(piece, torn=self._torn))
                continue
            import pyarrow.dataset  # which imports pandas, if that is installed

            events = pyarrow.dataset.dataset(piece[0], format="parquet")
            for batch in events.to_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    yield row.pop("file"), _line_again(row)


def _line_again(row: dict[str, Any]) -> bytes:
    line = {name: value for name, value in row.items() if value is not None}
    for name in MAPS & line.keys():
        line[name] = dict(line[name])
    if "last" in line:
        line["ids"] = line["ids"][:1]
    return json.dumps(line).encode()
