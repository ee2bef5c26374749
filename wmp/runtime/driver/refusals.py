"""The messages of a ROUTER that a node refuses: their numbers, and the rests that follow.

:class:`~wmp.runtime.driver.throttle.Throttle` keeps the budgets that decide which messages are
refused.
"""

from __future__ import annotations

from collections.abc import Callable

from wmp.errors import DecodeError
from wmp.message import Link, Message, hops
from wmp.runtime.common.counters import Counters
from wmp.runtime.driver.throttle import Throttle

_IGNORED = "messages of this connection are ignored for some seconds"


class Refusals:
    """Counts the refused messages of all connections of one ROUTER. All times are seconds.

    Args:
        throttle: The budgets.
        counters: Count the messages.
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

    def skipped(self, number: int, since: float) -> None:
        """Count messages of ignored connections that were dropped since a moment."""
        self._counters.count("ignored", _IGNORED, since, number=number)
        self._drop(number, since)

    def ignored(self, now: float) -> None:
        """Count a message of an ignored connection."""
        self._counters.count("ignored", _IGNORED, now)
        self._drop()

    def garbled(self, link: Link, error: DecodeError, now: float) -> bool:
        """Return whether the machine answers frames that are not a message; count them if not."""
        devices = hops(error.source)
        self.refused(link, devices, error.code, now)
        if self._throttle.answers(now):
            return True
        self._counters.count(error.code, str(error), now)
        if not devices:
            self._drop()
        return False

    def flooded(self, link: Link, message: Message, now: float) -> None:
        """Count a message above the budget of its connection."""
        text = f"the connection sends {message.command.name} without a pause"
        self._counters.count("flood", text, now)
        self.refused(link, message.hops, "flood", now)
        # A device sends the messages of all its workers through one pipe. During a rest, the
        # messages of honest workers would wait behind those of the flooding worker.
        if not message.hops:
            self._drop()

    def refused(self, link: Link, hops: int, reason: str, now: float) -> None:
        """Ignore a connection for some seconds when its messages are refused too often."""
        if isinstance(link, bytes) and self._throttle.refuses(link, hops, reason, now):
            text = (
                "one connection sent too many messages that were refused, the last for this "
                f"reason: {reason}"
            )
            self._counters.count("ignored", text, now, alarming=True)

    def _drop(self, number: int = 1, since: float | None = None) -> None:
        if seconds := self._throttle.rests(self._clock(), number, since):
            self._rest(seconds)
