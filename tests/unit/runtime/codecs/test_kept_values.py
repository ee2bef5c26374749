"""Which values a codec keeps: the same type and equal, a row of VALUE-4, or a TypeError.

The property draws values of numpy, of pandas (if pandas is installed) and of the standard library,
and subclasses of every type that a codec sends.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import decimal
import enum
import fractions
import ipaddress
import math
import pathlib
import types
import uuid
import zoneinfo
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmp.runtime.codecs.annotations import converter_of
from wmp.runtime.codecs.payload_codecs import coders_of, pack

CODECS = ("bytes", "text", "json", "cbor", "cbor-tags", "frames")


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    ONE = "one"


class Bits(enum.IntFlag):
    LOW = 1


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any


@dataclasses.dataclass
class Named(dict[str, int]):
    name: str = "a"


def _subclass(base: type) -> type:
    return type(f"Sub{base.__name__}", (base,), {})


SUBCLASSES: list[Any] = [
    _subclass(int)(1),
    _subclass(float)(1.5),
    _subclass(str)("s"),
    _subclass(bytes)(b"s"),
    _subclass(bytearray)(b"s"),
    _subclass(list)([1]),
    _subclass(tuple)((1,)),
    _subclass(dict)(a=1),
    _subclass(set)({1}),
    _subclass(frozenset)({1}),
    _subclass(datetime)(2024, 2, 29),
    _subclass(date)(2024, 2, 29),
    _subclass(time)(12),
    _subclass(timedelta)(1),
    _subclass(decimal.Decimal)("1.5"),
    _subclass(fractions.Fraction)(1, 3),
    _subclass(uuid.UUID)(int=5),
    _subclass(numpy.float64)(1.5),
    numpy.arange(3).view(_subclass(numpy.ndarray)),
]

STANDARD: list[Any] = [
    *(Number.ONE, Word.ONE, Bits.LOW, Colour.RED, Pair(1, 2), Point(1), Named()),
    collections.OrderedDict(b=1, a=2),
    collections.Counter("aab"),
    collections.defaultdict(list, a=[1]),
    collections.deque([1, 2], maxlen=2),
    collections.ChainMap({"a": 1}),
    collections.UserDict(a=1),
    *(range(3), frozenset({1}), frozenset(), set(), bytearray(b"x"), memoryview(b"x"), slice(3)),
    *({True: 1}, {None: 1}, {1.5: 2}, {(1, 2): 3}, {1: "a"}, {1: "a", "1": "b"}, {b"k": 1}),
    *({Number.ONE: 1}, {Word.ONE: 1}, {Number.ONE, 2}, {Colour.RED, "red"}, {Point(1)}),
    *({(1, frozenset({2}))}, {frozenset({(1,)})}, {(1, Point(2))}, frozenset({b"a"})),
    *(float("nan"), math.inf, -0.0, 2**53 + 1, 2**64, -(2**64), 2**70, 1j, NotImplemented, ...),
    datetime(2024, 10, 27, 2, 30, fold=1),
    datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("UTC")),
    time(12, tzinfo=zoneinfo.ZoneInfo("UTC")),
    time(12, tzinfo=UTC),
    time(12, fold=1),
    UTC,
    datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=5, seconds=30), "here")),
    *(decimal.Decimal("-0.00"), decimal.Decimal("1.50"), decimal.Decimal("Infinity")),
    *(uuid.UUID(int=7), ipaddress.ip_address("127.0.0.1"), pathlib.PurePosixPath("/a")),
    *(array.array("i", [1]), types.SimpleNamespace(a=1), types.MappingProxyType({"a": 1})),
    *("a", "", b"a", b"", None, True, 0, "\ud800", [], (), {}, [b"a", "b"], ((1,), [(2,)])),
]

NUMPY: list[Any] = [
    numpy.ma.masked_array([1.0, -9999.0, 3.0], mask=[0, 1, 0]),
    numpy.ma.masked,
    numpy.arange(4).reshape(2, 2).view(numpy.matrix),
    numpy.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    numpy.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    numpy.char.array(["a"]),
    *(numpy.array(["a"]), numpy.array([b"a"]), numpy.array([None]), numpy.array([1j])),
    *(numpy.array(["2024"], "datetime64[ns]"), numpy.array([1], "timedelta64[s]")),
    *(numpy.longdouble(1.5), numpy.array([1.5], numpy.longdouble), numpy.complex128(1j)),
    *(numpy.datetime64(1, "ns"), numpy.datetime64("2024"), numpy.timedelta64(1, "ns")),
    *(numpy.str_("a"), numpy.bytes_(b"a"), numpy.bool_(True), numpy.int8(-1), numpy.uint64(2**63)),
    *(numpy.float16(0.5), numpy.float32(0.1), numpy.float64(0.1), numpy.void(b"a")),
    *(numpy.arange(6).reshape(2, 3), numpy.arange(6.0).reshape(2, 3).T, numpy.array(3)),
    *(numpy.array([True, False]), numpy.array([], ">i2"), numpy.float64, numpy.dtype("i4")),
    *(numpy.add, numpy.random.default_rng(1), numpy.poly1d([1, 2])),
]


def pandas_values() -> list[Any]:
    try:
        import pandas
    except ImportError:
        return []
    return [
        pandas.Timestamp("2024-01-01 00:00:00.000000001"),
        pandas.Timestamp("2024-01-01"),
        *(pandas.Timedelta(1, "ns"), pandas.NaT, pandas.NA, pandas.Period("2024-01")),
        *(pandas.Series([1, None, 3]), pandas.DataFrame({"a": [1]}), pandas.Index([1])),
        *(pandas.array([1, None], dtype="Int64"), pandas.Categorical(["a"])),
        *(pandas.Interval(0, 1), pandas.DateOffset(1), pandas.date_range("2024", periods=2)),
        pandas.Series([1], dtype="Int64").to_numpy(),
    ]


def same(left: Any, right: Any) -> bool:
    """Return whether two values have the same type and are equal, also in their parts."""
    if type(left) is not type(right):
        return False
    if isinstance(left, numpy.ndarray):
        return left.dtype == right.dtype and numpy.array_equal(left, right)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, set | frozenset):
        return left == right and sorted(map(repr, map(type, left))) == sorted(
            map(repr, map(type, right))
        )
    if isinstance(left, float):
        return (left == right and math.copysign(1, left) == math.copysign(1, right)) or (
            left != left and right != right
        )
    if isinstance(left, datetime | time):
        return bool(left == right) and left.utcoffset() == right.utcoffset()
    return bool(left == right)


# The rows of the table of VALUE-4, in its order: codec, value, what arrives.
ROWS: list[tuple[str, Any, Any]] = [
    ("bytes", "é", "é".encode()),
    ("bytes", bytearray(b"a"), b"a"),
    ("bytes", None, b""),
    ("text", None, ""),
    ("frames", (b"a", "b"), [b"a", b"b"]),
    ("frames", b"a", [b"a"]),
    ("json", (1, (2,)), [1, [2]]),
    ("json", {1: "a"}, {"1": "a"}),
    ("cbor", numpy.float64(0.1), 0.1),
    ("cbor", bytearray(b"a"), b"a"),
    ("cbor-tags", memoryview(b"a"), b"a"),
    ("cbor-tags", Number.ONE, 1),
    ("cbor-tags", Point(1), {"x": 1}),
    ("cbor-tags", numpy.int8(3), 3),
    ("cbor-tags", numpy.arange(6).reshape(2, 3).T, numpy.arange(6).reshape(2, 3).T),
    (
        "cbor-tags",
        datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("UTC")),
        datetime(2024, 7, 1, 12, tzinfo=UTC),
    ),
    ("cbor-tags", decimal.Decimal("-0.0"), decimal.Decimal("0.0")),
]


def _raw(value: Any) -> bytes:
    return b"" if value is None else value.encode() if type(value) is str else bytes(value)


def arriving(codec: str, value: Any) -> Any:
    """Return what arrives for a value that a codec sends, by the table of VALUE-4."""
    kind = type(value)
    if codec == "bytes":
        return _raw(value)
    if codec == "text":
        return "" if value is None else value
    if codec == "frames":
        parts = value if kind in (list, tuple) and value else [value]
        return [_raw(part) for part in parts]
    if kind is numpy.float64:
        return float(value)
    if codec == "cbor-tags":
        if isinstance(value, enum.Enum):
            return arriving(codec, value.value)
        if kind is Point:
            return {"x": arriving(codec, value.x)}
        if isinstance(value, numpy.generic):
            return value.item()
    elif kind is tuple:
        return [arriving(codec, item) for item in value]
    if kind in (bytearray, memoryview):
        return bytes(value)
    if kind in (list, tuple, set, frozenset):
        return kind(arriving(codec, item) for item in value)
    if kind is dict:
        return {
            str(key) if codec == "json" else key: arriving(codec, item)
            for key, item in value.items()
        }
    return value


def type_names(value: Any) -> set[str]:
    """Return the names of the types of a value and of its parts."""
    names = {type(value).__name__}
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    elif isinstance(value, Point):
        parts = [value.x]
    elif isinstance(value, enum.Enum):
        parts = [value.value]
    return names.union(*map(type_names, parts))


def at_a_manager(codec: str, value: Any) -> Any:
    return pack(value, codec)


def at_a_worker(codec: str, value: Any) -> Any:
    return coders_of(codec)[1](value)


def trip(codec: str, value: Any, encode: Callable[[str, Any], Any]) -> Any:
    payload = bytes(encode(codec, value))
    decode = coders_of(codec)[0]
    return payload if decode is None else decode(payload)


samples = st.sampled_from([*SUBCLASSES, *STANDARD, *NUMPY, *pandas_values()])
nested = st.recursive(
    samples,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(-9, 9), inner, max_size=3)
        | inner.map(Point)
    ),
    max_leaves=4,
)


def check(codec: str, value: Any, encode: Callable[[str, Any], Any]) -> None:
    try:
        arrived = trip(codec, value, encode)
    except TypeError as error:
        named = {*type_names(value), "surrogates"}
        if not any(name in str(error) for name in named):
            raise
        return
    expected = arriving(codec, value)
    assert same(arrived, expected), (codec, value, arrived)


@pytest.mark.rule("VALUE-1.5", "VALUE-4.1")
@pytest.mark.parametrize("encode", [at_a_manager, at_a_worker])
@pytest.mark.parametrize("codec", CODECS)
def test_each_type_is_kept_or_refused_by_its_name(
    codec: str, encode: Callable[[str, Any], Any]
) -> None:
    for value in (*SUBCLASSES, *STANDARD, *NUMPY, *pandas_values()):
        for whole in (value, [value], {"a": (value,)}):
            check(codec, whole, encode)


@pytest.mark.rule("VALUE-1.5", "VALUE-4.1")
@settings(max_examples=200)
@given(codec=st.sampled_from(CODECS), value=nested)
def test_a_value_arrives_with_its_type_or_is_refused(codec: str, value: Any) -> None:
    check(codec, value, at_a_manager)
    check(codec, value, at_a_worker)


@pytest.mark.rule("VALUE-1.5")
@pytest.mark.parametrize("encode", [at_a_manager, at_a_worker])
@pytest.mark.parametrize("codec", CODECS)
def test_subclasses_are_refused(codec: str, encode: Callable[[str, Any], Any]) -> None:
    for value in SUBCLASSES:
        for whole in (value, [value], {"a": value}, Point(value)):
            with pytest.raises(TypeError):
                pytest.fail(f"{whole!r} arrived as {trip(codec, whole, encode)!r}")


@pytest.mark.rule("VALUE-1.5")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (collections.Counter("aab"), "Counter, a subclass of dict whose type would be lost"),
        (Pair(1, 2), "Pair, a subclass of tuple"),
        (numpy.ma.masked_array([1.0], mask=[1]), "MaskedArray, a subclass of ndarray"),
        (numpy.zeros((1, 1)).view(numpy.matrix), "matrix, a subclass of ndarray"),
        ({True: 1}, "key of type bool"),
        ({Number.ONE: 1}, "key of type Number"),
        ({Colour.RED, "red"}, "a member of an enumeration and the value of this member"),
        ({Point(1)}, "a set with an item of type Point"),
        ({(1, Point(2))}, "a set with an item of type tuple"),
        (datetime(2024, 10, 27, 2, 30, fold=1), "a datetime with fold=1"),
        (time(12, tzinfo=zoneinfo.ZoneInfo("UTC")), ""),
        (Named(), "Named, a subclass of dict"),
        (numpy.datetime64(1, "ns"), "a datetime64"),
    ],
)
def test_the_error_names_what_cannot_be_kept(value: Any, text: str) -> None:
    if not text:  # the time zone UTC has an offset without a date
        assert same(trip("cbor-tags", value, at_a_manager), time(12, tzinfo=UTC))
        return
    with pytest.raises(TypeError, match=text):
        pack(value, "cbor-tags")


@pytest.mark.rule("VALUE-1.5")
def test_a_key_of_json_does_not_hide_another() -> None:
    with pytest.raises(TypeError, match="a number and the same number as text"):
        pack({1: "a", "1": "b"}, "json")
    for key in (True, None, 1.5, Number.ONE):
        with pytest.raises(TypeError, match=f"a key of type {type(key).__name__}"):
            pack([{key: 1}], "json")


@pytest.mark.rule("VALUE-4.1")
def test_each_row_of_accepted_changes_arrives_as_stated() -> None:
    spec = Path(__file__).parents[4] / "specs" / "values.md"
    table = spec.read_text(encoding="utf-8").split("## 4.")[1].split("|---|---|---|\n")[1]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == len(ROWS)
    for row, (codec, value, arrives) in zip(rows, ROWS, strict=True):
        assert f"`{codec}`" in row
        assert same(trip(codec, value, at_a_worker), arrives), row


@pytest.mark.rule("VALUE-1.5")
def test_an_annotation_does_not_round_what_arrived() -> None:
    floats, bytes_, whole = (
        converter_of(kind)
        for kind in (
            float,
            numpy.ndarray[Any, numpy.dtype[numpy.uint8]],
            numpy.ndarray[Any, numpy.dtype[numpy.int64]],
        )
    )
    assert floats is not None
    assert bytes_ is not None
    assert whole is not None
    assert (floats(2**53), floats(1.5), floats(2**70)) == (2.0**53, 1.5, 2.0**70)
    for unfit in (2**53 + 1, 10**400):
        with pytest.raises(ValueError, match="which a float rounds"):
            floats(unfit)
    assert bytes_([1, 2]).dtype == numpy.uint8
    assert whole(numpy.array([1.0])).tolist() == [1]
    for convert, items in ((bytes_, [256]), (bytes_, [-1]), (whole, [1.5]), (whole, [math.nan])):
        with pytest.raises(ValueError, match="cannot keep"):
            convert(numpy.array(items))
