"""Pieces of tables, the codec `arrow`, the adapter of handlers (specs/rows.md), without Spark."""

from __future__ import annotations

import asyncio
import pickle
from itertools import chain

import pytest

pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install -e '.[rows]'")
pytest.importorskip("pyarrow.compute")

from wmp import rows  # noqa: E402 - needs pyarrow
from wmp.errors import ConfigError, DecodeError, JobCancelled, Reject, RetryLater  # noqa: E402
from wmp.rows.payloads import ResultRequest, read_request, with_request  # noqa: E402
from wmp.rows.pieces import TablePartition, cut, key_of  # noqa: E402
from wmp.rows.result_tables import failed_rows, fit  # noqa: E402
from wmp.runtime.codecs.payload_codecs import payload_codec  # noqa: E402
from wmp.runtime.executors.handlers import serve  # noqa: E402

WORDS = ["one", "two", "three", "four", "five"]
RESULT = pyarrow.schema([("n", pyarrow.int32()), ("size", pyarrow.int64())])
MARKED = RESULT.append(pyarrow.field("error", pyarrow.string()))


def table(count=5):
    return pyarrow.record_batch({"n": list(range(count)), "text": WORDS[:count]})


def received(batch, schema=RESULT, error=None):
    """The payload as a worker receives it."""
    return rows.decode(rows.encode(with_request(batch, ResultRequest(schema, error))))


def size(row):
    return {"n": row["n"], "size": len(row["text"])}


# -- the codec ------------------------------------------------------------------------------


@pytest.mark.rule("ROWS-1.1", "ROWS-1.2")
def test_a_batch_returns_from_the_codec_and_several_batches_are_joined():
    codec = payload_codec("arrow")
    whole = pyarrow.Table.from_batches([table(2), table(3)])

    assert codec.decode(codec.encode(table())).equals(table())
    assert codec.decode(codec.encode(whole)).to_pylist() == whole.to_pylist()
    assert codec.decode(codec.encode(whole.slice(0, 0))).num_rows == 0
    with pytest.raises(TypeError, match=r"dict; expected a pyarrow.RecordBatch"):
        codec.encode({"n": [1]})


@pytest.mark.rule("ROWS-1.2")
@pytest.mark.parametrize("cut_at", [0, 1, 8, 40, -1, -9])
def test_a_part_of_a_stream_is_refused(cut_at):
    with pytest.raises(DecodeError, match="cannot be decoded by codec 'arrow'"):
        rows.decode(rows.encode(table())[:cut_at])


@pytest.mark.rule("ROWS-1.2")
def test_bytes_after_the_stream_and_wrong_values_are_refused():
    batch = table()
    offsets = pyarrow.py_buffer(b"\0\0\0\0\xff\xff\xff\x7f" + bytes(16))
    broken = pyarrow.StringArray.from_buffers(5, offsets, pyarrow.py_buffer(b"x"))

    with pytest.raises(DecodeError, match="3 bytes follow"):
        rows.decode(rows.encode(batch) + b"end")
    with pytest.raises(DecodeError):
        rows.decode(rows.encode(pyarrow.record_batch({"text": broken})))


@pytest.mark.rule("ROWS-1.3")
def test_a_slice_is_encoded_without_the_rows_around_it():
    long = pyarrow.record_batch({"text": ["x" * 1000] * 1000})

    assert len(rows.encode(long.slice(500, 2))) < 4000


@pytest.mark.rule("ROWS-1.4")
def test_the_request_travels_in_the_metadata():
    assert read_request(received(table(), MARKED, "error")) == ResultRequest(MARKED, "error")
    assert read_request(table()) == ResultRequest()
    with pytest.raises(DecodeError, match="no error column 'other'"):
        read_request(received(table(), MARKED, "other"))
    with pytest.raises(DecodeError, match="cannot be read"):
        read_request(table().replace_schema_metadata({b"wmp.result": b"not a schema"}))


# -- pieces ---------------------------------------------------------------------------------


@pytest.mark.rule("ROWS-2.1", "ROWS-2.2")
@pytest.mark.parametrize("rows_per_job", [1, 3, 7, 1000])
@pytest.mark.parametrize("max_bytes", [1, 60, 500, 1 << 20])
def test_pieces_have_all_rows_once_and_keep_the_limits(rows_per_job, max_bytes):
    texts = [["x" * (i * i % 97) for i in range(count)] for count in (10, 0, 25, 1)]
    batches = [
        pyarrow.record_batch({"text": pyarrow.array(column, pyarrow.string())}) for column in texts
    ]

    pieces = list(cut(batches, rows_per_job, max_bytes))

    assert [v for piece in pieces for v in piece.rows["text"].to_pylist()] == [*chain(*texts)]
    assert [piece.first for piece in pieces] == [
        sum(p.rows.num_rows for p in pieces[:i]) for i in range(len(pieces))
    ]
    assert all(1 <= piece.rows.num_rows <= rows_per_job for piece in pieces)
    assert all(piece.rows.num_rows == 1 or piece.rows.nbytes <= max_bytes for piece in pieces)


