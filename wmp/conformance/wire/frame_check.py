"""Check frames against section 2, byte by byte; shares no code with :mod:`wmp.codec`.

The kit checks every message of a testee here, in every case.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from wmp.conformance.script.case import Broken
from wmp.message import Frame, counted

_UINT, _TEXT, _BOOL = "unsigned integer", "text", "boolean"
_TEXTS, _AMOUNTS, _PEER = "array of text", "map of text to unsigned", "[bytes, unsigned]"
_PEERS, _UINTS = "array of [bytes, unsigned]", "array of unsigned"
_NAMES = "array of bytes"

FIELDS: dict[int, tuple[str, str]] = {
    0: ("number", _UINT),
    1: ("ack", _UINT),
    2: ("session", _UINT),
    3: ("again", _BOOL),
    4: ("ready", _UINT),
    5: ("credit", _UINT),
    6: ("window", _UINT),
    7: ("roles", _TEXTS),
    8: ("resources", _AMOUNTS),
    9: ("count", _UINT),
    10: ("role", _TEXT),
    11: ("needs", _AMOUNTS),
    12: ("lock", _UINT),
    13: ("want", _UINT),
    14: ("hold", _UINT),
    15: ("more", _BOOL),
    16: ("manager", _PEER),
    17: ("codec", _TEXT),
    18: ("unstarted", _BOOL),
    19: ("max_silence", _UINT),
    20: ("code", _TEXT),
    21: ("text", _TEXT),
    22: ("about", _UINT),
    23: ("about number", _UINT),
    24: ("about peer", _PEER),
    25: ("label", _TEXT),
    26: ("idle", _BOOL),
    27: ("standby", _BOOL),
    28: ("challenge", _UINT),
    29: ("answer", _UINT),
    30: ("keep", _UINT),
    31: ("serves", _PEERS),
    32: ("kept", _UINT),
    33: ("sent", _UINT),
    35: ("versions", _UINTS),
    36: ("forwards", _NAMES),
    37: ("passed", _NAMES),
    42: ("beat key", _UINT),
    43: ("beat", _UINT),
    44: ("max stall", _UINT),
}
"""Registered keys: name and type."""

_POSITIVE = frozenset({0, 2, 4, 9, 12, 28, 29})
REQUIRED: dict[int, tuple[int, ...]] = {
    1: (4, 5, 7, 8),
    2: (9, 10, 11),
    3: (12, 13),
    4: (0, 2, 12, 10, 11, 16),
    5: (0, 2, 12),
    6: (0, 2, 16),
    7: (0, 2, 16),
    8: (0, 2, 16),
    9: (),
    10: (19, 2),
    11: (),
    12: (20,),
}
"""Fields that each command must have."""
_ANNOUNCING: dict[int, tuple[int, ...]] = {10: (19,), 11: ()}
"""Fields that PONG and BYE to a device must have (WMP-8.11)."""
_COLUMNS: dict[int, str] = {
    1: "ids",
    2: "attempts",
    3: "left",
    4: "outcomes",
    5: "payloads",
    6: "fractions",
    7: "texts",
    8: "expires",
    9: "limits",
    10: "failed",
    11: "waits",
    12: "checksums",
    13: "begun",
}
_NEEDED: dict[int, tuple[int, ...]] = {4: (1, 2, 5), 6: (1, 2, 4, 5), 7: (1, 2), 8: (1, 2)}
_DEPTH, _MAX = 16, 2**63 - 1


def check_form(frames: Sequence[Frame], *, announces: bool = False) -> None:
    """Check a message against WMP-2.1 to 2.10.

    Args:
        frames: The frames of the message.
        announces: Whether the message comes from a manager to a device to which the manager dials
            in (WMP-8.11).

    Raises:
        Broken: The message breaks one of these rules.
    """
    command, directed = check_head(frames, announces=announces)
    _check_columns(command, directed, frames)


def check_head(frames: Sequence[Frame], *, announces: bool = False) -> tuple[int, bool]:
    """Check the head of a message against WMP-2.1 to 2.7; a device reads no other frame.

    Returns:
        The command, and whether the message has a ``to``.

    Raises:
        Broken: The head breaks one of these rules.
    """
    if not frames:
        raise Broken("WMP-2.1", "the message has no frames; expected a head at least")
    first = bytes(frames[0])
    if len(first) > 16 * 1024:
        raise Broken("WMP-2.10", f"the head has {len(first)} bytes; expected at most 16384")
    if first[:2] != b"\x85\x01":
        raise Broken("WMP-2.1", f"the head begins with {first[:3].hex()}; expected 8501")
    head = read_cbor(first, "head")
    if not isinstance(head, list) or len(head) != 5:
        raise Broken("WMP-2.1", "the head is not an array of five items")
    _, command, to, source, fields = head
    if type(command) is not int or not 1 <= command <= 12 or first[2] != command:
        raise Broken("WMP-2.1", f"command {command!r} is unknown; expected 1 to 12")
    _check_path(source, "from")
    required = REQUIRED[command]
    if to:
        _check_path(to[::-1], "to")
    elif to == [] and announces and command in _ANNOUNCING:
        required = _ANNOUNCING[command]
    elif to != [] or command not in (1, 9, 12):
        raise Broken("WMP-2.6", f"the message of command {command} lacks 'to'")
    _check_fields(command, fields, required)
    return command, bool(to)


def _check_path(path: Any, name: str) -> None:
    kinds = [type(item) for item in path] if isinstance(path, list) else []
    hops, rest = divmod(len(kinds) - 2, 3)
    good = kinds[:2] == [bytes, int] and rest == 0
    for hop in range(hops if good else 0):
        good = good and kinds[2 + 3 * hop : 4 + 3 * hop] == [bytes, int]
        good = good and kinds[4 + 3 * hop] in (bytes, int)
    if not good or any(isinstance(item, int) and item < 0 for item in path):
        raise Broken(
            "WMP-2.5", f"'{name}' is {path!r}; expected identity, epoch and hops of three items"
        )
    if any(isinstance(item, bytes) and not 1 <= len(item) <= 255 for item in path):
        raise Broken(
            "WMP-1.1", f"'{name}' has an identity with a wrong length; expected 1 to 255 bytes"
        )


def _check_fields(command: int, fields: Any, required: Sequence[int]) -> None:
    if not isinstance(fields, dict):
        raise Broken("WMP-2.3", "the fields are not a map")
    for key, value in fields.items():
        if isinstance(key, str):
            continue
        if type(key) is not int or key < 0:
            raise Broken(
                "WMP-2.3",
                f"the fields have the key {key!r}; expected an unsigned integer or a text",
            )
        name, kind = FIELDS.get(key, ("", ""))
        if not name:
            continue  # the key may come from a later version
        if not _is(value, kind) or (key in _POSITIVE and value < 1):
            raise Broken("WMP-2.4", f"the field {name} is {value!r}; expected {kind}")
    missing = [FIELDS[key][0] for key in required if key not in fields]
    if command == 3 and fields.get(13):
        missing += [FIELDS[key][0] for key in (7, 11) if key not in fields]
    if missing:
        raise Broken("WMP-2.4", f"the message of command {command} lacks {', '.join(missing)}")
    if (0 in fields or 1 in fields) and 2 not in fields:
        raise Broken("WMP-7.2", "the message has a number or an ack, but no session", "must")


def _check_columns(command: int, directed: bool, frames: Sequence[Frame]) -> None:
    if len(frames) == 1:
        if command in _NEEDED:
            raise Broken(
                "WMP-2.8", f"the message of command {command} has no columns; expected columns"
            )
        return
    if command not in _NEEDED and not (command == 9 and directed):
        raise Broken("WMP-2.8", f"the message of command {command} has columns; expected none")
    columns = read_cbor(bytes(frames[1]), "columns")
    if not isinstance(columns, dict):
        raise Broken("WMP-2.8", "the columns are not a map")
    if len(columns) >= 24:
        raise Broken("WMP-2.3", f"the message has {len(columns)} columns; expected fewer than 24")
    missing = [_COLUMNS[key] for key in _NEEDED.get(command, (1, 2)) if key not in columns]
    if missing:
        raise Broken(
            "WMP-2.8", f"the message of command {command} lacks the columns {', '.join(missing)}"
        )
    ids = columns[1]
    if not isinstance(ids, list) or not 1 <= len(ids) <= 4096:
        raise Broken("WMP-2.8", "the column ids is not an array of 1 to 4096 items")
    for key, column in columns.items():
        name = _COLUMNS.get(key, "")
        if not name:
            continue
        if isinstance(column, list):
            if len(column) != len(ids):
                raise Broken(
                    "WMP-2.8",
                    f"the column {name} has {counted(len(column), 'entry', 'entries')} for "
                    f"{counted(len(ids), 'id')}",
                )
        elif key in (1, 5):
            raise Broken("WMP-2.8", f"the column {name} is a single value; expected an array")
        for entry in column if isinstance(column, list) else [column]:
            _check_entry(key, name, entry)
    payloads = columns.get(5, [])
    nulls = sum(entry is None for entry in payloads)
    if nulls != len(frames) - 2:
        raise Broken(
            "WMP-2.9",
            f"the message has {counted(len(frames) - 2, 'payload frame')}; expected {nulls}, one "
            "for each null",
        )


def _check_entry(key: int, name: str, entry: Any) -> None:
    match key:
        case 1 | 2:
            good = type(entry) is int and entry >= 1
        case 3 | 8 | 9 | 10 | 11 | 12 | 13:
            good = entry is None or (type(entry) is int and entry >= 0)
        case 4:
            good = type(entry) is int and 0 <= entry <= 5
        case 5:
            good = entry is None or isinstance(entry, bytes)
        case 6:
            good = entry is None or isinstance(entry, float)
        case _:
            good = entry is None or isinstance(entry, str)
    if not good:
        raise Broken("WMP-2.8", f"the column {name} has the invalid entry {entry!r}")


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "unsigned integer":
            return type(value) is int and value >= 0
        case "text":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "array of text":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case "array of unsigned":
            return isinstance(value, list) and all(_is(item, _UINT) for item in value)
        case "array of bytes":
            return isinstance(value, list) and all(
                isinstance(item, bytes) and 1 <= len(item) <= 255 for item in value
            )
        case "array of [bytes, unsigned]":
            return isinstance(value, list) and all(_is(item, _PEER) for item in value)
        case "map of text to unsigned":
            return isinstance(value, dict) and all(
                isinstance(name, str) and type(amount) is int and amount >= 0
                for name, amount in value.items()
            )
    return (
        isinstance(value, list)
        and list(map(type, value)) == [bytes, int]
        and 1 <= len(value[0]) <= 255
        and value[1] >= 0
    )


# -- CBOR: only the core deterministic encoding is accepted


def read_cbor(data: bytes, name: str) -> Any:
    """Read one item that fills ``data``.

    Raises:
        Broken: The data is not in the core deterministic encoding of RFC 8949 (WMP-2.2).
    """
    try:
        value, end = _item(data, 0, _DEPTH)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise Broken("WMP-2.2", f"the {name} cannot be read as CBOR: {error}") from None
    if end != len(data):
        raise Broken(
            "WMP-2.2",
            f"the {name} has {counted(len(data) - end, 'byte')} behind its value; expected none",
        )
    return value


def _item(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth < 0:
        raise Broken("WMP-2.2", "the values are nested more than 16 deep")
    major, low = data[at] >> 5, data[at] & 31
    if major == 7:
        return _simple(data, at, low)
    if low > 27:
        raise Broken(
            "WMP-2.2",
            f"byte {at} begins an indefinite or reserved length; expected a definite length",
        )
    number, at = _argument(data, at, low)
    match major:
        case 0:
            return number, at
        case 1:
            return -1 - number, at
        case 2 | 3:
            part = data[at : at + number]
            if len(part) < number:
                raise Broken("WMP-2.2", "a string is cut off by the end of the frame")
            return (part if major == 2 else part.decode()), at + number
        case 4:
            items = []
            for _ in range(number):
                item, at = _item(data, at, depth - 1)
                items.append(item)
            return items, at
        case 5:
            return _map(data, at, number, depth - 1)
    raise Broken("WMP-2.2", f"byte {at} begins a tag; expected none")


def _argument(data: bytes, at: int, low: int) -> tuple[int, int]:
    if low < 24:
        return low, at + 1
    size = 1 << (low - 24)
    part = data[at + 1 : at + 1 + size]
    if len(part) < size:
        raise Broken("WMP-2.2", "an integer is cut off by the end of the frame")
    number = int.from_bytes(part, "big")
    if number < (24 if size == 1 else 1 << (4 * size)):
        raise Broken(
            "WMP-2.2",
            f"the integer {number} at byte {at} has {size} bytes; expected the shortest form",
        )
    if number > _MAX:
        raise Broken("WMP-2.2", f"the integer {number} is too large; expected at most 2**63 - 1")
    return number, at + 1 + size


def _map(data: bytes, at: int, count: int, depth: int) -> tuple[dict[Any, Any], int]:
    entries: dict[Any, Any] = {}
    before = b""
    for _ in range(count):
        start = at
        key, at = _item(data, at, depth)
        if data[start:at] <= before:
            raise Broken("WMP-2.2", f"the key {key!r} of a map is out of order or a duplicate")
        before = data[start:at]
        if not isinstance(key, int | str | bytes):
            raise Broken(
                "WMP-2.2", f"a map has the key {key!r}; expected an integer, text or bytes"
            )
        entries[key], at = _item(data, at, depth)
    return entries, at


def _simple(data: bytes, at: int, low: int) -> tuple[Any, int]:
    if low in (20, 21, 22):
        return (False, True, None)[low - 20], at + 1
    for code, form, shorter in ((25, ">e", ""), (26, ">f", ">e"), (27, ">d", ">f")):
        if low == code:
            size = struct.calcsize(form)
            value: float = struct.unpack_from(form, data, at + 1)[0]
            if shorter and (value != value or _holds(shorter, value)):
                raise Broken(
                    "WMP-2.2", f"the float {value} has {size} bytes; expected the shortest form"
                )
            return value, at + 1 + size
    raise Broken(
        "WMP-2.2", f"byte {at} begins the simple value {low}; expected false, true, null or a float"
    )


def _holds(form: str, value: float) -> bool:
    try:
        return bool(struct.unpack(form, struct.pack(form, value))[0] == value)
    except OverflowError:
        return False
