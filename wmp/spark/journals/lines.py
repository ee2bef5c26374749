"""Lines of a journal: parsed and checked, as rows of ``events``, and in order for the folds.

This is plain Python and Arrow, without Spark. A line of this schema is parsed and checked by
:mod:`msgspec` in one step. Any other line takes a slower way, which finds the defect in words.
"""

from __future__ import annotations

import json
import typing
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, groupby
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow
from msgspec import Meta

from wmp.errors import ConfigError
from wmp.journal.schema import (
    COLUMNS,
    ENDS,
    LINES,
    MAX_JOBS,
    MAX_TIME,
    NULLABLE,
    OF_JOBS,
    VERSION,
    Type,
    what_is_wrong,
)
from wmp.spark.journals.schema import ddl
from wmp.spark.session.arrow import schema_of

UNKNOWN_VERSION: Final = "the journal has an unknown version"
"""Start of the error about a line of another version."""
EVENTS: Final = schema_of(ddl("events"))
MAPS: Final = frozenset(c.name for c in COLUMNS if c.type in (Type.AMOUNTS, Type.NUMBERS))
"""The columns with a map."""

_Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_TYPES: Final[dict[Type, Any]] = {
    Type.INTEGER: _Integer, Type.TEXT: str, Type.TRUTH: bool, Type.INTEGERS: list[_Integer],
    Type.TEXTS: tuple[str, ...], Type.AMOUNTS: dict[str, _Integer],
    Type.NUMBERS: dict[str, Annotated[float, Meta(gt=-(2**53), lt=2**53)]],
}  # fmt: skip
_OWN_TYPES: Final[dict[str, Any]] = {
    "v": Literal[VERSION],
    "n": Annotated[int, Meta(ge=0, le=2**63 - 1)],
    "at": Annotated[int, Meta(gt=-MAX_TIME, lt=MAX_TIME)],
    "wall": Annotated[int, Meta(ge=0, lt=MAX_TIME)],
    "ends": list[Literal[tuple(sorted(ENDS))]],  # type: ignore[misc]
    **dict.fromkeys(NULLABLE, list[_Integer | None]),
}


HEAD_COLUMNS: Final = (
    "command", "ready", "credit", "window", "roles", "resources", "count", "role", "needs",
    "lock", "want", "hold", "more", "owner", "owner_epoch", "codec", "unstarted", "max_silence",
    "code", "about", "about_number", "about_peer", "about_epoch", "label", "idle",
    "standby", "challenge", "answer", "keep", "serves", "kept", "sent", "ack", "again",
    "versions", "forwards", "passed", "beat_key", "max_stall",
)  # fmt: skip
"""Columns of the head of a message beside its route, session, number and text. A line about an
ignored message has the reason in ``text``."""


class _LineColumns(msgspec.Struct, gc=False, omit_defaults=True):
    """The base of :class:`LineRow`."""

    def each(self, values: list[Any] | None) -> list[Any]:
        """Return a column with one entry for each job; a single entry stands for all jobs."""
        size = len(self.ids or ())  # type: ignore[attr-defined]
        if values is None:
            return [None] * size
        return values if len(values) == size else values[:1] * size


if typing.TYPE_CHECKING:

    class LineRow(_LineColumns):
        """A line: each column of :mod:`wmp.journal.schema` is an attribute, None if absent.

        ``ids`` has the numbers of all jobs.
        """

        ids: list[int] | None

        def __getattr__(self, name: str) -> Any: ...
else:
    LineRow = msgspec.defstruct(
        "LineRow",
        [
            (c.name, _OWN_TYPES.get(c.name, _TYPES[c.type]))
            if c.on == "all"
            else (c.name, _OWN_TYPES.get(c.name, _TYPES[c.type]) | None, None)
            for c in COLUMNS
        ],
        bases=(_LineColumns,), module=__name__, gc=False, omit_defaults=True,
    )  # fmt: skip

_DECODER: Final = msgspec.json.Decoder(LineRow)
_PACKER: Final = msgspec.msgpack.Encoder()
_number: Final = attrgetter("n")
_UNPACKER: Final = msgspec.msgpack.Decoder(list[LineRow])
_NEEDED: Final = {what: attrgetter("v", "n", *needed) for what, needed in LINES.items()}
"""Returns the columns that lines of a kind must have."""
_no_columns: Final = attrgetter("v", "n")
_of_jobs: Final = attrgetter("ids", "last", *OF_JOBS)
_NO_JOBS: Final = (None,) * (2 + len(OF_JOBS))


