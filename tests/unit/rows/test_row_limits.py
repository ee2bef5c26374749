"""Limits of the tables that payloads of the codec `arrow` stand for (ROWS-1.5 to ROWS-1.7)."""

from __future__ import annotations

import random
import struct

import pytest

pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install -e '.[rows]'")
pytest.importorskip("pyarrow.compute")

from wmp import rows  # noqa: E402 - needs pyarrow
from wmp.errors import ConfigError, DecodeError  # noqa: E402
from wmp.rows import stream_check  # noqa: E402
from wmp.rows.payloads import ResultRequest, read_request, with_request  # noqa: E402
from wmp.rows.result_tables import fit  # noqa: E402

MANY = 50_000_000


@pytest.fixture(autouse=True)
def _same_limits():
    before = rows.limits()
    yield
    rows.set_limits(before)


def stream(*batches, compression=None):
    sink = pyarrow.BufferOutputStream()
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with pyarrow.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write(batch)
    return sink.getvalue().to_pybytes()


def batch_of(array):
    return pyarrow.RecordBatch.from_arrays([array], ["x"])


def runs(count, value):
    ends = pyarrow.array([count], pyarrow.int32())
    return pyarrow.RunEndEncodedArray.from_arrays(ends, pyarrow.array([value]))


def empty_structs(count):
    return pyarrow.StructArray.from_buffers(pyarrow.struct([]), count, [None])


# -- compression ------------------------------------------------------------------------------


@pytest.mark.rule("ROWS-1.5")
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compression_is_refused_unless_asked_for(compression):
    batch = batch_of(pyarrow.array(range(1000)))
    payload = stream(batch, compression=compression)
    with pytest.raises(DecodeError, match="it is compressed; write it without compression"):
        rows.decode(payload)
    rows.set_limits(rows.RowLimits(compression=True))
    assert rows.decode(payload).equals(batch)


@pytest.mark.rule("ROWS-1.5")
def test_the_size_without_compression_is_bounded_before_it_is_allocated():
    zeros = pyarrow.array([0] * 1_000_000)
    payload = stream(batch_of(zeros), compression="zstd")
    assert len(payload) < 100_000
    rows.set_limits(rows.RowLimits(compression=True, max_bytes=7_999_999))
    before = pyarrow.total_allocated_bytes()
    with pytest.raises(DecodeError, match="has 8000000 bytes without compression"):
        rows.decode(payload)
    assert pyarrow.total_allocated_bytes() == before
    rows.set_limits(rows.RowLimits(compression=True, max_bytes=8_000_000))
    assert rows.decode(payload).num_rows == 1_000_000


@pytest.mark.rule("ROWS-1.5")
def test_several_small_batches_count_together():
    batch = batch_of(pyarrow.array([0] * 10_000))
    payload = stream(*[batch] * 20, compression="zstd")
    rows.set_limits(rows.RowLimits(compression=True, max_bytes=1_000_000))
    with pytest.raises(DecodeError, match="without compression; expected 1000000 at most"):
        rows.decode(payload)


@pytest.mark.rule("ROWS-1.5")
def test_a_compressed_dictionary_is_refused_too():
    words = pyarrow.array(["a" * 1000, "b"] * 10).dictionary_encode()
    with pytest.raises(DecodeError, match="it is compressed"):
        rows.decode(stream(batch_of(words), compression="zstd"))


# -- few bytes for many rows ------------------------------------------------------------------


@pytest.mark.rule("ROWS-1.2", "ROWS-1.6")
@pytest.mark.parametrize(
    "make",
    [
        pyarrow.nulls,
        empty_structs,
        lambda count: runs(count, 1),
        lambda count: pyarrow.nulls(count, pyarrow.struct([("a", pyarrow.null())])),
        lambda count: pyarrow.FixedSizeListArray.from_arrays(pyarrow.nulls(count), count),
    ],
    ids=["nulls", "empty structs", "runs", "structs of nulls", "a list of nulls"],
)
def test_few_bytes_stand_for_few_values(make):
    assert rows.decode(stream(batch_of(make(10_000)))).num_columns == 1
    payload = stream(batch_of(make(MANY)))
    before = pyarrow.total_allocated_bytes()
    with pytest.raises(DecodeError, match=r"bytes stand for \d+ values; expected \d+ at most"):
        rows.decode(payload)
    assert pyarrow.total_allocated_bytes() == before


@pytest.mark.rule("ROWS-1.6")
def test_many_batches_and_columns_of_nulls_count_together():
    nulls = pyarrow.nulls(1000)
    wide = pyarrow.RecordBatch.from_arrays([nulls] * 200, [f"c{n}" for n in range(200)])
    with pytest.raises(DecodeError, match="values; expected"):
        rows.decode(stream(*[wide] * 20))


