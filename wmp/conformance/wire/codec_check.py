"""Check a codec, in process, against section 2: its written, read and refused messages.

A message is *plain* here, so that any codec can be adapted in a few lines::

    {
        "command": 4,
        "to": [5000, b"worker"],
        "from": [b"manager", 1000],
        "fields": {0: 1, 2: 1, 10: "echo", …},
        "columns": {1: [7], 2: [1], 5: [b"payload"]},   # None without
    }

In a plain message every column is written out, and each payload stands in its column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from wmp import codec
from wmp.codec.message_tables import COLUMN_ATTRIBUTES
from wmp.conformance.script.case import Broken
from wmp.conformance.wire.bad_messages import (
    BadMessage,
    bad_columns,
    bad_heads,
    enumerate_columns,
    too_much,
)
from wmp.conformance.wire.frame_check import check_form
from wmp.errors import DecodeError
from wmp.message import Columns, Command, Frame, Message
from wmp.testing.peers.strategies import broken_frames, messages

Plain = Mapping[str, Any]
"""A message in the plain form above."""

_PEER = (b"peer", 5)
_GIVE = Message(
    Command.GIVE, (9, b"me"), _PEER, {7: ("echo",), 11: {"slots": 1}, 12: 1, 13: 1, 14: 500}
)
_READY = Message(Command.READY, (), _PEER, {4: 1, 5: 1, 7: ("echo",), 8: {"slots": 1}})
_DONE = Message(
    Command.DONE,
    (9, b"me"),
    _PEER,
    {0: 1, 2: 1, 16: (b"me", 9)},
    Columns([1, 2], [1, 1], outcomes=[0, 0], payloads=[b"a", b"b"]),
)
_LARGE = Message(
    Command.TAKE,
    (9, b"me"),
    (*_PEER, b"device", 3, 0),
    {0: 300, 2: 1, 10: "echo", 11: {"slots": 1, "gpu": 2}, 12: 70_000, 16: (b"me", 9), "own": 1.5},
    Columns([1, 2, 3], [1, 2, 1], left_ms=[None, 5, None], payloads=[b"a", bytes(5000), b""]),
)


def plain_of(message: Message) -> dict[str, Any]:
    """Convert a message to the plain form."""
    columns = None if message.columns is None else dict(enumerate_columns(message))
    return {
        "command": int(message.command),
        "to": list(message.to),
        "from": list(message.source),
        "fields": {key: _listed(value) for key, value in message.fields.items()},
        "columns": columns,
    }


def message_of(plain: Plain) -> Message:
    """Convert a message from the plain form to :class:`~wmp.message.Message`."""
    columns = plain["columns"]
    return Message(
        Command(plain["command"]),
        tuple(plain["to"]),
        tuple(plain["from"]),
        dict(plain["fields"]),
        None
        if columns is None
        else Columns(**{COLUMN_ATTRIBUTES[key]: column for key, column in columns.items()}),
    )


def _listed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_listed(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _listed(entry) for key, entry in value.items()}
    return value


def check_codec(
    encode: Callable[[Plain], Sequence[Frame]],
    decode: Callable[[Sequence[bytes]], Plain],
    *,
    examples: int = 200,
    number: int = 0,
) -> None:
    """Check a codec against section 2.

    Args:
        encode: Converts a plain message to frames.
        decode: Converts frames to a plain message. For frames that are not a message it raises any
            exception; its ``code`` is compared with the ERROR codes of section 10.
        examples: The number of drawn messages of each kind.
        number: The seed.

    Raises:
        Broken: The codec breaks a rule; the text shows the frames in hex.
    """
    for bad in (*bad_heads(_GIVE), *bad_columns(_DONE), *too_much(_READY)):
        _must_refuse(decode, bad)
    for message in (_GIVE, _READY, _DONE, _LARGE):
        _must_take(encode, decode, message)
    chosen = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )

    @chosen
    @seed(number)
    @given(messages())
    def good(message: Message) -> None:
        _must_take(encode, decode, message)

    @chosen
    @seed(number)
    @given(broken_frames())
    def broken(frames: list[Frame]) -> None:
        data = [bytes(frame) for frame in frames]
        try:
            codec.decode(data)
        except DecodeError as error:
            # Any rule may be named, because the text states the defect.
            _must_refuse(decode, BadMessage("WMP-2.1", str(error), list(data), ()))

    good()
    broken()


def _must_refuse(decode: Callable[[Sequence[bytes]], Plain], bad: BadMessage) -> None:
    frames = [bytes(frame) for frame in bad.frames]
    try:
        decode(frames)
    except Exception as error:  # An exception of any type counts as a refusal of the frames.
        code = getattr(error, "code", None)
        if isinstance(code, str) and bad.codes and code not in bad.codes:
            text = f"{bad.what} raises the code {code!r}; expected {bad.codes[0]!r}"
            raise Broken(bad.rule, f"{text}; frames: {_hex(frames)}") from error
        return
    raise Broken(
        bad.rule, f"{bad.what} was read as a message; expected an exception; frames: {_hex(frames)}"
    )


def _must_take(
    encode: Callable[[Plain], Sequence[Frame]],
    decode: Callable[[Sequence[bytes]], Plain],
    message: Message,
) -> None:
    plain = plain_of(message)
    _must_read(decode, [bytes(frame) for frame in codec.encode(message)], plain)
    _must_write(encode, plain)


def _must_read(
    decode: Callable[[Sequence[bytes]], Plain], frames: list[bytes], plain: dict[str, Any]
) -> None:
    try:
        read = decode(frames)
    except Exception as error:
        text = f"reading {plain} raised {type(error).__name__}: {error}; expected the message"
        raise Broken("WMP-2.1", f"{text}; frames: {_hex(frames)}") from error
    _same(dict(read), plain, f"read from {_hex(frames)}")


def _must_write(encode: Callable[[Plain], Sequence[Frame]], plain: dict[str, Any]) -> None:
    try:
        frames = [bytes(frame) for frame in encode(plain)]
    except Exception as error:
        text = f"writing {plain} raised {type(error).__name__}: {error}; expected frames"
        raise Broken("WMP-2.1", text) from error
    check_form(frames, announces=True)
    _same(plain_of(codec.decode(frames)), plain, f"written as {_hex(frames)}")


def _same(seen: Mapping[str, Any], expected: Mapping[str, Any], how: str) -> None:
    for name, rule in (
        ("command", "WMP-2.1"),
        ("to", "WMP-2.5"),
        ("from", "WMP-2.5"),
        ("fields", "WMP-2.3"),
        ("columns", "WMP-2.8"),
    ):
        if _listed(seen.get(name)) != expected[name]:
            raise Broken(
                rule, f"'{name}' is {seen.get(name)!r}; expected {expected[name]!r}; {how}"
            )


def _hex(frames: Sequence[bytes]) -> str:
    return " ".join(frame[:60].hex() or "(empty)" for frame in frames[:5])
