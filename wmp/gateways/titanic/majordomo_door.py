"""The broker of a gateway to which Titanic connects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wmp.gateways.gateway.door import Door
from wmp.gateways.majordomo.door import MajordomoDoor

NO_BROKER: Final = "a Majordomo broker for both sides, without keys, as the first one"
"""The broker that Titanic needs, for errors."""


def broker_number(doors: Sequence[Door]) -> int | None:
    """Return the number of the door to which Titanic connects; None if there is no such door.

    The door is the first Majordomo broker. It must take clients and workers, and need no keys.
    """
    for number, door in enumerate(doors):
        if isinstance(door, MajordomoDoor):
            return number if door.side == "both" and not door.keys else None
    return None
