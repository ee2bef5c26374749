"""A door that serves clients only while its node of a Binary Star is active."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmp.actions import Drop
from wmp.aio.standby import PairNode
from wmp.events import Relieved
from wmp.foreign import Arrived
from wmp.gateways.gateway.door_machine import DoorMachine


class StarGuard:
    """A door for clients that takes their messages only while its node is active (STAR-2.2).

    The first of these messages ends the standby of the manager of the gateway (STAR-4.1), in case
    that the message itself was the vote.

    Args:
        door: The machine of the door.
        star: The node.
    """

    def __init__(self, door: DoorMachine, star: PairNode) -> None:
        self._door = door
        self._star = star
        self._relieved = False
        self._drop = Drop("passive", detail="the other node of the Binary Star serves the clients")
        self.deadline = door.deadline
        self.statistics = door.statistics
        self.open_requests = door.open_requests
        self.attendances = door.attendances
        self.dismisses = door.dismisses

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Let the door take an event, unless the event is a message of a client at a passive node.

        The message is a vote in any case.
        """
        if type(event) is Arrived:
            if not self._star._serves():
                return (self._drop,)
            if not self._relieved:
                self._relieved = True
                return (Relieved(), *self._door.handle(event, now))
        return self._door.handle(event, now)
