"""Payloads of the codecs of ``values.md``, for ``vectors/values.json``.

Arrays are put together by hand, so that this file needs no numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from wmp.runtime.codecs.payload_codecs import payload_codec

__all__ = ["array_payloads", "refused_payloads", "valid_payloads", "value_payloads"]


def valid_payloads() -> Iterator[tuple[str, str, Any, Any]]:
    """Yield name, codec, value, and the value as JSON."""
    yield "bytes", "bytes", b"\x00\xff", {"bytes": "00ff"}
    yield "text", "text", "grüß dich", "grüß dich"
    yield "empty-text", "text", "", ""
    yield "json", "json", {"a": [1, 2.5, None, True, "ä"]}, {"a": [1, 2.5, None, True, "ä"]}
    yield "cbor", "cbor", [1, -1, 2.5, None, True, "ä"], [1, -1, 2.5, None, True, "ä"]
    yield "cbor-bytes", "cbor", {"a": b"\x00"}, {"a": {"bytes": "00"}}
    yield "frames", "frames", [b"a", b""], [{"bytes": "61"}, {"bytes": ""}]
    plain = {"id": 7, "tags": ["a", "b"]}
    yield "plain", "cbor-tags", plain, plain
    yield (
        "time-in-utc",
        "cbor-tags",
        datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
        {"datetime": "2024-02-29T12:30:00+00:00"},
    )
    east = timezone(timedelta(hours=5, minutes=30))
    yield (
        "time-with-offset",
        "cbor-tags",
        datetime(2024, 2, 29, 12, 0, 0, 250, east),
        {"datetime": "2024-02-29T12:00:00.000250+05:30"},
    )
    yield (
        "local-time",
        "cbor-tags",
        datetime(2024, 2, 29, 12, 30),
        {"datetime": "2024-02-29T12:30:00"},
    )
    yield "time-of-day", "cbor-tags", time(23, 59, 59), {"time": "23:59:59"}
    yield "date", "cbor-tags", date(2024, 2, 29), {"date": "2024-02-29"}
    yield "span", "cbor-tags", timedelta(days=1, microseconds=5), {"seconds": 86400, "micro": 5}
    yield "negative-span", "cbor-tags", timedelta(seconds=-5), {"seconds": -5, "micro": 0}
    yield "uuid", "cbor-tags", UUID(int=5), {"uuid": "00000000-0000-0000-0000-000000000005"}
    yield "decimal", "cbor-tags", Decimal("-1.50"), {"decimal": "-1.50"}
    yield "large-decimal", "cbor-tags", Decimal("1E+9"), {"decimal": "1E+9"}
    yield "fraction", "cbor-tags", Fraction(-1, 3), {"fraction": [-1, 3]}
    yield "large-integer", "cbor-tags", 2**70, {"integer": str(2**70)}
    yield "large-negative-integer", "cbor-tags", -(2**70), {"integer": str(-(2**70))}
    yield "tuple", "cbor-tags", (1, ("a",), []), {"tuple": [1, {"tuple": ["a"]}, []]}
    yield "set", "cbor-tags", {3, 1, 2}, {"set": [1, 2, 3]}
    frozen: frozenset[int] = frozenset({1})
    yield "frozen-set", "cbor-tags", frozen, {"frozenset": [1]}
    yield "nested", "cbor-tags", {"when": [date(2024, 2, 29)]}, {"when": [{"date": "2024-02-29"}]}


def array_payloads() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield name, payload in hex, and the array as JSON."""
    yield "array", "d8454401000200", {"array": [1, 2], "type": "uint16"}
    floats = "d85650000000000000f03f0000000000000440"
    yield "array-of-floats", floats, {"array": [1.0, 2.5], "type": "float64"}
    yield "empty-array", "d84040", {"array": [], "type": "uint8"}
    rows = "d82882820203d84046010203040506"
    yield "rows", rows, {"array": [[1, 2, 3], [4, 5, 6]], "type": "uint8"}
    yield "array-in-a-map", "a16161d8404101", {"a": {"array": [1], "type": "uint8"}}
    mask = "d81b8264626f6f6cd840420100"
    yield "mask", mask, {"array": [True, False], "type": "bool"}