@pytest.mark.rule("ROWS-2.4")
def test_keys_repeat_for_the_same_rows_only():
    def key(first=0, role="r", batch=None, **fields):
        payload = rows.encode(table() if batch is None else batch)
        return key_of(
            TablePartition(**{"query": "q", "batch": 1, "partition": 2} | fields),
            first,
            role,
            payload,
        )

    others = [
        key(first=1), key(role="s"), key(batch=table(4)), key(query="p"), key(partition=3),
        key(batch=received(table())), key(query="q" * 100), key(query="q" * 101),
    ]  # fmt: skip

    assert key() == key()
    assert len({key(), *others}) == 9
    assert max(map(len, others)) <= 255


def test_terms_travel_by_pickle_and_name_wrong_values():
    terms = rows.RowTerms(through="tcp://127.0.0.1:5572", role="embed", run_limit=3)

    assert pickle.loads(pickle.dumps(terms)) == terms
    assert terms.through == ("tcp://127.0.0.1:5572",)
    for wrong, text in [
        ({"through": ()}, "through is missing"),
        ({"rows_per_job": 0}, "rows_per_job is 0; expected a whole number of at least 1"),
        ({"in_flight": True}, "in_flight is True"),
        ({"errors": "ignore"}, "errors is 'ignore'; expected 'raise' or 'column'"),
        ({"unserved": 0}, "unserved is 0; expected a number of seconds, more than 0"),
        ({"run_limit": "1"}, "run_limit is '1'; expected a number of seconds"),
        (
            {"max_worker_losses": -1},
            "max_worker_losses is -1; expected a whole number of at least 0",
        ),
    ]:
        with pytest.raises(ConfigError, match=text):
            rows.RowTerms(**{"through": "tcp://127.0.0.1:5572"} | wrong)


# -- handlers -------------------------------------------------------------------------------


@rows.row_handler("batch")
def of_batch(batch):
    return {"size": pyarrow.compute.utf8_length(batch["text"]), "n": batch["n"]}


@rows.row_handler("batch")
def of_batch_as_table(batch, job):
    assert job == "job"
    return pyarrow.table(of_batch.__wrapped__(batch))


@rows.row_handler("pandas")
def of_frame(frame):
    return frame.assign(size=frame.text.str.len())[["size", "n"]]


@rows.row_handler("row")
def of_row(row):
    return size(row)


@rows.row_handler("row")
def of_row_with_job(row, job):
    assert job == "job"
    return [size(row)]


@rows.row_handler("row")
async def of_row_later(row):
    await asyncio.sleep(0)
    return size(row)


@rows.row_handler("batch")
async def of_batch_later(batch):
    await asyncio.sleep(0)
    return of_batch.__wrapped__(batch)


ALL = [
    of_batch, of_batch_as_table, of_frame, of_row, of_row_with_job, of_row_later, of_batch_later,
]  # fmt: skip


def result_of(handler, payload):
    served = serve("r", handler)
    assert served.takes_job
    result = served.call(payload, "job")
    return asyncio.run(result) if served.is_async else result


@pytest.mark.rule("ROWS-3.1", "ROWS-3.2", "ROWS-3.3")
@pytest.mark.parametrize("handler", ALL, ids=lambda handler: handler.__name__)
def test_each_kind_of_handler_returns_the_result_schema(handler):
    if handler is of_frame:
        pytest.importorskip("pandas")

    plain = result_of(handler, received(table()))
    marked = result_of(handler, received(table(), MARKED, "error"))

    assert plain.schema.equals(RESULT)
    assert plain.to_pylist() == [size(row) for row in table().to_pylist()]
    assert marked.schema.equals(MARKED)
    assert marked.to_pylist() == [{**size(row), "error": None} for row in table().to_pylist()]
    assert pickle.loads(pickle.dumps(handler)) is handler


