"""Codecs of payloads: the library's, those of applications, and arguments by annotations."""

from __future__ import annotations

import enum
import json
import pickle
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType
from uuid import UUID

import attrs
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from value_payloads import array_payloads, refused_payloads, valid_payloads

import wmp
from wmp.actions import End
from wmp.codec import pack_value, unpack_error
from wmp.errors import ConfigError, DecodeError, JobFailed
from wmp.runtime.codecs import payload_codecs, payload_memory
from wmp.runtime.codecs.annotations import converter_of
from wmp.runtime.codecs.payload_codecs import (
    codec_names,
    coders_of,
    find_codec,
    pack,
    payload_codec,
    unknown_codec,
    wire_name,
)
from wmp.runtime.executors.handlers import serve
from wmp.runtime.submission.results import result_of

VECTORS = Path(__file__).parents[4] / "specs" / "vectors" / "values.json"


@pytest.fixture
def own_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_codecs, "_registered", {})


def decoded(codec: str, payload: bytes) -> Any:
    decode = payload_codec(codec).decode
    return payload if decode is None else decode(payload)


def there_and_back(value: Any, codec: str = "cbor-tags") -> Any:
    return decoded(codec, bytes(payload_codec(codec).encode(value)))


# -- vectors


@pytest.mark.rule("VALUE-2.1", "VALUE-2.2", "VALUE-2.3", "VALUE-2.4", "VALUE-2.5", "VALUE-3.1")
def test_the_values_of_the_vectors_are_decoded() -> None:
    vectors = {vector["name"]: vector for vector in json.loads(VECTORS.read_text(encoding="utf-8"))}
    for name, codec, value, _ in valid_payloads():
        decoded_value = decoded(codec, bytes.fromhex(vectors[name]["payload"]))
        assert (type(decoded_value), decoded_value) == (type(value), value), name


@pytest.mark.rule("VALUE-3.1", "VALUE-3.2")
def test_the_arrays_of_the_vectors_are_decoded_and_made_again() -> None:
    pytest.importorskip("numpy")
    for name, payload, shown in array_payloads():
        decoded_value = decoded("cbor-tags", bytes.fromhex(payload))
        array = decoded_value["a"] if name == "array-in-a-map" else decoded_value
        expected = shown.get("a", shown)
        assert (array.tolist(), str(array.dtype)) == (expected["array"], expected["type"]), name
        assert payload_codec("cbor-tags").encode(decoded_value).hex() == payload, name  # type: ignore[union-attr]


@pytest.mark.rule("VALUE-2.2", "VALUE-2.3", "VALUE-2.4", "VALUE-2.5")
@pytest.mark.rule("VALUE-3.1", "VALUE-3.2", "VALUE-3.4")
def test_the_malformed_payloads_of_the_vectors_are_refused() -> None:
    pytest.importorskip("numpy")
    for name, codec, payload, _ in refused_payloads():
        with pytest.raises(DecodeError):
            pytest.fail(f"{name}: {decoded(codec, bytes.fromhex(payload))!r}")


# -- values


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**100), 2**100)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes().map(lambda moment: moment.replace(fold=0))
    | st.datetimes(timezones=st.just(UTC))
    | st.times().map(lambda moment: moment.replace(fold=0))
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.fractions(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(-9, 9) | st.binary(), inner, max_size=4)
        | st.sets(st.integers() | st.text() | st.dates() | st.tuples(st.integers()), max_size=4)
    ),
    max_leaves=10,
)


@pytest.mark.rule("VALUE-3.1")
@settings(max_examples=30)
@given(value=values)
def test_values_arrive_as_they_were_sent(value: Any) -> None:
    assert there_and_back(value) == value


@pytest.mark.rule("VALUE-2.4", "VALUE-3.1")
@given(payload=st.binary(max_size=30))
def test_any_bytes_are_a_value_or_refused(payload: bytes) -> None:
    for codec in ("cbor-tags", "cbor", "json", "text", "frames"):
        try:
            value = decoded(codec, payload)
        except DecodeError:
            continue
        if codec == "cbor-tags" and type(value) is not bytes:
            payload_codec(codec).encode(value)


