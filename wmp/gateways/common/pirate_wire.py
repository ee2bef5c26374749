"""The messages of workers of the Simple and the Paranoid Pirate pattern (specs/pirates.md)."""

from __future__ import annotations

from typing import Final

from wmp.foreign import Frames
from wmp.gateways.common.body import MAX_FRAMES, split
from wmp.gateways.common.worker_wire import Incoming, Meaning

READY: Final = b"\x01"
HEARTBEAT: Final = b"\x02"

_INVALID: Final = Incoming(Meaning.INVALID)
_SIGN: Final = Incoming(Meaning.SIGN)


class SimpleWire:
    """The messages of the Simple Pirate pattern, as a REQ socket sends them."""

    ready: Frames = (b"", READY)  # PIRATE-5.1
    sign: Frames | None = None  # PIRATE-5.4
    goodbye: Frames | None = None  # PIRATE-4.7
    ready_after_reply = False  # PIRATE-5.3

    def read(self, frames: Frames) -> Incoming:
        """Return the meaning of any frames (PIRATE-5.2)."""
        if not 0 < len(frames) <= MAX_FRAMES or frames[0]:
            return _INVALID
        return _request(frames[1:])

    def reply(self, envelope: Frames, body: Frames) -> Frames | None:
        """Return the reply with this body."""
        return (b"", *envelope, *body)


class ParanoidWire:
    """The messages of the Paranoid Pirate pattern, 6/PPP."""

    ready: Frames = (READY,)  # PIRATE-6.1
    sign: Frames | None = (HEARTBEAT,)
    goodbye: Frames | None = None
    ready_after_reply = True  # PIRATE-6.8

    def read(self, frames: Frames) -> Incoming:
        """Return the meaning of any frames (PIRATE-6.2)."""
        if len(frames) == 1:
            return _SIGN if frames[0] == HEARTBEAT else _INVALID
        return _INVALID if len(frames) > MAX_FRAMES else _request(frames)

    def reply(self, envelope: Frames, body: Frames) -> Frames | None:
        """Return the reply with this body."""
        return (*envelope, *body)


def _request(frames: Frames) -> Incoming:
    """Read the address of a client, an empty frame and a body."""
    parts = split(frames)
    if parts is None or len(parts[0]) < 2:
        return _INVALID
    return Incoming(Meaning.REQUEST, *parts)
