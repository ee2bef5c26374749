"""Lines of a journal: parsed and checked, and as batches of the table ``events``.

This is plain Python and Arrow, without Spark.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import pyarrow
from attrs import frozen

from wmp.errors import ConfigError
from wmp.journal.reader import whole
from wmp.journal.schema import (
    COLUMNS,
    ENDS,
    LINES,
    MOST_TIME,
    NULLABLE,
    OF_JOBS,
    VERSION,
    Type,
    what_is_wrong,
)
from wmp.spark.arrow import schema_of
from wmp.spark.schema import ddl

__all__ = ["EVENTS", "MAPS", "UNKNOWN_VERSION", "event_table", "parse", "text_of"]

UNKNOWN_VERSION: Final = "the journal has an unknown version"
"""Begin of the error about a line of another version."""
EVENTS: Final = schema_of(ddl("events"))

_INVALID: Final = "\N{REPLACEMENT CHARACTER}"
"""The first character of a line that is not UTF-8. No line of a journal begins with it."""
_RANGE: Final = 2**63
_KINDS: Final[dict[str, type]] = {
    c.name: {Type.INTEGER: int, Type.TEXT: str, Type.TRUTH: bool, Type.INTEGERS: list,
             Type.TEXTS: list}.get(c.type, dict)
    for c in COLUMNS
}  # fmt: skip
_CLASSES: Final[dict[Type, set[type]]] = {
    Type.INTEGERS: {int}, Type.TEXTS: {str}, Type.AMOUNTS: {int},
    Type.NUMBERS: {int, float},
}  # fmt: skip
_ELEMENTS: Final = {
    c.name: _CLASSES[c.type] | ({type(None)} if c.name in NULLABLE else set())
    for c in COLUMNS
    if c.type in _CLASSES
}
_NEEDED: Final = {
    what: frozenset((*("v", "node", "epoch", "n", "step", "at", "wall", "what"), *needed))
    for what, needed in LINES.items()
}
MAPS: Final = frozenset(c.name for c in COLUMNS if c.type in (Type.AMOUNTS, Type.NUMBERS))


def text_of(line: bytes) -> str:
    """Return a line as text; :func:`parse` knows a line that is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return _INVALID + line.decode(errors="replace")


def parse(text: str, file: str) -> dict[str, Any] | str:
    """Return a line with all its jobs in ``ids``; of a bad line, return the reason in words.

    Raises:
        ConfigError: The line has an unknown version; the text begins with ``UNKNOWN_VERSION``.
    """
    try:
        line: Any = json.loads(text)
    except (ValueError, RecursionError):
        if text.startswith(_INVALID):
            return "not UTF-8"
        torn = text.startswith("{") and not text.rstrip().endswith("}")
        return "torn" if torn else "garbage"
    if not isinstance(line, dict):
        return "garbage"
    if "\\ud" in text or "\\uD" in text:
        # Half of a surrogate pair has no encoding, so no table and no page could hold it.
        line = json.loads(json.dumps(line, ensure_ascii=False).encode(errors="replace"))
    version = line.get("v")
    if type(version) is int and version != VERSION:
        raise ConfigError(
            f"{UNKNOWN_VERSION}: {version} in {file}; this release reads version {VERSION}: use "
            "the release that wrote the journal"
        )
    if not _fits(line):
        wrong = what_is_wrong(line)
        if wrong is not None:
            return wrong
    parsed: dict[str, Any] = line
    if "last" in line:
        last = line["last"]
        parsed = {**whole(line), "last": last}
    parsed["file"] = file
    return parsed


def _fits(line: dict[str, Any]) -> bool:
    """Return whether a line surely matches the schema; this is faster than the schema's check."""
    shape = _shape_of(tuple(line))
    if shape is None or tuple(map(type, line.values())) != shape.types:
        return False
    if not shape.columns >= _NEEDED.get(line["what"], _NEVER):
        return False
    numbers = shape.numbers(line)
    if not -_RANGE <= min(numbers) <= max(numbers) < _RANGE or line["n"] < 0:
        return False
    if not (-MOST_TIME < line["at"] < MOST_TIME and 0 <= line["wall"] < MOST_TIME):
        return False
    if shape.of_jobs:
        jobs = len(line["ids"])
        if any(len(line[name]) not in (1, jobs) for name in shape.of_jobs):
            return False
    try:
        for name in shape.parts:
            value, classes = line[name], _ELEMENTS[name]
            elements = value if type(value) is list else value.values()
            if not classes.issuperset(map(type, elements)):
                return False
            if (
                elements
                and int in classes
                and not -_RANGE <= min(elements) <= max(elements) < _RANGE
            ):
                return False
        if "ends" in shape.columns and not ENDS.issuperset(line["ends"]):
            return False
    except TypeError:  # some elements are null, or lists
        return False
    return True


_NEVER: Final = frozenset({"no line has this column"})


@frozen
class _KnownLine:
    """The properties that lines with the same columns share."""

    columns: frozenset[str]
    types: tuple[type, ...]
    numbers: Callable[[dict[str, Any]], tuple[int, ...]]
    """Returns the columns with a number."""
    parts: tuple[str, ...]
    """The columns that have several elements."""
    of_jobs: tuple[str, ...]
    """The columns with elements for the jobs in ``ids``."""


@lru_cache(4096)
def _shape_of(names: tuple[str, ...]) -> _KnownLine | None:
    """Return the shape of lines with these columns; None if each line needs the whole check."""
    known = {"v", "n", "what"} <= set(names) <= _KINDS.keys()
    if not known or "last" in names or "settings" in names:
        return None
    numbers = itemgetter(*(name for name in names if _KINDS[name] is int))
    parts = tuple(name for name in names if name in _ELEMENTS)
    of_jobs = tuple(name for name in OF_JOBS if name in names)
    if of_jobs and "ids" not in names:
        return None
    types = tuple(_KINDS[name] for name in names)
    return _KnownLine(frozenset(names), types, numbers, parts, of_jobs)


def event_table(lines: Iterable[dict[str, Any]]) -> pyarrow.Table:
    """Return lines as rows of ``events``; lines with the same columns stand together."""
    shapes: defaultdict[tuple[str, ...], list[Any]] = defaultdict(list)
    for line in lines:
        shapes[tuple(line)].append(line.values())
    return pyarrow.Table.from_batches([_batch(*some) for some in shapes.items()], EVENTS)


def _batch(names: Sequence[str], lines: Sequence[Iterable[Any]]) -> pyarrow.RecordBatch:
    columns = dict(zip(names, zip(*lines, strict=True), strict=True))
    arrays = []
    for column in EVENTS:
        values = columns.get(column.name)
        if values is None:
            arrays.append(pyarrow.nulls(len(lines), column.type))
            continue
        if column.name in MAPS:
            values = tuple(list(value.items()) for value in values)
        arrays.append(pyarrow.array(values, column.type))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=EVENTS)