@pytest.mark.rule("VALUE-3.3")
def test_equal_sets_have_equal_payloads() -> None:
    encode = payload_codec("cbor-tags").encode
    # Both sets have one bucket for the two items, in the order of their insertion.
    assert encode({8, 0}) == encode({0, 8})


class Size(enum.IntEnum):
    SMALL = 1


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


@attrs.define
class Visit:
    when: date
    where: Point | None = None
    _secret: int = 0


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Point(1, 2.5), {"x": 1, "y": 2.5, "tags": []}),
        (Visit(date(2024, 1, 2)), {"when": date(2024, 1, 2), "where": None, "_secret": 0}),
        ([Size.SMALL, Colour.RED], [1, "red"]),
        (frozenset({1}), frozenset({1})),
        ([memoryview(b"a"), bytearray(b"b")], [b"a", b"b"]),
        ([2**64, memoryview(b"a")], [2**64, b"a"]),
        ({(1, 2)}, {(1, 2)}),
        ({frozenset({1})}, {frozenset({1})}),
    ],
)
def test_objects_are_sent_as_their_fields(value: Any, plain: Any) -> None:
    assert there_and_back(value) == plain


@pytest.mark.rule("VALUE-3.4", "VALUE-3.5")
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (object(), "has a object"),
        ([lambda: None], "has a function"),
        ({1.5: 2}, "a dict with a key of type float"),
        ({True: 2}, "a dict with a key of type bool"),
        (Decimal("NaN"), "the Decimal NaN"),
        (Decimal("1E+1000001"), "the Decimal 1E"),
        (1 << 9000, "a whole number of 9001 bits"),
        (1j, "a complex"),
    ],
)
def test_other_values_are_refused_with_a_remedy(value: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error) as caught:
        pack([value], "cbor-tags")
    assert "use None, booleans, numbers" in str(caught.value)


@pytest.mark.rule("VALUE-2.4")
def test_values_that_contain_themselves_or_nest_too_deep_are_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(TypeError, match="more than 100 levels"):
        pack(circle, "cbor-tags")
    deep: Any = ()
    for _ in range(98):
        deep = (deep,)
    assert there_and_back(deep) == deep
    with pytest.raises(DecodeError):
        decoded("cbor-tags", b"\x81" * 10_000 + b"\x80")


# -- arrays


def test_arrays_of_all_kinds_arrive_as_they_were_sent() -> None:
    numpy = pytest.importorskip("numpy")
    for kind in ("u1", "i1", "<u2", ">i2", "<i4", ">u4", "<i8", "<f2", ">f4", "<f8", "?"):
        for shape in ((), (0,), (6,), (2, 3), (3, 0), (1, 2, 3)):
            array = numpy.arange(numpy.prod(shape, dtype=int)).astype(kind).reshape(shape)
            for view in (array, array.T, array[..., ::2] if array.ndim else array):
                for value in (there_and_back(view), there_and_back([view])[0]):
                    assert value.dtype.newbyteorder("=") == view.dtype.newbyteorder("=")
                    assert value.shape == view.shape
                    assert (value == view).all()


def test_an_array_shares_the_memory_of_its_payload() -> None:
    numpy = pytest.importorskip("numpy")
    payload = payload_codec("cbor-tags").encode(numpy.arange(1000.0))

    array = decoded("cbor-tags", memoryview(payload))  # type: ignore[arg-type]

    assert numpy.shares_memory(array, numpy.frombuffer(payload, "u1"))
    assert not array.flags.writeable


@pytest.mark.rule("VALUE-3.6")
@pytest.mark.parametrize(
    "shape", [(600,), (9000,), (70, 9), (3, 1, 700), (1,) * 7 + (999,), (0, 3)]
)
@pytest.mark.parametrize("kind", ["u1", "<f8"])
def test_the_items_of_a_large_array_begin_at_a_multiple_of_eight_bytes(
    shape: tuple[int, ...], kind: str
) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(shape, kind)
    payload = payload_codec("cbor-tags").encode(array)

    if array.nbytes > 4096:
        assert (len(payload) - array.nbytes) % 8 == 0
    numpy.testing.assert_array_equal(decoded("cbor-tags", payload), array, strict=True)


