"""Peers written by hand on bare sockets: they send any message, right or wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import zmq

from wmp import codec
from wmp.message import Columns, Command, Field, Message

EPOCH = 1_000_000
TIMEOUT = 10_000
"""Milliseconds after which a test that waits for a message fails."""


class Peer:
    """A DEALER, connected to a manager or a device."""

    def __init__(self, endpoint: str, identity: bytes = b"stranger") -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(endpoint)
        self.me = (identity, EPOCH)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()
        self.context.term()

    def raw(self, *frames: bytes) -> None:
        """Send frames as they are."""
        self.socket.send_multipart(frames)

    def send(
        self,
        command: Command,
        fields: dict[int | str, Any],
        to: Sequence[bytes | int] = (),
        columns: Columns | None = None,
    ) -> None:
        """Send a message from this peer."""
        self.socket.send_multipart(
            codec.encode(Message(command, tuple(to), self.me, fields, columns))
        )

    def ready(self, credit: int = 1, number: int = 1, role: str = "default") -> None:
        """Send READY with free capacity."""
        self.send(
            Command.READY,
            {
                Field.READY: number,
                Field.CREDIT: credit,
                Field.ROLES: [role],
                Field.RESOURCES: {"slots": 1},
            },
        )

    def receive(self, *wanted: Command) -> Message:
        """Return the next message, or the next message with one of these commands."""
        while True:
            if not self.socket.poll(TIMEOUT):
                raise TimeoutError(f"no {wanted or 'message'} within {TIMEOUT} ms")
            message = codec.decode(self.socket.recv_multipart())
            if not wanted or message.command in wanted:
                return message

    def work_once(self, result: bytes) -> Message:
        """Do one job by the plain handshake of five messages; return the TAKE."""
        self.ready()
        wake = self.receive(Command.WAKE)
        self.send(
            Command.GIVE,
            {
                Field.LOCK: 1,
                Field.WANT: 1,
                Field.ROLES: [wake.fields[Field.ROLE]],
                Field.NEEDS: wake.fields[Field.NEEDS],
            },
            to=wake.answer_to,
        )
        take = self.receive(Command.TAKE)
        assert take.columns is not None
        self.send(
            Command.DONE,
            {
                Field.NUMBER: 1,
                Field.SESSION: take.fields[Field.SESSION],
                Field.ACK: take.fields[Field.NUMBER],
                Field.MANAGER: take.fields[Field.MANAGER],
            },
            to=take.answer_to,
            columns=Columns(
                ids=take.columns.ids,
                attempts=take.columns.attempts,
                outcomes=[0],
                payloads=[result],
            ),
        )
        return take


def garbage() -> list[list[bytes]]:
    """Invalid messages, each with a different fault."""
    good = codec.encode(Message(Command.PING, (), (b"x", EPOCH), {Field.LABEL: "a stranger"}, None))
    head = bytes(good[0])
    return [
        [b""],
        [b"", b""],
        [b"\x00"],
        [os.urandom(300)],
        [b"GET / HTTP/1.1\r\n\r\n"],
        [head[:-1]],
        [head + b"\x00"],
        [head, b"\xa0"],
        [b"\x9f" + head[1:] + b"\xff"],
        [b"\x85\x02" + head[2:]],
        [b"\x85\x01\x18\x63" + head[3:]],
        [b"\x85\x01\x04" + head[3:]],
        [b"\x85\x01\x06" + head[3:], b"\xa0"],
        [b"\xd8\x1e" + head],
        [100_000 * b"\x81"],
        [head] + 5000 * [b""],
        [b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff"],
    ]
