"""The life of a forwarding manager in a world: its two sides start and end together."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define

from wmp.actions import Halt
from wmp.events import Drained
from wmp.testing.simulator.fleet import SimulatedFleet
from wmp.testing.simulator.network import Network


@define(eq=False)
class ForwarderLife:
    """Lets the two sides of a forwarding manager live and end together, as one process.

    Args:
        network: Has both nodes.
        fleet: Starts and ends them.
        names: The manager side and the worker side.
    """

    network: Network
    fleet: SimulatedFleet
    names: tuple[str, str]

    def begin(self) -> None:
        """Follow the processes of both sides."""
        self.network.forward(*self.names)
        self.fleet.on_started, self.fleet.on_killed = self._started, self._killed

    def handled(self, name: str, event: object, actions: Sequence[object]) -> None:
        """End the other side when the machine of one side halts."""
        if name not in self.names:
            return
        if isinstance(event, Drained) and name == self.names[1]:
            self.network.forwarders[name].relayed(Drained(), self.network.local(name))
        if any(isinstance(action, Halt) for action in actions):
            self._end(self._other(name))

    def _other(self, name: str) -> str:
        return self.names[name == self.names[0]]

    def _started(self, name: str) -> None:
        if name in self.names and self._other(name) in self.network.down:
            self.fleet.start(self._other(name))

    def _killed(self, name: str, _: Sequence[object]) -> None:
        if name in self.names:
            self.network.forward(*self.names)  # the relay ends with the process
            self._end(self._other(name))

    def _end(self, name: str) -> None:
        if name in self.network.nodes and name not in self.network.down:
            self.fleet.kill(name)
