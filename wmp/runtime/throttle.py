"""Limits of messages a second, so that a peer that sends without a pause costs others little.

Two kinds of messages cost a node work without any use: messages that the node refuses, and READY,
GIVE and PING without a result in between. An honest worker sends few of both. A connection has a
budget for refused messages, and is ignored for a while when the budget is used up. A worker has a
budget for the other kind; further messages are dropped.

An ignored connection stays open. Its messages are dropped unread, and while they wait in its pipe
the peer can send no more. A closed connection would come back with a full pipe.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from wmp.message import Command, Link, Path

__all__ = ["Throttle"]

_CHATTER: Final = frozenset((Command.READY, Command.GIVE, Command.PING, Command.BYE))
_SECONDS: Final = 5
"""Seconds whose budget may be used at once."""
_RACE: Final = 0.02
"""Cost of a message that came late or twice: restarts and new routes cause many of them."""
_RACES: Final = frozenset(
    ("duplicate", "gap", "stale result", "other session", "old session", "repeated READY")
)
_IGNORED: Final = 10.0
"""Seconds for which a connection is ignored."""
_MOST: Final = 50_000
"""Limit of the remembered budgets; above it all begin anew."""


class Throttle:
    """Budgets of the connections of a ROUTER, and of the workers behind them.

    Args:
        chatter: READY, GIVE, PING and BYE of a worker a second, without a result in between.
        refused: Refused messages of a connection a second.
    """

    def __init__(self, chatter: int, refused: int) -> None:
        self._chatter = chatter
        self._refused = refused
        self._budgets: dict[Hashable, tuple[float, float]] = {}
        self._ignored: dict[Link, float] = {}
        """Connections that are ignored, and until when."""

    def ignores(self, link: Link, now: float) -> bool:
        """Return whether a message of this connection is to be dropped unread."""
        if not self._ignored or link not in self._ignored:
            return False
        if now < self._ignored[link]:
            return True
        del self._ignored[link]
        return False

    def admits(self, link: Link, command: Command, source: Path, now: float) -> bool:
        """Return whether the node should act on a message."""
        # A connection without a device is one worker, whatever identities it claims.
        device = len(source) > 2
        key = (link, source[0]) if device else link
        if command not in _CHATTER:
            if command is Command.DONE:
                self._budgets.pop(key, None)
            return True
        if device and key not in self._budgets and not self._take((link,), 1.0, self._chatter, now):
            return False
        return self._take(key, 1.0, self._chatter, now)

    def refuses(self, link: Link, hops: int, reason: str, now: float) -> bool:
        """Count a refused message; return whether its connection is ignored from now on.

        Args:
            link: The connection.
            hops: The devices that the message has passed. The other workers behind a device must
                not suffer, and the device itself ignores the refused worker.
            reason: The reason of the refusal.
            now: Seconds.
        """
        if hops:
            return False
        cost = _RACE if reason in _RACES else 1.0
        if self._take((link, "refused"), cost, self._refused, now):
            return False
        if len(self._ignored) >= _MOST:
            self._ignored.clear()
        self._ignored[link] = now + _IGNORED
        return True

    def _take(self, key: Hashable, cost: float, rate: int, now: float) -> bool:
        budgets = self._budgets
        full = float(rate * _SECONDS)
        left, since = budgets.get(key, (full, now))
        left = min(full, left + (now - since) * rate) - cost
        if left < 0:
            return False
        if len(budgets) >= _MOST:
            budgets.clear()
        budgets[key] = left, now
        return True
