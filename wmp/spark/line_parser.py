"""Lines of a journal: parsed and checked, and as batches of the table ``events``.

This is plain Python and Arrow, without Spark.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow

from wmp.errors import ConfigError
from wmp.journal.reader import whole
from wmp.journal.schema import COLUMNS, LINES, VERSION, Type, what_is_wrong
from wmp.spark.arrow import schema_of
from wmp.spark.schema import ddl

__all__ = ["EVENTS", "MAPS", "UNKNOWN_VERSION", "event_table", "parse", "text_of"]

UNKNOWN_VERSION: Final = "the journal has an unknown version"
"""Begin of the error about a line of another version."""
EVENTS: Final = schema_of(ddl("events"))

_INVALID: Final = "\N{REPLACEMENT CHARACTER}"
"""The first character of a line that is not UTF-8. No line of a journal begins with it."""
_LONG: Final = re.compile(r"\d{19}")
_KINDS: Final[dict[str, type]] = {
    c.name: {Type.INTEGER: int, Type.TEXT: str, Type.TRUTH: bool, Type.INTEGERS: list,
             Type.TEXTS: list}.get(c.type, dict)
    for c in COLUMNS
}  # fmt: skip
_CLASSES: Final[dict[Type, set[type]]] = {
    Type.INTEGERS: {int, type(None)}, Type.TEXTS: {str}, Type.AMOUNTS: {int},
    Type.NUMBERS: {int, float},
}  # fmt: skip
_ELEMENTS: Final = {c.name: _CLASSES.get(c.type, set()) for c in COLUMNS}
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
    version = line.get("v")
    if type(version) is int and version != VERSION:
        raise ConfigError(
            f"{UNKNOWN_VERSION}: {version} in {file}; this release reads version {VERSION}: use "
            "the release that wrote the journal"
        )
    if not _fits(line) or _LONG.search(text):
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
    try:
        if not _NEEDED[line["what"]] <= line.keys() or "last" in line:
            return False
        for name, value in line.items():
            kind: Any = _KINDS[name]
            if type(value) is not kind:
                return False
            elements: Any = value if kind is list else value.values() if kind is dict else ()
            if elements and not _ELEMENTS[name].issuperset(map(type, elements)):
                return False
    except (KeyError, TypeError):  # an unknown kind of line, or an unknown column
        return False
    return True


def event_table(lines: Iterable[dict[str, Any]]) -> pyarrow.Table:
    """Return lines as rows of ``events``; lines of one kind stand together."""
    shapes: defaultdict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        shapes[line["what"], line.get("command")].append(line)
    return pyarrow.Table.from_batches([_batch(some) for some in shapes.values()], EVENTS)


def _batch(lines: Sequence[dict[str, Any]]) -> pyarrow.RecordBatch:
    there: set[str] = set().union(*lines)
    arrays = []
    for column in EVENTS:
        if column.name not in there:
            arrays.append(pyarrow.nulls(len(lines), column.type))
            continue
        values = [line.get(column.name) for line in lines]
        if column.name in MAPS:
            values = [None if value is None else list(value.items()) for value in values]
        arrays.append(pyarrow.array(values, column.type))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=EVENTS)
