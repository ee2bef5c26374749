"""The codec, rule by rule. The vectors and the property tests cover the rest of the codec."""

from __future__ import annotations

import enum
import struct
from collections import OrderedDict, namedtuple
from datetime import datetime
from decimal import Decimal
from typing import Any

import cbor2
import pytest
from invalid_messages import (
    COLUMNS,
    DONE,
    WAKE,
    Raw,
    cbor,
    head,
    item,
    take,
    wake,
    without,
)
from valid_messages import (
    FROM_MANAGER,
    LARGE,
    NEEDS,
    OWNER,
    TO_WORKER,
)

from wmp.codec import (
    CodecLimits,
    decode,
    encode,
    pack_error,
    pack_frames,
    pack_value,
    peek,
    unpack_error,
    unpack_frames,
    unpack_value,
)
from wmp.codec.decoding import _WHOLE
from wmp.codec.message_tables import REQUIRED, WITH_COLUMNS, WITHOUT_TO
from wmp.errors import DecodeError, LocalProtocolError
from wmp.message import Columns, Command, Field, Limits, Message, Outcome

FIELDS = {0: 1, 2: 1, 10: "default", 11: NEEDS, 12: 1, 16: OWNER}


def take_of(columns: Columns, **fields: Any) -> Message:
    return Message(Command.TAKE, TO_WORKER, FROM_MANAGER, FIELDS, columns)


def refused(frames, code="malformed", limits=None):
    with pytest.raises(DecodeError) as caught:
        decode(frames, limits or CodecLimits())
    assert code == caught.value.code, caught.value
    return caught.value


# --- heads ---


@pytest.mark.rule("WMP-2.1")
@pytest.mark.parametrize("command", list(Command))
def test_byte_two_is_the_command(command):
    frame = encode(Message(command, TO_WORKER, FROM_MANAGER, {}))[0]

    assert bytes((0x85, 0x01, command)) == frame[:3]
    assert [1, command, list(TO_WORKER), list(FROM_MANAGER), {}] == cbor2.loads(frame)


@pytest.mark.rule("WMP-2.2")
def test_keys_are_in_the_order_of_their_bytes():
    # The order of RFC 7049 (length first) would put "b" (2 bytes) before 256 (3 bytes).
    fields = {"aa": 1, 70000: 2, "b": 3, 256: 4, 26: 5, 30: {"x": 1, -1: 2, 300: 3}}
    message = Message(Command.BYE, TO_WORKER, FROM_MANAGER, fields)

    tail = bytes.fromhex(
        "a6 181a 05 181e a3 19012c 03 20 02 6178 01 190100 04 1a00011170 02 6162 03 626161 01"
    )
    assert encode(message)[0].endswith(tail)


@pytest.mark.rule("WMP-2.2")
@pytest.mark.parametrize("number", [0, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1])
def test_integers_take_the_fewest_bytes(number):
    message = Message(Command.BYE, TO_WORKER, FROM_MANAGER, {1: number, 99: -1 - number})

    assert encode(message)[0].endswith(
        b"\xa2\x01" + item(0, number) + b"\x18\x63" + item(1, number)
    )
    assert decode(encode(message)) == message


@pytest.mark.rule("WMP-2.2")
@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (1.0, "f93c00"),
        (0.1, "fb3fb999999999999a"),
        (100000.0, "fa47c35000"),
        (float("nan"), "f97e00"),
        (float("-inf"), "f9fc00"),
        (-0.0, "f98000"),
    ],
)
def test_floats_take_the_fewest_bytes(number, encoded):
    message = Message(Command.BYE, TO_WORKER, FROM_MANAGER, {"x": number})

    assert encode(message)[0].endswith(bytes.fromhex(encoded))


@pytest.mark.rule("WMP-2.2")
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64])
def test_larger_integers_are_neither_sent_nor_taken(number):
    with pytest.raises(LocalProtocolError):
        encode(Message(Command.BYE, TO_WORKER, FROM_MANAGER, {"x": number}))
    if abs(number) < 2**64:
        refused(wake(fields={**WAKE, "x": number}))