def parse(texts: Sequence[bytes], files: Sequence[str]) -> list[LineRow | str]:
    """Return lines with all their jobs in ``ids``; of a bad line, the reason in words.

    All lines are parsed in one call. If that fails, each half of them is tried.

    Raises:
        ConfigError: A line has an unknown version; the text begins with ``UNKNOWN_VERSION``.
    """
    text = b"\n".join(texts)
    # A brace at the start of a line does not continue an object, so each object has its own line.
    if text.isascii() and b"null" not in text and text.count(b"}\n{") == len(texts) - 1:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            lines: list[Any] = _DECODER.decode_lines(text)
            if len(lines) == len(texts) and all(map(_is_whole, lines)):
                return lines
    if len(texts) < 2:
        return list(map(parse_slowly, texts, files))
    half = len(texts) // 2
    return parse(texts[:half], files[:half]) + parse(texts[half:], files[half:])


def _is_whole(line: LineRow) -> bool:
    """List all jobs in ``ids``; return whether no column is absent, or does not fit the jobs."""
    for value in _NEEDED.get(line.what, _no_columns)(line):
        if value is None:  # `in` would compare each value
            return False
    job_columns = _of_jobs(line)
    if job_columns == _NO_JOBS:
        return True
    ids, last, *columns = job_columns
    if last is not None:
        if ids is None or len(ids) != 1 or not 0 < last - ids[0] < MAX_JOBS:
            return False
        ids = line.ids = list(range(ids[0], last + 1))
    sizes = (1, len(ids or ()))
    return not [column for column in columns if column is not None and len(column) not in sizes]


def parse_slowly(text: bytes, file: str) -> LineRow | str:
    """Parse one line as :func:`parse` does; this takes several times as long."""
    try:
        line: Any = json.loads(text.decode())
    except UnicodeDecodeError:
        return "not UTF-8"
    except (ValueError, RecursionError):
        torn = text.startswith(b"{") and not text.rstrip().endswith(b"}")
        return "torn" if torn else "garbage"
    if not isinstance(line, dict):
        return "garbage"
    if b"\\ud" in text or b"\\uD" in text:
        # Half of a surrogate pair has no encoding, so no table and no page could hold it.
        line = json.loads(json.dumps(line, ensure_ascii=False).encode(errors="replace"))
    version = line.get("v")
    if type(version) is int and version != VERSION:
        raise ConfigError(
            f"{UNKNOWN_VERSION}: {version} in {file}; this release reads version {VERSION}: use "
            "the release that wrote the journal"
        )
    wrong = what_is_wrong(line)
    if wrong is not None:
        return wrong
    row = msgspec.convert(line, LineRow)
    _is_whole(row)
    return row


def event_table(lines: Sequence[LineRow], files: Sequence[str]) -> pyarrow.Table:
    """Return lines as rows of ``events``.

    Args:
        lines: The lines, at least one.
        files: The name of the segment of each line.
    """
    arrays = []
    for column, values in zip(
        EVENTS, [*zip(*map(msgspec.structs.astuple, lines), strict=True), files], strict=True
    ):
        if column.name in MAPS:
            values = [None if value is None else list(value.items()) for value in values]
        arrays.append(pyarrow.array(values, column.type))
    return pyarrow.Table.from_arrays(arrays, schema=EVENTS)


def packed_lines(lines: Sequence[LineRow]) -> bytes:
    """Return lines as a part for :func:`in_order`."""
    return _PACKER.encode(lines)


def in_order(parts: Iterable[bytes]) -> Iterator[list[LineRow]]:
    """Return the lines of parts that come in the order of their first lines.

    Parts hardly overlap, so only the lines that may follow a later line wait.
    """
    waiting: list[LineRow] = []
    for part in parts:
        lines = _UNPACKER.decode(part)
        ready = bisect_left(waiting, lines[0].n, key=_number)
        yield waiting[:ready]
        waiting = waiting[ready:]
        if waiting:
            lines = sorted(waiting + lines, key=_number)
        waiting = lines
    yield waiting


def steps(lines: Iterable[Iterable[LineRow]]) -> Iterator[list[LineRow]]:
    """Return the lines of each step."""
    for _, some in groupby(chain.from_iterable(lines), attrgetter("step")):
        yield list(some)