@pytest.mark.rule("VALUE-3.6")
@pytest.mark.parametrize(
    "payload",
    ["d8454401000200", "d900455a0000000401000200", "da000000455b000000000000000401000200"],
)
def test_an_array_may_have_a_head_that_is_longer_than_needed(payload: str) -> None:
    numpy = pytest.importorskip("numpy")
    data = bytes.fromhex(payload)
    array = decoded("cbor-tags", data)

    assert array.tolist() == [1, 2]
    assert numpy.shares_memory(array, numpy.frombuffer(data, "u1"))
    assert decoded("cbor-tags", bytes((0x81, *data)))[0].tolist() == [1, 2]


def test_an_array_that_arrived_is_sent_on_without_a_copy() -> None:
    numpy = pytest.importorskip("numpy")
    codec = payload_codec("cbor-tags")
    for array in (numpy.arange(1000.0), numpy.arange(12).reshape(3, 4), numpy.zeros(0)):
        payload = codec.encode(array)
        frame = zmq.Frame(bytes(payload))
        assert codec.encode(decoded("cbor-tags", payload)) is payload
        sent_on = codec.encode(decoded("cbor-tags", frame.buffer))
        assert isinstance(sent_on, memoryview)
        assert sent_on.obj is frame
        assert sent_on == payload


def test_the_memory_of_a_large_payload_is_used_again_when_nothing_refers_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numpy = pytest.importorskip("numpy")
    free: deque[Any] = deque()
    monkeypatch.setattr(payload_memory, "_free", free)
    codec = payload_codec("cbor-tags")
    array = numpy.arange(100_000.0)

    payload = codec.encode(array)
    view = memoryview(payload)[8:]
    assert view.readonly
    del payload
    assert not free
    del view
    (block,) = free
    again = codec.encode(array + 1)
    assert not free
    assert numpy.shares_memory(block, numpy.frombuffer(again, "u1"))
    numpy.testing.assert_array_equal(decoded("cbor-tags", again), array + 1)  # type: ignore[arg-type]
    others = [codec.encode(array) for _ in range(60)]
    others.clear()
    assert 20 << 20 < sum(map(len, free)) <= 32 << 20
    smaller = codec.encode(array[:40_000])
    assert not any(numpy.shares_memory(item, numpy.frombuffer(smaller, "u1")) for item in free)


def test_a_part_of_an_array_that_arrived_is_copied() -> None:
    numpy = pytest.importorskip("numpy")
    codec = payload_codec("cbor-tags")
    payload = codec.encode(numpy.arange(1000.0).reshape(10, 100))
    array = decoded("cbor-tags", payload)

    for other in (array[1:], array.T, array.reshape(100, 10), array.view("<i8"), array.copy()):
        decoded_value = decoded("cbor-tags", bytes(codec.encode(other)))
        numpy.testing.assert_array_equal(decoded_value, other, strict=True)
        assert not numpy.shares_memory(decoded_value, array)


def test_only_memory_that_nobody_changes_is_sent_on() -> None:
    numpy = pytest.importorskip("numpy")
    codec = payload_codec("cbor-tags")
    own = bytearray(codec.encode(numpy.arange(1000.0)))
    array = decoded("cbor-tags", memoryview(own))  # type: ignore[arg-type]
    payload = codec.encode(array)
    # The head is here too, but the items are at another place.
    twice = bytes(payload) + bytes(8)
    moved = numpy.frombuffer(memoryview(twice)[: array.nbytes], "<f8")

    assert not numpy.shares_memory(array, numpy.frombuffer(payload, "u1"))
    numpy.testing.assert_array_equal(decoded("cbor-tags", codec.encode(moved)), moved)


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert there_and_back([numpy.int32(3), numpy.float32(0.5), numpy.bool_(True)]) == [3, 0.5, True]
    for unfit in (numpy.array(["a"]), numpy.array([1j]), numpy.array([None])):
        with pytest.raises(TypeError, match="no typed array in CBOR"):
            pack(unfit, "cbor-tags")


def test_a_missing_numpy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "numpy", None)
    with pytest.raises(DecodeError, match="needs numpy; run pip install numpy"):
        decoded("cbor-tags", bytes.fromhex("d8404101"))


# -- names


