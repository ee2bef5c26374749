"""A peer's memory of another peer, and the numbered streams to and from it (§1, §7)."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from messages import LOST


@dataclass
class Stream:
    """A session with a peer: the numbered messages sent to it, and the number received in order."""

    session: int
    sent: int = 0
    left: int = 0  # the highest number that a socket took
    received: int = 0
    gap: bool = False
    # [time, number, …] of each message.
    unacknowledged: deque[list[Any]] = field(default_factory=deque)
    size: int = 0  # bytes of payloads in `unacknowledged`
    resends: int = 0  # number of messages sent again since the last ack
    replaced: set[int] = field(default_factory=set)  # numbers of refused messages

    def acknowledge(self, ack: int) -> None:
        """Drop the acknowledged messages (WMP-7.2, WMP-7.4)."""
        while ack <= self.sent and self.unacknowledged and self.unacknowledged[0][1] <= ack:
            self.size -= size_of(self.unacknowledged.popleft()[-1])
            self.resends = 0

    def refused(self, fields: dict[str, Any]) -> list[Any] | None:
        """Return the message that an ERROR is about (WMP-7.11)."""
        about = fields.get("about_number"), fields.get("about")
        messages = (kept for kept in self.unacknowledged if (kept[1], kept[2]) == about)
        return next(messages, None) if fields.get("session") == self.session else None

    def replace(self, kept: list[Any], command: int, fields: Any, columns: Any) -> None:
        """Put another message in the place of a refused message."""
        self.size += size_of(columns) - size_of(kept[-1])
        kept[2:] = command, {**fields, "number": kept[1]}, columns

    def accept(self, number: int) -> tuple[bool, bool]:
        """Return whether ``number`` is next, and whether it is the first after a gap (WMP-7.1)."""
        if number == self.received + 1:
            self.received, self.gap = number, False
            return True, False
        first = number > self.received and not self.gap
        self.gap = self.gap or first
        return False, first


def size_of(columns: dict[str, list[Any]]) -> int:
    """Return the bytes of payloads."""
    return sum(map(len, columns.get("payloads", ())))


def others(columns: dict[str, list[Any]], text: str) -> list[dict[str, list[Any]]]:
    """Return the columns of other DONEs: one for each job, or DONE `lost` (WMP-7.11)."""
    if len(columns["ids"]) > 1:
        rows = zip(*columns.values(), strict=True)
        return [{name: [x] for name, x in zip(columns, row, strict=True)} for row in rows]
    cause = f"the manager refused the result: {text}".encode()
    return [{**columns, "outcomes": [LOST], "payloads": [cause], "checksums": [crc32(cause)]}]


@dataclass
class Claim:
    """A message of a peer's identity over another route, or with another epoch (WMP-15.3)."""

    connection: Any
    message: Any
    number: int  # number of the challenge to the peer
    until: float


@dataclass
class Peer:
    """The memory of a peer, independent of its route (WMP-1.8)."""

    identity: bytes
    epoch: int
    max_silence: float
    connection: Any = None  # with `to`, the route that holds the identity; None: no route
    claim: Claim | None = None
    to: list[Any] = field(default_factory=list)
    heard: float = 0.0
    stream: Stream | None = None
    credit: int = 0  # the rest of a worker's credit
