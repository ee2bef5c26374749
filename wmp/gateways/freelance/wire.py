"""The messages of the clients of Freelance, as their servers read them (specs/freelance.md)."""

from __future__ import annotations

from typing import Final

from wmp.foreign import Frames
from wmp.gateways.common.body import MAX_FRAMES, split

PING: Final = b"PING"
PONG: Final = b"PONG"

_MAX_SEQUENCE: Final = 255
"""Maximum number of bytes of a sequence (FREE-1.3)."""


class ShotgunWire:
    """The messages of shotgun clients."""

    repeats = False

    def split(self, frames: Frames) -> tuple[Frames, Frames] | None:
        """Divide a request behind its sequence (FREE-5.2)."""
        parts = split(frames) if len(frames) <= MAX_FRAMES else None
        if parts is None:
            return None
        envelope, (sequence, *body) = parts
        if not body or not 0 < len(sequence) <= _MAX_SEQUENCE:
            return None
        return (*envelope, sequence), tuple(body)

    def answer(self, frames: Frames) -> Frames | None:
        """None: every message is a request."""
        return None


class AgentWire:
    """The messages of agents, 10/FLP.

    Args:
        guide: Whether an empty frame behind the sequence is dropped (FREE-5.7).
    """

    repeats = True

    def __init__(self, *, guide: bool = False) -> None:
        self._guide = guide

    def split(self, frames: Frames) -> tuple[Frames, Frames] | None:
        """Divide a request behind its sequence (FREE-5.2)."""
        if not 2 <= len(frames) <= MAX_FRAMES or not 0 < len(frames[0]) <= _MAX_SEQUENCE:
            return None
        body = frames[1:]
        if self._guide and len(body) > 1 and not body[0]:
            body = body[1:]
        return (bytes(frames[0]),), body

    def answer(self, frames: Frames) -> Frames | None:
        """Return PONG for PING (FREE-5.3)."""
        return (PONG,) if len(frames) == 1 and frames[0] == PING else None