def refused_payloads() -> Iterator[tuple[str, str, str, str]]:
    """Yield name, codec, payload in hex, and the broken rule."""
    yield "text-not-utf8", "text", "ff", "VALUE-2.2: not UTF-8"
    yield "json-nan", "json", "4e614e", "VALUE-2.3: NaN"
    yield "json-infinity", "json", "5b2d496e66696e6974795d", "VALUE-2.3: -Infinity"
    yield "json-two", "json", "312032", "VALUE-2.3: two values"
    yield "cbor-tag", "cbor", "d903ec6a323032342d30322d3239", "VALUE-2.4: a tag"
    yield "cbor-indefinite", "cbor", "9f01ff", "VALUE-2.4: an indefinite length"
    yield "cbor-two", "cbor", "0101", "VALUE-2.4: bytes behind the value"
    yield "frames-empty", "frames", "80", "VALUE-2.5: no byte string"
    yield "frames-text", "frames", "816161", "VALUE-2.5: a text"
    yield "other-tag", "cbor-tags", "d8634101", "VALUE-3.1: tag 99"
    yield "regular-expression", "cbor-tags", "d8236161", "VALUE-3.1: tag 35"
    yield "shared-value", "cbor-tags", "d81c80", "VALUE-3.1: tag 28"
    yield (
        "other-object",
        "cbor-tags",
        "d81b82696f732e73797374656d80",
        "VALUE-3.1: the name os.system",
    )
    yield "no-date", "cbor-tags", "d903ec6a323032342d30322d3330", "VALUE-3.1: 30 February"
    yield (
        "time-without-offset",
        "cbor-tags",
        "c073323032342d30322d32395431323a30303a3030",
        ("VALUE-3.1: no offset"),
    )
    yield "short-uuid", "cbor-tags", "d8254100", "VALUE-3.1: a UUID of one byte"
    yield "no-denominator", "cbor-tags", "d81e820100", "VALUE-3.1: a denominator of 0"
    yield "list-as-item-of-a-set", "cbor-tags", "d901028180", "VALUE-3.1: an array in a set"
    yield "undefined", "cbor-tags", "f7", "VALUE-3.1: undefined"
    yield "tags-two", "cbor-tags", "c482000101", "VALUE-3.1: bytes behind the value"
    yield "half-an-item", "cbor-tags", "d84543010002", "VALUE-3.2: half an item"
    yield (
        "wrong-sizes",
        "cbor-tags",
        "d82882820204d84046010203040506",
        ("VALUE-3.2: 2 × 4 items of 6"),
    )
    yield (
        "negative-sizes",
        "cbor-tags",
        "d82882822025d84046010203040506",
        "VALUE-3.2: −1 × −6 items",
    )
    yield "reserved-array", "cbor-tags", "d84c4101", "VALUE-3.1: tag 76"
    yield "wide-float", "cbor-tags", "d85750" + 16 * "00", "VALUE-3.1: tag 87"
    yield "huge-integer", "cbor-tags", "c2590401" + 1025 * "ff", "VALUE-3.4: 1025 bytes"
    yield "huge-exponent", "cbor-tags", "c4821a000f424101", "VALUE-3.4: the exponent 1000001"


def value_payloads() -> list[dict[str, Any]]:
    """Return the vectors."""
    vectors: list[dict[str, Any]] = []
    for name, codec, value, shown in valid_payloads():
        payload = bytes(payload_codec(codec).encode(value))
        vectors.append(
            {"name": name, "codec": codec, "payload": payload.hex(), "valid": True, "value": shown}
        )
    for name, payload_hex, shown in array_payloads():
        vectors.append(
            {
                "name": name,
                "codec": "cbor-tags",
                "payload": payload_hex,
                "valid": True,
                "value": shown,
            }
        )
    for name, codec, payload_hex, why in refused_payloads():
        vectors.append(
            {"name": name, "codec": codec, "payload": payload_hex, "valid": False, "why": why}
        )
    return vectors