@pytest.mark.rule("WMP-2.3")
def test_unknown_keys_are_carried_as_they_are():
    extra = {1000: 1, 2**63 - 1: [b"\0", None], "trace": {"id": "x", "n": 1.5}, "": True}
    message = Message(Command.WAKE, TO_WORKER, FROM_MANAGER, {**WAKE, **extra})

    assert extra.items() <= decode(encode(message)).fields.items()
    seen = peek(encode(message))
    assert encode(seen) == encode(message)


@pytest.mark.rule("WMP-2.4")
def test_a_registered_key_of_the_wrong_type_is_malformed_in_every_command():
    for command in Command:
        error = refused([head(command, {**FIELDS, 5: "many"})])
        assert "field 5 is text" in str(error)


@pytest.mark.rule("WMP-2.4")
@pytest.mark.parametrize("command", list(Command))
def test_every_required_field_is_required(command):
    values = {
        **FIELDS,
        4: 1,
        5: 1,
        7: ["r"],
        8: NEEDS,
        9: 1,
        13: 1,
        19: 1,
        20: "limit",
    }
    tail = [cbor({**COLUMNS, 4: 0})] if command in WITH_COLUMNS else []
    assert decode([head(command, values), *tail]).command is command
    for key in REQUIRED[command]:
        error = refused([head(command, without(values, key)), *tail])
        assert f"fields [{key}] are missing" in str(error)


@pytest.mark.rule("WMP-2.5")
def test_a_path_names_the_sender_and_then_each_device():
    source = (b"w", 1, b"d1", 2, b"\0conn", b"d2", 3, 7)
    message = Message(Command.BYE, (1, b"m"), source, {})
    seen = decode(encode(message))

    assert seen.sender == (b"w", 1)
    assert seen.hops == 2
    assert seen.answer_to == (7, 3, b"d2", b"\0conn", 2, b"d1", 1, b"w")
    answer = decode(encode(Message(Command.NO, seen.answer_to, (b"m", 1), {0: 1, 2: 1, 12: 1})))
    assert answer.to == source[::-1]


@pytest.mark.rule("WMP-2.6")
@pytest.mark.parametrize("command", list(Command))
def test_only_discovery_announcements_and_errors_have_an_empty_to(command):
    values = {**FIELDS, 4: 1, 5: 1, 7: ["r"], 8: NEEDS, 9: 1, 13: 1, 19: 1, 20: "limit"}
    tail = [cbor({**COLUMNS, 4: 0})] if command in WITH_COLUMNS else []
    frames = [head(command, values, ()), *tail]

    if command in (Command.READY, Command.PING, Command.PONG, Command.BYE, Command.ERROR):
        assert decode(frames).to == ()
        assert command in WITHOUT_TO
    else:
        assert "'to' is empty" in str(refused(frames))


@pytest.mark.rule("WMP-2.6", "WMP-8.11")
def test_an_announcement_needs_no_session_and_every_other_pong_does():
    announcement = head(Command.PONG, {19: 6000}, ())
    assert decode([announcement]).fields == {19: 6000}
    assert "fields [19] are missing" in str(refused([head(Command.PONG, {2: 1}, ())]))
    assert "fields [2] are missing" in str(refused([head(Command.PONG, {19: 6000})]))


@pytest.mark.rule("WMP-10.4")
def test_an_unknown_command_or_version_is_reported_with_its_sender():
    error = refused([head(23, {})], "command")
    assert (error.command, error.source) == (23, FROM_MANAGER)
    error = refused(wake(version=2), "version")
    assert (error.command, error.source) == (2, FROM_MANAGER)
    with pytest.raises(DecodeError) as caught:
        peek(wake(version=2))
    assert caught.value.code == "version"


# --- columns ---


