"""A worker's connections: one DEALER for each endpoint, replaced after silence."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import zmq
from messages import Message, encode
from stream import Peer

# Ping intervals before a link is replaced; and the most units between two replacements.
SILENCE, PATIENCE = 3, 32


@dataclass
class Manager(Peer):
    """A manager, as a worker remembers it."""

    ready: int = 0  # number of the last READY sent to the manager
    wake: dict[str, Any] | None = None  # a WAKE that is not answered yet
    served: int = 0  # number of the last lock for the manager


class Link:
    """One connection."""

    def __init__(self, endpoint: str, open_socket: Callable[[int], "zmq.Socket[bytes]"]) -> None:
        self.endpoint, self.open_socket = endpoint, open_socket
        self.heard, self.patience = time.monotonic(), 0.0
        # Times of refusals by managers behind the link (WMP-15.9).
        self.refused = self.refused_since = 0.0
        self.connect()

    def connect(self) -> None:
        """Open a new socket."""
        self.socket = self.open_socket(zmq.DEALER)
        self.socket.connect(self.endpoint)
        self.fresh = True  # no message has come from the node at the other end

    def others(self, there: Manager, managers: Iterable[Manager]) -> list[Manager]:
        """Return the managers that were at the other end before the present one."""
        known = [peer for peer in managers if peer.connection is self and peer is not there]
        return [peer for peer in known if len(peer.to) == 2]  # no device stands in between

    def receive(self) -> list[list[bytes]]:
        """Receive the messages that have come."""
        messages: list[list[bytes]] = []
        try:
            while len(messages) < 1000:
                messages.append(self.socket.recv_multipart(zmq.DONTWAIT))
        except zmq.Again:
            pass
        if messages:
            self.heard, self.patience = time.monotonic(), 0.0
        return messages

    def send(self, message: Message) -> None:
        """Send to every node behind the link, unless its pipe is full."""
        try:
            self.socket.send_multipart(encode(message), zmq.DONTWAIT)
        except zmq.Again:
            pass

    def replace_if_silent(self, interval: float, unit: float) -> bool:
        """Replace the socket after three silent intervals, then with backoff (WMP-9.4)."""
        now = time.monotonic()
        if now < self.heard + max(SILENCE * interval, self.patience):
            return False
        self.heard, self.patience = now, min(max(unit, 2 * self.patience), PATIENCE * unit)
        self.socket.close(linger=0)
        self.connect()
        return True

    def refuse(self, links: "list[Link]", patience: float) -> bool:
        """Record a refusal.

        Return whether for some time all links have had only refusals (WMP-15.9).
        """
        now = self.refused = time.monotonic()
        self.refused_since = self.refused_since or now
        return all(
            link.refused_since and link.refused_since + patience <= now < link.refused + patience
            for link in links
        )
