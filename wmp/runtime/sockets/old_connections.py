"""Connections of ZMTP 1 and 2: which descriptor belongs to which peer of a ROUTER.

libzmq names the descriptor of a message only on connections of ZMTP 3, and reports neither the end
of the handshake of an older peer nor its routing id. The kernel counts the bytes of each
connection. The connection of a message is one that has received bytes since the socket was last
found empty, so that each further message of a peer leaves fewer descriptors that may be its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

_MAX_KEYS: Final = 1000
"""Limit of the peers whose descriptors are looked for."""


class OldConnections:
    """The peers of a ROUTER whose descriptors libzmq does not name.

    Args:
        received: Returns the number of bytes that a connection has received; None if unknown.
    """

    def __init__(self, received: Callable[[int], int | None]) -> None:
        self._received = received
        self.candidates: dict[bytes, set[int]] = {}
        """The descriptors that each peer may have, by its key."""
        self._counts: dict[int, int] = {}
        """Bytes of each connection at the newest message of one of these peers."""
        self._delivered: dict[int, int] = {}
        """Bytes of each connection whose messages have certainly been read."""

    def came(self, key: bytes, unknown: Iterable[int]) -> tuple[int | None, list[bytes]]:
        """Record a message of a peer.

        Args:
            key: The routing id.
            unknown: The descriptors of all connections whose peers are not known.

        Returns:
            The descriptor of the peer, if it is certain now; and the peers whose connections must
            have ended, because no descriptor is left for them.
        """
        grown = set()
        for descriptor in unknown:
            count = self._received(descriptor)
            self._counts[descriptor] = count or 0
            if count is None or count > self._delivered.get(descriptor, 0):
                grown.add(descriptor)
        known = self.candidates.get(key)
        candidates = grown if known is None else known & grown
        if not candidates or (known is None and len(self.candidates) >= _MAX_KEYS):
            self.candidates.pop(key, None)
            return None, []
        self.candidates[key] = candidates
        if len(candidates) > 1:
            return None, []
        (descriptor,) = candidates
        del self.candidates[key]
        return descriptor, self.learned(descriptor)

    def emptied(self) -> None:
        """Record that the messages counted so far have been read."""
        self._delivered.update(self._counts)
        self._counts.clear()

    def learned(self, descriptor: int) -> list[bytes]:
        """Record that a descriptor belongs to a known peer; return the peers that have none."""
        self._forget(descriptor)
        return self._without(descriptor)

    def ended(self, descriptor: int, *, old: bool) -> list[bytes]:
        """Record the end of a connection; return the peers whose connection it was.

        Args:
            descriptor: The descriptor.
            old: Whether the connection had no handshake of ZMTP 3.
        """
        self._forget(descriptor)
        holders = [key for key, fds in self.candidates.items() if descriptor in fds]
        if old and len(holders) == 1:
            del self.candidates[holders[0]]
            return holders
        return self._without(descriptor)

    def _forget(self, descriptor: int) -> None:
        self._counts.pop(descriptor, None)
        self._delivered.pop(descriptor, None)

    def _without(self, descriptor: int) -> list[bytes]:
        """Remove a descriptor from all candidates; forget and return the peers without any."""
        parted = []
        for key, descriptors in tuple(self.candidates.items()):
            descriptors.discard(descriptor)
            if not descriptors:
                del self.candidates[key]
                parted.append(key)
        return parted
