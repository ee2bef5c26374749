"""The codec with random messages and random bytes."""

from __future__ import annotations

import pytest
from cbor2 import dumps, loads
from hypothesis import given
from hypothesis import strategies as st

from wmp.codec import (
    decode,
    encode,
    pack_error,
    pack_value,
    peek,
    unpack_error,
    unpack_value,
)
from wmp.errors import DecodeError
from wmp.message import Command, ErrorCode, Field, Message
from wmp.testing.peers.strategies import broken_frames, fields, messages, plain_values, texts

CODES = {ErrorCode.MALFORMED, ErrorCode.VERSION, ErrorCode.COMMAND, ErrorCode.LIMIT}


@given(st.sampled_from((Command.WAKE, Command.GIVE, Command.PING, Command.BYE)).flatmap(fields))
def test_a_drawn_message_has_no_ack_without_its_session(drawn: dict[int | str, object]) -> None:
    assert Field.ACK not in drawn or Field.SESSION in drawn


@given(messages())
@pytest.mark.rule("WMP-2.2", "WMP-2.3", "WMP-2.8", "WMP-2.9")
def test_an_encoded_message_decodes_to_itself(message: Message) -> None:
    frames = encode(message)

    assert decode(frames) == message
    assert decode([memoryview(frame) for frame in frames]) == message


@given(messages(), st.randoms(use_true_random=False))
@pytest.mark.rule("WMP-2.2")
def test_equal_messages_are_equal_bytes(message: Message, order: object) -> None:
    keys = list(message.fields)
    order.shuffle(keys)  # type: ignore[attr-defined]
    shuffled = {key: message.fields[key] for key in keys}
    again = Message(message.command, message.to, message.source, shuffled, message.columns)

    assert encode(again) == encode(message)
    assert encode(decode(encode(message))) == encode(message)


def deterministic(value: object) -> bytes:
    """Encode as RFC 8949 section 4.2.1 defines it; slow, and independent of cbor2's own option."""
    if isinstance(value, dict):
        pairs = sorted((deterministic(key), deterministic(item)) for key, item in value.items())
        start = bytearray(dumps([0] * len(pairs))[: len(dumps([0] * len(pairs))) - len(pairs)])
        start[0] += 0x20
        return bytes(start) + b"".join(key + item for key, item in pairs)
    if isinstance(value, list | tuple):
        length = len(value)
        start = bytearray(dumps([0] * length)[: len(dumps([0] * length)) - length])
        return bytes(start) + b"".join(map(deterministic, value))
    return dumps(value, canonical=True)


@given(messages())
@pytest.mark.rule("WMP-2.1", "WMP-2.2")
def test_every_frame_of_cbor_is_deterministic(message: Message) -> None:
    for frame in encode(message)[:2]:
        assert deterministic(loads(frame)) == frame


@given(broken_frames())
@pytest.mark.rule("WMP-2.4", "WMP-12.3")
def test_any_frames_are_a_message_or_a_decode_error(frames: list[bytes]) -> None:
    for read in (decode, peek):
        message, error = None, None
        try:
            message = read(frames)
        except DecodeError as caught:
            error = caught
        if message is None:
            assert error is not None
            assert error.code in CODES
            assert "\n" not in str(error)
        else:
            # A decoded message can be encoded again with the same meaning. (NaN differs from
            # itself, so bytes are compared.)
            assert encode(read(encode(message))) == encode(message)


@given(messages())
@pytest.mark.rule("WMP-2.3", "WMP-8.4")
def test_a_device_passes_on_undecoded_frames_unchanged(message: Message) -> None:
    frames = [memoryview(frame) for frame in encode(message)]
    seen = peek(frames)
    passed = Message(
        seen.command,
        seen.to,
        (*seen.source, b"device", 1, b"\0\1"),
        seen.fields,
        frames=seen.frames,
    )
    out = encode(passed)

    assert all(sent is other for sent, other in zip(out[1:], frames[1:], strict=True))
    end = decode(out)
    assert (end.fields, end.columns) == (message.fields, message.columns)
    assert end.source == (*message.source, b"device", 1, b"\0\1")


@given(plain_values())
@pytest.mark.rule("WMP-12.3")
def test_an_application_value_comes_back(value: object) -> None:
    assert unpack_value(pack_value(value)) == value


@given(st.binary(max_size=80))
@pytest.mark.rule("WMP-12.3")
def test_any_payload_is_a_value_or_a_decode_error(payload: bytes) -> None:
    try:
        value = unpack_value(payload)
    except DecodeError:
        return
    assert repr(unpack_value(pack_value(value))) == repr(value)


@given(texts(), texts(), st.text(st.characters(codec=None), max_size=50))
def test_an_error_comes_back(type_name: str, text: str, traceback: str) -> None:
    readable = traceback.encode("utf-8", "backslashreplace").decode()

    assert unpack_error(pack_error(type_name, text, traceback)) == (type_name, text, readable)


@given(st.binary(max_size=80))
def test_a_garbled_error_is_readable(payload: bytes) -> None:
    triple = unpack_error(payload)

    assert list(map(type, triple)) == [str, str, str]
