"""Converters of one value: to a text, a number, a date, a path, an enumeration or an array.

Values that contain others, and the annotations of handlers, are in :mod:`.annotations`.
"""

from __future__ import annotations

import enum
import importlib
import math
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from decimal import Decimal
    from fractions import Fraction
    from uuid import UUID

Converter = Callable[[Any], Any]
"""Makes a value of the annotated type. It raises TypeError or ValueError for an unfit value."""


def wrong_type(value: object, expected: str) -> TypeError:
    """Return the error for a value of another type."""
    return TypeError(f"it is of type {type(value).__name__}; expected {expected}")


def to_none(value: Any) -> None:
    """Accept None and the empty payload."""
    if value is not None and value != b"":
        raise wrong_type(value, "None")


def _text(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return str(value, "utf-8")
    if isinstance(value, str):
        return value
    raise wrong_type(value, "text")


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise wrong_type(value, "a boolean")


def _int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise wrong_type(value, "a whole number")


def _float(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        nearest = _nearest(value)
        if nearest != value and nearest == nearest:
            raise ValueError(
                f"it is a whole number of {int(value).bit_length()} bits, which a float rounds; "
                "expected a number that a float keeps"
            )
        return nearest
    raise wrong_type(value, "a number")


def _nearest(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _bytearray(value: Any) -> bytearray:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytearray(value)
    raise wrong_type(value, "bytes")


def _datetime(value: Any) -> datetime:
    return value if isinstance(value, datetime) else _from_text(datetime.fromisoformat, value)


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    return _from_text(date.fromisoformat, value)


def _time(value: Any) -> time:
    return value if isinstance(value, time) else _from_text(time.fromisoformat, value)


def _timedelta(value: Any) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(seconds=_float(value))


# A program that annotates a handler with one of the next types has imported its module.


def _uuid(value: Any) -> UUID:
    from uuid import UUID

    return value if isinstance(value, UUID) else _from_text(UUID, value)


def _decimal(value: Any) -> Decimal:
    from decimal import Decimal

    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    try:
        return _from_text(Decimal, value)
    except ArithmeticError as error:
        raise ValueError(f"it is {value!r}; expected a decimal number") from error


def _fraction(value: Any) -> Fraction:
    from fractions import Fraction

    return value if isinstance(value, Fraction) else Fraction(_decimal(value))


_T = typing.TypeVar("_T")


def _from_text(make: Callable[[str], _T], value: Any) -> _T:
    if isinstance(value, str):
        return make(value)
    raise wrong_type(value, "text")


SIMPLE: Final[dict[str, Converter]] = {
    "builtins.str": _text,
    "builtins.bool": _bool,
    "builtins.int": _int,
    "builtins.float": _float,
    "builtins.bytearray": _bytearray,
    "datetime.datetime": _datetime,
    "datetime.date": _date,
    "datetime.time": _time,
    "datetime.timedelta": _timedelta,
    "uuid.UUID": _uuid,
    "decimal.Decimal": _decimal,
    "fractions.Fraction": _fraction,
}
"""Converters by the qualified names of types."""


def to_path(kind: type[PurePath], value: Any) -> PurePath:
    """Make a path of a text."""
    return value if isinstance(value, kind) else _from_text(kind, value)


def enum_converter(kind: type[enum.Enum]) -> Converter:
    """Return the converter to a member of an enumeration."""
    return lambda value: value if isinstance(value, kind) else kind(value)


def array_converter(dtype: Any) -> Converter:
    """Return the converter to an array of numpy; None keeps the type of the items."""

    def convert(value: Any) -> Any:
        numpy: Any = importlib.import_module("numpy")
        if not isinstance(value, numpy.ndarray | list | tuple):
            raise wrong_type(value, "an array or a list")
        given = numpy.asarray(value)
        if dtype is None:
            return given
        kind = numpy.dtype(dtype)
        if given.dtype == kind:
            return given
        if given.dtype.kind == "c" and kind.kind != "c":
            raise ValueError(f"it has items of {given.dtype}; expected items of {kind}")
        with numpy.errstate(invalid="ignore"):
            converted = given.astype(kind, copy=False)
        # Whole numbers of another size wrap around, and fractions lose their digits.
        if kind.kind in "biu" and not numpy.array_equal(converted, given):
            raise ValueError(f"it has items of {given.dtype} that {kind} cannot keep")
        return converted

    return convert
