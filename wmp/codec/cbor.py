"""The values of CBOR in messages: their kinds, and a check for plain values (WMP-2.10)."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from wmp.message import ErrorCode, Limits

UINT_MAX: Final = Limits.UINT
"""Maximum integer of a message (WMP-2.2)."""

DEPTH: Final = 16
"""Limit of the nesting of a head. The protocol needs 3; applications may use the other levels."""


class InvalidPart(ValueError):
    """A part of a message is wrong. The decoder adds the sender to this error."""

    def __init__(self, text: str, code: str = ErrorCode.MALFORMED) -> None:
        super().__init__(text)
        self.code = code


_SCALARS: Final[frozenset[type]] = frozenset({bytes, bytearray, str, float, bool, type(None)})
_KEYS: Final[frozenset[type]] = frozenset({int, str, bytes})


def check_plain(value: Any, depth: int, lowest: int, highest: int) -> None:
    """Check that a value is plain: numbers, bytes, texts, booleans, null, and arrays and maps of
    these. A value of a subclass is not plain, because its type would be lost (VALUE-1.5).

    Raises:
        ValueError: The value is not plain; the text names its type.
    """
    kind = type(value)
    if kind is int:
        if not lowest <= value <= highest:
            raise ValueError(f"an integer of {value.bit_length()} bits")
    elif kind is list or kind is tuple:
        _check_items(value, depth, lowest, highest)
    elif kind is dict:
        for key in set(map(type, value)) - _KEYS:
            raise ValueError(f"a map with keys of type {key.__name__}")
        _check_items(value, depth, lowest, highest)
        _check_items(value.values(), depth, lowest, highest)
    elif kind not in _SCALARS and not is_numpy_float(kind):
        raise ValueError(f"a {describe_type(kind)}")


def _check_items(items: Any, depth: int, lowest: int, highest: int) -> None:
    if depth <= 0:
        raise ValueError("arrays and maps nested too deep")
    kinds = set(map(type, items))
    if kinds == {int}:  # rows of integers need no Python call for each item
        if min(items) < lowest or max(items) > highest:
            raise ValueError("an integer that is too large")
    elif not _SCALARS.issuperset(kinds):
        for item in items:
            if type(item) not in _SCALARS:
                check_plain(item, depth - 1, lowest, highest)


def kind_of(value: Any) -> str:
    """Return the name of a decoded value's type."""
    return KINDS.get(type(value), "other")


KINDS: Final[dict[type, str]] = {
    int: "integer",
    bytes: "bytes",
    str: "text",
    bool: "bool",
    type(None): "null",
    float: "float",
    list: "array",
    dict: "map",
}


def base_type(kind: type, known: Container[type]) -> type | None:
    """Return the known type from which a type derives, for example ``int`` for an IntEnum."""
    return next((base for base in kind.__mro__ if base in known), None)


_SENT: Final = frozenset(
    {"builtins.str", "builtins.int", "builtins.float", "builtins.bytes", "builtins.bytearray"}
    | {"builtins.list", "builtins.tuple", "builtins.dict", "builtins.set", "builtins.frozenset"}
    | {"datetime.datetime", "datetime.date", "datetime.time", "datetime.timedelta"}
    | {"decimal.Decimal", "fractions.Fraction", "uuid.UUID", "numpy.ndarray"}
)
"""Types that codecs send, by their names, so that this module need not import them."""


def describe_type(kind: type) -> str:
    """Return the name of a type that a codec refuses, with the type that would arrive instead."""
    base = sent_base(kind)
    if base is None:
        return kind.__name__
    return f"{kind.__name__}, a subclass of {base.__name__} whose type would be lost"


def sent_base(kind: type) -> type | None:
    """Return the type from which a type derives, if codecs send values of the former."""
    for base in kind.__mro__[1:]:
        if f"{base.__module__}.{base.__qualname__}" in _SENT:
            return base
    return None


def is_numpy_float(kind: type) -> bool:
    """Return whether a type is ``numpy.float64``, whose values are floats of Python."""
    return kind.__module__ == "numpy" and kind.__name__ == "float64" and issubclass(kind, float)
