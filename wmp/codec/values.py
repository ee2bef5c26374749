"""Payloads of applications: values of the codec ``cbor``, and errors."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any, Final

import cbor2

from wmp.codec.cbor import InvalidPart, check_plain, kind_of
from wmp.codec.collisions import SAFE_BYTES, check_keys
from wmp.codec.decoding import load
from wmp.errors import DecodeError
from wmp.message import Frame

_VALUE_DEPTH: Final = 100
"""Limit of the nesting of a value, far below the depth that would exhaust a C stack."""


def pack_value(value: Any) -> bytes:
    """Encode an application's value for the codec ``cbor``.

    Args:
        value: None, bool, int (64 bits), float, str, bytes, and lists, tuples and dicts of these,
            nested at most 100 deep. A value of a subclass is refused, except numpy.float64.
            The keys of a dict are int, str or bytes.

    Raises:
        TypeError: The value has another type, or contains a value of another type.
    """
    try:
        check_plain(value, _VALUE_DEPTH, -(2**64), 2**64 - 1)
        return cbor2.dumps(value)
    except (ValueError, cbor2.CBOREncodeError) as error:
        raise TypeError(
            f"the value has {error}, which the codec 'cbor' cannot encode; convert it to "
            "numbers, text, bytes, lists and dicts, or encode it to bytes yourself"
        ) from error


def unpack_value(frame: Frame) -> Any:
    """Decode a payload of the codec ``cbor``. Tags are refused, and no code is run (WMP-12.3).

    Raises:
        DecodeError: The payload is not such a value.
    """
    stream = BytesIO(frame)
    try:
        value = _load(stream, frame)
        if stream.read(1):
            raise InvalidPart("bytes follow the value")
        check_plain(value, _VALUE_DEPTH, -(2**64), 2**64 - 1)
    except ValueError as error:
        raise DecodeError(
            f"a payload of {len(frame)} bytes cannot be decoded by codec 'cbor': {error}"
        ) from error
    return value


def _load(stream: BytesIO, frame: Frame) -> Any:
    if len(frame) <= SAFE_BYTES:
        return load(stream, _VALUE_DEPTH)
    try:
        return load(stream, _VALUE_DEPTH, safe_keys=True)
    except InvalidPart:
        check_keys(frame)  # VALUE-1.6
        stream.seek(0)
        return load(stream, _VALUE_DEPTH)


def pack_frames(frames: Iterable[Frame]) -> bytes:
    """Encode a list of frames for the codec ``frames``: a CBOR array of byte strings."""
    return cbor2.dumps([bytes(frame) for frame in frames])


def unpack_frames(payload: Frame) -> tuple[bytes, ...]:
    """Decode a payload of the codec ``frames``.

    Raises:
        DecodeError: The payload is not an array of one byte string or more.
    """
    value = unpack_value(payload)
    if type(value) is not list or not value or set(map(type, value)) != {bytes}:
        raise DecodeError(
            f"a payload of {len(payload)} bytes cannot be decoded by codec 'frames': it is of "
            f"type {kind_of(value)}; expected an array of one byte string or more"
        )
    return tuple(value)


def unpack_error(frame: Frame) -> tuple[str, str, str]:
    """Decode the payload of outcome ``error``: (type, text, traceback).

    For a malformed payload the triple reports the defect, because the job has failed in any case.
    """
    try:
        value = unpack_value(frame)
    except DecodeError as error:
        return "UnreadableError", f"the worker's error cannot be decoded: {error}", ""
    if type(value) is list and len(value) == 3 and set(map(type, value)) == {str}:
        return value[0], value[1], value[2]
    return (
        "UnreadableError",
        f"the worker's error is of type {kind_of(value)}; expected an array of three texts",
        "",
    )