@pytest.mark.rule("VALUE-1.1", "VALUE-1.2", "VALUE-2.1")
def test_the_names_of_codecs() -> None:
    # `import wmp.rows` in another test adds `arrow` at the end.
    assert codec_names()[:6] == ["bytes", "text", "json", "cbor", "cbor-tags", "frames"]
    assert (wire_name("bytes"), wire_name("json")) == ("", "json")
    assert find_codec("") is find_codec("bytes")
    assert find_codec("protobuf") is None
    with pytest.raises(ConfigError, match="codec is 'protobuf'; expected one of bytes, text"):
        wmp.Manager(codec="protobuf")
    assert unpack_error(unknown_codec("protobuf"))[0] == "UnknownCodec"


def shout(value: str) -> bytes:
    return value.upper().encode()


def whisper(data: bytes) -> str:
    assert type(data) is bytes
    return data.decode().lower()


@pytest.mark.rule("VALUE-1.1")
def test_an_application_has_codecs_of_its_own(own_codecs: None) -> None:
    wmp.register_codec("loud", shout, whisper)
    wmp.register_codec("loud", shout, whisper)

    assert pack("a", "loud") == b"A"
    assert result_of(1, memoryview(b"A"), "loud") == ("a", None)
    decode, encode = coders_of("loud")
    assert decode is not None
    assert (decode(b"A"), encode("b")) == ("a", b"B")
    assert wmp.Manager(codec="loud")._inner.intake.terms.plain.codec == "loud"
    for name, error in (
        ("cbor", "belongs to this library"),
        ("", "expected 1 to 255 bytes"),
        ("é" * 128, "expected 1 to 255 bytes"),
        ("\ud800", "expected 1 to 255 bytes"),
        (b"loud", "expected 1 to 255 bytes"),
    ):
        with pytest.raises(ConfigError, match=error):
            wmp.register_codec(name, shout, whisper)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="with other functions"):
        wmp.register_codec("loud", shout, shout)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="decode of codec 'x' is None"):
        wmp.register_codec("x", shout, None)  # type: ignore[arg-type]


@pytest.mark.rule("VALUE-1.3", "VALUE-1.4")
def test_errors_of_codecs_are_errors_of_their_jobs(own_codecs: None) -> None:
    wmp.register_codec("loud", shout, whisper)

    with pytest.raises(TypeError, match="type int cannot be encoded by codec 'loud'"):
        pack(3, "loud")
    wmp.register_codec("wordy", str, int)  # type: ignore[arg-type]
    for encode in (coders_of("wordy")[1], lambda value: pack(value, "wordy")):
        with pytest.raises(TypeError, match="its function encode returned str; expected bytes"):
            encode(3)
    value, error = result_of(7, b"\xff", "loud")
    assert value is None
    assert isinstance(error, JobFailed)
    assert "the result of the job cannot be decoded" in str(error)
    assert isinstance(result_of(7, b"1", "gone")[1], JobFailed)
    assert result_of(7, (7, End.OK, b"1", 1), "json") == (1, None)
    with pytest.raises(TypeError, match="the handler's result cannot be encoded"):
        coders_of("json")[1]({1, 2})
    with pytest.raises(TypeError, match="the handler returned bytes; expected str or None"):
        coders_of("text")[1](b"a")


@pytest.mark.rule("VALUE-1.2")
def test_a_process_that_does_not_know_a_codec_names_the_remedy() -> None:
    decode, _ = coders_of("protobuf")
    assert decode is not None
    with pytest.raises(LookupError, match=r"register_codec\(\) in the module of the handler"):
        decode(b"")


# -- annotations


UserId = NewType("UserId", int)


class Pair(NamedTuple):
    left: int
    right: date


class Model:
    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        return cls(value)


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


