"""The messages of the queue's side of a foreign protocol, towards workers."""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

from attrs import frozen

from wmp.foreign import Frames
from wmp.gateways.common.body import MAX_FRAMES
from wmp.gateways.common.pirate_wire import HEARTBEAT, READY


class Notice(Enum):
    """The meaning of a message of a worker."""

    READY = "ready"
    SIGN = "sign"
    REPLY = "reply"
    LEAVE = "leave"
    INVALID = "invalid"


class HeartbeatStyle(Enum):
    """The signs of life that a door sends to its workers."""

    NONE = "none"
    ONE_WAY = "one-way"
    """The door sends a sign of life by its clock, and so does the worker."""
    PING_PONG = "ping-pong"
    """The door answers each sign of life of the worker."""


@frozen
class FromWorker:
    """A message of a worker as its door reads it."""

    meaning: Notice
    token: bytes | None = None
    """The token of a reply; None if the protocol has no place for a token."""
    body: Frames = ()
    words: bool = False
    """Whether the worker sends words where the specification has one byte."""


class DoorWire(Protocol):
    """The messages of one protocol."""

    @property
    def style(self) -> HeartbeatStyle:
        """The style of the protocol."""

    @property
    def sign(self) -> Frames | None:
        """The sign of life that a door can send; None for a protocol without such a message."""

    @property
    def word_sign(self) -> Frames | None:
        """The sign of life for workers that send words."""

    @property
    def exit(self) -> Frames | None:
        """The message that ends a worker."""

    @property
    def sign_is_ready(self) -> bool:
        """Whether a sign of life of an unknown worker is READY."""

    @property
    def sign_is_idle(self) -> bool:
        """Whether only an idle worker sends signs of life, so that they end a request."""

    @property
    def reply_is_ready(self) -> bool:
        """Whether a reply of an unknown worker is READY."""

    def read(self, frames: Frames) -> FromWorker:
        """Return the meaning of any frames."""

    def request(self, token: bytes, body: Frames) -> Frames | None:
        """Return the request; None if a worker would read another message."""


_INVALID: Final = FromWorker(Notice.INVALID)
_READY: Final = FromWorker(Notice.READY)
_SIGN: Final = FromWorker(Notice.SIGN)
_LEAVE: Final = FromWorker(Notice.LEAVE)

_READY_WORD: Final = b"READY"
_HEARTBEAT_WORD: Final = b"HEARTBEAT"
_IN_WORDS: Final = FromWorker(Notice.READY, words=True)
_PIRATE_NOTICES: Final = {
    READY: _READY,
    HEARTBEAT: _SIGN,
    _READY_WORD: _IN_WORDS,
    _HEARTBEAT_WORD: FromWorker(Notice.SIGN, words=True),
}


class SimpleDoorWire:
    """The messages of a Simple Pirate queue."""

    style = HeartbeatStyle.NONE
    sign: Frames | None = None
    word_sign: Frames | None = None
    exit: Frames | None = None
    sign_is_ready = False
    sign_is_idle = False
    reply_is_ready = True  # PIRATE-8.2

    def read(self, frames: Frames) -> FromWorker:
        """Return the meaning of any frames."""
        if not 2 <= len(frames) <= MAX_FRAMES or frames[0]:
            return _INVALID
        if len(frames) == 2:
            if frames[1] == READY:
                return _READY
            return _IN_WORDS if frames[1] == _READY_WORD else _INVALID  # PIRATE-8.3
        return _reply(frames[1:])

    def request(self, token: bytes, body: Frames) -> Frames | None:
        """Return the request."""
        return (b"", token, b"", *body)


class ParanoidDoorWire:
    """The messages of a Paranoid Pirate queue, 6/PPP.

    Args:
        guide: Whether HEARTBEAT of an unknown worker is READY, as at the queue of the guide.
        one_frame: Whether requests must have one frame, as at the workers of the guide.
    """

    style = HeartbeatStyle.ONE_WAY
    sign: Frames | None = (HEARTBEAT,)
    word_sign: Frames | None = (_HEARTBEAT_WORD,)
    exit: Frames | None = None
    sign_is_idle = False
    reply_is_ready = False

    def __init__(self, *, guide: bool = False, one_frame: bool = False) -> None:
        self.sign_is_ready = guide
        self._one_frame = one_frame

    def read(self, frames: Frames) -> FromWorker:
        """Return the meaning of any frames."""
        if len(frames) == 1:
            return _PIRATE_NOTICES.get(bytes(frames[0]), _INVALID)  # PIRATE-9.5
        return _reply(frames) if 1 < len(frames) <= MAX_FRAMES else _INVALID

    def request(self, token: bytes, body: Frames) -> Frames | None:
        """Return the request."""
        return None if self._one_frame and len(body) > 1 else (token, b"", *body)


class PingPongDoorWire:
    """The messages of a ping-pong broker."""

    style = HeartbeatStyle.PING_PONG
    sign: Frames | None = (b"", b"PONG")
    word_sign: Frames | None = None  # the protocol has words only
    exit: Frames | None = (b"", b"EXIT")
    sign_is_ready = True
    sign_is_idle = True  # PING-4.3
    reply_is_ready = False

    def read(self, frames: Frames) -> FromWorker:
        """Return the meaning of any frames."""
        if not 2 <= len(frames) <= MAX_FRAMES or frames[0]:
            return _INVALID
        if len(frames) == 2:
            words = {b"READY": _READY, b"PING": _SIGN, b"DISCONNECT": _LEAVE}
            meaning = words.get(bytes(frames[1]))
            if meaning is not None:
                return meaning
        return FromWorker(Notice.REPLY, None, frames[1:])

    def request(self, token: bytes, body: Frames) -> Frames | None:
        """Return the job."""
        return None if len(body) == 1 and body[0] in (b"PONG", b"EXIT") else (b"", *body)


def _reply(frames: Frames) -> FromWorker:
    """Read a token, an empty frame and a body."""
    if len(frames) < 3 or not frames[0] or frames[1]:
        return _INVALID
    return FromWorker(Notice.REPLY, bytes(frames[0]), frames[2:])