@pytest.mark.rule("WMP-2.8")
@pytest.mark.parametrize("command", list(Command))
def test_columns_are_there_exactly_when_they_must_be(command):
    values = {**FIELDS, 4: 1, 5: 1, 7: ["r"], 8: NEEDS, 9: 1, 13: 1, 19: 1, 20: "limit"}
    alone = [head(command, values)]
    followed = [*alone, cbor({**COLUMNS, 4: 0})]

    if command in (Command.TAKE, Command.DONE, Command.STATUS, Command.CANCEL):
        assert decode(followed).columns is not None
        for read in (decode, peek):
            with pytest.raises(DecodeError, match="columns are missing behind the head"):
                read(alone)
    else:
        assert decode(alone).columns is None
        if command is not Command.PING:
            for read in (decode, peek):
                with pytest.raises(DecodeError, match="this command has no columns"):
                    read(followed)


@pytest.mark.rule("WMP-2.8")
def test_a_directed_ping_may_have_columns():
    held = {1: [1, 2], 2: [1, 3]}

    message = decode([head(9, {}), cbor(held)])
    assert (message.columns.ids, message.columns.attempts) == ([1, 2], [1, 3])
    refused([head(9, {}, ()), cbor(held)])


@pytest.mark.rule("WMP-2.8")
def test_equal_values_travel_as_one():
    columns = Columns([5, 6, 7], [2, 2, 2], left_ms=[None] * 3, payloads=[b"x"] * 3)
    frames = encode(take_of(columns))

    assert cbor2.loads(frames[1]) == {1: [5, 6, 7], 2: 2, 3: None, 5: [b"x"] * 3}
    assert decode(frames).columns == columns


@pytest.mark.rule("WMP-2.8")
def test_values_that_are_equal_only_in_python_stay_different():
    columns = Columns([1, 2], [1, 1], fractions=[0.0, -0.0])
    frames = encode(Message(Command.STATUS, TO_WORKER, FROM_MANAGER, DONE, columns))

    assert repr(cbor2.loads(frames[1])[6]) == "[0.0, -0.0]"


@pytest.mark.rule("WMP-2.8")
def test_a_single_value_and_an_array_of_it_are_the_same():
    message = decode(take({1: [1, 2], 2: 3, 3: 9, 5: [b"", b""]}))
    other = decode(take({1: [1, 2], 2: [3, 3], 3: [9, 9], 5: [b"", b""]}))

    assert message == other
    assert message.columns.attempts == [3, 3]


@pytest.mark.rule("WMP-2.2")
@pytest.mark.parametrize("ids", [[1, 23, 24, 25], [200, 255, 256, 300, 70000], [1, 2**40] * 3])
def test_ids_of_several_widths_travel(ids):
    columns = Columns(ids, list(ids), payloads=[b""] * len(ids))
    frames = encode(take_of(columns))

    assert cbor(ids) in frames[1]
    assert decode(frames).columns == columns


def test_outcomes_travel_as_numbers():
    columns = Columns(
        [1, 2], [1, 1], outcomes=[Outcome.ERROR, Outcome.REFUSED], payloads=[b"", b""]
    )
    frames = encode(Message(Command.DONE, TO_WORKER, FROM_MANAGER, DONE, columns))

    assert {type(outcome) for outcome in decode(frames).columns.outcomes} == {int}
    assert decode(frames).columns == columns


@pytest.mark.rule("WMP-2.9")
def test_a_large_payload_travels_uncopied_in_a_frame_of_its_own():
    limit = b"l" * Limits.INLINE
    columns = Columns([1, 2, 3, 4], [1] * 4, payloads=[LARGE, limit, LARGE[:-1] + b"z", b""])
    frames = encode(take_of(columns))

    assert [None, limit, None, b""] == cbor2.loads(frames[1])[5]
    assert len(frames) == 4
    assert frames[2] is columns.payloads[0]
    assert frames[3] is columns.payloads[2]
    views = [memoryview(frame) for frame in frames]
    payloads = decode(views).columns.payloads
    assert payloads[0] is views[2]
    assert payloads == list(columns.payloads)


