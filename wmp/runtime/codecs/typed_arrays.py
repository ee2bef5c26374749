"""Arrays of numpy as typed arrays of CBOR (RFC 8746): the bytes of an array are never read in
Python.

An array that is the whole payload is decoded without a copy: it shares the memory of the payload,
and is read-only. If it is sent on, it needs no copy either.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, Final

from wmp.errors import DecodeError
from wmp.message import Frame, Limits
from wmp.runtime.codecs.payload_memory import MIN, payload_memory

DTYPES: Final = {
    64: "u1",
    65: ">u2",
    66: ">u4",
    67: ">u8",
    68: "u1",
    69: "<u2",
    70: "<u4",
    71: "<u8",
    72: "i1",
    73: ">i2",
    74: ">i4",
    75: ">i8",
    77: "<i2",
    78: "<i4",
    79: "<i8",
    80: ">f2",
    81: ">f4",
    82: ">f8",
    84: "<f2",
    85: "<f4",
    86: "<f8",
}
"""The type of the items for each tag, as numpy names it. Floats of 128 bits are not supported."""

DIMENSIONS: Final = 40
"""Tag of an array of any number of dimensions, the last dimension first in memory order."""

_TAGS: Final = {name: tag for tag, name in reversed(DTYPES.items())}

_MAX_DIMENSIONS: Final = 32

_ALIGNED: Final = 8
"""Bytes of the largest items."""


def is_array(value: object) -> bool:
    """Return whether a value is an array of numpy whose items are all that it is.

    A masked array or a matrix is not: its mask or its product would be lost (VALUE-1.5). numpy is
    not imported for this.
    """
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) in (numpy.ndarray, numpy.memmap)


def is_scalar(value: Any) -> bool:
    """Return whether a scalar of numpy is kept by a boolean, a number, text or bytes of Python."""
    if not isinstance(value, sys.modules["numpy"].generic):
        return False
    kind = value.dtype.kind
    return kind in ("b", "i", "u", "S", "U") or (kind == "f" and value.dtype.itemsize <= 8)


def tag_of(array: Any) -> int:
    """Return the tag for the items of an array.

    Raises:
        TypeError: There is no tag for them.
    """
    kind = array.dtype.str
    tag = _TAGS.get(kind.replace("|", ""))
    if tag is None:
        raise TypeError(
            f"an ndarray of {array.dtype}, which has no typed array in CBOR; convert it to whole "
            "numbers or floats of at most 64 bits"
        )
    return tag


def pack_array(array: Any) -> Frame:
    """Encode an array. An array that arrived as a whole payload is sent on without a copy.

    Raises:
        TypeError: There is no tag for the items.
    """
    head = _head(tag_of(array), array.shape, array.nbytes)
    if not array.flags.writeable:
        payload = _arrived(array, head)
        if payload is not None:
            return payload
    numpy = sys.modules["numpy"]
    if not array.size:
        return head
    items = numpy.ascontiguousarray(array).reshape(-1).view("u1")
    if array.nbytes < MIN:
        return b"".join((head, memoryview(items)))
    whole = payload_memory(len(head) + array.nbytes)
    whole[: len(head)] = numpy.frombuffer(head, "u1")
    whole[len(head) :] = items
    return memoryview(whole).toreadonly()


def _arrived(array: Any, head: bytes) -> Frame | None:
    """Return the payload of which this array is a view, if the payload is also its encoding.

    Such an array is made by :func:`unpack_array`. It cannot be changed, and its items stand behind
    the head already.
    """
    numpy = sys.modules["numpy"]
    base = array.base.base if isinstance(array.base, numpy.ndarray) else array.base
    whole: Any = base.obj if isinstance(base, memoryview) else None
    zmq = sys.modules.get("zmq")
    received = type(whole) is bytes or (zmq is not None and isinstance(whole, zmq.Frame))
    if not received or not array.flags.c_contiguous:
        return None
    payload = whole if type(whole) is bytes else memoryview(whole)
    size = len(head)
    if len(payload) != size + array.nbytes or payload[:size] != head:
        return None
    items = numpy.frombuffer(payload, "u1", offset=size)
    here, there = (view.__array_interface__["data"][0] for view in (array, items))
    return payload if here == there else None


@lru_cache(maxsize=256)
def _head(tag: int, shape: tuple[int, ...], size: int) -> bytes:
    """Return the bytes before the items of an array.

    The head of a large array is as long as is needed for items at a multiple of eight bytes
    (VALUE-3.6). Calculations with items at other places take up to twice as long.
    """
    if len(shape) == 1:
        before = [b""]
    else:
        sizes = b"".join(_number(0, length) for length in shape)
        rest = b"".join((b"\x82", _number(4, len(shape)), sizes))
        before = [lead + rest for lead in _longer(6, DIMENSIONS)]
    heads = map(b"".join, product(before, _longer(6, tag), _longer(2, size)))
    shortest = next(heads)
    if size <= Limits.INLINE or len(shortest) % _ALIGNED == 0:
        return shortest
    return next((head for head in heads if len(head) % _ALIGNED == 0), shortest)


def _longer(major: int, value: int) -> list[bytes]:
    """Return the encodings of a number, the shortest first."""
    shortest = _number(major, value)
    powers = [power for power in range(4) if 1 + (1 << power) > len(shortest)]
    return [shortest, *(_wide(major, value, power) for power in powers)]


def _number(major: int, value: int) -> bytes:
    """Encode the first bytes of an item: its major type and a number."""
    if value < 24:
        return bytes(((major << 5) | value,))
    power = next(power for power in range(4) if value < 1 << (8 << power))
    return _wide(major, value, power)


def _wide(major: int, value: int, power: int) -> bytes:
    return bytes(((major << 5) | (24 + power),)) + value.to_bytes(1 << power, "big")


def make_array(tag: int, data: object) -> Any:
    """Return the array of one dimension with the items of a byte string; it is read-only.

    Raises:
        DecodeError: The bytes are not a whole number of items, or numpy is not installed.
    """
    if not isinstance(data, bytes | memoryview):
        raise DecodeError(f"tag {tag} has no byte string; expected the items of an array")
    try:
        numpy: Any = importlib.import_module("numpy")
    except ImportError as error:
        raise DecodeError(
            f"the value has an array (tag {tag}), which needs numpy; run pip install numpy"
        ) from error
    dtype = numpy.dtype(DTYPES[tag])
    if len(data) % dtype.itemsize:
        raise DecodeError(
            f"tag {tag} has {len(data)} bytes; expected items of {dtype.itemsize} bytes"
        )
    return numpy.frombuffer(data, dtype)


def shaped(array: Any, sizes: Sequence[object]) -> Any:
    """Return the array with these sizes of its dimensions.

    Raises:
        DecodeError: The sizes do not fit the number of items.
    """
    fit = [size for size in sizes if type(size) is int and size >= 0]
    if len(fit) < len(sizes) or len(fit) > _MAX_DIMENSIONS or prod(fit) != array.size:
        raise DecodeError(
            f"an array of {array.size} items has the dimensions {list(sizes)[:8]}; expected "
            f"at most {_MAX_DIMENSIONS} sizes with this product"
        )
    return array.reshape(fit)


def unpack_array(frame: Frame) -> Any:
    """Return the array that a whole payload is, without a copy; None for another payload."""
    view = memoryview(frame)
    tag = _read(view, 0, 6)
    sizes: list[int] | None = None
    if tag is not None and tag[0] == DIMENSIONS:
        pair = _read(view, tag[1], 4)
        head = _read(view, pair[1], 4) if pair is not None and pair[0] == 2 else None
        if head is None or head[0] > _MAX_DIMENSIONS:
            return None
        count, index = head
        sizes = []
        for _ in range(count):
            size = _read(view, index, 0)
            if size is None:
                return None
            sizes.append(size[0])
            index = size[1]
        tag = _read(view, index, 6)
    if tag is None or tag[0] not in DTYPES:
        return None
    body = _read(view, tag[1], 2)
    if body is None or body[0] != len(view) - body[1]:
        return None
    array = make_array(tag[0], view[body[1] :].toreadonly())
    return array if sizes is None else shaped(array, sizes)


def _read(view: memoryview, index: int, major: int) -> tuple[int, int] | None:
    """Return the number of an item of this major type, and the index behind its first bytes."""
    if index >= len(view) or view[index] >> 5 != major:
        return None
    short = view[index] & 31
    if short < 24:
        return short, index + 1
    size = {24: 1, 25: 2, 26: 4, 27: 8}.get(short)
    if size is None or index + 1 + size > len(view):
        return None
    return int.from_bytes(view[index + 1 : index + 1 + size], "big"), index + 1 + size
