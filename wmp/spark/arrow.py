"""Rows of Python values as Arrow batches of a schema in Spark's words."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow

__all__ = ["schema_of", "to_batch"]

_TYPES: Final = {
    "string": pyarrow.string(),
    "bigint": pyarrow.int64(),
    "int": pyarrow.int32(),
    "boolean": pyarrow.bool_(),
}


def schema_of(ddl: str) -> pyarrow.Schema:
    """The schema that columns such as ``n bigint, lines array<struct<n:bigint>>`` have."""
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
    """The parts between commas that are in no brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "<") - (sign == ">")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def to_batch(rows: list[tuple[Any, ...]], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Rows, at least one, each in the order of the schema."""
    arrays = [
        pyarrow.array(column, kind.type)
        for column, kind in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
