"""The messages of WMP/1, by the names of their commands and fields, for both programs."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import cbor2
import zmq

_COMMANDS = "READY WAKE GIVE TAKE NO DONE STATUS CANCEL PING PONG BYE ERROR"
_FIELDS = (
    "number ack session again ready credit window roles resources count role needs lock want"
    " hold more manager codec unstarted max_silence"
)
COMMANDS = ["", *_COMMANDS.split()]  # by their numbers, from 1
FIELDS = dict(enumerate(_FIELDS.split())) | {26: "idle"}
KEYS = {name: key for key, name in FIELDS.items()}
COLUMNS = {"ids": 1, "attempts": 2, "outcomes": 4, "payloads": 5}
TYPES = {"roles": list, "resources": dict, "role": str, "needs": dict, "manager": list}
REQUIRED = {
    "READY": "ready credit roles resources",
    "WAKE": "count role needs",
    "GIVE": "lock want roles needs",
    "TAKE": "number session lock role needs manager",
    "NO": "number session lock",
    "DONE": "number session manager",
    "STATUS": "number session manager",
    "CANCEL": "number session manager",
    "PING": "",
    "PONG": "max_silence session",
    "BYE": "",
}
SLOT = {"slots": 1}


def introduce() -> list[Any]:
    """Return identity and epoch of this process, and end at SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    return [os.urandom(16), time.time_ns() // 1_000_000]


def unit() -> float:
    """Return the seconds of a unit: the second argument in milliseconds, else 1."""
    return int(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 1.0


def make(kind: int, endpoint: str) -> Any:
    """Return a socket with the options of WMP-1.7: a bound ROUTER, or a connected DEALER."""
    socket: Any = zmq.Context.instance().socket(kind)
    socket.set(zmq.MAXMSGSIZE, 1 << 28)
    socket.set(zmq.HEARTBEAT_IVL, 1000)
    if kind == zmq.ROUTER:
        socket.set(zmq.ROUTER_MANDATORY, 1)
        socket.bind(endpoint)
    else:
        socket.connect(endpoint)
    return socket


def write(socket: Any, route: Any, to: Any, me: Any, command: str, /, **more: Any) -> bool:
    """Send a message without waiting; ``frames`` follow the head. Return whether it left."""
    frames = more.pop("frames", ())
    fields = {KEYS[name]: value for name, value in more.items()}
    head = [1, COMMANDS.index(command), to, me, fields]
    try:
        socket.send_multipart([*route, cbor2.dumps(head, canonical=True), *frames], zmq.DONTWAIT)
    except (zmq.ZMQError, cbor2.CBORError):  # no such peer, a full pipe, or a strange path
        return False
    return True


def columns(**table: Any) -> bytes:
    """Return the second frame of a message."""
    return cbor2.dumps({COLUMNS[name]: column for name, column in table.items()})


def read(me: list[Any], frame: bytes, commands: str) -> tuple[str, list[Any], Any]:
    """Return command, sender and fields; raise an error for a message that this peer drops."""
    version, number, to, sender, numbered = cbor2.loads(frame)
    command = COMMANDS[number]
    fields = {FIELDS[key]: value for key, value in numbered.items() if key in FIELDS}
    good = all(type(fields[name]) is TYPES.get(name, int) for name in REQUIRED[command].split())
    mine = to == me[::-1] or (to == [] and command in ("READY", "PING"))
    if version != 1 or command not in commands.split() or not mine or not good:
        raise ValueError("another version, command, receiver or type")
    return command, sender, fields


def rows(frames: Sequence[bytes], *names: str) -> list[Any]:
    """Return these columns and the payload of each job."""
    table, behind = cbor2.loads(frames[0]), iter(frames[1:])
    values = [table[COLUMNS[name]] for name in (*names, "payloads")]
    values = [column if type(column) is list else [column] * len(values[0]) for column in values]
    values[-1] = [next(behind, b"") if payload is None else payload + b"" for payload in values[-1]]
    return list(zip(*values, strict=True))


def safely(act: Callable[..., None], *arguments: Any) -> None:
    """Act on a message; a message that cannot be read changes nothing (WMP-10.1)."""
    try:
        act(*arguments)
    except (ValueError, TypeError, LookupError, AttributeError, cbor2.CBORError) as error:
        print("dropped:", repr(error), file=sys.stderr)


def slow(payload: bytes) -> bytes:
    """Take as many milliseconds as the payload says."""
    time.sleep(int(payload) / 1000)
    return payload
