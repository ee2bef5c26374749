"""The drills: the attacks of a peer that can connect to a node and needs no key.

Each drill runs until its process is ended. If its connection is closed, the attacker opens another
one.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import zmq
from attrs import frozen

from benchmarks.attacks.attacker import Attacker, Frames, encode, handshake
from wmp import codec
from wmp.message import Columns, Command, Field, Message

__all__ = ["DRILLS", "Drill"]

_HUGE = 2**40
_SEED = 14
_OFFER: dict[int | str, Any] = {Field.ROLES: ["default"], Field.RESOURCES: {"slots": 1}}


@frozen
class Drill:
    """One attack."""

    attack: Callable[[Attacker], None]
    connections: int = 1
    through_device: bool = False
    """Whether the attacker and honest workers are below a device."""


# -- floods


def _garbage(attacker: Attacker) -> None:
    """Send frames that are no message."""
    draw = random.Random(_SEED)
    good = encode(Command.PING, b"garbage", {Field.LABEL: "x" * 40})[0]
    bad = [[draw.randbytes(60)], [good[:-1]], [good, b"\xa0"], [b""], [good + b"\0"]]
    attacker.flood(itertools.cycle(bad))


def _ping(attacker: Attacker) -> None:
    attacker.flood(itertools.repeat(encode(Command.PING, b"ping", {})))


def _ready(attacker: Attacker) -> None:
    def messages() -> Iterator[Frames]:
        for number in itertools.count(1):
            fields = {Field.READY: number, Field.CREDIT: 1, **_OFFER}
            yield encode(Command.READY, b"ready", fields)

    attacker.flood(messages())


def _identities(attacker: Attacker) -> None:
    """Send READYs, each with the identity of another worker."""

    def messages() -> Iterator[Frames]:
        fields = {Field.READY: 1, Field.CREDIT: 1, **_OFFER}
        while True:
            yield encode(Command.READY, os.urandom(16), fields)

    attacker.flood(messages())


def _held_gives(attacker: Attacker) -> None:
    """Send held GIVEs for a role that no job has, each with another identity."""

    def messages() -> Iterator[Frames]:
        give = {Field.WANT: 1, Field.HOLD: 60_000, Field.ROLES: ["none"], Field.NEEDS: {"slots": 1}}
        while True:
            identity = os.urandom(16)
            for lock in range(1, 65):
                yield encode(Command.GIVE, identity, {Field.LOCK: lock, **give}, to)

    dealer = attacker.connect()
    to = _meet(dealer, b"looks").answer_to
    attacker.flood(messages())


def _deaf(attacker: Attacker) -> None:
    """Send PINGs, and read no answer."""
    attacker.flood(itertools.repeat(encode(Command.PING, b"deaf", {})), reads=False)


# -- workers that break their promises


def _meet(dealer: zmq.Socket[bytes], identity: bytes, epoch: int = 1) -> Message:
    """Send PINGs until a manager answers; return the answer."""
    while True:
        dealer.send_multipart(encode(Command.PING, identity, {}, (), epoch))
        if dealer.poll(500):
            message = codec.decode(dealer.recv_multipart())
            if message.command is Command.PONG:
                return message


def _credit(attacker: Attacker) -> None:
    """Offer capacity for all jobs, never answer a job, and keep the leases by PINGs."""
    dealer = attacker.connect()
    to = _meet(dealer, b"glutton").answer_to
    attacker.begin()
    for number in itertools.count(1):
        ready = {Field.READY: number, Field.CREDIT: _HUGE, **_OFFER}
        dealer.send_multipart(encode(Command.READY, b"glutton", ready))
        give = {
            Field.LOCK: number,
            Field.WANT: _HUGE,
            Field.ROLES: ["default"],
            Field.NEEDS: {"slots": 1},
        }
        dealer.send_multipart(encode(Command.GIVE, b"glutton", give, to))
        dealer.send_multipart(encode(Command.PING, b"glutton", {}))
        until = time.monotonic() + 0.5
        while dealer.poll(max(0, int(1000 * (until - time.monotonic())))):
            dealer.recv_multipart()


def _thief(attacker: Attacker) -> None:
    """Take jobs and leave with the jobs, again and again."""
    attacker.begin()
    dealer = attacker.connect()
    for epoch in itertools.count(1):
        to = _meet(dealer, b"thief", epoch).answer_to
        give = {
            Field.LOCK: 1,
            Field.WANT: _HUGE,
            Field.ROLES: ["default"],
            Field.NEEDS: {"slots": 1},
        }
        dealer.send_multipart(encode(Command.GIVE, b"thief", give, to, epoch))
        if dealer.poll(500):
            dealer.recv_multipart()
        dealer.send_multipart(encode(Command.BYE, b"thief", {}, to, epoch))


def _replay(attacker: Attacker) -> None:
    """Do one job, and send its DONE again and again."""
    dealer = attacker.connect()
    to = _meet(dealer, b"replay").answer_to
    give = {
        Field.LOCK: 1,
        Field.WANT: 1,
        Field.HOLD: 60_000,
        Field.ROLES: ["default"],
        Field.NEEDS: {"slots": 1},
    }
    dealer.send_multipart(encode(Command.GIVE, b"replay", give, to))
    attacker.begin()
    while (take := codec.decode(dealer.recv_multipart())).command is not Command.TAKE:
        pass
    jobs = take.columns
    assert jobs is not None
    fields = {key: take.fields[key] for key in (Field.NUMBER, Field.SESSION, Field.MANAGER)}
    columns = Columns(jobs.ids, jobs.attempts, outcomes=[0], payloads=jobs.payloads)
    done = list(codec.encode(Message(Command.DONE, to, (b"replay", 1), fields, columns)))
    while True:
        dealer.send_multipart(done)
        if dealer.poll(0):
            dealer.recv_multipart()


def _stale(attacker: Attacker) -> None:
    """Send DONEs for jobs of a session that never existed, with PINGs in between."""
    dealer = attacker.connect()
    to = _meet(dealer, b"stale").answer_to
    fields = {Field.NUMBER: 1, Field.SESSION: 99, Field.MANAGER: to[::-1][:2]}
    columns = Columns([1], [1], outcomes=[0], payloads=[b""])
    done = list(codec.encode(Message(Command.DONE, to, (b"stale", 1), fields, columns)))
    attacker.flood(itertools.cycle([done, done, done, encode(Command.PING, b"stale", {})]))


# -- connections


def _churn(attacker: Attacker) -> None:
    """Open connections, send PING, and close the connections, again and again."""
    ping = encode(Command.PING, b"churn", {})
    attacker.begin()
    while True:
        dealers = [attacker.connect() for _ in range(100)]
        for dealer in dealers:
            dealer.send_multipart(ping)
        for dealer in dealers:
            dealer.poll(200)
            dealer.close()


def _endless(attacker: Attacker) -> None:
    """Send a message that gets more and more frames and never ends."""
    frame = b"\x03" + (65_536).to_bytes(8, "big") + bytes(65_536)
    attacker.begin()
    while True:
        try:
            with attacker.tcp() as stream:
                handshake(stream)
                while True:
                    stream.sendall(frame)
        except OSError:
            time.sleep(0.05)


def _half_open(attacker: Attacker) -> None:
    """Open connections that send only half of a greeting."""
    streams: list[socket.socket] = []
    attacker.begin()
    while True:
        try:
            streams.append(attacker.tcp())
            streams[-1].sendall(b"\xff\0\0\0")
        except OSError:
            time.sleep(0.05)
        if len(streams) >= 500:
            for stream in streams:
                stream.close()
            streams.clear()


def _fuzz(attacker: Attacker) -> None:
    """Send ZMTP that turns into noise."""
    draw = random.Random(_SEED)
    attacker.begin()
    while True:
        try:
            with attacker.tcp() as stream:
                if draw.random() < 0.7:
                    handshake(stream)
                for _ in range(draw.randrange(20)):
                    stream.sendall(draw.randbytes(draw.randrange(1, 500)))
        except OSError:
            time.sleep(0.001)


DRILLS: Final[dict[str, Drill]] = {
    "garbage": Drill(_garbage),
    "garbage of 100": Drill(_garbage, 100),
    "garbage through a device": Drill(_garbage, 1, through_device=True),
    "garbage of 100 through a device": Drill(_garbage, 100, through_device=True),
    "ping": Drill(_ping),
    "ping of 100": Drill(_ping, 100),
    "ping through a device": Drill(_ping, 1, through_device=True),
    "ping of 100 through a device": Drill(_ping, 100, through_device=True),
    "ready": Drill(_ready),
    "ready of 100": Drill(_ready, 100),
    "ready through a device": Drill(_ready, 1, through_device=True),
    "ready of 100 through a device": Drill(_ready, 100, through_device=True),
    "identities": Drill(_identities),
    "held gives": Drill(_held_gives),
    "deaf": Drill(_deaf, 200),
    "credit": Drill(_credit),
    "thief": Drill(_thief),
    "replay": Drill(_replay),
    "stale": Drill(_stale),
    "stale through a device": Drill(_stale, 1, through_device=True),
    "come and go": Drill(_churn),
    "endless": Drill(_endless),
    "half open": Drill(_half_open),
    "fuzz": Drill(_fuzz),
}
