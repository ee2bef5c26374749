"""A forwarding manager in a network: two machines, and the relay of leases between them."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from wmp.actions import Answer, Interrupt, Notify, Recall, Run
from wmp.core.manager.machine import ManagerMachine
from wmp.core.relay import LeaseRelay, RelayEvent
from wmp.events import FIRST_FORWARDED, Forwarded, Retracted, Ticked


@define(eq=False)
class SimulatedForwarder:
    """Carries actions of one side of a forwarding manager to the other side.

    Args:
        lower: Name of the manager machine.
        upper: Name of the worker machine.
        happen: Gives a node an event.
    """

    lower: str
    upper: str
    happen: Callable[[str, object], None]
    relay: LeaseRelay = field(factory=LeaseRelay)

    def takes(self, name: str, action: object) -> bool:
        """Return whether an action of one of the sides is for the other side."""
        if name == self.upper:
            return isinstance(action, Run | Recall | Interrupt)
        return isinstance(action, Answer) or (
            isinstance(action, Notify) and action.id >= FIRST_FORWARDED
        )

    def relayed(self, event: RelayEvent, now: float) -> None:
        """Give the relay an event, and each side what follows for it."""
        for output in self.relay.handle(event, now):
            lower = isinstance(output, Forwarded | Retracted)
            self.happen(self.lower if lower else self.upper, output)

    def stepped(self, manager: ManagerMachine, now: float) -> None:
        """Measure what the workers below offer, and let time pass for the relay."""
        due = self.relay.deadline()
        if due is not None and due <= now:
            self.relayed(Ticked(), now)
        self.relayed(manager.offer(), now)
