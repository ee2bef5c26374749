"""Messages of WMP/1 to frames and back, which `worker.py` and `manager.py` do alike."""

import io
from collections import defaultdict
from typing import Any

import cbor2

COMMANDS = [
    "", "READY", "WAKE", "GIVE", "TAKE", "NO", "DONE", "STATUS", "CANCEL", "PING", "PONG", "BYE",
    "ERROR",
]  # fmt: skip
FIELDS = [
    "number", "ack", "session", "again", "ready", "credit", "window", "roles", "resources", "count",
    "role", "needs", "lock", "want", "hold", "more", "manager", "codec", "unstarted", "expire",
    "code", "text", "about", "about_number", "about_peer", "label", "idle",
]  # fmt: skip
KINDS = "pupbpuulmpnmpuubanbuntuuatb"  # of those fields
CODES = ("version", "command", "direction", "limit", "misrouted", "superseded")
REQUIRED = {
    "READY": "ready credit roles resources", "WAKE": "count role needs", "GIVE": "lock want",
    "TAKE": "number session lock role needs manager", "NO": "number session lock",
    "DONE": "number session manager", "STATUS": "number session manager", "PING": "", "BYE": "",
    "CANCEL": "number session manager", "PONG": "expire session", "ERROR": "code",
}  # fmt: skip
COLUMNS = {"TAKE": (1, 2, 3, 5), "CANCEL": (1, 2, 3, 5), "DONE": (1, 2, 4, 5)}  # that are read
OK, FAILED, REFUSED, CANCELLED, LOST = range(5)  # outcomes


def must(holds: bool, code: str = "malformed") -> bool:
    """Refuse a message, by the code of an ERROR, unless it holds."""
    if not holds:
        raise ValueError(code)
    return True


IS: dict[str, Any] = {  # kinds of values; true is not 1
    "u": lambda x: type(x) is int and 0 <= x < 1 << 63,
    "p": lambda x: IS["u"](x) and x > 0,
    "b": lambda x: type(x) is bool,
    "i": lambda x: type(x) is bytes and 0 < len(x) < 256,
    "h": lambda x: IS["u"](x) or IS["i"](x),
    "n": lambda x: type(x) is str and must(len(x.encode()) < 256, "limit"),
    "t": lambda x: type(x) is str and must(len(x.encode()) <= 1024, "limit"),
    "l": lambda x: type(x) is list and must(len(x) <= 256, "limit") and all(map(IS["n"], x)),
    "m": lambda x: type(x) is dict and all(map(IS["n"], x)) and all(map(IS["u"], x.values())),
    "a": lambda x: path(x) and len(x) == 2,
}


def path(x: Any) -> bool:
    """Identity and epoch, then identity, epoch and local id of each device (WMP-2.5)."""
    kinds = "iu" + "iuh" * 16
    must(type(x) is list and len(x) % 3 == 2)
    return must(len(x) <= len(kinds), "limit") and all(IS[kinds[n]](y) for n, y in enumerate(x))


def parse(frame: bytes, most: int) -> tuple[Any, bool]:
    """The value in a frame, and whether it is all that is in it (WMP-2.2)."""
    must(len(frame) <= most, "limit")
    source, tags = io.BytesIO(frame), defaultdict[int, Any](lambda: lambda *_: must(False))
    rules: dict[str, Any] = {"allow_indefinite": False, "allow_duplicate_keys": False}
    value = cbor2.load(source, semantic_decoders=tags, max_depth=16, **rules)
    return value, source.tell() == len(frame)


def check(head: Any, whole: bool, start: bytes, receives: Any, me: list[Any]) -> dict[str, Any]:
    """The fields, by their names, of a head that is one, and is for this peer."""
    must(type(head) is list and len(head) > 0 and type(head[0]) is int)
    must(head[0] == 1, "version")
    must(len(head) == 5 and whole and IS["u"](head[1]))
    _, command, to, sender, keys = head
    must(command in range(1, 13), "command")
    must(start == bytes([0x85, 1, command]) and path(sender) and type(keys) is dict)
    alone = COMMANDS[command] in ("READY", "PING", "ERROR")
    must(alone if to == [] else type(to) is list and path(to[::-1]))
    must(all(type(key) is str or IS["u"](key) for key in keys))
    must(all(IS[kind](keys[key]) for key, kind in enumerate(KINDS) if key in keys))
    must(COMMANDS[command] in receives, "direction")
    fields = {name: keys[key] for key, name in enumerate(FIELDS) if key in keys}
    must(all(name in fields for name in REQUIRED[COMMANDS[command]].split()))
    older = to[1:] == me[:1] and to[0] < me[1]
    must(to in ([], me[::-1]), "superseded" if older else "misrouted")
    return fields


def rows(frames: list[bytes], keys: tuple[int, ...]) -> list[Any]:
    """The columns with these keys, turned into a row for each job, its payload at the end."""
    table, whole = parse(frames[1], 1 << 24)
    k, behind = len(table[1]), iter(frames[2:])
    columns = [x if type(x) is list else [x] * k for x in map(table.get, keys)]
    must(whole and 0 < k <= 4096 and all(len(x) == k for x in columns))
    must(all(IS["p"](x) for x in columns[0] + columns[1]))
    return [(*row, next(behind, b"") if x is None else x) for *row, x in zip(*columns, strict=True)]


def encode(me: list[Any], to: list[Any], command: str, fields: dict[str, Any]) -> bytes:
    """The head of a message."""
    keys = {FIELDS.index(name): x for name, x in fields.items()}
    return cbor2.dumps([1, COMMANDS.index(command), to, me, keys], canonical=True)


def decode(
    me: list[Any], frames: list[bytes], receives: str
) -> tuple[str, Any, dict[str, Any], Any]:
    """Command, `from`, fields, and rows of the columns that this command has; or, if it
    is refused, no command, `to` and fields of the ERROR that says so."""
    head: Any = None
    try:
        head, whole = parse(frames[0], 1 << 14)
        fields, command = check(head, whole, frames[0][:3], receives.split(), me), COMMANDS[head[1]]
        return (
            command,
            head[3],
            fields,
            rows(frames, COLUMNS[command]) if command in COLUMNS else [],
        )
    except (cbor2.CBORError, ValueError, TypeError, LookupError, AttributeError) as error:
        code = str(error) if str(error) in CODES else "malformed"
    head = head if type(head) is list else []
    about = {"about_peer": head[2][::-1][:2]} if code in ("misrouted", "superseded") else {}
    try:
        back = head[3][::-1] if path(head[3]) else []
    except (ValueError, IndexError):
        back = []
    broken = frames[0][:3] == b"\x85\x01\x0c" or head[1:2] == [COMMANDS.index("ERROR")]
    return "ERROR" if broken else "", back, {"code": code, **about}, []
