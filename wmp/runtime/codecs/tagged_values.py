"""The codec ``cbor-tags``: plain values, and the values of registered tags of CBOR (VALUE-3.1).

A value is turned into plain values and tags first, and cbor2 encodes these. cbor2 decodes too, and
calls a function of this module for each tag. All other tags are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from io import BytesIO
from typing import Any, Final, NoReturn
from uuid import UUID

import cbor2

from wmp.codec.cbor import describe_type, sent_base
from wmp.codec.collisions import SAFE_BYTES, check_keys, check_members
from wmp.errors import DecodeError
from wmp.message import Frame
from wmp.runtime.codecs.annotations import fields_of
from wmp.runtime.codecs.typed_arrays import (
    DIMENSIONS,
    DTYPES,
    is_array,
    is_scalar,
    make_array,
    pack_array,
    shaped,
    tag_of,
    unpack_array,
)

_DEPTH: Final = 100
"""Limit of the nesting of a value (VALUE-2.4)."""

_LEVELS: Final = 3
"""Levels of CBOR of one level of a tuple: the tag, the array with the name, the items."""

_BIG: Final = 1024
"""Bytes of the largest whole number (VALUE-3.4)."""

_EXPONENT: Final = 1_000_000
"""Maximum exponent of a Decimal (VALUE-3.4)."""

_SCALARS: Final[frozenset[type]] = frozenset(
    {bytes, bytearray, memoryview, str, float, bool, type(None)}
)
_PLAIN: Final = _SCALARS - {memoryview}
_SMALL: Final[frozenset[type]] = _SCALARS | {int}
_KEYS: Final = frozenset({int, str, bytes})
_ONLY_TEXT: Final[frozenset[type]] = frozenset({str})
_MAX_INT: Final = 2**63

_REMEDY: Final = (
    "use None, booleans, numbers, text, bytes, dates, times, UUID, Decimal, Fraction, arrays, data "
    "classes, and tuples, lists, sets and dicts of them"
)


def pack_tagged(value: Any) -> Frame:
    """Encode a value.

    Raises:
        TypeError: The codec cannot encode the value or a part of it.
    """
    if is_array(value) and value.dtype.kind != "b":
        try:
            return pack_array(value)
        except TypeError as error:
            raise _refusal(error) from error
    try:
        return cbor2.dumps(_lower(value, _DEPTH))
    except (TypeError, ValueError, OverflowError, cbor2.CBOREncodeError) as error:
        raise _refusal(error) from error


def _refusal(error: Exception) -> TypeError:
    return TypeError(f"the value has {error}, which the codec 'cbor-tags' cannot encode; {_REMEDY}")


def _lower(value: Any, depth: int) -> Any:
    """Return plain values and tags for a value."""
    kind = type(value)
    if kind in _SCALARS:
        return bytes(value) if kind is memoryview else value
    if kind is int:
        return _whole(value)
    if depth <= 0:
        raise TypeError(f"more than {_DEPTH} levels")
    if kind is list:
        kinds = set(map(type, value))
        if kinds <= _PLAIN or (kinds == {int} and -_MAX_INT <= min(value) <= max(value) < _MAX_INT):
            return value  # rows of numbers and texts need no Python call for each item
        return [_lower(item, depth - 1) for item in value]
    if kind is dict:
        if set(map(type, value)) - _ONLY_TEXT:
            _check_keys(value)
        return {key: _lower(item, depth - 1) for key, item in value.items()}
    lower = _LOWER.get(kind)
    if lower is not None:
        return lower(value, depth - 1)
    if issubclass(kind, Enum):
        return _lower(value.value, depth - 1)
    if is_array(value):
        return _array(value)
    if kind.__module__ == "numpy" and is_scalar(value):
        return value.item()
    # A data class that derives from a dict, for example, would lose the items of the dict.
    names = fields_of(kind) if sent_base(kind) is None else None
    if names is None:
        raise TypeError(f"a {describe_type(kind)}")
    return {name: _lower(getattr(value, name), depth - 1) for name in names}


def _whole(value: int) -> int:
    if not -_MAX_INT <= value < _MAX_INT and value.bit_length() > 8 * _BIG:
        raise TypeError(f"a whole number of {value.bit_length()} bits")
    return value


def _check_keys(value: dict[Any, Any]) -> None:
    for key in value:
        if type(key) not in _KEYS:
            raise TypeError(f"a dict with a key of type {type(key).__name__}")
        if type(key) is int:
            _whole(key)


def _array(value: Any) -> cbor2.CBORTag:
    if value.dtype.kind == "b":
        return cbor2.CBORTag(27, ["bool", _array(value.view("u1"))])
    flat = cbor2.CBORTag(tag_of(value), value.tobytes())
    if value.ndim == 1:
        return flat
    return cbor2.CBORTag(DIMENSIONS, [list(value.shape), flat])


def _tuple(value: tuple[Any, ...], depth: int) -> Any:
    return cbor2.CBORTag(27, ["tuple", [_lower(item, depth) for item in value]])


def _set(value: set[Any], depth: int) -> Any:
    return cbor2.CBORTag(258, _members(value, depth))


def _frozenset(value: frozenset[Any], depth: int) -> Any:
    return cbor2.CBORTag(27, ["frozenset", _members(value, depth)])


def _members(value: Any, depth: int) -> list[Any]:
    """Return the items of a set in an order that is the same for equal sets (VALUE-3.3)."""
    items = [_lower(member, depth) for member in value]
    for given, item in zip(value, items, strict=True):
        if not _can_be_member(item):
            raise TypeError(f"a set with an item of type {type(given).__name__}")
    encoded = {cbor2.dumps(item): item for item in items}
    if len(encoded) < len(items):
        raise TypeError("a set with a member of an enumeration and the value of this member")
    return [encoded[key] for key in sorted(encoded)]


def _can_be_member(item: Any) -> bool:
    """Return whether the receiver can put an item into a set: it makes no dict, list or array."""
    if type(item) is not cbor2.CBORTag:
        return type(item) in _SMALL
    if item.tag == 27 and item.value[0] == "tuple":
        return all(map(_can_be_member, item.value[1]))
    return item.tag != DIMENSIONS and item.tag not in DTYPES and item.value[0] != "bool"


def _datetime(value: datetime, depth: int) -> Any:
    text = value.isoformat()
    if value.utcoffset() is not None:
        return cbor2.CBORTag(0, text.removesuffix("+00:00") + "Z" * text.endswith("+00:00"))
    _check_local(value)
    return cbor2.CBORTag(27, ["datetime", text])


def _time(value: time, depth: int) -> Any:
    if value.utcoffset() is None:
        _check_local(value)
    elif value.fold:
        raise TypeError("a time of day with fold=1")
    return cbor2.CBORTag(27, ["time", value.isoformat()])


def _check_local(value: datetime | time) -> None:
    """Check a time without an offset: its text has no time zone and no fold."""
    if value.tzinfo is not None:
        raise TypeError(
            f"a {type(value).__name__} with the time zone {value.tzinfo}, which has no offset"
        )
    if value.fold:
        raise TypeError(f"a {type(value).__name__} with fold=1 and no time zone")


def _timedelta(value: timedelta, depth: int) -> Any:
    seconds = value.days * 86400 + value.seconds
    return cbor2.CBORTag(
        1002, {1: seconds, **({-6: value.microseconds} if value.microseconds else {})}
    )


def _decimal(value: Decimal, depth: int) -> Any:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or abs(exponent) > _EXPONENT:
        raise TypeError(f"the Decimal {value}")
    whole = int("".join(map(str, digits)) or "0")
    return cbor2.CBORTag(4, [exponent, _whole(-whole if sign else whole)])


_LOWER: Final[dict[type, Callable[[Any, int], Any]]] = {
    tuple: _tuple,
    set: _set,
    frozenset: _frozenset,
    datetime: _datetime,
    date: lambda value, depth: cbor2.CBORTag(1004, value.isoformat()),
    time: _time,
    timedelta: _timedelta,
    UUID: lambda value, depth: cbor2.CBORTag(37, value.bytes),
    Decimal: _decimal,
    Fraction: lambda value, depth: cbor2.CBORTag(
        30, [_whole(value.numerator), _whole(value.denominator)]
    ),
}


# -- decoding ---------------------------------------------------------------------------------


def unpack_tagged(frame: Frame) -> Any:
    """Decode a payload. Only values of the tags of VALUE-3.1 are created, and no code is run.

    Raises:
        DecodeError: The payload is not such a value.
    """
    try:
        array = unpack_array(frame)
        if array is not None:
            return array
        stream = BytesIO(frame)
        value = _load(stream, frame)
        if stream.read(1):
            raise ValueError("bytes follow the value")
        _check(value, _DEPTH)
    except Exception as error:
        cause = str(error if isinstance(error, DecodeError) else error.__cause__ or error)[:200]
        raise DecodeError(
            f"a payload of {len(frame)} bytes cannot be decoded by codec 'cbor-tags': {cause}"
        ) from error
    return value


def _load(stream: BytesIO, frame: Frame) -> Any:
    load = functools.partial(
        cbor2.load,
        stream,
        allow_indefinite=False,
        allow_duplicate_keys=False,
        max_depth=_DEPTH * _LEVELS,
        semantic_decoders=_DECODERS,
    )
    if len(frame) <= SAFE_BYTES:
        return load()
    try:
        return load(strict_hashable_types=True)
    except cbor2.CBORDecodeError:
        check_keys(frame)  # VALUE-1.6
        stream.seek(0)
        return load()


def _check(value: Any, depth: int) -> None:
    """Check that a decoded value contains only values of VALUE-2.4 and VALUE-3.1."""
    kind = type(value)
    if kind is dict:
        if not _KEYS.issuperset(map(type, value)):
            raise ValueError("a map whose keys are not integers, text or bytes")
        value = value.values()
    elif kind is not list and kind is not tuple and kind is not set and kind is not frozenset:
        if kind not in _MADE and not is_array(value):
            raise ValueError(f"a {kind.__name__}")
        return
    if depth <= 0:
        raise ValueError(f"more than {_DEPTH} levels")
    if not _SMALL.issuperset(map(type, value)):
        for item in value:
            _check(item, depth - 1)


_MADE: Final[frozenset[type]] = _SMALL | {
    datetime,
    date,
    time,
    timedelta,
    UUID,
    Decimal,
    Fraction,
}


def _expect(value: Any, kind: type, tag: int) -> Any:
    if type(value) is not kind:
        raise ValueError(f"tag {tag} has a {type(value).__name__}; expected {kind.__name__}")
    return value


def _pair(value: Any, tag: int) -> tuple[Any, Any]:
    if type(value) not in (list, tuple) or len(value) != 2:
        raise ValueError(f"tag {tag} has no array of two items")
    return value[0], value[1]


def _read_whole(value: Any, tag: int) -> int:
    number: int = _expect(value, int, tag)
    if number.bit_length() > 8 * _BIG:
        raise ValueError(f"a whole number of {number.bit_length()} bits")
    return number


def _read_big(value: Any, tag: int) -> int:
    data: bytes = _expect(value, bytes, tag)
    if len(data) > _BIG:
        raise ValueError(f"a whole number of {len(data)} bytes")
    number = int.from_bytes(data, "big")
    return number if tag == 2 else -1 - number


def _read_datetime(value: Any, tag: int) -> datetime:
    moment = datetime.fromisoformat(_expect(value, str, tag))
    if moment.utcoffset() is None:
        raise ValueError("tag 0 has a time without an offset")
    return moment


def _read_decimal(value: Any, tag: int) -> Decimal:
    exponent, whole = _pair(value, tag)
    if abs(_read_whole(exponent, tag)) > _EXPONENT:
        raise ValueError("an exponent that is too large")
    number = _read_whole(whole, tag)
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, exponent))


def _read_fraction(value: Any, tag: int) -> Fraction:
    above, below = _pair(value, tag)
    if _read_whole(below, tag) < 1:
        raise ValueError("tag 30 has a denominator below 1")
    return Fraction(_read_whole(above, tag), below)


def _read_uuid(value: Any, tag: int) -> UUID:
    return UUID(bytes=_expect(value, bytes, tag))


def _read_date(value: Any, tag: int) -> date:
    return date.fromisoformat(_expect(value, str, tag))


def _read_timedelta(value: Any, tag: int) -> timedelta:
    if not isinstance(value, Mapping) or not {1, -6}.issuperset(value) or 1 not in value:
        raise ValueError("tag 1002 has no map with the key 1, and perhaps -6")
    micro = _read_whole(value.get(-6, 0), tag)
    return timedelta(seconds=_read_whole(value[1], tag), microseconds=micro)


def _read_set(value: Any, tag: int) -> set[Any]:
    if type(value) not in (list, tuple):
        raise ValueError("a set without an array")
    members = [frozenset(member) if type(member) is set else member for member in value]
    check_members(members)
    return set(members)


def _read_dimensions(value: Any, tag: int) -> Any:
    sizes, array = _pair(value, tag)
    if type(sizes) not in (list, tuple) or not is_array(array):
        raise ValueError("tag 40 has no dimensions and typed array")
    return shaped(array, sizes)


def _read_object(value: Any, tag: int) -> Any:
    name, given = _pair(value, tag)
    if name == "tuple":
        if type(given) not in (list, tuple):
            raise ValueError("a tuple without an array")
        return tuple(given)
    if name == "frozenset":
        return frozenset(_read_set(given, tag))
    if name == "datetime":
        moment = datetime.fromisoformat(_expect(given, str, tag))
        if moment.utcoffset() is not None:
            raise ValueError("a local time has an offset")
        return moment
    if name == "time":
        return time.fromisoformat(_expect(given, str, tag))
    if name == "bool" and is_array(given) and given.dtype.str == "|u1" and given.max(initial=0) < 2:
        return given.view("?")
    raise ValueError(f"tag 27 has the name {str(name)[:40]!r}")


class _TagDecoders(dict[int, Callable[[Any, bool], Any]]):
    """The decoders of the known tags. Every other tag is refused before its content is read."""

    def __missing__(self, tag: int) -> NoReturn:
        raise ValueError(f"tag {tag} is not allowed")


def _decoder(tag: int, read: Callable[[Any, int], Any]) -> Callable[[Any, bool], Any]:
    def decode(value: Any, immutable: bool) -> Any:
        decoded = read(value, tag)
        return frozenset(decoded) if immutable and type(decoded) is set else decoded

    return decode


_READERS: Final[dict[int, Callable[[Any, int], Any]]] = {
    0: _read_datetime,
    2: _read_big,
    3: _read_big,
    4: _read_decimal,
    27: _read_object,
    30: _read_fraction,
    37: _read_uuid,
    DIMENSIONS: _read_dimensions,
    258: _read_set,
    1002: _read_timedelta,
    1004: _read_date,
    **{tag: lambda value, tag: make_array(tag, value) for tag in DTYPES},
}
_DECODERS: Final = _TagDecoders({tag: _decoder(tag, read) for tag, read in _READERS.items()})
