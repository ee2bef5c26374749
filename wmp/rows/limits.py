"""Limits of the table that a payload of the codec ``arrow`` stands for (ROWS-1.5 to ROWS-1.7).

A few bytes of Arrow can stand for many rows: columns of nulls, empty structs and runs have none of
their own, and one value of a dictionary may stand in every row. So each payload is measured before
anything is allocated for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow
from attrs import frozen

from wmp.runtime.common.checks import check_count

_VIEW: Final = 16
"""Bytes of one entry of a column of views. The first four are the length of the value."""


@frozen(kw_only=True)
class RowLimits:
    """The limits of payloads that this process decodes.

    Args:
        max_bytes: Maximum number of bytes of a decompressed payload, and of the values of a payload
            when each is written out. A payload that is not compressed may have its own size.
        free_cells: Number of values that need no bytes of their own, for example nulls. Each byte
            of a payload allows eight further values.
        compression: Whether compressed payloads are decoded.

    Raises:
        ConfigError: A limit is wrong.
    """

    max_bytes: int = 256 << 20
    free_cells: int = 100_000
    compression: bool = False

    def __attrs_post_init__(self) -> None:
        check_count("max_bytes", self.max_bytes, 1)
        check_count("free_cells", self.free_cells)


_limits = RowLimits()


def limits() -> RowLimits:
    """Return the limits of this process."""
    return _limits


def set_limits(limits: RowLimits) -> None:
    """Set the limits of this process, before it decodes payloads.

    With ``pool="process"`` call this function in the module of the handlers, which the worker
    processes import.

    Args:
        limits: The limits.
    """
    global _limits
    _limits = limits


def check_written_out(batches: Sequence[pyarrow.RecordBatch], payload: int) -> None:
    """Check the size of the values of a payload when each is written out (ROWS-1.7).

    Args:
        batches: The batches, whose values are sound.
        payload: Number of bytes of the payload.

    Raises:
        ValueError: They exceed the limit.
    """
    maximum = max(_limits.max_bytes, payload)
    total = sum(_written_out(column) for batch in batches for column in batch.columns)
    if total > maximum:
        raise ValueError(
            f"its values stand for {total} bytes; expected {maximum} at most, which "
            "wmp.rows.set_limits changes"
        )


def check_cast(rows: int, schema: pyarrow.Schema) -> None:
    """Check the size of rows that are converted to the types of a schema (ROWS-1.7).

    Args:
        rows: Number of rows.
        schema: The schema.

    Raises:
        ValueError: They exceed the limit.
    """
    size = rows * sum(_bits(column.type) for column in schema) // 8
    if size > _limits.max_bytes:
        raise ValueError(
            f"{rows} rows of the result schema take {size} bytes; expected {_limits.max_bytes} at "
            "most, which wmp.rows.set_limits changes"
        )


def _bits(kind: Any) -> int:
    """Return the minimum number of bits of one value of a type."""
    types = pyarrow.types
    if types.is_null(kind):
        return 0
    if types.is_fixed_size_list(kind):
        return int(kind.list_size * _bits(kind.value_type))
    if types.is_struct(kind):
        return sum(_bits(kind.field(index).type) for index in range(kind.num_fields))
    if types.is_dictionary(kind):
        return int(kind.index_type.bit_width)
    try:
        return int(kind.bit_width)
    except ValueError:
        return 32  # the offset of a value of any size


def _written_out(array: Any) -> int:
    """Return the bytes of the values of an array when each is written out, or more."""
    kind, types = array.type, pyarrow.types
    if types.is_dictionary(kind):
        return _chosen(array.dictionary, array.indices, len(array))
    if types.is_run_end_encoded(kind):
        return _repeated(array)
    if types.is_struct(kind):
        return sum(_written_out(array.field(index)) for index in range(kind.num_fields))
    if types.is_union(kind):
        fields = [array.field(index) for index in range(kind.num_fields)]
        if kind.mode == "sparse":
            return sum(map(_written_out, fields))
        return len(array) * max(map(_largest, fields), default=0)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return sum(_view_sizes(array))
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return sum(size or 0 for size in array.sizes.to_pylist()) * _largest(array.values)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _written_out(array.values)
    if types.is_map(kind):
        return _written_out(array.keys) + _written_out(array.items)
    if isinstance(array, pyarrow.ExtensionArray):
        return _written_out(array.storage)
    return int(array.nbytes)


def _chosen(values: Any, indices: Any, count: int) -> int:
    """Return the bytes of the values of a dictionary that indices choose."""
    largest = _largest(values)
    if count * largest <= _limits.max_bytes:
        return count * largest
    sizes = _sizes(values)
    if sizes is None:
        return count * largest
    chosen = indices.drop_null().value_counts()
    return sum(sizes[entry["values"]] * entry["counts"] for entry in chosen.to_pylist())


def _repeated(array: Any) -> int:
    """Return the bytes of the values of runs."""
    largest = _largest(array.values)
    if len(array) * largest <= _limits.max_bytes:
        return len(array) * largest
    sizes = _sizes(array.values)
    if sizes is None:
        return len(array) * largest
    total = before = 0
    for end, size in zip(array.run_ends.to_pylist(), sizes, strict=False):
        total += (end - before) * size
        before = end
    return total


def _sizes(values: Any) -> list[int] | None:
    """Return the bytes of each value; None if only their sum is known."""
    kind, types = values.type, pyarrow.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _view_sizes(values)
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_unicode(kind):
        return _lengths(values)
    return None


def _lengths(values: Any) -> list[int]:
    # This module takes long to import, and few payloads need it.
    from pyarrow import compute

    return [size or 0 for size in compute.binary_length(values).to_pylist()]


def _largest(values: Any) -> int:
    """Return the bytes of the largest value of an array, or more."""
    if not len(values):
        return 0
    sizes = _sizes(values)
    if sizes is not None:
        return max(sizes)
    if pyarrow.types.is_null(values.type):
        return 0
    try:
        return -(-int(values.type.bit_width) // 8)
    except ValueError:
        return _written_out(values)


def _view_sizes(array: Any) -> list[int]:
    buffer = array.buffers()[1]
    if buffer is None:
        return []
    begin, count = array.offset * _VIEW, len(array) * _VIEW
    return memoryview(buffer)[begin : begin + count].cast("i")[::4].tolist()