@pytest.mark.rule("WMP-2.9")
@pytest.mark.parametrize("frames", [0, 1, 3])
def test_there_are_as_many_payload_frames_as_nulls(frames):
    table = {1: [1, 2], 2: 1, 5: [None, None]}

    assert decode(take(table, b"a", b"b")).columns.payloads == [b"a", b"b"]
    refused(take(table, *[b"x"] * frames))


@pytest.mark.rule("WMP-2.9")
def test_a_payload_of_any_view_is_sent_as_bytes():
    numbers = memoryview(struct.pack("4d", 1, 2, 3, 4)).cast("d")
    every_other = memoryview(b"a-b-c-")[::2]
    large = memoryview(bytearray(8 * 1024)).cast("d")
    columns = Columns(
        [1, 2, 3, 4], [1] * 4, payloads=[numbers, every_other, large, bytearray(b"x")]
    )
    seen = decode(encode(take_of(columns))).columns.payloads

    assert [numbers.tobytes(), b"abc", bytes(8192), b"x"] == seen


@pytest.mark.parametrize(
    "columns",
    [
        Columns([], []),
        Columns([1] * 4097, [1] * 4097),
        Columns([1, 2], [1]),
        Columns([1, 2], [1, 1], payloads=[b""]),
        Columns([-1], [1]),
        Columns([1], [-1]),
        Columns([2**63], [1]),
        Columns([1], [1], payloads=["text"]),
        Columns([1], [1], texts=[object()]),
        Columns([1], ["1"]),
    ],
)
def test_columns_that_cannot_travel_are_a_bug_of_the_sender(columns):
    with pytest.raises(LocalProtocolError, match="TAKE"):
        encode(take_of(columns))


@pytest.mark.parametrize("source", [(b"m", -1), ("m", 1), (b"m", None), (b"m", 2**63)])
def test_paths_that_cannot_travel_are_a_bug_of_the_sender(source):
    with pytest.raises(LocalProtocolError):
        encode(Message(Command.BYE, (1, b"m"), source, {}))


# --- limits ---


@pytest.mark.rule("WMP-2.10")
@pytest.mark.parametrize(
    ("limits", "frames"),
    [
        (CodecLimits(head=40), wake()),
        (CodecLimits(columns=8), take({**COLUMNS, 5: [b"longer"]})),
        (CodecLimits(payload=4), take({**COLUMNS, 5: [b"longer"]})),
        (CodecLimits(payload=20), take({**COLUMNS, 5: [None]}, b"x" * 21)),
        (CodecLimits(jobs=1), take({1: [1, 2], 2: 1, 5: [b"", b""]})),
        (CodecLimits(frames=2), take({**COLUMNS, 5: [None]}, b"x")),
        (CodecLimits(hops=0), wake(source=(*FROM_MANAGER, b"d", 1, 0))),
        (CodecLimits(identity=6), wake()),
        (CodecLimits(roles=0), wake()),
        (CodecLimits(name=6), wake()),
        (CodecLimits(text=3), wake(fields={**WAKE, Field.TEXT: "four"})),
    ],
)
def test_every_limit_holds(limits, frames):
    decode(frames)
    refused(frames, "limit", limits)


@pytest.mark.rule("WMP-2.10")
def test_every_limit_has_the_default_of_the_specification():
    limits = CodecLimits()

    assert (limits.head, limits.columns, limits.payload) == (16 * 1024, 16 * 2**20, 256 * 2**20)
    assert (limits.jobs, limits.hops, limits.roles, limits.name) == (4096, 16, 256, 255)


