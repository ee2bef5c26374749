"""Reads the heads of the messages of an Arrow stream, before Arrow allocates anything for them.

pyarrow does not show whether a message is compressed, or how long its columns are. Its heads are
flatbuffers (``Message.fbs`` of Apache Arrow), of which these few tables matter:

- ``Message``: version, type of the header, header, length of the body;
- ``RecordBatch``: rows, nodes, buffers, compression;
- ``DictionaryBatch``: number, data (a ``RecordBatch``), whether it continues another one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow

from wmp.rows.limits import limits

_DICTIONARY: Final = 2
_BATCH: Final = 3
"""Types of headers."""

_PAIR: Final = 16
"""Bytes of a node (length, nulls) and of a buffer (offset, length)."""


def check_stream(payload: bytes) -> None:
    """Check the compression and the number of values of a stream.

    Args:
        payload: The stream.

    Raises:
        ValueError: The stream is compressed without leave, or stands for too much; or a head is
            malformed.
        pyarrow.ArrowException: The bytes are no messages.
    """
    cells, unpacked, allowed = 0, 0, limits()
    size = len(payload)
    for head, body in _messages(payload):
        batch = _record_batch(head)
        if batch is None:
            continue
        cells += sum(length for length, _ in batch.pairs(1))
        if not batch.has(3):
            continue
        if not allowed.compression:
            raise ValueError(
                "it is compressed; write it without compression, or allow compression with "
                "wmp.rows.set_limits"
            )
        unpacked += sum(_unpacked(body, offset, length) for offset, length in batch.pairs(2))
        if unpacked > allowed.max_bytes:
            raise ValueError(
                f"it has {unpacked} bytes without compression; expected {allowed.max_bytes} at "
                "most, which wmp.rows.set_limits changes"
            )
    maximum = 8 * max(size, unpacked) + allowed.free_cells
    if cells > maximum:
        raise ValueError(
            f"its {size} bytes stand for {cells} values; expected {maximum} at most, which "
            "wmp.rows.set_limits changes"
        )


def _messages(payload: bytes) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield head and body of each message."""
    reader = pyarrow.ipc.MessageReader.open_stream(pyarrow.BufferReader(payload))
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        body = message.body
        yield memoryview(message.metadata), memoryview(b"" if body is None else body)


def _record_batch(head: memoryview) -> _HeadTable | None:
    """Return the record batch of a message; None for another message."""
    message = _HeadTable(head, _read("<I", head, 0))
    kind, header = message.number(1, "<B"), message.table(2)
    if header is None:
        return None
    if kind == _DICTIONARY:
        return header.table(1)
    return header if kind == _BATCH else None


def _unpacked(body: memoryview, offset: int, length: int) -> int:
    """Return the size of a compressed buffer: its first eight bytes, -1 if it is not compressed."""
    if not length:
        return 0
    size: int = _read("<q", body, offset)
    if size < -1:
        raise ValueError(f"a compressed buffer claims {size} bytes")
    return max(0, length - 8) if size == -1 else size


class _HeadTable:
    """A table of a flatbuffer."""

    def __init__(self, head: memoryview, at: int) -> None:
        self._head = head
        self._at = at
        self._fields = at - _read("<i", head, at)
        """Where the offsets of the fields begin."""

    def has(self, number: int) -> bool:
        """Return whether a field is there."""
        return bool(self._field(number))

    def number(self, number: int, form: str) -> int:
        """Return a number; 0 if the field is missing."""
        offset = self._field(number)
        return _read(form, self._head, offset) if offset else 0

    def table(self, number: int) -> _HeadTable | None:
        """Return a table; None if the field is missing."""
        offset = self._field(number)
        return _HeadTable(self._head, offset + _read("<I", self._head, offset)) if offset else None

    def pairs(self, number: int) -> list[tuple[int, int]]:
        """Return a vector of pairs of whole numbers.

        Raises:
            ValueError: A number is negative, or the vector exceeds the head.
        """
        offset = self._field(number)
        if not offset:
            return []
        begin = offset + _read("<I", self._head, offset)
        count = _read("<I", self._head, begin)
        values = self._head[begin + 4 : begin + 4 + count * _PAIR]
        if len(values) != count * _PAIR:
            raise ValueError("a vector exceeds the head of its message")
        pairs = list(struct.iter_unpack("<qq", values))
        if any(first < 0 or second < 0 for first, second in pairs):
            raise ValueError("the head of a message has a negative number")
        return pairs

    def _field(self, number: int) -> int:
        """Return where a field is; 0 for a missing one."""
        size = _read("<H", self._head, self._fields)
        entry = 4 + 2 * number
        offset = _read("<H", self._head, self._fields + entry) if entry + 2 <= size else 0
        return self._at + offset if offset else 0


def _read(form: str, head: memoryview, offset: int) -> int:
    """Return a number.

    Raises:
        ValueError: It is outside of the bytes.
    """
    if not 0 <= offset <= len(head) - struct.calcsize(form):
        raise ValueError("the head of a message is malformed")
    value: int
    (value,) = struct.unpack_from(form, head, offset)
    return value
