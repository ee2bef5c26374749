"""A pair of managers in a world: each has a node of a Binary Star, and one is on standby.

The states of the nodes travel over a link of their own, which is cut at times in one direction or
both. A node lives, pauses and ends with its manager's process.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from attrs import define, field

from wmp.actions import Halt, Send
from wmp.checks.job_history import Violation
from wmp.core.manager.machine import ManagerMachine
from wmp.events import Closed, Received, Relieved, Ticked
from wmp.foreign import Arrived, Emit, Frames, Settled, Voted
from wmp.gateways.binary_star.machine import StarMachine, StarRole
from wmp.message import Command
from wmp.testing.simulator.agenda import Agenda
from wmp.testing.simulator.fleet import SimulatedFleet
from wmp.testing.simulator.network import Action, LinkQueue, Network
from wmp.testing.simulator.trace import Trace

_LONGEST_CUT: Final = 5.0
"""Seconds."""


@define(eq=False)
class SimulatedPair:
    """The two nodes, and what they decide.

    Args:
        network: Has the managers.
        agenda: Holds the times of states and deadlines.
        fleet: Knows the processes that run.
        trace: Records what becomes of the nodes.
        names: The managers; the first is the primary.
    """

    network: Network
    agenda: Agenda
    fleet: SimulatedFleet
    trace: Trace
    names: tuple[str, ...]
    takeovers: int = field(default=0, init=False)
    """Number of times that a standby ended."""
    conflicts: int = field(default=0, init=False)
    """Number of nodes that ended because both were active."""
    _stars: dict[str, StarMachine] = field(factory=dict, init=False)
    """The nodes of the managers that run."""
    _standby: set[str] = field(factory=set, init=False)
    _cuts: list[tuple[str, str]] = field(factory=list, init=False)
    """The directions in which no state passes."""

    def begin(self, until: float, draw: Random) -> None:
        """Follow the processes of the managers, and draw the cuts of the link between them."""
        self.fleet.on_started, self.fleet.on_killed = self._started, self._killed
        first, second = self.names
        for _ in range(draw.choice((0, 1, 2))):
            ways = draw.choice(
                ([(first, second)], [(second, first)], [(first, second), (second, first)])
            )
            at = draw.uniform(0, until)
            self.agenda.at(at, self._cut, ways)
            self.agenda.at(min(until, at + draw.uniform(0, _LONGEST_CUT)), self._heal, ways)

    def choose(self, name: str) -> str:
        """Return the manager that takes the jobs of an application: the named one if it serves,
        else the other one; empty if no manager serves."""
        serving = [manager for manager in self.names if self._serves(manager)]
        return name if name in serving else next(iter(serving), "")

    @property
    def settled(self) -> bool:
        """Whether one manager serves, and the other is on standby."""
        states = [name in self._standby for name in self.names if self.network.alive(name)]
        return sorted(states) == [False, True]

    def check(self) -> None:
        """Check that the pair has settled.

        Raises:
            Violation: "a pair serves".
        """
        if not self.settled:
            states = {name: star.state.name for name, star in self._stars.items()}
            raise Violation("a pair serves", f"the nodes are {states} after the faults")

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Let messages of workers be votes, and check the messages of a manager on standby.

        Raises:
            Violation: "standby is kept".
        """
        if name not in self._standby or not isinstance(self.network.nodes[name], ManagerMachine):
            return
        for action in actions:
            if isinstance(action, Send) and action.message.command in (Command.WAKE, Command.TAKE):
                command = action.message.command.name
                raise Violation("standby is kept", f"{name} is on standby, and sent {command}")
        if any(isinstance(action, Halt) for action in actions):
            self._forget(name)
        elif isinstance(event, Relieved):
            self._standby.discard(name)
        elif isinstance(event, Received) and event.message.command in (
            Command.READY,
            Command.PING,
        ):
            self._feed(name, Voted())

    def _serves(self, name: str) -> bool:
        return name in self._stars and name not in self._standby and self.network.alive(name)

    def _started(self, name: str) -> None:
        if name in self.names:
            role = StarRole.PRIMARY if name == self.names[0] else StarRole.BACKUP
            self._stars[name] = StarMachine(role)
            self._standby.add(name)
            self._feed(name, Settled())

    def _killed(self, name: str, _: Sequence[LinkQueue]) -> None:
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._stars.pop(name, None)
        self._standby.discard(name)

    def _feed(self, name: str, event: Arrived | Voted | Ticked | Settled) -> None:
        star = self._stars.get(name)
        if star is None:
            return
        now = self.agenda.now
        was = star.active
        for action in star.handle(event, now):
            if isinstance(action, Emit):
                (other,) = (node for node in self.names if node != name)
                if (name, other) not in self._cuts:
                    latency = self.fleet.topology.timers.latency
                    self.agenda.after(latency, self._arrive, other, action.frames)
            elif isinstance(action, Halt):
                self.trace.note(now, f"the node of {name} ends: {action.error}")
                self.conflicts += 1
                del self._stars[name]
                # The program of the manager ends, and is started again.
                self.network.happen(name, Closed())
                return
        if star.active and not was:
            self.trace.note(now, f"the node of {name} is active")
            self.takeovers += 1
            self.network.happen(name, Relieved())
        due = star.deadline()
        assert due is not None
        self.agenda.at(due, self._tick, name, star)

    def _tick(self, name: str, star: StarMachine) -> None:
        if self._stars.get(name) is not star or self.fleet.postpone(name, self._tick, name, star):
            return
        due = star.deadline()
        if due is not None and due <= self.agenda.now:
            self._feed(name, Ticked())

    def _arrive(self, name: str, frames: Frames) -> None:
        if not self.fleet.postpone(name, self._arrive, name, frames):
            self._feed(name, Arrived(0, b"", frames))

    def _cut(self, ways: Sequence[tuple[str, str]]) -> None:
        self._cuts += ways
        self.trace.note(self.agenda.now, f"no state passes {ways}")

    def _heal(self, ways: Sequence[tuple[str, str]]) -> None:
        for way in ways:
            if way in self._cuts:
                self._cuts.remove(way)