@pytest.mark.rule("ROWS-1.6")
def test_a_table_with_real_columns_may_have_columns_of_nulls():
    count = 1_000_000
    table = pyarrow.RecordBatch.from_arrays(
        [pyarrow.array(range(count)), pyarrow.nulls(count), pyarrow.array([True] * count)],
        ["n", "nothing", "flag"],
    )
    assert rows.decode(rows.encode(table)).num_rows == count
    flags = batch_of(pyarrow.array([True] * count))
    assert rows.decode(rows.encode(flags)).num_rows == count


# -- values that stand in many rows -----------------------------------------------------------


def chosen(count, size):
    indices = pyarrow.array([0] * count, pyarrow.int8())
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["x" * size, "y"]))


def list_of(values, count):
    return pyarrow.ListArray.from_arrays(pyarrow.array([0, count]), values)


@pytest.mark.rule("ROWS-1.7")
@pytest.mark.parametrize(
    "make",
    [
        chosen,
        lambda count, size: runs(count, "x" * size),
        lambda count, size: list_of(chosen(count, size), count),
        lambda count, size: pyarrow.StructArray.from_arrays([chosen(count, size)], ["a"]),
        lambda count, size: runs(count, [1] * size),
    ],
    ids=["dictionary", "runs", "list of a dictionary", "struct of a dictionary", "runs of lists"],
)
def test_values_that_stand_in_many_rows_count_in_each(make):
    rows.set_limits(rows.RowLimits(max_bytes=1_000_000))
    assert rows.decode(stream(batch_of(make(1000, 100)))).num_rows
    with pytest.raises(DecodeError, match=r"values stand for \d+ bytes; expected"):
        rows.decode(stream(batch_of(make(20_000, 1000))))


@pytest.mark.rule("ROWS-1.7")
def test_a_long_value_that_stands_in_one_row_is_no_cause():
    rows.set_limits(rows.RowLimits(max_bytes=1_000_000))
    words = pyarrow.array(["x" * 10_000, *["y"] * 20_000]).dictionary_encode()
    assert rows.decode(stream(batch_of(words))).num_rows == 20_001
    ends = pyarrow.array([1, 20_001], pyarrow.int32())
    values = pyarrow.array(["x" * 10_000, "y"])
    array = pyarrow.RunEndEncodedArray.from_arrays(ends, values)
    assert rows.decode(stream(batch_of(array))).num_rows == 20_001


@pytest.mark.rule("ROWS-1.7")
def test_views_of_one_value_count_each():
    if not hasattr(pyarrow, "string_view"):
        pytest.skip("this pyarrow has no views")
    word = b"x" * 1000
    view = struct.pack("<i4sii", len(word), word[:4], 0, 0)
    buffers = [None, pyarrow.py_buffer(view * 20_000), pyarrow.py_buffer(word)]
    views = pyarrow.Array.from_buffers(pyarrow.binary_view(), 20_000, buffers)
    rows.set_limits(rows.RowLimits(max_bytes=1_000_000))
    with pytest.raises(DecodeError, match="values stand for 20000000 bytes"):
        rows.decode(stream(batch_of(views)))


@pytest.mark.rule("ROWS-1.7")
def test_a_result_schema_makes_no_large_rows_of_small_ones():
    batch = batch_of(pyarrow.nulls(1000))
    for kind in (
        pyarrow.binary(1 << 20),
        pyarrow.list_(pyarrow.int64(), 1 << 20),
        pyarrow.struct([("a", pyarrow.list_(pyarrow.bool_(), 1 << 24))]),
    ):
        schema = pyarrow.schema([("x", kind)])
        payload = rows.encode(with_request(batch, ResultRequest(schema)))
        with pytest.raises(DecodeError, match="1000 rows of the result schema take"):
            read_request(rows.decode(payload))
        with pytest.raises(ValueError, match="1000 rows of the result schema take"):
            fit(batch, schema)
    assert fit(batch, pyarrow.schema([("x", pyarrow.int64())])).num_rows == 1000


# -- malformed heads --------------------------------------------------------------------------


@pytest.mark.rule("ROWS-1.2", "ROWS-1.6")
def test_mutated_streams_are_refused_or_decoded():
    draw = random.Random(7)
    table = pyarrow.record_batch({"n": [1, 2, 3], "text": ["a", None, "c"]})
    whole = rows.encode(table)
    for _ in range(2000):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        try:
            rows.decode(bytes(changed))
        except DecodeError:
            pass


@pytest.mark.rule("ROWS-1.6")
def test_a_head_that_points_outside_is_an_error():
    for head in (b"", b"\xff" * 4, b"\x04\0\0\0" + b"\xff" * 8):
        with pytest.raises(ValueError, match="malformed"):
            stream_check._record_batch(memoryview(head))


@pytest.mark.parametrize("wrong", [{"max_bytes": 0}, {"free_cells": -1}, {"max_bytes": "1"}])
def test_wrong_limits_are_refused(wrong):
    with pytest.raises(ConfigError):
        rows.RowLimits(**wrong)
