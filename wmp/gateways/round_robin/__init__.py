"""Round robin on the LMQ layer: server, worker and client (``specs/round-robin.md``)."""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.gateways.round_robin.blocking import (
        RoundRobinClient,
        RoundRobinServer,
        RoundRobinWorker,
    )
    from wmp.gateways.round_robin.door import RoundRobinDoor, TableRow

__all__ = [
    "RoundRobinClient",
    "RoundRobinDoor",
    "RoundRobinServer",
    "RoundRobinWorker",
    "TableRow",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "RoundRobinClient": "wmp.gateways.round_robin.blocking",
        "RoundRobinDoor": "wmp.gateways.round_robin.door",
        "RoundRobinServer": "wmp.gateways.round_robin.blocking",
        "RoundRobinWorker": "wmp.gateways.round_robin.blocking",
        "TableRow": "wmp.gateways.round_robin.door",
    },
)
