"""Limits of messages a second, so that a peer that sends without a pause costs others little.

Three kinds of messages cost a node work and are of no use: messages that the node refuses; READY,
GIVE and PING without a result in between; and results of jobs that were not sent to the worker. An
honest worker sends few such messages. A connection has a budget for refused messages; when the
budget is used up, the connection is ignored for some seconds. A worker has a budget for each of the
other kinds; further messages are dropped.

A manager refuses results of jobs that it did not send. A device cannot read results, so it counts
the jobs that it passed on.

An ignored connection stays open. Its messages are dropped unread. While they wait in the pipe, the
peer cannot send. If the connection were closed, the peer would come back with a full pipe.

Reading such messages costs time too. A node reads its pipes in turn. So a node that has dropped
many messages, and found no result among them, has read all that honest peers have sent. Then the
node does not read for a moment. The pipes of the flooding peers stay full, and these peers wait.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Final

from wmp.message import Command, ErrorCode, Limits, Link, Path

_CHATTER: Final = frozenset((Command.READY, Command.GIVE, Command.PING, Command.BYE))
_SECONDS: Final = 5
"""Number of seconds whose budget may be used at once."""
_CROWD: Final = 10
"""Number of connections whose budgets all connections share.

A connection uses a small budget by itself. Above this budget it also uses the shared one. So a
flood over many connections costs little more than a flood over a few.
"""
_OWN: Final = 0.1
"""Part of a connection's rate for which the connection does not use the shared budget.

An honest worker without work sends about one message a second. With the whole rate, a few hundred
connections that each stay below their rates would fill a device for as long as messages wait in
their pipes.
"""
_RACE: Final = 0.02
"""Cost of a message that came late or twice. Restarts and new routes cause many such messages."""
_RACES: Final = frozenset(
    ("duplicate", "gap", "stale result", "other session", "old session", "repeated READY")
)
_GARBLED: Final = frozenset(
    (ErrorCode.MALFORMED, ErrorCode.LIMIT, ErrorCode.VERSION, ErrorCode.COMMAND)
)
"""Reasons for which frames are not a message. No honest peer sends such frames again and again."""
_SLOW: Final = 0.01
"""Part of a budget that grows again, for frames that are not a message. A node with little CPU time
reads few messages a second, and a budget that grows fast would never be used up there.
"""
_UNASKED: Final = 1 / 8
"""Cost of STATUS, ERROR, and a DONE that answers no TAKE: a worker that lost a connection or its
device sends many of them."""
_MAX_OWED: Final = 2 * Limits.JOBS
"""Maximum number of jobs of one worker for which a DONE is expected."""
_IGNORED: Final = 10.0
"""Seconds for which a connection is ignored."""
_ROUND: Final = 256
"""Number of messages that a node drops in a row before it rests, if no result is among them.

