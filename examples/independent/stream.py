"""A peer's memory of another peer, and the numbered streams to and from it (§1, §7)."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any


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

    def acknowledge(self, ack: int) -> None:
        """Drop the acknowledged messages (WMP-7.2, WMP-7.4)."""
        while ack <= self.sent and self.unacknowledged and self.unacknowledged[0][1] <= ack:
            self.size -= size_of(self.unacknowledged.popleft()[-1])

    def accept(self, number: int) -> tuple[bool, bool]:
        """Return whether it is the next number, and whether it first shows a gap (WMP-7.1)."""
        if number == self.received + 1:
            self.received, self.gap = number, False
            return True, False
        first = number > self.received and not self.gap
        self.gap = self.gap or first
        return False, first


def size_of(columns: dict[str, list[Any]]) -> int:
    """Return the bytes of payloads."""
    return sum(map(len, columns.get("payloads", ())))


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
    expire: float
    connection: Any = None  # with `to`, the route that holds the identity; None: no route
    claim: Claim | None = None
    to: list[Any] = field(default_factory=list)
    heard: float = 0.0
    stream: Stream | None = None
    credit: int = 0  # the rest of a worker's credit
