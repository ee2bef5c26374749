"""The codec ``arrow``: a record batch as one stream of Arrow IPC (ROWS-1)."""

from __future__ import annotations

from typing import Any, Final

import pyarrow
from attrs import frozen

from wmp.errors import DecodeError
from wmp.rows.limits import check_cast, check_written_out
from wmp.rows.stream_check import check_stream
from wmp.runtime.codecs.payload_codecs import register_codec

CODEC: Final = "arrow"
"""The name of the codec on the wire."""

_RESULT: Final = b"wmp.result"
_ERROR: Final = b"wmp.error"


def encode(value: Any) -> bytes:
    """Return the stream of a record batch or a table. Bytes are a stream already.

    Raises:
        TypeError: The value is neither.
    """
    if isinstance(value, bytes):
        return value
    if not isinstance(value, pyarrow.RecordBatch | pyarrow.Table):
        raise TypeError(f"{type(value).__name__}; expected a pyarrow.RecordBatch or pyarrow.Table")
    sink = pyarrow.BufferOutputStream()
    # ROWS-1.3: the writer leaves out the rows outside of a slice.
    with pyarrow.ipc.new_stream(sink, value.schema) as writer:
        writer.write(value)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def decode(payload: bytes) -> pyarrow.RecordBatch:
    """Return the record batch of a stream; several batches are joined.

    Raises:
        DecodeError: The bytes are not one whole stream of sound values, or stand for too much
            (ROWS-1.5 to ROWS-1.7).
    """
    try:
        check_stream(payload)
        source = pyarrow.BufferReader(payload)
        with pyarrow.ipc.open_stream(source) as reader:
            batches = list(reader)
            schema = reader.schema
        if rest := source.read():
            raise ValueError(f"{len(rest)} bytes follow the end of the stream")
        for batch in batches:
            # ROWS-1.2: wrong offsets would make later code read outside of the buffers.
            batch.validate(full=True)
        check_written_out(batches, len(payload))
        if len(batches) == 1:
            return batches[0]
        if not batches:
            return pyarrow.RecordBatch.from_pylist([], schema=schema)
        return pyarrow.concat_batches(batches)
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise DecodeError(
            f"a payload of {len(payload)} bytes cannot be decoded by codec 'arrow': {error}"
        ) from error


@frozen
class ResultRequest:
    """A submitter's wishes for the result of a piece (ROWS-1.4)."""

    schema: pyarrow.Schema | None = None
    """The result schema, with the error column; None for any result."""
    error: str | None = None
    """The name of the error column."""


def with_request(batch: pyarrow.RecordBatch, request: ResultRequest) -> pyarrow.RecordBatch:
    """Return the batch with a request in its metadata."""
    metadata = dict(batch.schema.metadata or {})
    if request.schema is not None:
        metadata[_RESULT] = request.schema.serialize().to_pybytes()
    if request.error is not None:
        metadata[_ERROR] = request.error.encode()
    return batch.replace_schema_metadata(metadata)


def read_request(batch: pyarrow.RecordBatch) -> ResultRequest:
    """Return the request in the metadata of a payload.

    Raises:
        DecodeError: The result schema is malformed, lacks the error column, or would make too many
            bytes of the rows.
    """
    metadata = batch.schema.metadata or {}
    packed, name = metadata.get(_RESULT), metadata.get(_ERROR)
    try:
        schema = None if packed is None else pyarrow.ipc.read_schema(pyarrow.py_buffer(packed))
        error = None if name is None else name.decode()
        if schema is not None:
            check_cast(batch.num_rows, schema)
    except (pyarrow.ArrowException, ValueError, OSError) as wrong:
        raise DecodeError(f"the result schema of a payload cannot be read: {wrong}") from wrong
    if error is not None and (schema is None or error not in schema.names):
        raise DecodeError(f"the result schema of a payload has no error column {error!r}")
    return ResultRequest(schema, error)


register_codec(CODEC, encode, decode)
