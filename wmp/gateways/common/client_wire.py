"""The messages of clients, as their servers read them, and those of REQ sockets."""

from __future__ import annotations

from typing import Protocol

from wmp.foreign import Frames
from wmp.gateways.common.body import MAX_FRAMES, split


class ClientWire(Protocol):
    """The messages of clients, as their server reads them."""

    @property
    def repeats(self) -> bool:
        """Whether a client may send a request again with the same envelope."""

    def split(self, frames: Frames) -> tuple[Frames, Frames] | None:
        """Divide a request into the envelope of its reply and the body; None for no request."""

    def answer(self, frames: Frames) -> Frames | None:
        """Return the reply to a message that is not a request; None if there is none."""


class ReqWire:
    """The messages of REQ sockets: Lazy Pirate clients and failover clients."""

    repeats = False

    def split(self, frames: Frames) -> tuple[Frames, Frames] | None:
        """Divide a request behind its first empty frame (PIRATE-1.2)."""
        return split(frames) if len(frames) <= MAX_FRAMES else None

    def answer(self, frames: Frames) -> Frames | None:
        """None: every message is a request."""
        return None
