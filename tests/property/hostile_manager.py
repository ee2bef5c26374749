"""A peer that sends all messages of managers, valid and invalid, in an order drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.property.hostile_peer import readable
from tests.property.mutations import Frames, mutated
from wmp import codec
from wmp.errors import LocalProtocolError
from wmp.message import ERROR_CODES, Columns, Command, Field, Limits, Message, Path, Peer

__all__ = ["HostileManager"]

_NUMBERS: Final = (0, 1, 2, 7, 1000, 2**40, Limits.UINT)
_TIMES: Final = (None, 0, 1, 100, 10_000, Limits.UINT)
_ROLES: Final = ("honest", "shared", "nobody")
_PAYLOADS: Final = (b"", b"wrong", b"\x80", bytes(5000))


class HostileManager:
    """One manager at one link of a worker.

    Args:
        number: Number of the manager; part of its identity.
        seed: Decides its messages.
        known: Messages to mutate.
        honest: The manager in whose name some messages are sent.
    """

    def __init__(self, number: int, seed: int, known: list[Frames], honest: Peer) -> None:
        self._draw = Random(f"{seed}/{number}")
        self._known = known
        self._honest = honest
        self._identity = b"hostile manager %d" % number
        self._epoch = 1
        self._to: Path = ()
        self._session = 1
        self._number = self._received = self._ready = self._id = 0
        self._challenge = 1
        self._locks = [1]
        self._moves: tuple[Callable[[], Message], ...] = (
            *[self._pong] * 4,
            *[self._wake] * 4,
            *[self._take] * 6,
            self._no,
            self._cancel,
            self._cancel,
            self._error,
            self._restart,
        )

    def receive(self, frames: Frames) -> None:
        """Read a message of the worker: the values that the next messages must have."""
        message = readable(frames)
        assert isinstance(message, Message)
        fields = message.fields
        self._to = message.answer_to
        self._session = fields.get(Field.SESSION, self._session)
        self._received = max(self._received, fields.get(Field.NUMBER, 0))
        if message.command is Command.PING and Field.ACK in fields:
            self._number = fields[Field.ACK]  # a gap would otherwise end the stream
        self._challenge = fields.get(Field.CHALLENGE, self._challenge)
        if message.command is Command.READY:
            self._ready = fields[Field.READY]
        elif message.command is Command.GIVE:
            self._locks = [*self._locks[-4:], fields[Field.LOCK]]

    def next(self) -> Frames:
        """Return the frames of the next message."""
        draw = self._draw
        if draw.random() < 0.2 or not self._to:
            return mutated(draw, self._known)
        message = draw.choice(self._moves)()
        if draw.random() < 0.1:
            fields = dict(message.fields)
            fields[draw.choice(list(fields))] = draw.choice(_NUMBERS)
            message = self._message(message.command, fields, message.columns)
        try:
            return [bytes(frame) for frame in codec.encode(message)]
        except LocalProtocolError:
            return [draw.randbytes(9)]

    # -- moves

    def _message(
        self, command: Command, fields: dict[int | str, Any], columns: Columns | None = None
    ) -> Message:
        draw = self._draw
        source = self._honest if draw.random() < 0.1 else (self._identity, self._epoch)
        stream = {Field.SESSION: self._session, Field.ACK: self._received}
        if draw.random() < 0.1:
            stream[draw.choice((Field.SESSION, Field.ACK))] = draw.choice(_NUMBERS)
        return Message(command, self._to, source, {**stream, **fields}, columns)

    def _pong(self) -> Message:
        draw = self._draw
        fields: dict[int | str, Any] = {
            Field.MAX_SILENCE: draw.choice((0, 1, 6000, 6000, 6000, Limits.UINT)),
            Field.AGAIN: draw.random() < 0.3,
            Field.READY: max(1, draw.choice((self._ready, self._ready + 1, 1))),
            Field.CREDIT: draw.choice(_NUMBERS),
            Field.LOCK: draw.choice(self._locks),
        }
        if draw.random() < 0.3:
            fields[Field.ANSWER] = draw.choice((self._challenge, 1))
        if draw.random() < 0.1:
            fields[Field.CHALLENGE] = draw.choice(_NUMBERS[1:])
        return self._message(Command.PONG, fields)

    def _wake(self) -> Message:
        count = max(1, self._draw.choice(_NUMBERS))
        return self._message(Command.WAKE, {Field.COUNT: count, **self._kind()})

    def _take(self) -> Message:
        draw = self._draw
        ids = [self._some_id() for _ in range(draw.randrange(1, 4))]
        columns = Columns(
            ids,
            [draw.choice((1, 1, 1, 2, Limits.UINT)) for _ in ids],
            payloads=[draw.choice(_PAYLOADS) for _ in ids],
            left_ms=[draw.choice(_TIMES) for _ in ids],
            expires_ms=[draw.choice(_TIMES) for _ in ids],
            limits_ms=[draw.choice(_TIMES) for _ in ids],
        )
        lock = max(1, draw.choice((*self._locks, 2**40)))
        more = draw.random() < 0.3
        return self._numbered(
            Command.TAKE, {Field.LOCK: lock, Field.MORE: more, **self._kind()}, columns
        )

    def _no(self) -> Message:
        return self._numbered(Command.NO, {Field.LOCK: max(1, self._draw.choice(self._locks))})

    def _cancel(self) -> Message:
        ids = sorted({self._some_id() for _ in range(3)})
        unstarted = self._draw.random() < 0.5
        return self._numbered(
            Command.CANCEL, {Field.UNSTARTED: unstarted}, Columns(ids, [1] * len(ids))
        )

    def _error(self) -> Message:
        draw = self._draw
        worker = (self._to[-1], self._to[-2])
        peer = draw.choice((self._honest, worker, (b"nobody", 1)))
        fields = {Field.CODE: draw.choice(sorted(ERROR_CODES)), Field.ABOUT_PEER: peer}
        if draw.random() < 0.5:
            fields[Field.ABOUT_NUMBER] = draw.choice((1, 2, 3, self._received + 1))
        return self._message(Command.ERROR, fields)

    def _restart(self) -> Message:
        self._epoch = max(0, self._epoch + self._draw.choice((0, 1, 1000, -1)))
        self._session += self._draw.choice((0, 1))
        self._number = self._received = self._id = 0
        return self._pong()

    def _numbered(
        self, command: Command, fields: dict[int | str, Any], columns: Columns | None = None
    ) -> Message:
        self._number += self._draw.choice((0, *[1] * 18, 4))
        numbered = {Field.NUMBER: max(1, self._number)}
        if command is not Command.NO:
            owner = self._honest if self._draw.random() < 0.1 else (self._identity, self._epoch)
            numbered[Field.MANAGER] = owner
        return self._message(command, {**fields, **numbered}, columns)

    def _kind(self) -> dict[int | str, Any]:
        needs = self._draw.choice(({"slots": 1}, {"slots": 1}, {}, {"slots": 2**40}, {"gpu": 1}))
        return {Field.ROLE: self._draw.choice(_ROLES), Field.NEEDS: needs}

    def _some_id(self) -> int:
        """Draw the number of the next job, or of another job."""
        self._id += 1
        return self._id if self._draw.random() < 0.7 else self._draw.choice((1, 2, 30, 2**40))