If many connections are ignored, the number is twice the number of these connections.
"""
_IDLE: Final = 8.0
"""Seconds of rest for each second that the dropped messages took."""
_REST: Final = 0.02
"""Limit of the seconds of rest. The messages of honest peers are late by the rest."""
_ANSWERS: Final = 200
"""Number of ERRORs a second with which the node answers frames that are not a message."""
_MAX: Final = 50_000
"""Maximum number of budgets that are remembered. Above this limit all budgets begin anew."""


class Throttle:
    """Budgets of the connections of a ROUTER, and of the workers behind them.

    Args:
        chatter: READY, GIVE, PING and BYE that a worker may send in a second without a result in
            between.
        refused: Refused messages that a connection may send in a second.
        forwards: Whether the node is a device.
    """

    def __init__(self, chatter: int, refused: int, *, forwards: bool = False) -> None:
        self._forwards = forwards
        self._chatter = chatter
        self._refused = refused
        self._budgets: dict[Hashable, tuple[float, float]] = {}
        self._owed: dict[Hashable, int] = {}
        self._ignored: dict[Link, float] = {}
        """Connections that are ignored, and until when."""
        self._drops, self._first = 0, 0.0
        """Number of messages dropped since the last result, and the time of the first one."""

    def ignores(self, link: Link, now: float) -> bool:
        """Return whether a message of this connection must be dropped unread."""
        if not self._ignored or link not in self._ignored:
            return False
        if now < self._ignored[link]:
            return True
        del self._ignored[link]
        return False

    def ignored(self, now: float) -> Collection[Link]:
        """Return the connections whose messages must be dropped unread."""
        while self._ignored:
            oldest = next(iter(self._ignored))
            if now < self._ignored[oldest]:
                break
            del self._ignored[oldest]
        return self._ignored

    def admits(self, link: Link, command: Command, source: Path, now: float) -> bool:
        """Return whether the node should act on a message."""
        # A connection without a device counts as one worker, whatever identities it claims.
        device = len(source) > 2
        key = (link, source[0]) if device else link
        cost = 1.0
        budget: Hashable = key
        shared = "chatter"
        if command not in _CHATTER:
            self._drops = 0
            owed = not self._forwards or self._owed.get(key, 0)
            if owed and command is Command.DONE:
                if self._forwards:
                    self._owed[key] -= 1
                self._budgets.pop((key, "own"), None)
                if not device:
                    self._budgets.pop(key, None)
                elif key in self._budgets:
                    # The budget stays, because the device would treat a worker without a budget as
                    # new.
                    self._budgets[key] = float(self._chatter * _SECONDS), now
                return True
            if not self._forwards:
                return True
            cost = _UNASKED
            budget, shared = (key, "unasked"), "unasked"
        # A device may pass on any number of identities. Each identity has its own budget.
        new = device and budget not in self._budgets
        if new and not self._take((link,), 1.0, self._chatter, now):
            return False
        return self._take(budget, cost, self._chatter, now, shared)

    def sent(self, link: Link, to: Path, jobs: int) -> None:
        """Expect a DONE for each job of a TAKE that a device passes on."""
        key = (link, to[-1]) if len(to) > 2 else link
        if len(self._owed) >= _MAX:
            self._owed.clear()
        self._owed[key] = min(self._owed.get(key, 0) + jobs, _MAX_OWED)

    def refuses(self, link: Link, hops: int, reason: str, now: float) -> bool:
        """Count a refused message; return whether its connection is ignored from now on.

        Args:
            link: The connection.
            hops: Number of devices that the message has passed. Other workers behind a device must
                not suffer, and the device itself ignores the worker with refused messages.
            reason: The reason of the refusal.
            now: Seconds.
        """
        # The message was sent to the connection and did not come from it.
        if hops or reason == "undelivered":
            return False
        # A device reports every message that it could not deliver, so these reports do not count.
        cost = _RACE if reason in _RACES or reason.startswith("ERROR") else 1.0
        kind, growth = ("garbled", _SLOW) if reason in _GARBLED else ("refused", 1.0)
        if self._take((link, kind), cost, self._refused, now, kind, growth):
            return False
        self.ignore(link, now)
        return True

    def ignore(self, link: Link, now: float) -> None:
        """Drop the messages of a connection unread for some seconds."""
        if len(self._ignored) >= _MAX:
            self._ignored.clear()
        self._ignored[link] = now + _IGNORED

    def rests(self, now: float, count: int = 1, since: float | None = None) -> float:
        """Count dropped messages; return the seconds for which the node should not read.

        Args:
            now: Seconds.
            count: Number of the messages.
            since: When the reading of the messages began; None for now.
        """
        if not self._drops:
            self._first = now if since is None else since
        self._drops += count
        if self._drops < max(_ROUND, 2 * len(self._ignored)):
            return 0.0
        self._drops = 0
        return min(_REST, _IDLE * (now - self._first))

    def answers(self, now: float) -> bool:
        """Return whether frames that are not a message should be answered with ERROR."""
        return self._take("answers", 1.0, _ANSWERS, now)

    def forget(self, link: Link) -> None:
        """Remove the budgets of a connection that ended. A new connection has another link."""
        self._budgets.pop((link,), None)
        for key in (link, (link, "refused"), (link, "garbled"), (link, "unasked")):
            self._budgets.pop(key, None)
            self._budgets.pop((key, "own"), None)
        self._owed.pop(link, None)
        self._ignored.pop(link, None)

    def _take(
        self,
        key: Hashable,
        cost: float,
        rate: float,
        now: float,
        shared: str | None = None,
        growth: float = 1.0,
    ) -> bool:
        """Use up a part of a budget, and of the budget that all connections share if there is one.

        Args:
            key: The budget.
            cost: The part.
            rate: Budget of a second.
            now: Seconds.
            shared: The shared budget.
            growth: Part of the rate by which the budget grows.

        Returns:
            False if too little is left. Then nothing is used up.
        """
        budgets = self._budgets
        full = rate * _SECONDS
        left, since = budgets.get(key, (full, now))
        left = min(full, left + (now - since) * rate * growth) - cost
        if left < 0:
            return False
        if (
            shared is not None
            and not self._take((key, "own"), cost, rate * _OWN, now, None, growth)
            and not self._take(shared, cost, rate * _CROWD, now, None, growth)
        ):
            return False
        if len(budgets) >= _MAX:
            budgets.clear()
        budgets[key] = left, now
        return True
