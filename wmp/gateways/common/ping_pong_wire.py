"""The messages of a worker of the ping-pong protocol (specs/ping-pong.md)."""

from __future__ import annotations

from typing import Final

from wmp.foreign import Frames
from wmp.gateways.common.body import MAX_FRAMES
from wmp.gateways.common.worker_wire import Incoming, Meaning

_READY: Final = b"READY"
_PING: Final = b"PING"
_PONG: Final = b"PONG"
_EXIT: Final = b"EXIT"
_DISCONNECT: Final = b"DISCONNECT"

_FROM_WORKERS: Final = (_READY, _PING, _DISCONNECT)


class PingPongWire:
    """The messages of the ping-pong protocol.

    Args:
        disconnect: Whether a worker that ends sends DISCONNECT (PING-2.7).
    """

    ready: Frames = (b"", _READY)  # PING-1.3
    sign: Frames | None = (b"", _PING)
    ready_after_reply = True  # PING-2.2

    def __init__(self, *, disconnect: bool = False) -> None:
        self.goodbye: Frames | None = (b"", _DISCONNECT) if disconnect else None

    def read(self, frames: Frames) -> Incoming:
        """Return the meaning of any frames (PING-1.4)."""
        if not 2 <= len(frames) <= MAX_FRAMES or frames[0]:
            return Incoming(Meaning.INVALID)
        body = frames[1:]
        if body == (_PONG,):
            return Incoming(Meaning.SIGN)
        if body == (_EXIT,):
            return Incoming(Meaning.EXIT)
        return Incoming(Meaning.REQUEST, (), body)

    def reply(self, envelope: Frames, body: Frames) -> Frames | None:
        """Return the reply; None if the broker would read a control word (PING-1.5)."""
        return None if len(body) == 1 and body[0] in _FROM_WORKERS else (b"", *body)
