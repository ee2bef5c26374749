"""Local ids: the names that a device gives to its connections in the paths of messages.

A device's hop names the connection over which a message came (WMP-8.3), and an answer comes back
with that name. The routing ids of libzmq are consecutive numbers. If a device used them as local
ids, every peer above could read them, and a peer below could claim the next number as its own
routing id, which makes libzmq abort the device. So a device encrypts the numbers: a secret
permutation maps each number to another number. A permutation needs no table, so connections that
come and go cost no memory.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import Final

_ROUNDS: Final = 8
_MAX_CACHED: Final = 10_000
"""Limit of the entries in each cache.

A full cache is emptied, because its entries can be computed again.
"""


class LocalIds:
    """Turns routing ids into local ids and back.

    A routing id that libzmq made has five bytes, and the first byte is 0. Every other
    routing id was chosen by the peer itself. Such an id needs no secrecy and is used unchanged as
    local id.
    """

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._local: dict[bytes, bytes] = {}
        self._routing: dict[bytes, bytes] = {}

    def local(self, routing_id: bytes) -> bytes:
        """Return the local id of a connection."""
        local_id = self._local.get(routing_id)
        if local_id is None:
            local_id = self._permute(routing_id, range(_ROUNDS))
            _remember(self._local, routing_id, local_id)
        return local_id

    def routing(self, local_id: bytes) -> bytes:
        """Return the routing id of a connection."""
        routing_id = self._routing.get(local_id)
        if routing_id is None:
            routing_id = self._permute(local_id, range(_ROUNDS - 1, -1, -1))
            _remember(self._routing, local_id, routing_id)
        return routing_id

    def _permute(self, id: bytes, rounds: range) -> bytes:
        """Permute four bytes by a Feistel network.

        The network with reversed rounds is its own inverse.
        """
        if len(id) != 5 or id[0]:
            return id
        left, right = id[1:3], id[3:5]
        for number in rounds:
            mask = blake2b(right, digest_size=2, key=self._key, salt=bytes([number])).digest()
            left, right = right, bytes([left[0] ^ mask[0], left[1] ^ mask[1]])
        # The halves change places once more: the inverse network expects them in this order.
        return b"\0" + right + left


def _remember(cache: dict[bytes, bytes], key: bytes, value: bytes) -> None:
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    cache[key] = value
