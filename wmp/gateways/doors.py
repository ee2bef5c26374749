"""The doors of all protocols: a new protocol is a folder of this package and one line here."""

from __future__ import annotations

from typing import Final

from wmp.gateways.gateway.door import Door
from wmp.gateways.majordomo.door import MajordomoDoor
from wmp.gateways.queue_doors.doors import ClientDoor, WorkerDoor
from wmp.gateways.round_robin.door import RoundRobinDoor

DOORS: Final[dict[str, type[Door]]] = {
    "clients": ClientDoor,
    "workers": WorkerDoor,
    "majordomo": MajordomoDoor,
    "round_robin": RoundRobinDoor,
}
"""The class of each table of doors below ``[gateway]``, in the order of the doors."""
