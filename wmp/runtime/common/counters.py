"""Counters of ignored messages and errors, and a bounded log.

A hostile or broken peer can make a node refuse a hundred thousand messages a second. Every message
is counted. For each reason the first line is logged at once. Later lines follow every few seconds,
with the number of messages since the last line.
"""

from __future__ import annotations

import logging
from collections import Counter

from wmp.actions import Drop
from wmp.message import ERROR_CODES, ErrorCode, printable

logger = logging.getLogger("wmp")

_EVERY = 5.0
"""Seconds between two log lines for one reason."""

_USUAL = frozenset(
    (
        *(ErrorCode.MISROUTED, ErrorCode.SUPERSEDED, ErrorCode.UNREACHABLE),
        *("ERROR misrouted", "ERROR superseded", "ERROR unreachable"),
        *(
            "after goodbye",
            "claimed",
            "old session",
            "other session",
            "unknown session",
            "lost session",
        ),
        *("repeated READY", "stale result", "superseded result", "undelivered"),
    )
)
"""Reasons that normally follow from restarts, losses and changes of routes."""

_ALARMING = (
    ERROR_CODES
    | {"policy failed", "rival", "slots above max_slots", "wrong side", "device full", "no reply"}
    | {"unanswered request", "too many frames", "unusable service"}
) - _USUAL
"""Reasons that indicate a broken or hostile peer, a user's policy that raises errors, a setting
that does not fit, or a client or worker of another protocol that waits in vain.

All other reasons are ordinary races.
"""


class Counters:
    """Counters by reason, with rate-limited logging."""

    def __init__(self, node: str) -> None:
        """Count for ``node``; each log line begins with this name."""
        self._node = node
        self._counts: Counter[str] = Counter()
        self._next: dict[str, float] = {}
        self._silent: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        """Return how often each reason was counted so far."""
        return dict(self._counts)

    def count(
        self,
        reason: str,
        detail: str,
        now: float,
        *,
        alarming: bool | None = None,
        number: int = 1,
    ) -> None:
        """Count occurrences of ``reason``, and log them unless a line was logged shortly before.

        Args:
            reason: A short constant.
            detail: The message or the error, for people.
            now: Seconds on the driver's clock.
            alarming: Whether the line is a warning; None decides by the reason.
            number: Number of occurrences.
        """
        self._counts[reason] += number
        if now < self._next.get(reason, now):
            self._silent[reason] += number
            return
        if alarming is None:
            alarming = reason in _ALARMING
        level = logging.WARNING if alarming else logging.DEBUG
        self._next[reason] = now + _EVERY
        missed = self._silent.pop(reason, 0) + number - 1
        if not logger.isEnabledFor(level):
            return
        more = f" (and {missed} more since the last line)" if missed else ""
        if reason in _USUAL and not alarming:
            reason = (
                f"ignored a message of a peer that restarted or left; no action is needed: {reason}"
            )
        text = printable(detail) or "message ignored"
        logger.log(level, "%s: %s: %s%s", self._node, reason, text, more)


def describe_drop(action: Drop) -> str:
    """Return the known parts of a dropped message: its command, its sender and its link."""
    parts = []
    if action.message is not None:
        parts.append(action.message.command.name)
        if action.message.source:
            parts.append(f"from {_short(action.message.source[0])}")
    if action.link is not None:
        parts.append(f"on {_short(action.link)}")
    return " ".join(parts)


def _short(value: bytes | int) -> str:
    if isinstance(value, int):
        return f"link {value}"
    return value.decode() if value.isascii() and value.decode().isprintable() else value.hex()[:16]