@pytest.mark.rule("WMP-2.10")
@pytest.mark.parametrize("payload", [b"", b"\x00" * 4000])
def test_as_many_jobs_as_are_allowed_are_taken(payload):
    count = Limits.JOBS
    columns = Columns(list(range(1, count + 1)), [1] * count, payloads=[payload] * count)
    frames = encode(take_of(columns))

    assert (len(frames[1]) > _WHOLE) == bool(payload)
    assert decode(frames).columns == columns


@pytest.mark.rule("WMP-2.10")
def test_a_large_frame_is_not_decoded_before_its_lengths_are_known(monkeypatch):
    filler = b"\x80" * 200_000  # decoding it would make as many empty arrays
    table = b"\xa2\x01" + item(4, len(filler)) + filler + b"\x02\x01"
    decoded = []
    monkeypatch.setattr(
        "wmp.codec.decoding.load",
        lambda stream, depth: decoded.append(stream.tell()) or cbor2.load(stream),
    )

    error = refused(take(Raw(table)), "limit")
    assert "at most 4096 are accepted" in str(error)
    assert decoded == [0, 1]  # the head, and of the columns only a key


@pytest.mark.rule("WMP-2.10", "WMP-12.3")
@pytest.mark.parametrize(
    ("rest", "code"),
    [
        (b"\x63abc\x80", "malformed"),  # the third pair is missing
        (b"\x01\x81\x01\x01\x81\x01", "malformed"),  # the same key twice
        (b"\x81\x01\x01\x02\x01", "malformed"),  # an array as a key
        (b"\x01\x81\x81\x01\x02\x01", "malformed"),  # nested
        (b"\x01\xa1\x01\x01\x02\x01", "malformed"),  # a map
        (b"\x01\xc2\x41\x01\x02\x01", "malformed"),  # a tag
        (b"\x01\x9f\xff\x02\x01", "malformed"),  # indefinite
        (b"\x01\x9c\x02\x01", "malformed"),  # not well-formed
        (b"\x01\x9a\x00\x00\x10\x01", "limit"),  # 4097 entries
        (b"\x01\x9b" + b"\xff" * 8, "limit"),
        (b"\x01\x81\x01\x02\x01\x00", "malformed"),  # a byte behind the value
        (b"", "malformed"),
    ],
)
def test_a_large_frame_is_as_strict(rest, code):
    padding = b"\x18\x63" + item(2, _WHOLE) + bytes(_WHOLE)

    refused(take(Raw(b"\xa3" + padding + rest)), code)


@pytest.mark.rule("WMP-2.3")
def test_a_large_frame_with_an_unknown_column_is_taken():
    padding = b"\x18\x63" + item(2, _WHOLE) + bytes(_WHOLE)
    table = b"\xa4" + padding + cbor({1: [7], 2: Raw(b"\x9a\0\0\0\1\5"), 5: [b"x"]})[1:]

    assert decode(take(Raw(table))).columns == Columns([7], [5], payloads=[b"x"])


@pytest.mark.rule("WMP-12.3")
def test_a_tag_is_refused_before_its_content_is_decoded():
    # Computing two to this power would take minutes or never end.
    bigfloat = Raw(b"\xc5\x82\x1b\x00\x00\x00\xff\xff\xff\xff\xff\x01")

    assert "tag 5 is not allowed" in str(refused(wake(fields={**WAKE, "x": bigfloat})))
    with pytest.raises(DecodeError, match="tag 5"):
        unpack_value(bigfloat)


@pytest.mark.rule("WMP-12.3")
@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_nesting_does_no_harm(depth):
    deep = Raw(b"\x81" * depth + b"\x00")

    roomy = CodecLimits(head=2 * depth + 1000)
    refused([deep], limits=roomy)
    refused(wake(fields={**WAKE, "x": deep}), limits=roomy)
    refused(take(deep))
    refused(take({**COLUMNS, 99: deep}))
    with pytest.raises(DecodeError):
        unpack_value(b"\x81" + deep)


