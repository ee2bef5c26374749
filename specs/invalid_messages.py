"""Messages that the codec does not encode, put together item by item.

Receivers must refuse some of them, with the given code of ERROR. They may accept others, although
no peer should send them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from valid_messages import (
    ABOVE,
    DEVICE,
    EPOCH,
    FROM_MANAGER,
    FROM_WORKER,
    MANAGER,
    NEEDS,
    OWNER,
    TO_MANAGER,
    TO_WORKER,
)

from wmp.codec.message_tables import COLUMN_NAMES
from wmp.message import FIELD_NAMES, Command


def item(major: int, number: int, width: int | None = None) -> bytes:
    """Return the initial bytes of an item, shortest unless ``width`` is given."""
    if width is None:
        width = next(
            w
            for w, top in ((0, 24), (1, 1 << 8), (2, 1 << 16), (4, 1 << 32), (8, 1 << 64))
            if number < top
        )
    if width == 0:
        return bytes((major << 5 | number,))
    return bytes((major << 5 | 24 + (1, 2, 4, 8).index(width),)) + number.to_bytes(width)


class Raw(bytes):
    """Bytes that are CBOR already."""


def cbor(value: Any) -> bytes:
    """Encode plain values in the order given; :class:`Raw` is inserted unchanged."""
    match value:
        case Raw():
            return value
        case None:
            return b"\xf6"
        case bool():
            return b"\xf5" if value else b"\xf4"
        case int():
            return item(0, value) if value >= 0 else item(1, -1 - value)
        case float():
            return b"\xfb" + struct.pack(">d", value)
        case bytes():
            return item(2, len(value)) + value
        case str():
            return item(3, len(value.encode())) + value.encode()
        case list() | tuple():
            return item(4, len(value)) + b"".join(map(cbor, value))
        case dict():
            pairs = b"".join(cbor(key) + cbor(entry) for key, entry in value.items())
            return item(5, len(value)) + pairs
    raise TypeError(type(value))


def head(
    command: Any,
    fields: Any,
    to: Any = TO_WORKER,
    source: Any = FROM_MANAGER,
    version: Any = 1,
) -> bytes:
    """Return a head with any parts."""
    return cbor([version, command, to, source, fields])


TAKE: dict[Any, Any] = {0: 1, 2: 1, 10: "default", 11: NEEDS, 12: 1, 16: OWNER}
DONE: dict[Any, Any] = {0: 1, 2: 1, 16: OWNER}
WAKE: dict[Any, Any] = {9: 1, 10: "default", 11: NEEDS}
READY: dict[Any, Any] = {4: 1, 5: 1, 7: ["default"], 8: NEEDS}
COLUMNS: dict[Any, Any] = {1: [1], 2: 1, 5: [b"x"]}
DONE_COLUMNS: dict[Any, Any] = {1: [1], 2: 1, 4: 0, 5: [b"x"]}


def wake(**parts: Any) -> list[bytes]:
    """Return a WAKE with other parts."""
    return [head(2, parts.pop("fields", WAKE), **parts)]


def take(columns: Any = COLUMNS, *frames: bytes, **fields: Any) -> list[bytes]:
    """Return a TAKE with other columns."""
    return [head(4, TAKE), columns if isinstance(columns, Raw) else cbor(columns), *frames]


def done(columns: Any) -> list[bytes]:
    """Return a DONE with other columns."""
    return [head(6, DONE, TO_MANAGER, FROM_WORKER), cbor(columns)]


def without(table: dict[Any, Any], key: int) -> dict[Any, Any]:
    """Return a map without one key."""
    return {other: value for other, value in table.items() if other != key}


def invalid() -> Iterator[tuple[str, list[bytes], str, str]]:
    """Yield every invalid message: name, frames, the ERROR code to answer, and why."""
    good = head(2, WAKE)
    yield "no-frames", [], "malformed", "there is no head"
    yield "empty-head", [b""], "malformed", "the head has no bytes"
    yield "empty-delimiter", [b"", good], "malformed", "there is no empty delimiter"
    yield "not-cbor", [b"\x85\x01\x02\x1c"], "malformed", "0x1c is not well-formed"
    yield "head-cut-short", [good[:-1]], "malformed", "the last item is incomplete"
    yield "head-and-more", [good + b"\x00"], "malformed", "a byte follows the array"
    yield "head-is-a-map", [cbor({1: 2})], "malformed", "the head is an array"
    yield "head-of-four", [cbor([1, 2, TO_WORKER, FROM_MANAGER])], "malformed", "five items"
    yield (
        "head-of-six",
        [cbor([1, 2, TO_WORKER, FROM_MANAGER, WAKE, None])],
        "malformed",
        "five items",
    )
    yield "head-of-indefinite-length", [b"\x9f" + good[1:] + b"\xff"], "malformed", "indefinite"
    yield "array-header-of-two-bytes", [b"\x98\x05" + good[1:]], "malformed", "must take a byte"
    yield "version-of-two-bytes", [b"\x85\x18\x01" + good[2:]], "malformed", "must take a byte"
    yield "command-of-two-bytes", [b"\x85\x01\x18" + good[2:]], "malformed", "must take a byte"
    yield "version-0", wake(version=0), "version", "version is 1"
    yield "version-2", wake(version=2), "version", "version is 1"
    yield "version-of-another-shape", [cbor([2, {}])], "version", "nothing else may be assumed"
    yield "version-24", wake(version=24), "version", "the version is checked first"
    yield "version-2-of-six", [cbor([2, 2, (), (), {}, 0])], "version", "whatever follows it"
    yield "version-2-without-command", [cbor([2])], "version", "whatever follows it"
    yield "version-2-command-text", [head("x", {}, version=2)], "version", "version first"
    yield "version-is-text", wake(version="1"), "malformed", "version is an integer"
    yield "version-is-true", wake(version=True), "malformed", "true is not 1"
    yield "command-0", [head(0, WAKE)], "command", "commands are 1 to 12"
    yield "command-23", [head(23, {})], "command", "commands are 1 to 12"
    yield "command-24", [head(24, {})], "command", "commands are 1 to 12"
    yield "command-1000", [head(1000, {})], "command", "commands are 1 to 12"
    yield "command-is-text", [head("WAKE", WAKE)], "malformed", "a command is an integer"
    yield "command-is-negative", [head(-1, WAKE)], "malformed", "a command is unsigned"
    yield "from-is-empty", wake(source=()), "malformed", "identity and epoch at least"
    yield "from-is-null", wake(source=None), "malformed", "from is an array"
    yield "from-has-no-epoch", wake(source=(MANAGER,)), "malformed", "identity and epoch"
    yield "from-with-half-a-hop", wake(source=(*FROM_MANAGER, DEVICE, 1)), "malformed", "threes"
    yield "from-with-text", wake(source=("manager", EPOCH)), "malformed", "identities are bytes"
    yield "from-with-empty-identity", wake(source=(b"", EPOCH)), "malformed", "1 to 255 bytes"
    yield "from-with-long-identity", wake(source=(b"m" * 256, EPOCH)), "limit", "1 to 255 bytes"
    yield "from-with-negative-epoch", wake(source=(MANAGER, -1)), "malformed", "epochs are unsigned"
    yield "from-with-huge-epoch", wake(source=(MANAGER, 2**63)), "malformed", "at most 2**63 - 1"
    yield "from-with-true-epoch", wake(source=(MANAGER, True)), "malformed", "true is not 1"
    yield (
        "from-with-null-local-id",
        wake(source=(*FROM_MANAGER, DEVICE, 1, None)),
        "malformed",
        "a local id is bytes or unsigned",
    )
    yield "from-with-17-hops", wake(source=(*FROM_MANAGER, *ABOVE * 17)), "limit", "16 at most"
    yield "to-with-17-hops", wake(to=(*ABOVE[::-1] * 17, *TO_WORKER)), "limit", "16 at most"
    yield "to-not-reversed", wake(to=FROM_WORKER), "malformed", "epoch first, identity last"
    yield "to-is-a-map", wake(to={}), "malformed", "to is an array"
    yield "to-is-null", wake(to=None), "malformed", "to is an array"
    for number, name, fields in (
        (2, "wake", WAKE),
        (3, "give", {12: 1, 13: 0}),
        (5, "no", {0: 1, 2: 1, 12: 1}),
    ):
        yield (
            f"{name}-without-to",
            [head(number, fields, ())],
            "malformed",
            "only READY, PING, PONG, BYE, ERROR",
        )
    lost = [head(4, TAKE, ()), cbor(COLUMNS)]
    yield "take-without-to", lost, "malformed", "only READY, PING, PONG, BYE, ERROR"
    announcement = [head(10, {2: 1}, ())]
    yield (
        "announcement-without-max-silence",
        announcement,
        "malformed",
        "PONG without to has max_silence",
    )
    yield "fields-is-an-array", wake(fields=[]), "malformed", "fields is a map"
    yield "fields-is-null", wake(fields=None), "malformed", "fields is a map"
    yield "field-key-negative", wake(fields={**WAKE, -1: 0}), "malformed", "unsigned or text"
    yield "field-key-bytes", wake(fields={**WAKE, b"k": 0}), "malformed", "unsigned or text"
    yield "field-key-true", wake(fields={True: 0, **WAKE}), "malformed", "unsigned or text"
    yield "field-key-float", wake(fields={**WAKE, 99.5: 0}), "malformed", "unsigned or text"
    yield "field-key-array", wake(fields=Raw(b"\xa1\x81\x00\x00")), "malformed", "unsigned or text"
    yield (
        "field-twice",
        wake(fields=Raw(b"\xa4\x09\x01\x09\x01" + cbor({10: "a", 11: {}})[1:])),
        "malformed",
        "a key must not be repeated",
    )
    yield (
        "field-twice-in-two-widths",
        wake(fields=Raw(b"\xa4\x09\x01\x18\x09\x01" + cbor({10: "a", 11: {}})[1:])),
        "malformed",
        "0x1809 is 9 as well",
    )
    wrong: Sequence[tuple[int, str, Any]] = (
        (0, "number-0", 0),
        (0, "number-text", "1"),
        (1, "ack-negative", -1),
        (2, "session-0", 0),
        (2, "session-huge", 2**63),
        (3, "again-1", 1),
        (4, "ready-0", 0),
        (5, "credit-float", 1.0),
        (6, "window-null", None),
        (7, "roles-text", "default"),
        (7, "roles-of-bytes", [b"default"]),
        (8, "resources-array", []),
        (8, "resources-of-negative", {"slots": -1}),
        (8, "resources-by-number", {1: 1}),
        (9, "count-0", 0),
        (9, "count-true", True),
        (10, "role-bytes", b"default"),
        (11, "needs-of-float", {"slots": 0.5}),
        (12, "lock-0", 0),
        (13, "want-negative", -1),
        (14, "hold-float", 0.5),
        (15, "more-null", None),
        (16, "manager-bytes", MANAGER),
        (16, "manager-without-epoch", [MANAGER]),
        (16, "manager-with-a-hop", [*OWNER, *ABOVE]),
        (17, "codec-number", 1),
        (18, "unstarted-0", 0),
        (19, "max-silence-text", "6 s"),
        (20, "code-number", 404),
        (21, "text-bytes", b"text"),
        (22, "about-text", "TAKE"),
        (23, "about-number-negative", -1),
        (24, "about-peer-null", None),
        (25, "label-number", 1),
        (27, "standby-1", 1),
        (30, "keep-negative", -1),
        (31, "serves-peer", OWNER),
        (31, "serves-of-bytes", [MANAGER]),
        (32, "kept-null", None),
        (33, "sent-text", "1"),
        (35, "versions-number", 1),
        (35, "versions-of-text", ["1"]),
        (35, "versions-of-negative", [-1]),
        (36, "forwards-bytes", MANAGER),
        (36, "forwards-of-peers", [OWNER]),
        (37, "passed-text", "m"),
        (37, "passed-empty-identity", [b""]),
    )
    for key, name, value in wrong:
        why = f"{FIELD_NAMES[key]} has another type, in any command"
        yield f"field-{name}", wake(fields={**WAKE, key: value}), "malformed", why
    yield "role-too-long", wake(fields={**WAKE, 10: "r" * 256}), "limit", "255 bytes a name"
    yield "role-too-long-in-bytes", wake(fields={**WAKE, 10: "ü" * 128}), "limit", "256 bytes"
    yield (
        "serves-too-many",
        [head(10, {2: 1, 19: 6000, 31: [OWNER] * 257})],
        "limit",
        "256 stores",
    )
    yield (
        "versions-too-many",
        [head(12, {20: "version", 35: [1] * 257})],
        "limit",
        "256 versions",
    )
    yield (
        "passed-too-many",
        [head(4, {**TAKE, 37: [MANAGER] * 257}), cbor(COLUMNS)],
        "limit",
        "256 managers",
    )
    yield (
        "roles-too-many",
        [head(1, {**READY, 7: [""] * 257}, (), FROM_WORKER)],
        "limit",
        "256 roles",
    )
    yield "head-too-long", wake(fields={**WAKE, "x": b"\x00" * 16384}), "limit", "16 KiB a head"
    required: Sequence[tuple[int, dict[Any, Any]]] = (
        (1, READY),
        (2, WAKE),
        (3, {12: 1, 13: 0}),
        (4, TAKE),
        (5, {0: 1, 2: 1, 12: 1}),
        (6, DONE),
        (7, DONE),
        (8, DONE),
        (10, {2: 1, 19: 6000}),
        (12, {20: "limit"}),
    )
    for number, fields in required:
        command = Command(number)
        tail = [cbor(DONE_COLUMNS)] if 4 <= number <= 8 and number != 5 else []
        for key in fields:
            yield (
                f"{command.name.lower()}-without-{FIELD_NAMES[key]}",
                [head(number, without(fields, key)), *tail],
                "malformed",
                f"{command.name} requires {FIELD_NAMES[key]}",
            )
    for key, name in ((7, "roles"), (11, "needs")):
        fields = without({7: ["default"], 11: NEEDS, 12: 1, 13: 1}, key)
        yield (
            f"give-open-without-{name}",
            [head(3, fields)],
            "malformed",
            f"want > 0 requires {name}",
        )
    tags: Sequence[tuple[str, bytes]] = (
        ("date", b"\xc0\x74" + b"2013-03-21T20:04:00Z"),
        ("bignum", b"\xc2\x41\x01"),
        ("bigfloat", b"\xc5\x82\x1b\x00\x00\x00\xff\xff\xff\xff\xff\x01"),
        ("regular-expression", b"\xd8\x23\x61a"),
        ("set", b"\xd9\x01\x02\x81\x01"),
        ("shared", b"\xd8\x1c\x81\xd8\x1d\x00"),
        ("string-references", b"\xd9\x01\x00\x82\x63abc\xd8\x19\x00"),
        ("unknown", b"\xda\x00\x01\x86\xa0\x00"),
    )
    for name, data in tags:
        yield f"tag-{name}", wake(fields={**WAKE, "x": Raw(data)}), "malformed", "no tags"
    yield "tag-around-the-head", [b"\xd9\xd9\xf7" + good], "malformed", "no tags"
    yield "undefined", wake(fields={**WAKE, "x": Raw(b"\xf7")}), "malformed", "no undefined"
    yield "simple-value", wake(fields={**WAKE, "x": Raw(b"\xf8\xff")}), "malformed", "no others"
    yield (
        "indefinite-text",
        wake(fields={**WAKE, 10: Raw(b"\x7f\x61a\xff")}),
        "malformed",
        "definite",
    )
    yield "indefinite-bytes", wake(source=(Raw(b"\x5f\x41a\xff"), 1)), "malformed", "definite"
    yield "indefinite-map", wake(fields=Raw(b"\xbf\xff")), "malformed", "definite"
    yield "text-not-utf-8", wake(fields={**WAKE, 10: Raw(b"\x62\xc3\x28")}), "malformed", "UTF-8"
    yield (
        "text-surrogate",
        wake(fields={**WAKE, 10: Raw(b"\x63\xed\xa0\x80")}),
        "malformed",
        "UTF-8",
    )
    yield "integer-too-large", wake(fields={**WAKE, "x": 2**63}), "malformed", "at most 2**63 - 1"
    yield (
        "nested-too-deep",
        wake(fields={**WAKE, "x": Raw(b"\x81" * 1000 + b"\x00")}),
        "malformed",
        "a head nests at most 16 deep",
    )
    yield "length-of-exbibytes", [b"\x85\x01\x02\x9b" + b"\x7f" * 8], "malformed", "incomplete"
    yield "bytes-of-exbibytes", [b"\x85\x01\x02\x82\x5b" + b"\x7f" * 8], "malformed", "incomplete"
    # columns
    yield "take-without-columns", [head(4, TAKE)], "malformed", "TAKE has columns"
    yield "wake-with-columns", [good, cbor(COLUMNS)], "malformed", "WAKE has none"
    yield (
        "ping-discovery-with-columns",
        [head(9, {}, (), FROM_WORKER), cbor({1: [1], 2: 1})],
        "malformed",
        "only a directed PING may have columns",
    )
    yield "columns-empty-frame", take(Raw(b"")), "malformed", "columns are a map"
    yield "columns-an-array", take(Raw(cbor([[1], 1]))), "malformed", "columns are a map"
    yield "columns-and-more", take(Raw(cbor(COLUMNS) + b"\xf6")), "malformed", "a byte follows"
    yield "columns-cut-short", take(Raw(cbor(COLUMNS)[:-1])), "malformed", "incomplete"
    yield "columns-indefinite", take(Raw(b"\xbf\x01\x81\x01\x02\x01\xff")), "malformed", "definite"
    yield "columns-key-negative", take({**COLUMNS, -1: 1}), "malformed", "unsigned or text"
    yield "columns-key-true", take({True: [1], 2: 1, 5: [b""]}), "malformed", "unsigned or text"
    yield "columns-key-twice", take(Raw(b"\xa3\x01\x81\x01\x02\x01\x02\x01")), "malformed", "once"
    yield "columns-nested", take({**COLUMNS, 99: [[1]]}), "malformed", "entries are single values"
    yield "columns-of-a-map", take({**COLUMNS, 99: {}}), "malformed", "array or single value"
    yield "columns-tagged", take({**COLUMNS, 99: Raw(b"\xc2\x41\x01")}), "malformed", "no tags"
    yield "columns-undefined", take({**COLUMNS, 99: Raw(b"\xf7")}), "malformed", "no undefined"
    for key in (1, 2, 5):
        yield (
            f"take-without-{COLUMN_NAMES[key]}",
            take(without(COLUMNS, key)),
            "malformed",
            f"TAKE requires {COLUMN_NAMES[key]}",
        )
    yield "done-without-outcomes", done(COLUMNS), "malformed", "DONE requires outcomes"
    yield "done-without-payloads", done({1: [1], 2: 1, 4: 0}), "malformed", "DONE requires payloads"
    yield "ids-empty", take({1: [], 2: 1, 5: []}), "malformed", "1 job at least"
    yield "ids-single-value", take({1: 1, 2: 1, 5: [b"x"]}), "malformed", "ids is an array"
    yield "ids-0", take({1: [0], 2: 1, 5: [b"x"]}), "malformed", "ids begin at 1"
    yield "ids-true", take({1: [True], 2: 1, 5: [b"x"]}), "malformed", "true is not 1"
    many = {1: [7, 8, 9, 10, True], 2: 1, 5: [b""] * 5}
    yield "ids-true-among-others", take(many), "malformed", "true is not 1"
    yield "ids-huge", take({1: [2**63], 2: 1, 5: [b"x"]}), "malformed", "at most 2**63 - 1"
    yield "ids-text", take({1: ["1"], 2: 1, 5: [b"x"]}), "malformed", "ids are unsigned"
    yield "ids-null", take({1: [1, None], 2: 1, 5: [b"", b""]}), "malformed", "ids are unsigned"
    full = {1: list(range(1, 4098)), 2: 1, 5: [b""] * 4097}
    yield "ids-too-many", take(full), "limit", "4096 jobs a message"
    yield "attempts-0", take({1: [1], 2: 0, 5: [b"x"]}), "malformed", "attempts begin at 1"
    yield "attempts-null", take({1: [1], 2: None, 5: [b"x"]}), "malformed", "attempts are unsigned"
    yield "attempts-shorter", take({1: [1, 2], 2: [1], 5: [b"", b""]}), "malformed", "k entries"
    yield "attempts-longer", take({1: [1], 2: [1, 1], 5: [b"x"]}), "malformed", "k entries"
    yield "left-negative", take({**COLUMNS, 3: [-1]}), "malformed", "left is unsigned or null"
    yield "left-float", take({**COLUMNS, 3: 0.5}), "malformed", "left is unsigned or null"
    yield "left-shorter", take({1: [1, 2], 2: 1, 3: [1], 5: [b"", b""]}), "malformed", "k entries"
    for key in (8, 9, 10):
        name = COLUMN_NAMES[key]
        yield f"{name}-negative", take({**COLUMNS, key: -1}), "malformed", "unsigned or null"
    waits = {1: [1], 2: 1, 4: 1, 5: [b"x"], 11: 0.5}
    yield "waits-float", done(waits), "malformed", "unsigned or null"
    yield "outcome-6", done({1: [1], 2: 1, 4: 6, 5: [b"x"]}), "malformed", "outcomes are 0 to 5"
    yield "outcome-null", done({1: [1], 2: 1, 4: [None], 5: [b"x"]}), "malformed", "0 to 5"
    yield "outcome-false", done({1: [1], 2: 1, 4: False, 5: [b"x"]}), "malformed", "0 to 5"
    yield "payloads-single-value", take({1: [1], 2: 1, 5: b"x"}), "malformed", "an array"
    yield "payloads-text", take({1: [1], 2: 1, 5: ["x"]}), "malformed", "bytes or null"
    yield "payloads-shorter", take({1: [1, 2], 2: 1, 5: [b""]}), "malformed", "k entries"
    yield "payload-frame-missing", take({1: [1], 2: 1, 5: [None]}), "malformed", "1 null, 0 frames"
    yield "payload-frame-too-many", take(COLUMNS, b"x"), "malformed", "0 nulls, 1 frame"
    yield (
        "payload-frames-two-for-one",
        take({1: [1], 2: 1, 5: [None]}, b"x", b"y"),
        "malformed",
        "1 null, 2 frames",
    )
    yield (
        "cancel-with-a-payload-frame",
        [head(8, DONE), cbor({1: [1], 2: 1}), b"x"],
        "malformed",
        "0 nulls, 1 frame",
    )
    status = head(7, DONE, TO_MANAGER, FROM_WORKER)
    yield (
        "fraction-integer",
        [status, cbor({1: [1], 2: 1, 6: 1})],
        "malformed",
        "fractions are floats or null",
    )
    yield (
        "status-text-bytes",
        [status, cbor({1: [1], 2: 1, 7: [b"x"]})],
        "malformed",
        "text or null",
    )
    yield "frames-too-many", take(COLUMNS, *[b""] * 4097), "limit", "4096 payloads at most"


def tolerated() -> Iterator[tuple[str, list[bytes], str]]:
    """Yield messages in well-formed but not deterministic CBOR (WMP-2.2): name, frames, defect."""
    yield "fields-not-sorted", wake(fields={11: NEEDS, 10: "default", 9: 1}), "keys out of order"
    yield (
        "integer-longer-than-needed",
        wake(fields={**WAKE, 9: Raw(item(0, 1, 8))}),
        "count is 1 in nine bytes",
    )
    yield "epoch-longer-than-needed", wake(source=(MANAGER, Raw(item(0, 5, 4)))), "5 in five bytes"
    yield (
        "text-length-longer-than-needed",
        wake(fields={**WAKE, 10: Raw(item(3, 1, 2) + b"a")}),
        "a length of 1 in three bytes",
    )
    yield (
        "float-longer-than-needed",
        [
            head(7, DONE, TO_MANAGER, FROM_WORKER),
            cbor({1: [1], 2: 1, 6: 0.5}),
        ],
        "0.5 as a double",
    )
    yield "columns-not-sorted", take({5: [b"x"], 2: 1, 1: [1]}), "keys out of order"
    yield (
        "equal-values-written-out",
        take({1: [1, 2], 2: [1, 1], 5: [b"", b""]}),
        "deterministic, but longer than a single value",
    )
    yield (
        "small-payload-in-its-own-frame",
        take({1: [1], 2: 1, 5: [None]}, b"x"),
        "deterministic, but slower than one frame",
    )
    yield (
        "checksum-above-32-bits",
        take({**COLUMNS, 12: [1 << 32]}),
        "well-formed, and fits no payload",
    )
    yield "unknown-column", take({**COLUMNS, 99: [None], "x": 1}), "ignored"
    yield (
        "field-of-another-command",
        wake(fields={**WAKE, 12: 5}),
        "a lock means nothing in WAKE: ignored",
    )
