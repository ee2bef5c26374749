"""One connection of a worker towards managers, and when it counts as dead (WMP-9.4)."""

from __future__ import annotations

import zlib
from typing import Final

from attrs import define

__all__ = ["BACKOFF", "LinkState", "jitter"]

BACKOFF: Final = 1.0
"""Seconds: where every backoff starts before it doubles."""


def jitter(identity: bytes, number: int, share: float) -> float:
    """A factor above 1 - ``share`` and up to 1, spread over workers and numbers.

    The core draws no random numbers; a checksum spreads a fleet as well, and replays the same.
    """
    seed = zlib.crc32(number.to_bytes(8, "big"), zlib.crc32(identity))
    return 1.0 - share * seed / 2**32


@define(eq=False)
class LinkState:
    """One DEALER: whether it is connected, and what was heard behind it."""

    index: int
    connected: bool = False
    heard: float = 0.0
    """When anything last came over it; its connecting counts, so does its replacement."""
    pinged: float = 0.0
    """When PING without ``to`` last went out on it."""
    pings: int = 0
    doubted: tuple[bytes, ...] = ()
    """Managers that were its other end when it was made anew: whoever answers there now may be
    somebody else (WMP-9.12)."""
    replaced: int = 0
    """How often in a row its socket was replaced without a word since."""

    def silent_at(self, interval: float, silence: int, most: float) -> float:
        """When its socket must be replaced unless something is heard: after ``silence``
        intervals the first time, then with a backoff on top that doubles up to ``most``."""
        due = self.heard + silence * interval
        if self.replaced:
            due += min(most, BACKOFF * 2.0 ** min(self.replaced - 1, 30))
        return due