@pytest.mark.rule("ROWS-3.2")
def test_handlers_may_return_no_rows_or_many():
    nothing = rows.row_handler("batch")(lambda batch: None)
    odd = rows.row_handler("row")(lambda row: [size(row)] * 2 if row["n"] % 2 else None)
    free = rows.row_handler("row")(lambda row: {"a": row["n"]})

    assert result_of(nothing, received(table())).equals(
        pyarrow.record_batch([[], []], schema=RESULT)
    )
    assert result_of(odd, received(table())).column("n").to_pylist() == [1, 1, 3, 3]
    assert result_of(free, table()).to_pylist() == [{"a": n} for n in range(5)]


@pytest.mark.rule("ROWS-3.3")
@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"n": [1]}, "the result has the columns n; expected n, size"),
        ({"n": [1], "size": [2], "more": [3]}, "the columns n, size, more; expected n, size"),
        ({"n": [1 << 40], "size": [2]}, "column 'n' of the result does not convert to int32"),
        ({"n": ["x"], "size": [2]}, "column 'n' of the result does not convert to int32"),
        (7, "the handler returned int; expected a record batch"),
        (
            pyarrow.record_batch({"n": [1.5], "size": [2]}),
            "column 'n' of the result has type double",
        ),
    ],
)
def test_a_result_that_is_not_the_result_schema_is_an_error(result, text):
    with pytest.raises((TypeError, ValueError), match=text):
        result_of(rows.row_handler("batch")(lambda batch: result), received(table()))


NO = ZeroDivisionError("no")


def fails_at(bad, error=NO):
    def fails(row):
        if row["n"] in bad:
            raise error
        return size(row)

    return rows.row_handler("row")(fails)


@pytest.mark.rule("ROWS-3.4")
def test_the_error_of_a_row_names_the_row_or_goes_into_the_column():
    with pytest.raises(ZeroDivisionError) as caught:
        result_of(fails_at({3}), received(table()))
    marked = result_of(fails_at({0, 3}), received(table(), MARKED, "error"))

    assert caught.value.__notes__ == ["in row 3 of the 5 rows of the job"]
    text = "ZeroDivisionError: no"
    assert marked.column("error").to_pylist() == [text, None, None, text, None]
    assert marked.column("size").to_pylist() == [None, 3, 5, None, 4]
    assert marked.column("n").to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.rule("ROWS-3.4")
@pytest.mark.parametrize("error", [JobCancelled("x"), RetryLater(1), Reject("x")], ids=type)
def test_a_verdict_ends_the_whole_job(error):
    with pytest.raises(type(error)):
        result_of(fails_at({3}, error), received(table(), MARKED, "error"))


@pytest.mark.rule("ROWS-3.4")
def test_a_value_of_a_row_that_does_not_convert_is_the_error_of_this_row():
    wrong = rows.row_handler("row")(lambda row: {"n": 1, "size": "x" if row["n"] == 2 else 1})

    with pytest.raises(ValueError, match="column 'size' of the result does not convert") as caught:
        result_of(wrong, received(table()))
    marked = result_of(wrong, received(table(), MARKED, "error"))

    assert caught.value.__notes__ == ["in row 2 of the 5 rows of the job"]
    assert [text is None for text in marked.column("error").to_pylist()] == [1, 1, 0, 1, 1]


@pytest.mark.rule("ROWS-3.5")
def test_a_payload_that_is_no_table_is_refused():
    with pytest.raises(TypeError, match="the payload is bytes, and no table; submit record batch"):
        result_of(of_row, b"abc")


def test_a_wrong_kind_of_argument_is_named():
    with pytest.raises(ConfigError, match="takes is 'rows'; expected one of batch, pandas, row"):
        rows.row_handler("rows")


# -- results --------------------------------------------------------------------------------


@pytest.mark.rule("ROWS-4.3")
def test_rows_of_a_failed_piece_keep_the_columns_of_the_input():
    texts = ["why"] * 5

    result = failed_rows(table(), MARKED, "error", texts)
    other = pyarrow.schema([("text", pyarrow.int64()), ("error", pyarrow.string())])

    assert result.schema.equals(MARKED)
    assert result.to_pylist() == [{"n": n, "size": None, "error": "why"} for n in range(5)]
    assert failed_rows(table(), other, "error", texts).column("text").null_count == 5


@pytest.mark.rule("ROWS-4.4")
def test_results_are_fitted_to_the_result_schema():
    swapped = pyarrow.record_batch({"size": [3], "n": [1]})

    assert fit(swapped, RESULT).schema.equals(RESULT)
    with pytest.raises(ValueError, match="the result has the columns n, text; expected n, size"):
        fit(table(), RESULT)