def test_views_are_read_as_bytes_are():
    frames = take({**COLUMNS, 5: [None]}, b"x")

    assert decode([memoryview(frame) for frame in frames]) == decode(frames)
    assert peek([memoryview(frame) for frame in frames]) == peek(frames)


def test_small_arrays_come_out_as_tuples():
    fields = {20: "superseded", 24: (b"w", 1), 16: OWNER, 7: ("a", "b")}
    seen = decode([head(12, fields)]).fields

    assert (seen[24], seen[16], seen[7]) == ((b"w", 1), OWNER, ("a", "b"))


# --- what applications put in payloads ---


class Color(enum.IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ((1, b"y"), [1, b"y"]),
        (bytearray(b"x"), b"x"),
        (2**64 - 1, 2**64 - 1),
        ([{1: None, b"k": 2.5}, True], [{1: None, b"k": 2.5}, True]),
    ],
)
def test_plain_values_are_kept(value, seen):
    assert unpack_value(pack_value(value)) == seen


@pytest.mark.rule("WMP-12.3")
@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Color.RED, "a Color, a subclass of int"),
        ([Point(1, b"y")], "a Point, a subclass of tuple"),
        ({"k": OrderedDict(a=1)}, "a OrderedDict, a subclass of dict"),
        ({Color.RED: 3}, "keys of type Color"),
        ({1, 2}, "set"),
        (datetime(2020, 1, 1), "datetime"),
        ([Decimal(1)], "Decimal"),
        ({"k": object()}, "object"),
        (memoryview(b"x"), "memoryview"),
        (2**64, "integer of 65 bits"),
        ([1, 2**64], "integer"),
        ({(1, 2): 3}, "keys"),
        ({True: 3}, "keys"),
        ("\ud800", "surrogates"),
    ],
)
def test_a_value_that_cannot_be_encoded_is_named(value, named):
    with pytest.raises(TypeError, match=named):
        pack_value(value)


def test_a_cycle_or_a_very_deep_value_is_refused():
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]

    for value in (cycle, deep):
        with pytest.raises(TypeError, match="nested too deep"):
            pack_value(value)
    # The lists are taken apart here, because Python would free nested lists recursively.
    while isinstance(deep, list):
        deep = deep.pop()


@pytest.mark.parametrize("data", [b"", b"\x01\x01", b"\x9f\xff", b"\xc1\x01", b"\xf7", b"\xe0"])
def test_a_payload_that_is_no_value_is_refused(data):
    with pytest.raises(DecodeError, match="codec 'cbor'"):
        unpack_value(data)


def test_frames_travel_as_an_array_of_byte_strings():
    payload = pack_frames([b"one", memoryview(b""), b"three"])

    assert cbor2.loads(payload) == [b"one", b"", b"three"]
    assert unpack_frames(memoryview(payload)) == (b"one", b"", b"three")


@pytest.mark.parametrize("value", [[], [1], [b"x", "y"], b"x", {1: b"x"}])
def test_a_payload_that_is_no_list_of_frames_is_refused(value):
    with pytest.raises(DecodeError, match="codec 'frames'"):
        unpack_frames(pack_value(value))


def test_an_error_travels():
    payload = pack_error("ValueError", "not one", "Traceback …")

    assert unpack_error(memoryview(payload)) == ("ValueError", "not one", "Traceback …")
    assert cbor2.loads(payload) == ["ValueError", "not one", "Traceback …"]


def test_a_long_error_loses_its_middle():
    _, text, _ = unpack_error(pack_error("E", "<" + "x" * 10**6 + ">"))

    assert text.startswith("<x")
    assert text.endswith("x>")
    assert "characters left out" in text
    assert len(text) < 70_000


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\x01", cbor(["a", "b"]), cbor(["a", 1, "c"])])
def test_a_garbled_error_is_reported_as_unreadable(payload):
    name, text, traceback = unpack_error(payload)

    assert (name, traceback) == ("UnreadableError", "")
    assert text.startswith("the worker's error")