DAY = date(2024, 2, 29)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (str, b"\xc3\xa4", "ä"),
        (str, "a", "a"),
        (int, 3, 3),
        (UserId, 3, 3),
        (Annotated[int, "id"], 3, 3),
        (float, 3, 3.0),
        (bool, True, True),
        (bytearray, b"a", bytearray(b"a")),
        (date, "2024-02-29", DAY),
        (date, DAY, DAY),
        (datetime, "2024-02-29T12:00:00+00:00", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        (time, "12:30:00", time(12, 30)),
        (timedelta, 1.5, timedelta(seconds=1.5)),
        (UUID, str(UUID(int=5)), UUID(int=5)),
        (Decimal, "1.50", Decimal("1.50")),
        (Decimal, 2, Decimal(2)),
        (Fraction, "0.5", Fraction(1, 2)),
        (Path, "a/b", Path("a/b")),
        (Colour, "red", Colour.RED),
        (list[date], ["2024-02-29"], [DAY]),
        (tuple[int, date], [1, "2024-02-29"], (1, DAY)),
        (tuple[int, ...], [1, 2], (1, 2)),
        (set[int], [1, 2], {1, 2}),
        (dict[int, date], {"3": "2024-02-29"}, {3: DAY}),
        (date | None, None, None),
        (date | None, "2024-02-29", DAY),
        (int | str, "3", "3"),
        (Literal["a", "b"], "a", "a"),
        (Pair, {"left": 1, "right": "2024-02-29"}, Pair(1, DAY)),
        (Point, {"x": 1}, Point(1)),
        (list[Point], [{"x": 1, "y": 2}], [Point(1, 2.0)]),
        (Visit, {"when": "2024-02-29", "where": {"x": 1}, "_secret": 3}, Visit(DAY, Point(1), 3)),
        (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
    ],
)
def test_an_argument_has_the_type_of_its_annotation(kind: Any, value: Any, expected: Any) -> None:
    convert = converter_of(kind)
    assert convert is not None
    converted = convert(value)
    assert (type(converted), converted) == (type(expected), expected)


@pytest.mark.parametrize("kind", [bytes, memoryview, object, Any, dict, "missing", type])
def test_other_annotations_change_nothing(kind: Any) -> None:
    assert converter_of(kind) is None


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        (int, "3", "it is of type str; expected a whole number"),
        (int, True, "it is of type bool"),
        (float, "3", "expected a number"),
        (date, 3, "expected text"),
        (date, "2024-02-30", "day is out of range"),
        (Decimal, "x", "it is 'x'; expected a decimal number"),
        (list[int], 3, "expected a list"),
        (list[int], ["a"], "expected a whole number"),
        (tuple[int, int], [1], "it has 1 items; expected 2"),
        (Literal["a"], "b", "it is 'b'; expected one of 'a'"),
        (Point, {"x": "1"}, "x: it is of type str"),
        (Point, {"x": 1, "z": 1}, "unexpected keyword argument 'z'"),
        (Point, [1], "expected a map of its fields"),
        (date | None, 3, "it is of type int; expected date or None"),
    ],
)
def test_an_unfit_payload_is_an_error_of_its_job(kind: Any, value: Any, error: str) -> None:
    convert = converter_of(kind)
    assert convert is not None
    with pytest.raises((TypeError, ValueError), match=error):
        convert(value)


def visit(visit: Visit) -> str:
    return visit.when.isoformat()


def mistaken(payload: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def test_a_handler_gets_the_annotated_type_also_in_another_process() -> None:
    served = pickle.loads(pickle.dumps(serve("r", visit)))
    for handler in (serve("r", visit), served):
        assert handler.convert is not None
        assert handler.convert({"when": "2024-02-29"}) == Visit(DAY)
        with pytest.raises(TypeError, match=r"the payload is not a valid Visit: .*codec='cbor'"):
            handler.convert(b"x")
    assert serve("r", mistaken).convert is None
    assert serve("r", bytes.upper).convert is None


def test_an_array_is_made_of_a_list_for_its_annotation() -> None:
    numpy = pytest.importorskip("numpy")
    typing = pytest.importorskip("numpy.typing")
    for kind in (numpy.ndarray, typing.NDArray[numpy.float64]):
        convert = converter_of(kind)
        assert convert is not None
        array = convert([1.0, 2.0])
        assert (array.dtype, array.tolist()) == (numpy.float64, [1.0, 2.0])
        assert convert(array) is array
        with pytest.raises(TypeError, match="expected an array or a list"):
            convert("a")


def test_models_validate_themselves() -> None:
    convert = converter_of(Model)
    assert convert is not None
    assert convert({"a": 1}).value == {"a": 1}


def test_plain_cbor_still_refuses_other_values() -> None:
    with pytest.raises(TypeError, match="has a date"):
        pack_value(DAY)
