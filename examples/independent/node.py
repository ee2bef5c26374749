"""The common part of a worker and a WMP manager/1, written from `specs/wmp.md` alone.

It has names, routes, sessions and their numbers, and the refusals that come before all other work.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

import zmq
from claims import Claims
from messages import (
    BYE,
    CANCEL,
    ERROR,
    NAMES,
    PAYLOAD,
    PONG,
    TAKE,
    Message,
    Refused,
    decode,
    encode,
)
from stream import Peer, others, size_of

# The first two in units; jobs of a message; times that a message is sent again.
RESEND, MAX_SILENCE, BATCH, MAX_RESENDS = 3, 6, 1000, 10
NO_ACK = "no ack came"  # why a message that was sent again MAX_RESENDS times is replaced


class Superseded(Exception):
    """Another process has this identity, and every manager serves that process."""


P = TypeVar("P", bound=Peer)


class Node(Claims[P]):
    """An end node. It has a method for each command that it receives."""

    receives: ClassVar[tuple[int, ...]]

    def __init__(self, identity: bytes | None, unit: float) -> None:
        self.unit = unit  # seconds in a unit: 1, or less for a faster test
        self.epoch = time.time_ns() // 1_000_000  # greater at every start (WMP-1.1)
        self.me: list[Any] = [identity or os.urandom(16), self.epoch]
        self.context = zmq.Context()
        self.peers: dict[bytes, P] = {}
        self.challenges = 0
        self.ending = False

    def socket(self, kind: int) -> "zmq.Socket[bytes]":
        """Return a socket with bounded queues and with ZMTP heartbeats (WMP-1.7)."""
        socket = self.context.socket(kind)
        socket.set(zmq.LINGER, 1000)
        socket.set(zmq.SNDHWM, 10_000)
        socket.set(zmq.RCVHWM, 10_000)
        socket.set(zmq.MAXMSGSIZE, PAYLOAD)
        socket.set(zmq.HEARTBEAT_IVL, 1000)
        socket.set(zmq.HEARTBEAT_TIMEOUT, 5000)
        return socket

    # --- defined by a subclass ---

    def transmit(self, connection: Any, frames: list[bytes]) -> None:
        """Send without waiting; may raise `zmq.ZMQError`."""
        raise NotImplementedError

    def in_session(self, peer: P, message: Message) -> bool:
        """Return whether a message may be acted on, by its session."""
        raise NotImplementedError

    # --- sending ---

    def post(self, connection: Any, message: Message) -> int | None:
        """Send without blocking (WMP-1.6). A loss is repaired by resending and PONG."""
        try:
            self.transmit(connection, encode(message))
        except zmq.ZMQError as error:
            return error.errno
        return 0

    def send(self, peer: P, command: int, fields: Any = (), columns: Any = ()) -> None:
        """Send with the current ack (WMP-7.2)."""
        fields = dict(fields)
        if peer.stream:
            fields |= {"session": peer.stream.session, "ack": peer.stream.received}
        message = Message(command, peer.to, self.me, fields, dict(columns))
        if peer.connection is not None:
            error = self.post(peer.connection, message)
            if not error and peer.stream:
                peer.stream.left = max(peer.stream.left, fields.get("number", 0))
            elif error not in (0, zmq.EAGAIN):
                self.unreachable(peer)

    def send_numbered(self, peer: P, command: int, fields: Any, columns: Any = ()) -> None:
        """Send a numbered message, and keep it until its ack."""
        if peer.stream:
            peer.stream.sent += 1
            fields, columns = {**fields, "number": peer.stream.sent}, dict(columns)
            kept = [time.monotonic(), peer.stream.sent, command, fields, columns]
            peer.stream.unacknowledged.append(kept)
            peer.stream.size += size_of(columns)
            self.send(peer, command, fields, columns)

    def send_jobs(self, peer: P, command: int, fields: Any, names: str, rows: list[Any]) -> None:
        """Send numbered messages about jobs, with their rows turned into columns."""
        for start in range(0, len(rows), BATCH):
            columns: Iterable[Any] = map(list, zip(*rows[start : start + BATCH], strict=True))
            columns = zip(names.split(), columns, strict=True)
            self.send_numbered(peer, command, fields, columns)

    def resend(self, peer: P) -> None:
        """Send all from ack + 1 again, in order (WMP-7.3)."""
        if peer.stream:
            peer.stream.resends += 1
        for kept in list(peer.stream.unacknowledged) if peer.stream else ():
            kept[0] = time.monotonic()
            self.send(peer, *kept[2:])

    def replace(self, peer: P, kept: list[Any], text: str | None) -> None:
        """Send other messages in place of one that was refused, or had no ack if `text` is None."""
        stream = peer.stream
        others = [] if not stream or kept[1] in stream.replaced else self.others(peer, kept, text)
        if not stream or not others:
            self.forget(peer)
            return self.ask_again(peer)
        if len(others) == 1:
            stream.replaced.add(kept[1])
        stream.replace(kept, *others[0])
        self.resend(peer)
        for other in others[1:]:
            self.send_numbered(peer, *other)

    def others(self, peer: P, kept: list[Any], text: str | None) -> list[tuple[int, Any, Any]]:
        """Return (command, fields, columns) of each message in place of a refused message."""
        return [(*kept[2:4], columns) for columns in others(kept[4], text or NO_ACK)]

    def complain(self, connection: Any, about: Message | Refused, code: str, **more: Any) -> None:
        """Answer a message with ERROR, but never an ERROR (WMP-10.2, WMP-10.3)."""
        to = about.back if isinstance(about, Refused) else about.sender[::-1]
        fields: dict[str, Any] = {"code": code, **more}
        if about.command is not None:
            fields["about"] = about.command
        if isinstance(about, Message) and "number" in about.fields:
            fields["about_number"] = about.fields["number"]
        if about.command != ERROR:
            self.post(connection, Message(ERROR, to, self.me, fields))

    # --- receiving ---

    def receive(self, connection: Any, frames: list[bytes]) -> None:
        """Check a message, and hand it to the method of its command."""
        try:
            message = decode(frames)
        except Refused as refused:
            more: dict[str, Any] = {"text": str(refused)[:200], **position(self.me, refused.head)}
            more |= {"versions": [1]} if refused.code == "version" else {}
            return self.complain(connection, refused, refused.code, **more)
        fields, (identity, epoch) = message.fields, message.sender[:2]
        if message.command == ERROR:
            return self.error(connection, message)
        if message.command not in self.receives:
            return self.complain(connection, message, "direction")
        if not message.to and message.command in (PONG, BYE):  # devices only (WMP-8.11)
            return self.complain(connection, message, "malformed")
        if message.to and message.to != self.me[::-1]:  # WMP-2.7
            code = "superseded" if message.to[1:] == self.me[:1] else "misrouted"
            return self.complain(connection, message, code, about_peer=message.to[::-1][:2])
        if not self.admits(connection, message):
            return None
        peer = self.peers[identity] = self.peers.get(identity) or self.meet(identity, epoch)
        if peer.claim and fields.get("answer") == peer.claim.number:
            self.refuse(peer)
        moved = (peer.connection, peer.to) != (connection, message.sender[::-1])
        peer.connection, peer.to, peer.heard = connection, message.sender[::-1], time.monotonic()
        current = self.in_session(peer, message)
        if current and peer.stream and fields.get("session") == peer.stream.session:
            peer.stream.acknowledge(fields.get("ack", 0))
        if moved or (current and fields.get("again")):
            self.resend(peer)
        if current and peer.stream and "number" in fields:
            current, gap = peer.stream.accept(fields["number"])
            if gap:
                self.ask_again(peer)
        if current:
            getattr(self, NAMES[message.command])(peer, message)

    def tick(self) -> None:
        """Send messages again that have waited too long for an ack; give up silent peers."""
        now = time.monotonic()
        for peer in list(self.peers.values()):
            kept = peer.stream.unacknowledged if peer.stream else None
            if peer.stream and kept and now > kept[0][0] + RESEND * self.unit:
                if peer.stream.resends >= MAX_RESENDS:
                    peer.stream.resends = 0
                    self.replace(peer, kept[0], None)
                else:
                    self.resend(peer)
            if peer.claim and (now > peer.claim.until or now > peer.heard + peer.max_silence):
                self.admit(peer)
            elif now > peer.heard + peer.max_silence:
                self.part(peer.identity)

    def turn(self) -> None:
        """Wait a short time for messages, and receive them."""
        raise NotImplementedError

    def leave(self) -> None:
        """Send BYE at the end."""

    def run(self) -> None:
        """Run until a signal."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "ending", True))
        try:
            while not self.ending:
                self.turn()
                self.tick()
            self.leave()
        except Superseded as error:
            sys.exit(str(error))
        finally:
            self.context.destroy(linger=1000)


def position(me: list[Any], head: Any) -> dict[str, int]:
    """Return the position of a refused message in its stream, for its ERROR (WMP-10.7)."""
    mine = type(head) is list and len(head) == 5 and head[2] == me[::-1]
    if not mine or head[1] not in range(TAKE, CANCEL + 1) or type(head[4]) is not dict:
        return {}
    session, number = head[4].get(2), head[4].get(0)
    good = type(session) is type(number) is int and min(session, number) > 0
    return {"session": session, "about_number": number} if good else {}


def run(
    parser: argparse.ArgumentParser, make: Callable[[argparse.Namespace, float], Node[P]]
) -> None:
    """Run a program: its arguments, its node, and exit code 2 for a bad address."""
    parser.add_argument(
        "--unit", type=int, default=1000, help="milliseconds that one second of the timers takes"
    )
    given = parser.parse_args()
    try:
        make(given, given.unit / 1000).run()
    except zmq.ZMQError as error:
        parser.error(str(error))
