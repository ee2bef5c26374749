"""WMP/1 messages to frames and back, written from `specs/wmp.md` section 2 alone.

It shares no code with `wmp`. `worker.py` and `manager.py` use it.
"""

import io
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cbor2

READY, WAKE, GIVE, TAKE, NO, DONE, STATUS, CANCEL, PING, PONG, BYE, ERROR = range(1, 13)
NAMES = [
    "", "ready", "wake", "give", "take", "no", "done", "status", "cancel", "ping", "pong", "bye",
]  # fmt: skip
OK, FAILED, REFUSED, CANCELLED, LOST, OVERRUN = range(6)  # outcomes
HEAD, COLUMNS, PAYLOAD, JOBS, HOPS, INLINE = 1 << 14, 1 << 24, 1 << 28, 4096, 16, 4096  # WMP-2.10


@dataclass
class Message:
    """One message. Columns have k entries each; all payloads are in `payloads`."""

    command: int
    to: list[Any]
    sender: list[Any]  # the field `from`
    fields: dict[Any, Any]
    columns: dict[Any, list[Any]] = field(default_factory=dict)


class Refused(Exception):
    """Invalid frames: the ERROR's code and text, the way back, and the command of the frames."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text, self.head = code, text, list[Any]()
        self.back: list[Any] = []
        self.command: int | None = None


def must(holds: bool, text: str, code: str = "malformed") -> bool:
    """Refuse the message unless the condition holds."""
    if not holds:
        raise Refused(code, text)
    return True


def _uint(minimum: int, maximum: int = (1 << 63) - 1) -> Callable[[Any], bool]:
    # The type is compared, because True equals 1.
    return lambda value: type(value) is int and minimum <= value <= maximum


def _text(maximum: int) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        return type(value) is str and must(len(value.encode()) <= maximum, "text too long", "limit")

    return fits


def _type(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


def _names(value: Any) -> bool:
    return _few(value, _name)


def _amounts(value: Any) -> bool:
    return type(value) is dict and _names(list(value)) and all(map(_natural, value.values()))


def _identity(value: Any) -> bool:
    return type(value) is bytes and value != b"" and must(len(value) < 256, "too long", "limit")


# The path: identity, epoch, then (identity, epoch, local) of each device.
def _path(value: Any) -> bool:
    if type(value) is not list or len(value) % 3 != 2:
        return False
    must(len(value) <= 2 + 3 * HOPS, f"above {HOPS} hops", "limit")
    ends = all(map(_identity, [value[0], *value[2::3]])) and all(map(_natural, value[3::3]))
    return ends and _natural(value[1]) and all(_natural(x) or _identity(x) for x in value[4::3])


def _peer(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and _path(value)


def _few(value: Any, check: Callable[[Any], bool]) -> bool:
    few = type(value) is list and must(len(value) <= 256, "above 256 values", "limit")
    return few and all(map(check, value))


_natural, _positive, _name, _words = _uint(0), _uint(1), _text(255), _text(1024)
_flag, _null = _type(bool), type(None)
# Types of the fields in the order of their keys.
FIELDS: dict[str, Callable[[Any], bool]] = {
    "number": _positive, "ack": _natural, "session": _positive, "again": _flag,
    "ready": _positive, "credit": _natural, "window": _natural, "roles": _names,
    "resources": _amounts, "count": _positive, "role": _name, "needs": _amounts,
    "lock": _positive, "want": _natural, "hold": _natural, "more": _flag, "manager": _peer,
    "codec": _name, "unstarted": _flag, "max_silence": _natural, "code": _name, "text": _words,
    "about": _natural, "about_number": _natural, "about_peer": _peer, "label": _words,
    "idle": _flag, "standby": _flag, "challenge": _positive, "answer": _positive,
    "keep": _natural, "serves": lambda value: _few(value, _peer), "kept": _natural,
    "sent": _natural, "unassigned": lambda _: True, "versions": lambda value: _few(value, _natural),
    **dict.fromkeys(("forwards", "passed"), lambda value: _few(value, _identity)),
}  # fmt: skip
KEYS = {word: key for key, word in enumerate(FIELDS)}


def _maybe(x: Any) -> bool:
    return x is None or _natural(x)


# Types of the columns' entries in the order of their keys, from 1.
ENTRIES: dict[str, Callable[[Any], bool]] = {
    "ids": _positive, "attempts": _positive, "left": _maybe,
    "outcomes": _uint(OK, OVERRUN), "payloads": _type(bytes, _null),
    "fractions": _type(float, _null), "texts": _type(str, _null), "expires": _maybe,
    "limits": _maybe, "failed": _maybe, "waits": _maybe,
    "checksums": _maybe, "begun": _maybe,
}  # fmt: skip
REQUIRED = {
    READY: "ready credit roles resources", WAKE: "count role needs", GIVE: "lock want",
    TAKE: "number session lock role needs manager ids attempts payloads",
    NO: "number session lock", DONE: "number session manager ids attempts outcomes payloads",
    STATUS: "number session manager ids attempts", CANCEL: "number session manager ids attempts",
    PING: "", PONG: "max_silence session", BYE: "", ERROR: "code",
}  # fmt: skip


def _parse(frame: bytes) -> tuple[Any, bool]:
    """Return the first value in a frame, and whether the frame ends after it (WMP-2.2)."""
    source = io.BytesIO(frame)
    tags: dict[int, Any] = defaultdict(lambda: lambda *_: must(False, "a tag is not allowed"))
    try:
        value = cbor2.load(
            source,
            semantic_decoders=tags,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            max_depth=16,
        )
        return value, source.tell() == len(frame)
    except (cbor2.CBORError, ValueError, TypeError, Refused) as error:
        raise Refused("malformed", f"a frame is not CBOR as WMP-2.2 requires: {error}") from None


def _plain(value: Any) -> bool:  # only these types are allowed (WMP-2.2, WMP-12.3)
    if type(value) in (list, dict):
        return all(map(_plain, value if type(value) is list else [*value, *value.values()]))
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return value is None or type(value) in (bool, float, bytes, str)


def decode(frames: list[bytes]) -> Message:
    """Turn received frames into a message; raise `Refused`, and no other error."""
    must(len(frames) > 0, "the message has no frames")
    head: Any = []
    try:
        must(len(frames[0]) <= HEAD, f"the head has more than {HEAD} bytes", "limit")
        head, whole = _parse(frames[0])
        must(type(head) is list and len(head) > 0, "the head is not an array, or an empty array")
        return _message(head, whole, frames)
    except Refused as refused:
        refused.command, refused.head = _command(frames[0], head), head
        try:
            refused.back = head[3][::-1] if type(head) is list and _path(head[3]) else []
        except (Refused, IndexError):
            pass
        raise


def _command(frame: bytes, head: Any) -> int | None:  # return the command, as far as it can be read
    if type(head) is list and len(head) > 1:
        return head[1] if _natural(head[1]) else None
    return frame[2] if frame[:2] == b"\x85\x01" and len(frame) > 2 and frame[2] < 24 else None


def _message(head: list[Any], whole: bool, frames: list[bytes]) -> Message:
    must(type(head[0]) is int, "the version is not an integer")
    must(head[0] == 1, f"the version is {head[0]}; expected 1", "version")
    must(len(head) == 5 and whole, "the head is not one array of five items")
    _, command, to, sender, fields = head
    must(_natural(command), "the command is not an unsigned integer")
    must(command in REQUIRED, f"there is no command {command}", "command")
    must(len(frames) <= 2 + JOBS, f"the message has more than {2 + JOBS} frames", "limit")
    short = frames[0][:3] == bytes([0x85, 1, command])
    must(short, "array header, version and command must be one byte each")
    must(_path(sender), "'from' is not a path")
    reversed_path = to == [] if not to else type(to) is list and _path(to[::-1])
    must(reversed_path, "'to' is not a reversed path")
    must(len(to) > 0 or command in (READY, PING, PONG, BYE, ERROR), "'to' is empty")
    must(type(fields) is dict and _plain(fields), "the fields are not a map of plain values")
    must(
        all(type(key) is str or _natural(key) for key in fields),
        "a field's key is neither an unsigned integer nor text",
    )
    known = {word: fields[key] for word, key in KEYS.items() if key in fields}
    for word, value in known.items():
        must(FIELDS[word](value), f"the field {word} has a value of a wrong type")
    columns = _columns(command, to, frames)
    required = "max_silence" if command == PONG and not to else REQUIRED[command]
    required += " roles needs" * (command == GIVE and known.get("want", 0) > 0)
    for word in required.split():
        must(word in known or word in columns, f"{word} is missing")
    return Message(command, to, sender, known, columns)


def _columns(command: int, to: list[Any], frames: list[bytes]) -> dict[Any, list[Any]]:
    needed = "ids" in REQUIRED[command]
    if len(frames) == 1 and not needed:
        return {}
    must(
        len(frames) > 1 and (needed or (command == PING and to != [])),
        "columns are missing, or not allowed for this command",
    )
    must(len(frames[1]) <= COLUMNS, f"the columns have more than {COLUMNS} bytes", "limit")
    table, whole = _parse(frames[1])
    must(
        type(table) is dict and whole and len(table) < 24,
        "the columns are not one map of fewer than 24 entries",
    )
    for key, column in table.items():
        must(
            type(key) is str or _natural(key),
            "a column's key is neither an unsigned integer nor text",
        )
        entries = column if type(column) is list else [column]
        must(
            all(type(x) not in (list, dict) and _plain(x) for x in entries),
            "a column has a nested array or map",
        )
    must(
        type(table.get(1)) is list and len(table[1]) > 0,
        "the column ids is not an array, or an empty array",
    )
    must(len(table[1]) <= JOBS, f"the message has more than {JOBS} jobs", "limit")
    known = {word: table[key] for key, word in enumerate(ENTRIES, 1) if key in table}
    for word, column in known.items():
        if type(column) is not list and word != "payloads":
            known[word] = column = [column] * len(table[1])
        must(
            type(column) is list and len(column) == len(table[1]),
            f"the column {word} has another length than ids",
        )
        must(all(map(ENTRIES[word], column)), f"the column {word} has an entry of a wrong type")
    payloads, behind = known.get("payloads", []), frames[2:]
    must(payloads.count(None) == len(behind), "the numbers of payload frames and of nulls differ")
    must(
        all(len(frame) <= PAYLOAD for frame in behind),
        f"a payload has more than {PAYLOAD} bytes",
        "limit",
    )
    if behind:
        following = iter(behind)
        known["payloads"] = [next(following) if x is None else x for x in payloads]
    return known


def _value(value: Any) -> bytes:  # encode a value; maps are sorted by their encoded keys (WMP-2.2)
    if type(value) is dict:
        pairs = sorted((_value(key), _value(item)) for key, item in value.items())
        items = [key + item for key, item in pairs]
    elif type(value) is list and any(type(item) in (list, dict) for item in value):
        items = [_value(item) for item in value]
    else:
        return cbor2.dumps(value, canonical=True)
    start = bytearray(cbor2.dumps(len(items)))
    start[0] |= 0xA0 if type(value) is dict else 0x80
    return bytes(start) + b"".join(items)


def encode(message: Message) -> list[bytes]:
    """Turn a message into frames, deterministically; large payloads get separate frames."""
    keys = KEYS
    fields = {keys.get(word, word): value for word, value in message.fields.items()}
    head = _value([1, message.command, message.to, message.sender, fields])
    if not message.columns:
        return [head]
    keys, table, behind = {word: key for key, word in enumerate(ENTRIES, 1)}, {}, []
    for word, column in message.columns.items():
        entries: Any = column
        if word == "payloads":
            entries = [payload if len(payload) <= INLINE else None for payload in column]
            behind = [payload for payload in column if len(payload) > INLINE]
        elif word != "ids" and all(x == column[0] and type(x) is type(column[0]) for x in column):
            entries = column[0]
        table[keys.get(word, word)] = entries
    return [head, _value(table), *behind]
