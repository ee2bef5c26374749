"""The messages of a ROUTER that a node takes, and the rests in which the node reads none.

A message that is not taken is counted here. :class:`~wmp.runtime.throttle.Throttle` has the budgets
that decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from wmp.errors import DecodeError
from wmp.message import Link, Message, Path, hops
from wmp.runtime.counters import Counters
from wmp.runtime.throttle import Throttle

__all__ = ["Admission"]

_IGNORED = "messages of this connection are ignored for some seconds"


class Admission:
    """Decides about the messages of all connections of one ROUTER. All times are seconds.

    Args:
        throttle: The budgets.
        counters: Count the messages that are not taken.
        clock: Returns the time.
        rest: Called with the number of seconds for which the ROUTER must not be read.
    """

    def __init__(
        self,
        throttle: Throttle,
        counters: Counters,
        clock: Callable[[], float],
        rest: Callable[[float], None],
    ) -> None:
        self._throttle = throttle
        self._counters = counters
        self._clock = clock
        self._rest = rest

    def ignored(self, now: float) -> Collection[Link]:
        """Return the connections whose messages are dropped unread."""
        return self._throttle.ignored(now)

    def skipped(self, number: int, since: float) -> None:
        """Count messages of ignored connections that were dropped since a moment."""
        self._counters.count("ignored", _IGNORED, since, number=number)
        self._drop(number, since)

    def listens(self, link: Link, now: float) -> bool:
        """Return whether a message of this connection is read."""
        if not self._throttle.ignores(link, now):
            return True
        self._counters.count("ignored", _IGNORED, now)
        self._drop()
        return False

    def answers(self, link: Link, error: DecodeError, now: float) -> bool:
        """Return whether the machine takes frames that are no message."""
        self.refused(link, hops(error.source), error.code, now)
        if self._throttle.answers(now):
            return True
        self._counters.count(error.code, str(error), now)
        self._drop()
        return False

    def admits(self, link: Link, message: Message, now: float) -> bool:
        """Return whether the machine takes a message."""
        if self._throttle.admits(link, message.command, message.source, now):
            return True
        text = f"the connection sends {message.command.name} without a pause"
        self._counters.count("flood", text, now)
        self.refused(link, message.hops, "flood", now)
        self._drop()
        return False

    def refused(self, link: Link, hops: int, reason: str, now: float) -> None:
        """Ignore a connection for some seconds when its messages are refused too often."""
        if isinstance(link, bytes) and self._throttle.refuses(link, hops, reason, now):
            text = (
                "one connection sent too many messages that were refused, the last for this "
                f"reason: {reason}"
            )
            self._counters.count("ignored", text, now, alarming=True)

    def ignore(self, link: Link, now: float) -> None:
        """Drop what remains of a connection that sent frames that are no message, and ended."""
        self._throttle.ignore(link, now)

    def forget(self, link: Link) -> None:
        """Forget a connection that ended."""
        self._throttle.forget(link)

    def sent(self, link: Link, to: Path, jobs: int) -> None:
        """Expect a DONE for each job of a TAKE that a device passes on."""
        self._throttle.sent(link, to, jobs)

    def _drop(self, number: int = 1, since: float | None = None) -> None:
        if seconds := self._throttle.rests(self._clock(), number, since):
            self._rest(seconds)
