"""Makes record batches of results, and fits them to the result schema (ROWS-3.2, ROWS-3.3)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow

from wmp.rows.limits import check_cast

_NOTHING = pyarrow.schema([])


def as_batch(result: Any, schema: pyarrow.Schema | None) -> pyarrow.RecordBatch:
    """Return the result of a handler of tables as a record batch of the result schema.

    Args:
        result: Record batch, table, frame, mapping of names to columns, or None for no rows.
        schema: The result schema without the error column; None for any columns.

    Raises:
        TypeError: The result is nothing of these.
        ValueError: The columns are others than those of the schema, or a value does not convert.
    """
    if result is None:
        return no_rows(schema or _NOTHING)
    if isinstance(result, pyarrow.Table):
        result = result.combine_chunks()
        batches = result.to_batches()
        result = batches[0] if batches else no_rows(result.schema)
    pandas = sys.modules.get("pandas")  # a result can be a frame only if pandas is imported
    if pandas is not None and isinstance(result, pandas.DataFrame):
        result = {name: result[name] for name in _names(list(result.columns), schema)}
        return _from_columns(result, schema)
    if isinstance(result, Mapping):
        return _from_columns(result, schema)
    if not isinstance(result, pyarrow.RecordBatch):
        raise TypeError(
            f"the handler returned {type(result).__name__}; expected a record batch, a table, a "
            "frame of pandas, a mapping of names to columns, or None"
        )
    return result if schema is None else fit(result, schema)


def from_rows(
    rows: Sequence[Mapping[str, Any]], schema: pyarrow.Schema | None
) -> pyarrow.RecordBatch:
    """Return rows as a record batch of the result schema.

    Raises:
        ValueError: A row has other columns than the schema, or a value does not convert.
    """
    if schema is None:
        return pyarrow.RecordBatch.from_pylist(list(rows))
    for row in rows:
        _names(list(row), schema)
    columns = {name: [row[name] for row in rows] for name in schema.names}
    return _from_columns(columns, schema)


def fit(batch: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Return the columns of a batch in the order and with the types of a schema.

    Raises:
        ValueError: The batch has other columns, a value does not convert, or the values take too
            many bytes.
    """
    if batch.schema.equals(schema):
        return batch.replace_schema_metadata(schema.metadata)
    _names(batch.schema.names, schema)
    check_cast(batch.num_rows, schema)
    arrays = []
    for field in schema:
        array = batch.column(field.name)
        if array.type != field.type:
            try:
                array = array.cast(field.type)
            except (pyarrow.ArrowException, ValueError) as error:
                raise ValueError(
                    f"column {field.name!r} of the result has type {array.type}; expected "
                    f"{field.type}: {error}"
                ) from error
        arrays.append(array)
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def failed_rows(
    rows: pyarrow.RecordBatch, schema: pyarrow.Schema, error: str, texts: Sequence[str]
) -> pyarrow.RecordBatch:
    """Return a row of the result schema for each row that failed (ROWS-4.3).

    Args:
        rows: The rows of the input.
        schema: The result schema, with the error column.
        error: Name of the error column.
        texts: The error of each row.
    """
    arrays = []
    for field in schema:
        if field.name == error:
            arrays.append(pyarrow.array(texts, field.type))
            continue
        index = rows.schema.get_field_index(field.name)
        array = pyarrow.nulls(rows.num_rows, field.type)
        if index >= 0:
            try:
                array = rows.column(index).cast(field.type)
            except (pyarrow.ArrowException, ValueError):
                pass  # ROWS-4.3: the column is null if the type of the input does not allow it
        arrays.append(array)
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def no_rows(schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Return a record batch without rows."""
    return pyarrow.RecordBatch.from_arrays(
        [pyarrow.array([], field.type) for field in schema], schema=schema
    )


def _from_columns(columns: Mapping[str, Any], schema: pyarrow.Schema | None) -> pyarrow.RecordBatch:
    if schema is None:
        return pyarrow.RecordBatch.from_pydict(dict(columns))
    _names(list(columns), schema)
    arrays = []
    for field in schema:
        given = columns[field.name]
        try:
            if isinstance(given, pyarrow.ChunkedArray):
                given = given.combine_chunks()
            if isinstance(given, pyarrow.Array):
                array = given.cast(field.type)
            else:
                array = pyarrow.array(given, field.type, from_pandas=True)
                if isinstance(array, pyarrow.ChunkedArray):
                    array = array.combine_chunks()
        except (pyarrow.ArrowException, ValueError, TypeError) as error:
            raise ValueError(
                f"column {field.name!r} of the result does not convert to {field.type}: {error}"
            ) from error
        arrays.append(array)
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _names(names: Sequence[Any], schema: pyarrow.Schema | None) -> Sequence[Any]:
    """Return the names, if they are those of the schema.

    Raises:
        ValueError: They are others.
    """
    if schema is not None and (len(names) != len(schema.names) or set(names) != set(schema.names)):
        raise ValueError(
            f"the result has the columns {', '.join(map(str, names)) or '(none)'}; expected "
            f"{', '.join(schema.names)}"
        )
    return names
