"""The codec ``json``, and which values it keeps (VALUE-1.5).

``json.dumps`` also accepts values that arrive as others: members of an IntEnum, named tuples, dicts
of every kind, and keys that are booleans. Here these are refused by the names of their types.
"""

from __future__ import annotations

import json
from typing import Any, Final

from wmp.codec.cbor import describe_type, is_numpy_float
from wmp.errors import DecodeError
from wmp.message import Frame

_SCALARS: Final[frozenset[type]] = frozenset({str, int, float, bool, type(None)})
_KEYS: Final[frozenset[type]] = frozenset({str, int})
_ONLY_TEXT: Final[frozenset[type]] = frozenset({str})


def pack_json(value: Any) -> bytes:
    """Encode a value for the codec ``json``.

    Raises:
        TypeError: The value has a part that would not arrive as it is.
        ValueError: The value contains itself, or a number that JSON does not have.
    """
    # json.dumps comes first: it refuses a value that contains itself.
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    check_json(value)
    return text.encode("utf-8")


def unpack_json(frame: Frame) -> Any:
    """Decode a payload of the codec ``json``.

    Raises:
        DecodeError: The payload is not such a value.
    """
    try:
        return json.loads(str(frame, "utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DecodeError(
            f"a payload of {len(frame)} bytes cannot be decoded by codec 'json': {error}"
        ) from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def check_json(value: Any) -> None:
    """Check that a value that ``json.dumps`` accepts arrives as it is, or by a row of VALUE-4.

    Raises:
        TypeError: The value has a part of another type; the text names this type.
    """
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        kind = type(part)
        if kind is dict:
            kinds = set(map(type, part))
            if kinds - _ONLY_TEXT:
                _check_keys(part, kinds)
            part = part.values()
        elif kind is not list and kind is not tuple:
            if kind not in _SCALARS and not is_numpy_float(kind):
                raise TypeError(
                    f"the value has a {describe_type(kind)}, which the codec 'json' cannot keep; "
                    "convert it to None, booleans, numbers, text, lists and dicts"
                )
            continue
        if not _SCALARS.issuperset(map(type, part)):
            waiting.extend(part)


def _check_keys(part: dict[Any, Any], kinds: set[type]) -> None:
    for kind in kinds - _KEYS:
        raise TypeError(
            f"the value has a dict with a key of type {kind.__name__}, which the codec 'json' "
            "cannot keep; use text as keys"
        )
    names = set(map(str, part))
    if len(names) < len(part):
        raise TypeError(
            "the value has a dict with a number and the same number as text as its keys, which the "
            "codec 'json' cannot keep; use text as keys"
        )
