"""Valid messages for the vectors: every command, with all its possible fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wmp.message import Columns, Command, Field, Limits, Message, Outcome

MANAGER, WORKER, DEVICE = b"manager", b"worker", b"device"
EPOCH = 1_700_000_000_000
FROM_WORKER = (WORKER, EPOCH)
FROM_MANAGER = (MANAGER, EPOCH)
OWNER = (MANAGER, EPOCH)
STORE = (b"\x5a" * 16, EPOCH + 2)
TO_MANAGER = (EPOCH, MANAGER)
TO_WORKER = (EPOCH, WORKER)
# A device appends identity, epoch, and the routing id (from below) or DEALER (from above).
BELOW = (DEVICE, EPOCH + 1, b"\x00\x6b\x8b\x45\x67")
BELOW_2 = (b"device-2", 7, b"\x00\x00\x00\x00\x01")
ABOVE = (DEVICE, EPOCH + 1, 0)
ABOVE_2 = (b"device-2", 7, 3)
NEEDS = {"slots": 1}
LARGE = b"\x2a" * (Limits.INLINE + 1)


def valid() -> Iterator[tuple[str, Message]]:
    """Yield every valid message with its name."""
    f = Field
    room: dict[int | str, Any] = {
        f.READY: 1,
        f.CREDIT: 8,
        f.ROLES: ("default",),
        f.RESOURCES: {"slots": 8},
    }
    yield "ready", Message(Command.READY, (), FROM_WORKER, room)
    yield (
        "ready-through-a-device",
        Message(
            Command.READY,
            (),
            FROM_WORKER + BELOW,
            {**room, f.WINDOW: 4, f.LABEL: "host-1/4711"},
        ),
    )
    yield (
        "ready-no-room-addressed",
        Message(
            Command.READY,
            TO_MANAGER,
            FROM_WORKER,
            {f.READY: 24, f.CREDIT: 0, f.ROLES: ("a", "ü"), f.RESOURCES: {"gpu": 2, "mem": 65536}},
        ),
    )
    yield (
        "wake",
        Message(
            Command.WAKE,
            TO_WORKER,
            FROM_MANAGER,
            {f.COUNT: 3, f.ROLE: "default", f.NEEDS: NEEDS},
        ),
    )
    yield (
        "wake-three-hops",
        Message(
            Command.WAKE,
            (b"\x01", 9, b"d1", *TO_WORKER),
            (*FROM_MANAGER, *ABOVE, *ABOVE_2, b"d3", 0, 255),
            {f.COUNT: 256, f.ROLE: "", f.NEEDS: {}, f.ACK: 0, f.SESSION: 1},
        ),
    )
    give: dict[int | str, Any] = {f.LOCK: 1, f.WANT: 4, f.ROLES: ("default",), f.NEEDS: NEEDS}
    yield "give", Message(Command.GIVE, TO_MANAGER, FROM_WORKER, give)
    yield (
        "give-held-with-ack",
        Message(
            Command.GIVE,
            (*BELOW[::-1], *TO_MANAGER),
            FROM_WORKER,
            {**give, f.HOLD: 5000, f.WINDOW: 2, f.ACK: 17, f.SESSION: 2},
        ),
    )
    yield (
        "give-withdraws-its-lock",
        Message(Command.GIVE, TO_MANAGER, FROM_WORKER, {f.LOCK: 1, f.WANT: 0}),
    )
    take: dict[int | str, Any] = {
        f.NUMBER: 1,
        f.SESSION: 1,
        f.LOCK: 1,
        f.ROLE: "default",
        f.NEEDS: NEEDS,
        f.MANAGER: OWNER,
    }
    yield (
        "take-one",
        Message(
            Command.TAKE, TO_WORKER, FROM_MANAGER, take, Columns([1], [1], payloads=[b"hello"])
        ),
    )
    yield (
        "take-arrays-of-every-width",
        Message(
            Command.TAKE,
            (*BELOW[::-1], *TO_WORKER),
            (*FROM_MANAGER, *ABOVE),
            {**take, f.NUMBER: 2, f.ACK: 3, f.MORE: True, f.CODEC: "cbor"},
            Columns(
                [23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1],
                [1, 2, 1, 1, 1, 1, 1, 1, 3],
                left_ms=[0, None, 1500, None, None, None, None, 86_400_000, None],
                payloads=[b"", b"\x00", b"\xf6", b"a" * 23, b"b" * 24, b"", b"", b"", b"c" * 255],
            ),
        ),
    )
    yield (
        "take-stored",
        Message(
            Command.TAKE,
            TO_WORKER,
            FROM_MANAGER,
            {**take, f.MANAGER: STORE, f.KEEP: 300_000},
            Columns([65536], [3], payloads=[b"hello"]),
        ),
    )
    yield (
        "take-forwarded",
        Message(
            Command.TAKE,
            TO_WORKER,
            (b"forwarder", 9),
            {**take, f.PASSED: (b"forwarder",)},
            Columns([17], [2], payloads=[b"hello"], begun=[0]),
        ),
    )
    yield (
        "take-large-payloads",
        Message(
            Command.TAKE,
            (*BELOW_2[::-1], *BELOW[::-1], *TO_WORKER),
            (*FROM_MANAGER, *ABOVE, *ABOVE_2),
            {**take, "trace": "4bf92f35", "x": [1.5, {"deep": None}], 1000: -1},
            Columns(
                [70000, 70001, 70002],
                [1, 1, 1],
                left_ms=[250, 250, 250],
                payloads=[LARGE, b"small", LARGE + b"\x00"],
            ),
        ),
    )
    yield (
        "take-with-times",
        Message(
            Command.TAKE,
            TO_WORKER,
            FROM_MANAGER,
            {**take, f.NUMBER: 3},
            Columns(
                [5, 6],
                [1, 3],
                left_ms=[None, 90_000],
                payloads=[b"a", b"b"],
                expires_ms=[60_000, None],
                limits_ms=[2000, 2000],
                failed=[None, 2],
                begun=[0, None],
            ),
        ),
    )
    yield (
        "take-with-checksums",
        Message(
            Command.TAKE,
            TO_WORKER,
            FROM_MANAGER,
            {**take, f.NUMBER: 4},
            Columns([8, 9], [1, 1], payloads=[b"123456789", b""], checksums=[0xCBF43926, 0]),
        ),
    )
    yield (
        "no",
        Message(Command.NO, TO_WORKER, FROM_MANAGER, {f.NUMBER: 2, f.SESSION: 1, f.LOCK: 2}),
    )
    yield (
        "no-with-ack",
        Message(
            Command.NO,
            (*BELOW[::-1], *TO_WORKER),
            FROM_MANAGER,
            {f.NUMBER: 300, f.SESSION: 1, f.LOCK: 70000, f.ACK: 2**63 - 1},
        ),
    )
    done: dict[int | str, Any] = {f.NUMBER: 1, f.SESSION: 1, f.MANAGER: OWNER}
    error = bytes.fromhex("83") + b"\x6aValueError" + b"\x67not one" + b"\x60"
    yield (
        "done-ok",
        Message(
            Command.DONE,
            TO_MANAGER,
            FROM_WORKER,
            done,
            Columns([1], [1], outcomes=[Outcome.OK], payloads=[b"olleh"]),
        ),
    )
    yield (
        "done-to-be-tried-again",
        Message(
            Command.DONE,
            TO_MANAGER,
            FROM_WORKER,
            {**done, f.NUMBER: 4},
            Columns(
                [6, 7],
                [3, 1],
                outcomes=[1, 1],
                payloads=[error, error],
                texts=["ValueError: not one\nbuiltins.ValueError builtins.Exception", None],
                waits_ms=[10_000, None],
            ),
        ),
    )
    yield (
        "done-every-outcome",
        Message(
            Command.DONE,
            (*ABOVE[::-1], *TO_MANAGER),
            (*FROM_WORKER, *BELOW),
            {**done, f.ACK: 2, f.CODEC: "cbor"},
            Columns(
                [1, 2, 3, 4, 5, 6],
                [1, 1, 2, 1, 3, 1],
                outcomes=[0, 1, 2, 3, 4, 5],
                payloads=[
                    b"\x18\x2a",
                    error,
                    b"no handler for this role",
                    b"",
                    b"its process died",
                    b"ran for longer than 2 s",
                ],
            ),
        ),
    )
    yield (
        "done-large-result",
        Message(
            Command.DONE,
            TO_MANAGER,
            (*FROM_WORKER, *BELOW, *BELOW_2, b"d3", 0, b"\x00\x01"),
            {**done, f.MANAGER: (b"another", 0)},
            Columns([9, 10], [1, 1], outcomes=[0, 0], payloads=[LARGE, LARGE]),
        ),
    )
    yield (
        "status-fraction",
        Message(Command.STATUS, TO_MANAGER, FROM_WORKER, done, Columns([1], [1], fractions=[0.5])),
    )
    yield (
        "status-both",
        Message(
            Command.STATUS,
            TO_MANAGER,
            FROM_WORKER,
            {**done, f.NUMBER: 24},
            Columns(
                [1, 2, 3, 4],
                [1, 1, 1, 1],
                fractions=[0.0, 0.1, None, 1.0 / 3],
                texts=["parsing", None, None, "…"],
            ),
        ),
    )
    yield (
        "status-text-for-all",
        Message(
            Command.STATUS,
            TO_MANAGER,
            FROM_WORKER,
            done,
            Columns([1, 2], [1, 1], fractions=[1.0, 1.0], texts=["waiting", "waiting"]),
        ),
    )
    yield (
        "cancel",
        Message(
            Command.CANCEL,
            TO_WORKER,
            FROM_MANAGER,
            {f.NUMBER: 3, f.SESSION: 1, f.MANAGER: OWNER},
            Columns([5], [2]),
        ),
    )
    yield (
        "cancel-unstarted",
        Message(
            Command.CANCEL,
            (*BELOW[::-1], *TO_WORKER),
            (*FROM_MANAGER, *ABOVE),
            {f.NUMBER: 4, f.SESSION: 1, f.MANAGER: OWNER, f.UNSTARTED: True, f.ACK: 9},
            Columns([5, 6, 7], [1, 1, 2]),
        ),
    )
    yield "ping-discovery", Message(Command.PING, (), FROM_WORKER, {f.LABEL: "host-1/4711"})
    yield (
        "ping-directed",
        Message(Command.PING, TO_MANAGER, FROM_WORKER, {f.ACK: 5, f.SESSION: 1, f.AGAIN: True}),
    )
    yield (
        "ping-held-jobs",
        Message(
            Command.PING,
            TO_MANAGER,
            (*FROM_WORKER, *BELOW),
            {f.ACK: 5, f.SESSION: 1},
            Columns([11, 12], [1, 3]),
        ),
    )
    yield (
        "pong",
        Message(
            Command.PONG,
            TO_WORKER,
            FROM_MANAGER,
            {f.MAX_SILENCE: 6000, f.SESSION: 1, f.READY: 1, f.CREDIT: 7},
        ),
    )
    yield (
        "pong-no-ready-remembered",
        Message(
            Command.PONG,
            (*BELOW[::-1], *TO_WORKER),
            (*FROM_MANAGER, *ABOVE),
            {f.MAX_SILENCE: 6000, f.SESSION: 2, f.ACK: 1, f.AGAIN: False, f.LABEL: ""},
        ),
    )
    yield (
        "ping-held-jobs-of-a-store",
        Message(
            Command.PING,
            TO_MANAGER,
            FROM_WORKER,
            {f.ACK: 5, f.SESSION: 1, f.MANAGER: STORE, f.SENT: 4, f.MORE: True},
            Columns([65536, 65537], [3, 1]),
        ),
    )
    yield (
        "ping-holds-no-job-of-a-store",
        Message(
            Command.PING,
            TO_MANAGER,
            FROM_WORKER,
            {f.ACK: 5, f.SESSION: 1, f.MANAGER: STORE, f.SENT: 0, f.IDLE: True},
        ),
    )
    yield (
        "pong-of-a-manager-with-a-store",
        Message(
            Command.PONG,
            TO_WORKER,
            FROM_MANAGER,
            {f.MAX_SILENCE: 6000, f.SESSION: 1, f.ACK: 4, f.KEPT: 3, f.SERVES: (STORE,)},
        ),
    )
    yield (
        "pong-on-standby",
        Message(
            Command.PONG,
            TO_WORKER,
            FROM_MANAGER,
            {f.MAX_SILENCE: 6000, f.SESSION: 1, f.READY: 1, f.CREDIT: 7, f.STANDBY: True},
        ),
    )
    yield (
        "ready-of-a-forwarding-manager",
        Message(
            Command.READY,
            (),
            FROM_WORKER,
            {
                f.READY: 1,
                f.CREDIT: 4,
                f.ROLES: ("default",),
                f.RESOURCES: {"slots": 4},
                f.FORWARDS: (b"forwarder",),
            },
        ),
    )
    yield (
        "pong-challenge",
        Message(
            Command.PONG,
            TO_WORKER,
            FROM_MANAGER,
            {f.ACK: 0, f.SESSION: 1, f.MAX_SILENCE: 6000, f.CHALLENGE: 7},
        ),
    )
    yield (
        "pong-announces-a-manager-to-a-device",
        Message(Command.PONG, (), FROM_MANAGER, {f.MAX_SILENCE: 6000, f.LABEL: "desk:17"}),
    )
    yield (
        "ping-answer",
        Message(Command.PING, TO_MANAGER, FROM_WORKER, {f.ACK: 5, f.SESSION: 1, f.ANSWER: 7}),
    )
    yield "bye", Message(Command.BYE, TO_MANAGER, FROM_WORKER, {})
    yield "bye-of-a-manager-to-a-device", Message(Command.BYE, (), FROM_MANAGER, {})
    yield (
        "bye-with-reason",
        Message(
            Command.BYE,
            TO_MANAGER,
            (*FROM_WORKER, *BELOW),
            {f.TEXT: "drained", f.ACK: 4, f.SESSION: 1},
        ),
    )
    yield "error-to-neighbour", Message(Command.ERROR, (), (DEVICE, 1), {f.CODE: "malformed"})
    yield (
        "error-about-a-peer",
        Message(
            Command.ERROR,
            TO_WORKER,
            FROM_MANAGER,
            {
                f.CODE: "superseded",
                f.TEXT: "another process holds this identity, with epoch 2, and answers",
                f.ABOUT: 3,
                f.ABOUT_NUMBER: 12,
                f.ABOUT_PEER: (WORKER, 1),
            },
        ),
    )
    yield (
        "error-version",
        Message(
            Command.ERROR,
            (),
            FROM_MANAGER,
            {f.CODE: "version", f.TEXT: "the version is 2", f.VERSIONS: (1,)},
        ),
    )
    yield (
        "error-version-of-a-later-peer",
        Message(Command.ERROR, (), FROM_MANAGER, {f.CODE: "version", f.VERSIONS: (2, 3)}),
    )
    yield (
        "error-unknown-code",
        Message(Command.ERROR, TO_WORKER, FROM_MANAGER, {f.CODE: "teapot"}),
    )
