"""The few lines of journals from which the numbers are counted, as tables of Arrow.

Arrow parses the lines, so no line becomes an object of Python. Two thirds of the lines are dropped
by their text before that, because parsing costs most of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow
import pyarrow.compute as pc
import pyarrow.json
from attrs import define

from wmp.actions import JOINED
from wmp.errors import ConfigError
from wmp.journal.schema import VERSION
from wmp.spark.journals import byte_ranges
from wmp.spark.journals.byte_ranges import ByteRange
from wmp.spark.journals.lines import UNKNOWN_VERSION

_INTEGER: Final = pyarrow.int64()
_TEXT: Final = pyarrow.string()
COLUMNS: Final = pyarrow.schema({
    "v": _INTEGER, "node": _TEXT, "epoch": _INTEGER, "n": _INTEGER, "at": _INTEGER,
    "wall": _INTEGER, "what": _TEXT, "kind": _TEXT, "command": _TEXT, "source": _TEXT,
    "source_epoch": _INTEGER, "target": _TEXT, "role": _TEXT, "about_peer": _TEXT,
    "owner": _TEXT, "owner_epoch": _INTEGER, "lane": _INTEGER,
    "ids": pyarrow.list_(_INTEGER), "last": _INTEGER, "attempts": pyarrow.list_(_INTEGER),
    "ends": pyarrow.list_(_TEXT), "since_call": pyarrow.list_(_INTEGER), "reason": _TEXT,
})  # fmt: skip
_NEEDED: Final = ("v", "node", "epoch", "n", "at", "wall", "what")
"""The columns of every line."""
_SENT: Final = b'"what":"send"'
_RECEIVED: Final = b'"what":"received"'
_TAKE: Final = b'"command":"TAKE"'
_NOTE: Final = b'"what":"note"'
_JOINED: Final = JOINED.encode()
_CHUNK: Final = 8 << 20
"""Bytes of a journal that are parsed at a time."""


@define(eq=False)
class LineCount:
    """The facts about all lines, also of those that are dropped."""

    lines: int = 0
    bad: int = 0
    """Number of the lines, of those that are not dropped, that could not be read."""

    def leave_out(self, lines: int, *, bad: bool = True) -> None:
        """Do not count lines, which are bad or empty."""
        self.lines -= lines
        self.bad += lines if bad else 0


def kept_lines(spans: Iterable[ByteRange], count: LineCount) -> Iterator[pyarrow.Table]:
    """Yield the lines that the numbers need, and the first and last line of each piece.

    Raises:
        ConfigError: A line has an unknown version.
        WMPError: A segment was removed.
    """
    for span in spans:
        for text in byte_ranges.chunks(span, _CHUNK):
            lines = text.split(b"\n")
            if not lines[-1].strip():
                lines.pop()
            count.lines += len(lines)
            ends = [lines[0], lines[-1]] if len(lines) > 1 else []
            # The text of a key with its quotes is in no value, where quotes have a backslash.
            wanted = [
                line
                for line in (lines[1:-1] if ends else lines)
                if _RECEIVED not in line
                and (_SENT not in line or _TAKE in line)
                and (_NOTE not in line or _JOINED in line)
            ]
            yield from _parsed([*ends[:1], *wanted, *ends[1:]], span.path, count)


def _parsed(lines: list[bytes], path: str, count: LineCount) -> Iterator[pyarrow.Table]:
    """Yield lines as tables. If Arrow refuses them, each half is tried; a bad line is counted."""
    try:
        table = _table(lines)
    except ValueError:  # of Arrow, or of UTF-8
        if len(lines) > 1:
            half = len(lines) // 2
            yield from _parsed(lines[:half], path, count)
            yield from _parsed(lines[half:], path, count)
        elif lines:
            count.leave_out(1, bad=bool(lines[0].strip()))
        return
    for version in pc.unique(table["v"]).to_pylist():
        if version not in (VERSION, None):
            raise ConfigError(
                f"{UNKNOWN_VERSION}: {version} in {path.rpartition('/')[2]}; this release reads "
                f"version {VERSION}: use the release that wrote the journal"
            )
    for name in _NEEDED:
        if table[name].null_count:
            whole = table.filter(pc.is_valid(table[name]))
            count.leave_out(len(table) - len(whole))
            table = whole
    yield table


def _table(lines: list[bytes]) -> pyarrow.Table:
    """Parse lines.

    Raises:
        ValueError: A line is no JSON, or a column has another type.
    """
    text = b"\n".join(lines)
    if not text.isascii():
        text.decode()
    table = pyarrow.json.read_json(
        pyarrow.BufferReader(text),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        pyarrow.json.ParseOptions(
            explicit_schema=COLUMNS, newlines_in_values=False, unexpected_field_behavior="ignore"
        ),
    )
    if len(table) != len(lines):
        raise pyarrow.ArrowInvalid("a line has no object, or several")
    return table
