"""The data of a STREAM command of round robin: header and blocks in one frame (RR-6.7)."""

from __future__ import annotations

import struct
from typing import Final

from wmp.errors import DecodeError

MAX_STREAM: Final = 1 << 20
"""Maximum number of bytes of a stream."""

_HANDLE: Final = bytes(8)
_HEAD: Final = 1 + 1 + 1 + len(_HANDLE)
_BLOCK: Final = struct.Struct("<ii")
_BLOCK_SIZE: Final = 256


def pack_stream(size: int, handle: bytes = _HANDLE) -> bytes:
    """Return the data of a finished stream of ``size`` bytes.

    Raises:
        ValueError: The size is below 1 or too large.
    """
    if not 1 <= size <= MAX_STREAM:
        raise ValueError(f"the stream has {size} bytes; expected 1 to {MAX_STREAM}")
    parts = [b"2R\x08", handle]
    for offset in range(0, size, _BLOCK_SIZE):
        length = min(_BLOCK_SIZE, size - offset)
        parts += (_BLOCK.pack(offset, length), b"\x01" * length)
    return b"".join(parts)


def unpack_stream(data: bytes) -> int:
    """Check the data of a stream; return the number of its bytes.

    Raises:
        DecodeError: The data is not a finished stream of raw bytes.
    """
    if len(data) < _HEAD or data[1:3] != b"R\x08" or data[:1] not in (b"0", b"2"):
        raise DecodeError(f"a stream of {len(data)} bytes has no head; expected 2R and a handle")
    at, size = _HEAD, 0
    while at < len(data):
        if at + _BLOCK.size > len(data):
            raise DecodeError(f"a stream of {len(data)} bytes ends within the head of a block")
        _, length = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        block = data[at : at + length] if length > 0 else b""
        if not block or len(block) != length or block.strip(b"\x01"):
            raise DecodeError(
                f"a stream of {len(data)} bytes has a block of length {length} with other content; "
                "expected so many bytes 1"
            )
        at += length
        size += length
    return size
