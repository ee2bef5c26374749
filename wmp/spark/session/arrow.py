"""Columns of Python values as arrays of Arrow, and schemas from text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow

Values = tuple[Any, ...]
"""The values of a row, in the order of the columns."""

_TYPES: Final = {
    "string": pyarrow.string(),
    "binary": pyarrow.binary(),
    "bigint": pyarrow.int64(),
    "double": pyarrow.float64(),
    "boolean": pyarrow.bool_(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "map<string,bigint>": pyarrow.map_(pyarrow.string(), pyarrow.int64()),
    "map<string,double>": pyarrow.map_(pyarrow.string(), pyarrow.float64()),
}
_BOUND: Final = 2**63 - 1
"""The greatest number of a column; a greater number is stored as this number."""


@lru_cache(64)
def schema_of(ddl: str) -> pyarrow.Schema:
    """Return the schema of columns such as ``n bigint, lines array<struct<n:bigint>>``."""
    return pyarrow.schema([_column(part) for part in _split(ddl)])


def _column(text: str) -> tuple[str, pyarrow.DataType]:
    name, _, kind = re.sub(r"\s*[ :]\s*", " ", text.strip(), count=1).partition(" ")
    return name.strip("`"), _type(kind)


def _type(kind: str) -> pyarrow.DataType:
    if kind in _TYPES:
        return _TYPES[kind]
    outer, _, inner = kind.partition("<")
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


def to_batch(columns: Sequence[Sequence[Any]], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Make a batch of columns of values."""
    arrays = [to_array(values, kind.type) for values, kind in zip(columns, schema, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def to_array(values: Sequence[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    """Make an array.

    A struct is a tuple of its values in their order, and is never null. This is several times as
    fast as a dictionary for each struct.
    """
    if pyarrow.types.is_struct(kind):
        parts = list(zip(*values, strict=True)) or [()] * kind.num_fields
        fields = list(kind)
        arrays = [to_array(part, f.type) for part, f in zip(parts, fields, strict=True)]
        return pyarrow.StructArray.from_arrays(arrays, fields=fields)
    if pyarrow.types.is_list(kind) and pyarrow.types.is_struct(kind.value_type):
        there = [value or () for value in values]
        ends = [0, *accumulate(map(len, there))]
        inner = to_array(list(chain.from_iterable(there)), kind.value_type)
        return pyarrow.ListArray.from_arrays(pyarrow.array(ends, pyarrow.int32()), inner, kind)
    try:
        return pyarrow.array(values, kind)
    except OverflowError:  # a product of two numbers of a journal
        return pyarrow.array([v and max(-_BOUND, min(v, _BOUND)) for v in values], kind)
