"""Peers written by hand on bare sockets: they send any message, right or wrong."""

from __future__ import annotations

import os
from typing import Any

import zmq

from tests.waiting import WAIT_MS
from wmp import codec
from wmp.message import Command, Field, Message, Outcome, Path
from wmp.testing.peers.worker_messages import WorkerMessages

EPOCH = 1_000_000
"""Milliseconds after which a test that waits for a message fails."""


class SocketWorker(WorkerMessages):
    """A worker on a DEALER that is connected to a manager or a device."""

    def __init__(self, endpoint: str, identity: bytes = b"stranger") -> None:
        super().__init__(identity=identity, epoch=EPOCH, resources={"slots": 1})
        self.manager: Path = ()
        """The ``to`` of messages to the manager; empty before its first message."""
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(endpoint)

    def __enter__(self) -> SocketWorker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()
        self.context.term()

    @property
    def to(self) -> Path:
        return self.manager

    def raw(self, *frames: bytes) -> None:
        """Send frames as they are."""
        self.socket.send_multipart(frames)

    def send(self, message: Message) -> None:
        """Send a message."""
        self.socket.send_multipart(codec.encode(message))

    def ready(self, credit: int = 1) -> None:
        """Send READY with free capacity."""
        self.send(self.compose_ready(credit))

    def ping(self, **fields: Any) -> None:
        """Send PING without ``to``."""
        self.send(self.compose_ping(to=(), **fields))

    def receive(self, *wanted: Command) -> Message:
        """Return the next message, or the next message with one of these commands."""
        while True:
            if not self.socket.poll(WAIT_MS):
                raise TimeoutError(f"no {wanted or 'message'} within {WAIT_MS} ms")
            message = codec.decode(self.socket.recv_multipart())
            if not wanted or message.command in wanted:
                self.session = message.fields.get(Field.SESSION, self.session)
                self.received = message.fields.get(Field.NUMBER, self.received)
                return message

    def work_once(self, result: bytes) -> Message:
        """Do one job by the plain handshake of five messages; return the TAKE."""
        self.ready()
        self.manager = self.receive(Command.WAKE).answer_to
        self.send(self.compose_give(1))
        take = self.receive(Command.TAKE)
        assert take.columns is not None
        jobs = list(zip(take.columns.ids, take.columns.attempts, strict=True))
        self.send(self.compose_done(jobs, [result], [Outcome.OK]))
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
