"""Hostile peers on real sockets.

``python -m tests.interop.hostile_process ENDPOINT PEERS MESSAGES SEED`` prints ``begun`` when every
peer has a socket, and at the end the number of messages sent.
"""

from __future__ import annotations

import sys
import time

import zmq

from tests.property.hostile_peer import HostilePeer
from tests.property.mutations import vectors
from wmp.errors import DecodeError

__all__ = ["attack"]

_PATIENCE = 600.0
"""Seconds after which the remaining messages are given up, because the node does not read faster.
"""


def attack(endpoint: str, count: int, messages: int, seed: int) -> int:
    """Let each peer send its messages; return the number of messages sent."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    known = vectors()
    peers = {}
    for number in range(count):
        dealer = context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.connect(endpoint)
        peers[dealer] = HostilePeer(number, seed, known)
    print("begun", flush=True)
    left = dict.fromkeys(peers, messages)
    until = time.monotonic() + _PATIENCE
    while left and time.monotonic() < until:
        sent = 0
        for dealer in list(left):
            try:
                for _ in range(10):
                    dealer.send_multipart(peers[dealer].next() or [b""], zmq.NOBLOCK)
                    sent += 1
                    left[dealer] -= 1
                    if not left[dealer]:
                        del left[dealer]
                        break
            except zmq.Again:
                pass
            try:
                while True:
                    peers[dealer].receive(list(dealer.recv_multipart(zmq.NOBLOCK)))
            except (zmq.Again, DecodeError):
                pass
        if not sent:
            time.sleep(0.001)
    for dealer in peers:
        dealer.close()
    context.term()
    return count * messages - sum(left.values())


if __name__ == "__main__":
    print(attack(sys.argv[1], *map(int, sys.argv[2:])), flush=True)
