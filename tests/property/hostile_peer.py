"""A peer that sends all messages of workers, valid and invalid, in an order drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.property.mutations import Frames, mutated
from wmp import codec
from wmp.errors import DecodeError, LocalProtocolError
from wmp.message import (
    ERROR_CODES,
    Columns,
    Command,
    Field,
    Frame,
    Limits,
    Message,
    Outcome,
    Path,
    Peer,
)

__all__ = ["HOSTILE_ROLES", "HostilePeer"]

HOSTILE_ROLES: Final = ("shared", "other")
_NUMBERS: Final = (0, 1, 2, 7, 1000, 2**40, Limits.UINT)
_RESULTS: Final = (b"", b"wrong", b"\x80", bytes(5000))


class HostilePeer:
    """One peer with its own connection to a manager.

    Args:
        number: Number of the peer; part of its identity.
        seed: Decides its messages.
        known: Messages to mutate.
    """

    def __init__(self, number: int, seed: int, known: list[Frames]) -> None:
        self._draw = Random(f"{seed}:{number}")
        self._known = known
        self._identity = b"hostile %d" % number
        self._epoch = 1
        self._manager: Peer | None = None
        self._session = 1
        self._number = self._lock = self._ready = self._received = 0
        self._jobs: list[tuple[int, int]] = []
        self._moves: tuple[Callable[[], Message | None], ...] = (
            *[self._ping] * 4,
            *[self._say_ready] * 3,
            *[self._give] * 4,
            *[self._done] * 6,
            self._status,
            self._error,
            self._bye,
            self._restart,
        )

    def receive(self, frames: list[Frame]) -> Message:
        """Read a message of the manager: jobs, and the values that the next messages must have."""
        message = codec.decode(frames)
        fields, columns = message.fields, message.columns
        self._manager = message.sender
        self._session = fields.get(Field.SESSION, self._session)
        self._received = max(self._received, fields.get(Field.NUMBER, 0))
        if message.command is Command.TAKE and columns is not None:
            self._jobs += zip(columns.ids, columns.attempts, strict=True)
            del self._jobs[:-50]
        return message

    def question(self, number: int) -> Frames:
        """Return a PING whose answer has this number."""
        ping = Message(Command.PING, (), (self._identity, self._epoch), {Field.CHALLENGE: number})
        return [bytes(frame) for frame in codec.encode(ping)]

    def next(self) -> Frames:
        """Return the frames of the next message."""
        draw = self._draw
        if draw.random() < 0.2:
            return mutated(draw, self._known)
        message = draw.choice(self._moves)()
        if message is None:
            return [draw.randbytes(draw.randrange(40))]
        if draw.random() < 0.1:
            message = self._spoiled(message)
        try:
            return [bytes(frame) for frame in codec.encode(message)]
        except LocalProtocolError:
            return [draw.randbytes(9)]

    # -- moves

    def _message(
        self, command: Command, fields: dict[int | str, Any], columns: Columns | None = None
    ) -> Message | None:
        if self._manager is None:
            return None
        stream = {Field.SESSION: self._session, Field.ACK: self._received}
        if self._draw.random() < 0.1:
            stream[Field.ACK] = self._draw.choice(_NUMBERS)
        to: Path = self._manager[::-1]
        return Message(command, to, (self._identity, self._epoch), {**fields, **stream}, columns)

    def _ping(self) -> Message | None:
        if self._manager is None or self._draw.random() < 0.3:
            return Message(Command.PING, (), (self._identity, self._epoch))
        held = self._some_jobs() if self._draw.random() < 0.5 else []
        if held:
            return self._message(Command.PING, {}, Columns(*map(list, zip(*held, strict=True))))
        return self._message(Command.PING, {Field.IDLE: True, Field.AGAIN: True})

    def _say_ready(self) -> Message | None:
        self._ready += self._draw.choice((0, 1, 1, 5))
        fields: dict[int | str, Any] = {
            Field.READY: max(1, self._ready),
            Field.CREDIT: self._draw.choice(_NUMBERS),
            Field.WINDOW: self._draw.choice(_NUMBERS),
            Field.ROLES: list(HOSTILE_ROLES),
            Field.RESOURCES: {"slots": self._draw.choice(_NUMBERS)},
            Field.LABEL: "\x1b[2J",
        }
        return Message(Command.READY, (), (self._identity, self._epoch), fields)

    def _give(self) -> Message | None:
        self._lock += self._draw.choice((0, 1, 1, 3))
        return self._message(
            Command.GIVE,
            {
                Field.LOCK: max(1, self._lock),
                Field.WANT: self._draw.choice(_NUMBERS),
                Field.HOLD: self._draw.choice((0, 100, 10_000, Limits.UINT)),
                Field.ROLES: list(HOSTILE_ROLES),
                Field.NEEDS: {"slots": self._draw.choice((0, 1, 5))},
            },
        )

    def _done(self) -> Message | None:
        jobs = self._some_jobs()
        columns = Columns(
            [id for id, _ in jobs],
            [attempt for _, attempt in jobs],
            outcomes=[int(self._draw.choice(list(Outcome))) for _ in jobs],
            payloads=[self._draw.choice(_RESULTS) for _ in jobs],
        )
        return self._numbered(Command.DONE, columns)

    def _status(self) -> Message | None:
        jobs = self._some_jobs()
        return self._numbered(Command.STATUS, Columns(*map(list, zip(*jobs, strict=True))))

    def _error(self) -> Message | None:
        peer = self._draw.choice(((b"nobody", 1), (self._identity, self._epoch)))
        code = self._draw.choice(sorted(ERROR_CODES))
        return self._message(Command.ERROR, {Field.CODE: code, Field.ABOUT_PEER: peer})

    def _bye(self) -> Message | None:
        return self._message(Command.BYE, {})

    def _restart(self) -> Message | None:
        self._epoch += self._draw.choice((0, 1, 1000, -1))
        self._epoch = max(0, self._epoch)
        self._number = self._lock = self._ready = self._received = 0
        return self._ping()

    def _numbered(self, command: Command, columns: Columns) -> Message | None:
        if self._manager is None:
            return None
        self._number += self._draw.choice((0, 1, 1, 1, 1, 4))
        fields = {Field.NUMBER: max(1, self._number), Field.MANAGER: self._manager}
        return self._message(command, fields, columns)

    def _some_jobs(self) -> list[tuple[int, int]]:
        """Draw jobs of this peer, and sometimes jobs of other workers."""
        draw = self._draw
        jobs = draw.sample(self._jobs, min(len(self._jobs), draw.randrange(1, 5)))
        if not jobs or draw.random() < 0.2:
            jobs.append((draw.choice((1, 2, 30, 2**40)), draw.choice((1, 2))))
        return jobs

    def _spoiled(self, message: Message) -> Message:
        """Put a wrong number into one field."""
        fields = dict(message.fields)
        if fields:
            fields[self._draw.choice(list(fields))] = self._draw.choice(_NUMBERS)
        return Message(message.command, message.to, message.source, fields, message.columns)


def readable(frames: Frames) -> Message | DecodeError:
    """Read frames as a node does."""
    try:
        return codec.decode(frames)
    except DecodeError as error:
        return error
