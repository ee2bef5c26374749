"""Rows of Python values: from Arrow batches to groups of rows, and back to Arrow batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow

__all__ = ["Values", "map_groups", "schema_of"]

Values = tuple[Any, ...]
"""The values of a row, in the order of the columns."""

_ROWS: Final = 8192
"""Number of rows in a batch."""

_TYPES: Final = {
    "string": pyarrow.string(),
    "bigint": pyarrow.int64(),
    "int": pyarrow.int32(),
    "boolean": pyarrow.bool_(),
}


def schema_of(ddl: str) -> pyarrow.Schema:
    """Return the schema of columns such as ``n bigint, lines array<struct<n:bigint>>``."""
    return pyarrow.schema([tuple(_column(part)) for part in _split(ddl)])


def _column(text: str) -> tuple[str, pyarrow.DataType]:
    name, _, kind = re.sub(r"\s*[ :]\s*", " ", text.strip(), count=1).partition(" ")
    return name, _type(kind)


def _type(kind: str) -> pyarrow.DataType:
    outer, bracket, inner = kind.partition("<")
    if not bracket:
        return _TYPES[kind]
    inner = inner.removesuffix(">")
    if outer == "array":
        return pyarrow.list_(_type(inner))
    return pyarrow.struct([_column(part) for part in _split(inner)])


def _split(text: str) -> list[str]:
    """Split at the commas that are not in brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "<") - (sign == ">")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def map_groups(
    batches: Iterable[pyarrow.RecordBatch],
    group: Callable[[Iterator[Values]], Iterable[Values]],
    schema: pyarrow.Schema,
) -> Iterator[pyarrow.RecordBatch]:
    """Apply a function to each group of rows, in a worker process of Spark.

    Args:
        batches: Rows whose first three columns are the key of their group. The rows of a group
            follow each other, in one batch or in several.
        group: Returns the resulting rows for the rows of one group.
        schema: Schema of the resulting rows.
    """
    rows = chain.from_iterable(
        zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches
    )
    made: list[Values] = []
    for _, some in groupby(rows, itemgetter(0, 1, 2)):
        for row in group(some):
            made.append(row)
            if len(made) >= _ROWS:
                yield _to_batch(made, schema)
                made = []
    if made:
        yield _to_batch(made, schema)


def _to_batch(rows: list[Values], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    arrays = [
        pyarrow.array(column, kind.type)
        for column, kind in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
