"""Messages to frames, in the core deterministic encoding of RFC 8949 section 4.2.1."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import cbor2

from wmp.codec.cbor import UINT_MAX, base_type
from wmp.codec.message_tables import PREFIXES
from wmp.errors import LocalProtocolError
from wmp.message import Columns, Frame, Limits, Message, Path, counted

_COMMAND_BYTES: Final = {command: prefix for prefix, command in PREFIXES.items()}


def encode(message: Message) -> list[Frame]:
    """Return the frames of a message in core deterministic CBOR; large payloads are not copied.

    Payloads above INLINE bytes are large.

    Args:
        message: A message with ``columns``, or with ``frames`` that a device passes on unchanged.

    Raises:
        LocalProtocolError: The content cannot be in a message, which is a defect of the caller.
    """
    columns = message.columns
    try:
        head = b"".join(
            (
                _COMMAND_BYTES[message.command],
                _path(message.to),
                _path(message.source),
                _fields(message.fields),
            )
        )
        if columns is None:
            return [head, *message.frames]
        frames: list[Frame] = [head, b""]
        frames[1] = _encode_columns(columns, frames)
    except (
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        BufferError,
        struct.error,
    ) as error:
        raise LocalProtocolError(
            f"{message.command!r} cannot be encoded: {error}; fields and columns have only the "
            "keys and types of the specification's tables"
        ) from error
    return frames


_BYTES: Final = [bytes((number,)) for number in range(256)]


def _initial(major: int, number: int) -> bytes:
    """Return the shortest initial bytes of an item (RFC 8949 section 4.2.1)."""
    if number < 24:
        return _BYTES[major | number]
    if number < 0x100:
        return bytes((major | 24, number))
    if number < 0x10000:
        return struct.pack(">BH", major | 25, number)
    if number < 0x100000000:
        return struct.pack(">BI", major | 26, number)
    return struct.pack(">BQ", major | 27, number)


_SMALL: Final = [_initial(0, number) for number in range(256)]
_pack_2: Final = struct.Struct(">BH").pack
_pack_4: Final = struct.Struct(">BI").pack
_pack_8: Final = struct.Struct(">Bq").pack


def _int(number: int) -> bytes:
    if 0 <= number < 256:
        return _SMALL[number]
    if number < 0:
        if number < -UINT_MAX - 1:
            raise ValueError(f"an integer is {number}; expected -2**63 or more (WMP-2.2)")
        return _initial(0x20, -1 - number)
    if number < 0x10000:
        return _pack_2(0x19, number)
    if number < 0x100000000:
        return _pack_4(0x1A, number)
    return _pack_8(0x1B, number)  # this packing refuses numbers above 2**63 - 1 (WMP-2.2)


class _InlineInitials(dict[int, bytes]):
    """Initial bytes of a byte string by its length; used only up to INLINE."""

    def __missing__(self, length: int) -> bytes:
        self[length] = initial = _initial(0x40, length)
        return initial


_INLINE_INITIALS: Final = _InlineInitials()


def _bytes(value: bytes) -> bytes:
    return _initial(0x40, len(value)) + value


@lru_cache(maxsize=2048)
def _text(value: str) -> bytes:
    # There are few roles, resources and labels, and they repeat.
    data = value.encode()
    return _initial(0x60, len(data)) + data


@lru_cache(maxsize=1024)
def _path(path: Path) -> bytes:
    # A node has few paths, and they repeat. Only checked paths are cached, because a cache would
    # take True for 1, and CBOR distinguishes the two.
    parts = [_initial(0x80, len(path))]
    for item in path:
        if type(item) is bytes:
            parts.append(_bytes(item))
        elif type(item) is int and item >= 0:
            parts.append(_int(item))
        else:
            raise TypeError(f"a path has the item {item!r}; expected bytes or an unsigned integer")
    return b"".join(parts)


def _fields(fields: Mapping[int | str, Any]) -> bytes:
    if set(map(type, fields)) == {int}:
        lead, keys = _layout(tuple(fields))
    else:
        lead, keys = _sorted(fields)
    parts = [lead]
    encoders = _ENCODERS
    for key, encoded in keys:
        value = fields[key]
        parts += encoded, encoders.get(type(value), _item)(value)
    return b"".join(parts)


_Layout = tuple[bytes, list[tuple[Any, bytes]]]
"""The first bytes of the fields; and their keys in order, each with its encoding."""


@lru_cache(maxsize=256)
def _layout(keys: tuple[int, ...]) -> _Layout:
    # Messages of one command have few different sets of keys. Only integer keys with a checked type
    # are cached, because a cache would take True for 1, and CBOR distinguishes the two.
    return _sorted(keys)


def _sorted(keys: Iterable[int | str]) -> _Layout:
    """Return keys in bytewise order (RFC 8949 section 4.2.1)."""
    encoded = sorted([(_item(key), key) for key in keys], key=itemgetter(0))
    return _initial(0xA0, len(encoded)), [(key, item) for item, key in encoded]


def _sequence(values: Sequence[Any]) -> bytes:
    return _initial(0x80, len(values)) + b"".join([_item(value) for value in values])


def _tuple(values: tuple[Any, ...]) -> bytes:
    # Most messages name the same owner of jobs, so this path is cached.
    if len(values) == 2 and type(values[0]) is bytes and type(values[1]) is int and values[1] >= 0:
        return _path(values)
    return _sequence(values)


def _mapping(values: Mapping[Any, Any]) -> bytes:
    if len(values) == 1:
        [(key, value)] = values.items()
        return b"\xa1" + _item(key) + _item(value)
    pairs = sorted([(_item(key), _item(value)) for key, value in values.items()])
    return _initial(0xA0, len(pairs)) + b"".join([part for pair in pairs for part in pair])


def _float(value: float) -> bytes:
    return cbor2.dumps(value, canonical=True)


_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    int: _int,
    str: _text,
    bytes: _bytes,
    bool: lambda value: b"\xf5" if value else b"\xf4",
    type(None): lambda _: b"\xf6",
    list: _sequence,
    tuple: _tuple,
    dict: _mapping,
    float: _float,
}


def _item(value: Any) -> bytes:
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        # A value of a subclass (an IntEnum, for example) is encoded as a value of its base type.
        known = base_type(type(value), _ENCODERS)
        if known is None:
            raise TypeError(f"a value of type {type(value).__name__} cannot be encoded")
        encoder = _ENCODERS[known]
    return encoder(value)


def _encode_columns(columns: Columns, frames: list[Frame]) -> bytes:
    """Return the columns frame; append large payloads to ``frames``."""
    count = len(columns.ids)
    if not 1 <= count <= Limits.JOBS:
        raise ValueError(f"a message has {count} jobs; expected 1 to {Limits.JOBS}")
    attempts = _column(columns.attempts, count, _uints)
    parts: list[Any] = [b"", b"\x01", _uints(columns.ids), b"\x02", attempts]
    number = 2
    if columns.left_ms is not None:
        number += 1
        parts += b"\x03", _column(columns.left_ms, count, _sequence)
    if columns.outcomes is not None:
        number += 1
        parts += b"\x04", _column(columns.outcomes, count, _uints)
    if columns.payloads is not None:
        number += 1
        parts += b"\x05", _initial(0x80, count)
        payloads = columns.payloads
        plain = len(payloads) == count and set(map(type, payloads)) == {bytes}
        lengths = list(map(len, payloads)) if plain else []
        if lengths and max(lengths) <= Limits.INLINE:  # in almost all messages
            items: list[Any] = [b""] * (2 * count)
            items[::2] = map(_INLINE_INITIALS.__getitem__, lengths)
            items[1::2] = payloads
            parts += items
        else:
            _add_payloads(payloads, count, parts, frames)
    if columns.fractions is not None:
        number += 1
        parts += b"\x06", _column(columns.fractions, count, _sequence, floats=True)
    if columns.texts is not None:
        number += 1
        parts += b"\x07", _column(columns.texts, count, _sequence)
    for key, values in (
        (b"\x08", columns.expires_ms),
        (b"\x09", columns.limits_ms),
        (b"\x0a", columns.failed),
        (b"\x0b", columns.waits_ms),
        (b"\x0c", columns.checksums),
        (b"\x0d", columns.begun),
    ):
        if values is not None:
            number += 1
            parts += key, _column(values, count, _sequence)
    parts[0] = _initial(0xA0, number)
    return b"".join(parts)


def _column(
    values: Sequence[Any],
    count: int,
    encoder: Callable[[Sequence[Any]], bytes],
    floats: bool = False,
) -> bytes:
    """Encode one value if all values are equal (WMP-2.8), else an array of ``count`` values."""
    if len(values) != count:
        raise ValueError(
            f"a column has {counted(len(values), 'entry', 'entries')}; expected {count}, one for "
            "each id"
        )
    first = values[0]
    if floats:
        # The repr of -0.0 and 0.0 differs, and the repr of all NaNs is equal.
        equal = len(set(map(repr, values))) == 1
    else:
        equal = values.count(first) == count
    return encoder([first])[1:] if equal else encoder(values)


_WIDTHS: Final = (
    (0x100000000, 0x1B, "Bq"),
    (0x10000, 0x1A, "BI"),
    (0x100, 0x19, "BH"),
    (24, 0x18, "BB"),
)
"""Lowest integer, initial byte and struct codes of each width above one byte."""


def _uints(values: Sequence[int]) -> bytes:
    """Encode an array of unsigned integers; most arrays have integers of one width."""
    count = len(values)
    start = _initial(0x80, count)
    if count == 1 and values[0] >= 0:
        return start + _int(values[0])
    lowest = min(values)
    if lowest < 0:
        raise ValueError(f"a column has the entry {lowest}; expected unsigned integers")
    if count > 3:
        for above, lead, codes in _WIDTHS:
            if lowest >= above:
                pairs = [lead] * (2 * count)
                pairs[1::2] = values
                try:
                    return start + struct.pack(">" + codes * count, *pairs)
                except struct.error:
                    break  # this integer has another width
    return start + b"".join(map(_int, values))


def _add_payloads(
    payloads: Sequence[Frame], count: int, parts: list[Any], frames: list[Frame]
) -> None:
    """Add payloads of which some are large or no ``bytes``; large ones go to ``frames``."""
    if len(payloads) != count:
        raise ValueError(
            f"the message has {counted(len(payloads), 'payload')}; expected {count}, one for each "
            "id"
        )
    for payload in map(_flat, payloads):
        if len(payload) > Limits.INLINE:
            parts.append(b"\xf6")
            frames.append(payload)
        else:
            parts += _INLINE_INITIALS[len(payload)], payload


def _flat(payload: Frame) -> Frame:
    """Return a view with items of one byte; an application's view may have wider items."""
    if type(payload) is bytes:
        return payload
    view = memoryview(payload)
    return view.cast("B") if view.c_contiguous else view.tobytes()
