"""The kit's check of codecs: this project's codec passes, and broken codecs fail by their rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cbor2
import pytest

from wmp import codec
from wmp.codec import CodecLimits
from wmp.conformance import Broken, check_codec
from wmp.conformance.wire.codec_check import Plain, message_of, plain_of
from wmp.errors import DecodeError
from wmp.message import ErrorCode, Frame


def encode(plain: Plain) -> Sequence[Frame]:
    return codec.encode(message_of(plain))


def decode(frames: Sequence[bytes]) -> Plain:
    return plain_of(codec.decode(frames))


def test_this_project_conforms() -> None:
    check_codec(encode, decode, examples=10)


def shuffled(plain: Plain) -> Sequence[Frame]:
    head, *rest = encode(plain)
    fields = cbor2.loads(bytes(head))
    fields[4] = dict(reversed(fields[4].items()))
    return [cbor2.dumps(fields), *rest]


def frames_forgotten(plain: Plain) -> Sequence[Frame]:
    frames = encode(plain)
    return frames[:2]


def forgets(name: str) -> Callable[[Sequence[bytes]], Plain]:
    def forget(frames: Sequence[bytes]) -> Plain:
        plain = dict(decode(frames))
        if name == "unknown":
            plain["fields"] = {k: v for k, v in plain["fields"].items() if k in range(27)}
        elif name == "columns" and plain["columns"]:
            plain["columns"] = {k: v[:1] for k, v in plain["columns"].items()}
        elif name == "hops":
            plain["from"] = plain["from"][:2]
        return plain

    return forget


def lenient(word: str) -> Callable[[Sequence[bytes]], Plain]:
    """Accepts messages that were refused with a reason that contains this word."""

    def take(frames: Sequence[bytes]) -> Plain:
        try:
            return decode(frames)
        except DecodeError as error:
            if word in str(error):
                return {"command": 1, "to": [], "from": [b"x", 1], "fields": {}, "columns": None}
            raise

    return take


def unlimited(frames: Sequence[bytes]) -> Plain:
    return plain_of(codec.decode(frames, CodecLimits(head=1 << 20, hops=99)))


def one_code(frames: Sequence[bytes]) -> Plain:
    try:
        return decode(frames)
    except DecodeError as error:
        error.code = ErrorCode.MALFORMED
        raise


@pytest.mark.parametrize(
    ("rule", "encode", "decode"),
    [
        ("WMP-2.2", shuffled, decode),
        ("WMP-2.9", frames_forgotten, decode),
        ("WMP-2.3", encode, forgets("unknown")),
        ("WMP-2.5", encode, forgets("hops")),
        ("WMP-2.8", encode, forgets("columns")),
        ("WMP-2.1", encode, lenient("expected five")),
        ("WMP-2.2", encode, lenient("tag 6")),
        ("WMP-12.3", encode, lenient("tag 28")),
        ("WMP-2.4", encode, lenient("field 12")),
        ("WMP-2.5", encode, lenient("a path has")),
        ("WMP-2.6", encode, lenient("'to' is empty")),
        ("WMP-2.8", encode, lenient("ids")),
        ("WMP-2.9", encode, lenient("payload frames")),
        ("WMP-2.10", encode, unlimited),
        ("WMP-10.4", encode, one_code),
    ],
)
def test_a_broken_codec_is_caught_by_the_rule_it_breaks(
    rule: str, encode: Any, decode: Any
) -> None:
    with pytest.raises(Broken) as caught:
        check_codec(encode, decode, examples=40)

    assert caught.value.rule == rule, caught.value.text


def test_a_codec_that_takes_noise_is_caught() -> None:
    def believe(frames: Sequence[bytes]) -> Plain:
        try:
            return decode(frames)
        except DecodeError:
            if len(frames) > 3:
                return {}
            raise

    with pytest.raises(Broken, match="was read as a message"):
        check_codec(encode, believe)
