"""The replies that a server has sent lately, for requests that are sent again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import define, field

from wmp.foreign import Frames

_MAX_REPLIES: Final = 10_000
_MAX_BYTES: Final = 64 << 20
_OVERHEAD: Final = 256
"""Bytes that a remembered reply takes in addition to its frames."""

_Key = tuple[int, bytes, Frames]
"""Socket, connection and envelope of a request."""


@define(eq=False)
class ReplyMemory:
    """The requests in progress and the last replies, by connection and envelope (FREE-5.5).

    Args:
        seconds: Time for which a reply is remembered.
        maximum: Limit of the remembered replies.
        max_bytes: Limit of their bytes.
    """

    seconds: float
    maximum: int = _MAX_REPLIES
    max_bytes: int = _MAX_BYTES
    _begun: set[_Key] = field(factory=set, init=False)
    _replies: dict[_Key, tuple[float, Frames]] = field(factory=dict, init=False)
    """Time and frames of each reply, oldest first."""
    _bytes: int = field(default=0, init=False)

    def known(self, key: _Key, now: float) -> Frames | None:
        """Return the reply to a request that came before; empty while it is in progress.

        None for a new request.
        """
        self._forget(now)
        if key in self._begun:
            return ()
        reply = self._replies.get(key)
        return None if reply is None else reply[1]

    def begin(self, key: _Key) -> None:
        """Record a new request."""
        self._begun.add(key)

    def end(self, key: _Key, reply: Frames | None, now: float) -> None:
        """Record the end of a request; without a reply the request may be sent again."""
        self._begun.discard(key)
        if reply is None:
            return
        self._replies[key] = (now, reply)
        self._bytes += _size(reply)
        self._forget(now)

    def leave(self, keys: Iterable[_Key]) -> None:
        """Forget requests in progress whose client left."""
        self._begun.difference_update(keys)

    def _forget(self, now: float) -> None:
        replies = self._replies
        while replies:
            key = next(iter(replies))
            at, frames = replies[key]
            if (
                at + self.seconds > now
                and len(replies) <= self.maximum
                and self._bytes <= self.max_bytes
            ):
                return
            del replies[key]
            self._bytes -= _size(frames)


def _size(frames: Frames) -> int:
    return _OVERHEAD + sum(map(len, frames))
