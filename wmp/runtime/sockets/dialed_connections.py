"""The upper ROUTER of a device: the connections of managers that dial in, and their numbers.

A device's hop names the connection of a manager by an unsigned integer (WMP-8.3). A secret
permutation makes the number from the routing id that ZeroMQ drew, so connections that come and go
cost no memory. A routing id that a peer chose gets no number, because two peers could choose the
same.
"""

from __future__ import annotations

from typing import Final

from wmp.runtime.sockets.local_ids import LocalIds
from wmp.runtime.sockets.ports import Port

_DRAWN: Final = 5
"""Bytes of the routing ids that ZeroMQ draws. The first byte is 0."""


class DialedConnections:
    """Turns routing ids of the upper ROUTER into links of a device's machine and back.

    Args:
        port: The upper ROUTER.
        first: The lowest number of a connection: the number of the device's DEALERs.
    """

    def __init__(self, port: Port, first: int) -> None:
        self.port = port
        self._first = first
        self._ids = LocalIds()

    def link(self, routing_id: bytes) -> int | None:
        """Return the number of a connection; None for a routing id that the peer chose."""
        if len(routing_id) != _DRAWN or routing_id[0]:
            return None
        return self._first + int.from_bytes(self._ids.local(routing_id)[1:], "big")

    def routing_id(self, link: int) -> bytes | None:
        """Return the routing id of a connection; None for a number that no connection has."""
        number = link - self._first
        if not 0 <= number < 1 << 8 * (_DRAWN - 1):
            return None
        return self._ids.routing(b"\0" + number.to_bytes(_DRAWN - 1, "big"))
