"""Numbered streams: both directions of one (manager, worker) pair in one session (spec §7).

Sent messages are numbered, kept until they are acknowledged, and sent again from the stream.
Received messages are accepted strictly in order. The machine decides when to resend, and over
which route.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any

from attrs import define, field

from wmp.message import Columns, Command, Field

__all__ = ["Arrival", "Kept", "Stream"]


class Arrival(Enum):
    """Meaning of a received number (WMP-7.1)."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    GAP = "gap"
    """Higher than the next, and the first sign of this gap: ask once."""
    AHEAD = "ahead"
    """Higher than the next, in a gap that was asked for already."""


@define(eq=False)
class Kept:
    """One numbered message, without what changes when it is sent again (route, ack)."""

    number: int
    command: Command
    fields: dict[int | str, Any]
    columns: Columns | None
    sent_at: float
    size: int
    """Payload bytes."""
    sends: int = 0
    """How often the message was sent: 0, 1, or 2 for more. An undelivered first try counts as 0."""


@define(eq=False)
class Stream:
    """The two streams of a session.

    Invariant: ``kept`` holds exactly the numbers from ``acked`` + 1 to ``sent``.
    """

    session: int
    sent: int = 0
    acked: int = 0
    received: int = 0
    """Highest number received in order: the ack to send."""
    size: int = 0
    """Payload bytes in ``kept``."""
    unacked_bytes: int = 0
    """Payload bytes received since an ack was last sent."""
    kept: deque[Kept] = field(factory=deque)
    _asked: int = 0
    """``received`` when a gap was last asked for, plus one; 0 for never."""

    def push(
        self,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns | None,
        now: float,
        size: int = 0,
    ) -> Kept:
        """Number a message and keep it; returns what to send."""
        self.sent += 1
        fields[Field.NUMBER] = self.sent
        fields[Field.SESSION] = self.session
        kept = Kept(self.sent, command, fields, columns, now, size)
        self.kept.append(kept)
        self.size += size
        return kept

    def left(self, number: int) -> bool:
        """Whether a message that was pushed may have left (WMP-6.17)."""
        return number <= self.acked or self.kept[number - self.acked - 1].sends > 0

    def returned(self, number: int) -> None:
        """A message did not leave, says the socket."""
        if self.acked < number <= self.sent:
            kept = self.kept[number - self.acked - 1]
            if kept.sends == 1:
                kept.sends = 0

    def acknowledge(self, number: int) -> bool:
        """Drop what ``number`` acknowledges; False when it is nothing new (WMP-7.2, 7.4)."""
        if not self.acked < number <= self.sent:
            return False
        kept = self.kept
        while kept and kept[0].number <= number:
            self.size -= kept.popleft().size
        self.acked = number
        return True

    def arrive(self, number: int) -> Arrival:
        """Say what a received number means; NEXT counts it as received (WMP-7.1)."""
        if number == self.received + 1:
            self.received = number
            return Arrival.NEXT
        if number <= self.received:
            return Arrival.DUPLICATE
        if self._asked == self.received + 1:
            return Arrival.AHEAD
        self._asked = self.received + 1
        return Arrival.GAP

    def overdue(self, resend: float) -> float | None:
        """When the oldest unacknowledged message must be sent again; None when all are."""
        return self.kept[0].sent_at + resend if self.kept else None

    def replay(self, now: float) -> list[Kept]:
        """Everything not acknowledged, in order, to be sent again (WMP-7.3)."""
        # A gap in the other direction may outlive the answer that was lost: ask anew.
        self._asked = 0
        for kept in self.kept:
            kept.sent_at = now
        return list(self.kept)

    @property
    def used(self) -> bool:
        """Whether either side has numbered anything."""
        return bool(self.sent or self.received)
