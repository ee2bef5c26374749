"""Messages that must be refused: each is a correct message with one change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from wmp import codec
from wmp.codec.message_tables import COLUMN_ATTRIBUTES
from wmp.conformance.wire.frame_check import FIELDS, REQUIRED
from wmp.message import VERSION, Command, ErrorCode, Field, Frame, Message

MALFORMED = (ErrorCode.MALFORMED,)
LIMIT = (ErrorCode.LIMIT,)
EITHER = (ErrorCode.LIMIT, ErrorCode.MALFORMED)

_WRONG: dict[str, Any] = {
    "unsigned integer": "text",
    "text": 7,
    "boolean": 1,
    "array of text": 7,
    "map of text to unsigned": [1],
    "[bytes, unsigned]": "text",
    "array of unsigned": 7,
}


_ENDLESS = b"\x85\x41w\x01\x41d\x01\xd8\x1c\x81\xd8\x1d\x00"
"""A path whose last item is an array that contains itself (tags 28 and 29)."""

NOISE: tuple[list[Frame], ...] = (
    [b""],
    [b"", b"", b""],
    [b"GET / HTTP/1.1\r\n\r\n"],
    [100_000 * b"\x81"],
    [b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff"],
    [bytes(range(256))],
)
"""Frames that are not a message of any version."""

CODES = (
    ErrorCode.UNKNOWN,
    ErrorCode.MALFORMED,
    ErrorCode.LIMIT,
    ErrorCode.LOOP,
    "of a later version",
)
"""Codes of ERRORs: some are known, one is from a later version."""


@frozen
class BadMessage:
    """Frames that must be refused."""

    rule: str
    """The rule that the frames break."""
    what: str
    """The defect of the frames."""
    frames: list[Frame]
    codes: Sequence[str] = MALFORMED
    """The codes that ERROR may carry as an answer."""


def bad_heads(good: Message) -> Iterator[BadMessage]:
    """Yield messages with a defect in the head, for testees of every kind.

    Args:
        good: A valid message with a ``to``. The defects are put into copies of it.
    """
    head, *rest = codec.encode(good)
    head = bytes(head)
    array, version, command = b"\x85", bytes((VERSION,)), bytes((good.command,))
    behind = head[3:]

    def bad(rule: str, what: str, first: bytes, codes: Sequence[str] = MALFORMED) -> BadMessage:
        return BadMessage(rule, what, [first, *rest], codes)

    yield bad("WMP-2.1", "a head of four items", b"\x84" + head[1:])
    yield bad("WMP-2.1", "a text instead of an array", b"\x65hello")
    yield bad("WMP-2.1", "nothing at all", b"")
    yield bad("WMP-2.1", "a head that ends too early", head[:-1])
    yield bad("WMP-2.1", "a command that is a text", array + version + b"\x61x" + behind)
    yield bad("WMP-10.4", "version 2", array + b"\x02" + command + behind, (ErrorCode.VERSION,))
    unknown = array + version + b"\x18\x63" + behind
    yield bad("WMP-10.4", "command 99", unknown, (ErrorCode.COMMAND,))
    later = b"\x86\x02" + command + behind + b"\xf6"
    yield bad("WMP-2.1", "version 2 of six items", later, (ErrorCode.VERSION,))
    yield bad("WMP-2.2", "bytes behind the value", head + b"\x00")
    yield bad("WMP-2.2", "an array of indefinite length", b"\x9f" + head[1:] + b"\xff")
    yield bad("WMP-2.2", "a tag around the head", b"\xc6" + head)
    fields = codec.encode(evolve(good, fields={}))[0]
    start = bytes(fields)[:-1]
    own = bytes(codec.encode(good)[0])[len(start) :]
    count = own[0] & 31
    if count < 22:
        more = bytes((0xA0 | (count + 1),)) + own[1:]
        twice = bytes((0xA0 | (count + 2),)) + own[1:]
        yield bad("WMP-2.2", "a duplicate key", start + twice + b"\x61x\x01\x61x\x02")
        nested = start + more + b"\x61x" + 30 * b"\x81" + b"\x01"
        yield bad("WMP-2.2", "nesting deeper than 16", nested)
        indefinite = start + more + b"\x61x" + b"\x5f\x41a\xff"
        yield bad("WMP-2.2", "a byte string of indefinite length", indefinite)
        for tag, name in ((b"\xc1\x00", "a date"), (b"\xd8\x1c\x01", "a shared value")):
            yield bad("WMP-12.3", f"a tag that makes {name}", start + more + b"\x61x" + tag)
        object_ = b"\xd9\x01\x00\x82\x69os.system\x81\x64true"
        yield bad("WMP-12.3", "a tag that names a function", start + more + b"\x61x" + object_)
    yield bad("WMP-2.3", "fields that are an array", start + b"\x80")
    for key in good.fields:
        if isinstance(key, int) and key in FIELDS:
            name, kind = FIELDS[key]
            wrong = evolve(good, fields={**good.fields, key: _WRONG[kind]})
            yield _made("WMP-2.4", f"{name} of a wrong type", wrong, rest)
    for path, what in (
        ((), "an empty from"),
        ((b"only",), "a from of one item"),
        ((b"w", 1, b"d"), "a from with half a hop"),
        ((1, b"w"), "a from that begins with a number"),
    ):
        yield _made("WMP-2.5", what, evolve(good, source=path), rest)
    if good.command not in (Command.READY, Command.PING, Command.ERROR):
        yield _made("WMP-2.6", "no receiver", evolve(good, to=()), rest)


def half_read(good: Message) -> Iterator[BadMessage]:
    """Yield messages with a defect in the head whose ``from`` can be read (WMP-10.2).

    Args:
        good: A valid message with a ``to``. The defects are put into copies of it.
    """
    for bad in bad_heads(good):
        if bad.rule in ("WMP-2.3", "WMP-2.4", "WMP-2.6"):
            yield bad


def meaningless(good: Message) -> Iterator[BadMessage]:
    """Yield messages that lack parts which the command needs; `core` drops them.

    Args:
        good: A valid message with a ``to``. The defects are put into copies of it.
    """
    rest = codec.encode(good)[1:]
    wants = (Field.ROLES, Field.NEEDS) if good.command is Command.GIVE else ()
    needed = (*REQUIRED[good.command], *wants)
    wrong = {f"{FIELDS[key][0]} of a wrong type" for key in needed}
    for bad in bad_heads(good):
        if bad.rule in ("WMP-2.1", "WMP-2.6", "WMP-10.4") or bad.what in wrong:
            yield bad
    for key in needed:
        fields = {other: value for other, value in good.fields.items() if other != key}
        yield _made("WMP-2.4", f"no {FIELDS[key][0]}", evolve(good, fields=fields), rest)


def misaddressed(good: Message) -> Iterator[Message]:
    """Yield copies of a message for another peer, and for other epochs of its receiver."""
    epoch, identity = good.to[-2:]
    assert isinstance(epoch, int)
    for to in ((epoch, b"somebody"), (epoch + 1, identity), (epoch - 1, identity)):
        yield evolve(good, to=to)


def endless(good: Message) -> Frame:
    """Return a message whose ``from`` some decoders can read, but no encoder can write."""
    head = bytes(codec.encode(good)[0])
    source = bytes(codec.encode(evolve(good, fields={}))[0])
    start = bytes(codec.encode(evolve(good, source=(b"", 0), fields={}))[0])
    before, fields = start[: -len(b"\x82\x40\x00\xa0")], head[len(source) - 1 :]
    return before + _ENDLESS + fields


def noise_around(good: Message, head: Message) -> Iterator[list[Frame]]:
    """Yield noise, parts of a correct message, and wrong frames behind a correct head."""
    first, second = (bytes(frame) for frame in codec.encode(good))
    broken: Sequence[list[Frame]] = (
        [b"\x00"],
        [first[:-3], second],
        [first, second[:-3]],
        [second, first],
        [b"\x85\x01" + bytes((good.command,)) + b"\x80\x80\xa0", b"\xa0"],
        [b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff"],
        [first, *5000 * [b""]],
        [endless(head)],
    )
    yield from (*NOISE, *broken)


def bad_columns(good: Message) -> Iterator[BadMessage]:
    """Yield messages with a defect behind the head.

    Args:
        good: A TAKE or DONE; a testee acts on it.
    """
    columns = good.columns
    assert columns is not None
    head, frame, *rest = codec.encode(good)
    full = dict(enumerate_columns(good))

    def bad(rule: str, what: str, changed: Mapping[Any, Any], *payloads: bytes) -> BadMessage:
        # The encoder of a head's fields writes any map, so it can write columns too.
        fields = dict(changed)
        encoded = bytes(codec.encode(evolve(good, fields=fields, columns=None))[0])
        empty = len(bytes(codec.encode(evolve(good, fields={}, columns=None))[0])) - 1
        return BadMessage(rule, what, [head, encoded[empty:], *payloads])

    yield BadMessage("WMP-2.8", "no columns", [head])
    yield BadMessage("WMP-2.8", "columns that are not a map", [head, b"\x80", *rest])
    yield bad("WMP-2.8", "no ids", {key: full[key] for key in full if key != 1})
    yield bad("WMP-2.8", "no payloads", {key: full[key] for key in full if key != 5})
    yield bad("WMP-2.8", "no jobs", {key: [] for key in full})
    yield bad("WMP-2.8", "columns of different lengths", {**full, 2: [*full[2], 1, 1]})
    yield bad("WMP-2.8", "ids that are not an array", {**full, 1: 1})
    yield bad("WMP-2.8", "an id that is a text", {**full, 1: ["x"] * len(full[1])})
    yield BadMessage("WMP-2.9", "a payload frame too many", [head, frame, *rest, b"too many"])
    yield bad("WMP-2.9", "a null without a payload frame", {**full, 5: [None] * len(full[1])})
    many = {**full, 5: [None] * len(full[1])}
    extra = [b"x"] * (len(full[1]) + 1)
    yield bad("WMP-2.9", "more payload frames than nulls", many, *extra)
    yield BadMessage("WMP-2.2", "bytes behind the columns", [head, bytes(frame) + b"\x00", *rest])


def enumerate_columns(message: Message) -> Iterator[tuple[int, Any]]:
    """Yield the columns of a message with their keys, and the payloads in their column."""
    columns = message.columns
    assert columns is not None
    for key, name in COLUMN_ATTRIBUTES.items():
        column = getattr(columns, name)
        if column is not None:
            yield key, [bytes(value) if name == "payloads" else value for value in column]


def too_much(good: Message) -> Iterator[BadMessage]:
    """Yield well-formed messages above a default limit.

    Args:
        good: A READY; a testee acts on it.
    """
    head = bytes(codec.encode(good)[0])
    start = bytes(codec.encode(evolve(good, fields={}))[0])[:-1]
    count = head[len(start)] & 31
    more = start + bytes((0xA0 | (count + 1),)) + head[len(start) + 1 :]
    big = 17 * 1024
    padded = more + b"\x61x\x59" + big.to_bytes(2, "big") + bytes(big)
    yield BadMessage("WMP-2.10", "a head above 16 KiB", [padded], LIMIT)
    hop = (b"device", 1, b"\x00")
    path = (*good.source[:2], *(item for _ in range(17) for item in hop))
    long = evolve(good, source=path)
    yield BadMessage(
        "WMP-2.10", "17 hops", list(codec.encode(long)), (ErrorCode.LIMIT, ErrorCode.LOOP)
    )
    name = evolve(good, source=(b"i" * 256, good.source[1]))
    yield BadMessage("WMP-1.1", "an identity of 256 bytes", list(codec.encode(name)), EITHER)
    bigger: list[tuple[str, dict[int | str, Any]]] = [
        ("a role of 256 bytes", {7: ["r" * 256]}),
        ("257 roles", {7: [f"r{number}" for number in range(257)]}),
        ("a label of 1025 bytes", {25: "l" * 1025}),
        ("a resource's name of 256 bytes", {8: {"r" * 256: 1}}),
    ]
    for what, fields in bigger:
        changed = evolve(good, fields={**good.fields, **fields})
        yield BadMessage("WMP-2.10", what, list(codec.encode(changed)), LIMIT)


def _made(rule: str, what: str, message: Message, rest: Sequence[Frame]) -> BadMessage:
    head = codec.encode(evolve(message, columns=None))[0]
    return BadMessage(rule, what, [head, *rest])
