"""The shares of the clients of a door: one alone may use everything, several have equal parts.

A door has a limit, for example of requests in progress. A client is a connection. While several
clients have requests, the one with the most makes way at the limit for one below its part, and
requests of a client that has many in progress wait behind those of clients with few.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field

_BURST: Final = 16
"""Number of requests in progress by which the next request of a client goes one level down."""

_LEVELS: Final = 7
"""Maximum number of levels below the priority of the door."""


@define(eq=False)
class ClientShares:
    """Amounts that the clients of a door have in progress, of one thing that has a limit.

    Args:
        limit: Maximum for all clients together.
    """

    limit: int
    total: int = field(default=0, init=False)
    _amounts: dict[bytes, int] = field(factory=dict, init=False)
    _levels: dict[bytes, int] = field(factory=dict, init=False)
    """How far below the priority of the door the newest request of a client is."""

    def add(self, peer: bytes, amount: int) -> None:
        """Count a request that begins, or that grew."""
        self._amounts[peer] = self._amounts.get(peer, 0) + amount
        self.total += amount

    def remove(self, peer: bytes, amount: int) -> None:
        """Count a request that has ended."""
        self.total -= amount
        left = self._amounts[peer] - amount
        if left > 0:
            self._amounts[peer] = left
        else:
            del self._amounts[peer]
            self._levels.pop(peer, None)

    def level(self, peer: bytes) -> int:
        """Return how far below the priority of the door the next request of a client goes.

        The requests of one client stay in their order, so its level rises again only when it has
        none in progress.
        """
        own = self._amounts.get(peer, 0)
        if not own:
            return 0
        level = self._levels.get(peer, 0)
        if len(self._amounts) > 1:
            level = self._levels[peer] = max(level, min(own // _BURST, _LEVELS))
        return level

    def makes_way(self, peer: bytes, amount: int) -> bytes | None:
        """Return the client whose newest request must end, so that one of another client begins.

        None if the other client has its part already, or nobody has more than a part.

        Args:
            peer: The other client.
            amount: The amount that its request takes.
        """
        clients = len(self._amounts) + (peer not in self._amounts)
        part = self.limit // clients
        if self._amounts.get(peer, 0) + amount > part:
            return None
        largest = max(self._amounts, key=self._amounts.__getitem__, default=None)
        if largest is None or largest == peer or self._amounts[largest] <= part:
            return None
        return largest

    def full(self, amount: int) -> bool:
        """Return whether a request exceeds the limit."""
        return self.total + amount > self.limit
