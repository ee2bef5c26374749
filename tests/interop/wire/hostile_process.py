"""Hostile peers on real sockets.

``python -m tests.interop.wire.hostile_process ENDPOINT PEERS MESSAGES SEED`` prints ``begun`` when
every peer has a socket, and at the end the number of messages sent.
"""

from __future__ import annotations

import sys
import time

import zmq

from tests.property.hostile_peer import HostilePeer
from tests.property.mutations import vectors
from wmp.message import Field

__all__ = ["attack"]

_PATIENCE = 1800.0
"""Seconds after which the remaining messages are given up, because the node does not read faster.
"""
_STEP = 10
"""Number of messages that a peer sends before it asks the node whether they were read.

A peer that does not ask fills the queues on the way. Then each of its messages names sessions and
jobs that ended minutes before, and the node refuses almost all of them.
"""
_WAIT = 1.0
"""Seconds after which a peer continues without an answer."""


class _Sender:
    """The messages of one peer, in steps.

    Args:
        dealer: The socket of the peer.
        peer: Draws the messages.
        left: Number of messages to send.
    """

    def __init__(self, dealer: zmq.Socket[bytes], peer: HostilePeer, left: int) -> None:
        self.dealer = dealer
        self.left = left
        self._peer = peer
        self._steps = 0
        self._due = 0.0
        """When the next step is due, unless an answer comes first."""

    def receive(self) -> None:
        """Read all messages of the node; an answer to the newest question ends the step."""
        while True:
            try:
                message = self._peer.receive(list(self.dealer.recv_multipart(zmq.NOBLOCK)))
            except zmq.Again:
                return
            if message.fields.get(Field.ANSWER) == self._steps:
                self._due = 0.0

    def send(self, now: float) -> None:
        """Send one step, if a step is due."""
        if not self.left or now < self._due:
            return
        self._due = now + _WAIT
        self._steps += 1
        try:
            for _ in range(min(_STEP, self.left) - 1):
                self.dealer.send_multipart(self._peer.next() or [b""], zmq.NOBLOCK)
                self.left -= 1
            self.dealer.send_multipart(self._peer.question(self._steps), zmq.NOBLOCK)
            self.left -= 1
        except zmq.Again:
            pass


def attack(endpoint: str, count: int, messages: int, seed: int) -> int:
    """Let each peer send its messages; return the number of messages sent."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    known = vectors()
    senders: dict[zmq.Socket[bytes], _Sender] = {}
    poller = zmq.Poller()
    for number in range(count):
        dealer = context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.connect(endpoint)
        senders[dealer] = _Sender(dealer, HostilePeer(number, seed, known), messages)
        poller.register(dealer, zmq.POLLIN)
    print("begun", flush=True)
    until = time.monotonic() + _PATIENCE
    while any(sender.left for sender in senders.values()) and time.monotonic() < until:
        for dealer, _ in poller.poll(10):
            senders[dealer].receive()
        now = time.monotonic()
        for sender in senders.values():
            sender.send(now)
    for dealer in senders:
        dealer.close()
    context.term()
    return sum(messages - sender.left for sender in senders.values())


if __name__ == "__main__":
    print(attack(sys.argv[1], *map(int, sys.argv[2:])), flush=True)
