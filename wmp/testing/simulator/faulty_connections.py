"""The connections of a world, and their faults.

A connection may be cut (no message passes from one node to another), stale (dead, and its ends do
not notice) or full (it takes no messages for some time). Single messages may be lost, repeated,
delayed or reordered, by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

from attrs import define, field

from wmp import codec
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Disconnected, Undelivered
from wmp.message import Frame, Message
from wmp.testing.simulator.agenda import Agenda
from wmp.testing.simulator.faults import Fault
from wmp.testing.simulator.network import Network, Pipe
from wmp.testing.simulator.trace import Trace

_PARKED = 16
"""Number of messages that an end node keeps for a full pipe."""


@define(eq=False)
class FaultyConnections:
    """Joins and breaks the connections of a network, and carries its messages.

    Args:
        network: Has the nodes and their pipes.
        agenda: Holds the arrivals of messages and the next tries to connect.
        trace: Records every message.
        draw: The random stream for the times of messages and connecting.
        weather: The random stream for the messages that a fault hits.
        counts: The number of strikes of each fault.
    """

    network: Network
    agenda: Agenda
    trace: Trace
    draw: Random
    weather: Random
    counts: Counter[Fault]
    rates: Mapping[Fault, float] = field(factory=dict, init=False)
    """The probability of each fault for a message."""
    latency: dict[str, float] = field(factory=dict, init=False)
    """The longest time that a message takes, in seconds, by sender."""
    cut: dict[tuple[str, str], float] = field(factory=dict, init=False)
    """(sender, receiver) between which no message passes, with the end of that time."""
    stale: set[Pipe] = field(factory=set, init=False)
    """Pipes of dead connections whose ends have not noticed."""
    full: dict[Pipe, list[list[Frame]]] = field(factory=dict, init=False)
    """Pipes that take no messages, with the messages parked for them."""
    _last: dict[Pipe, float] = field(factory=dict, init=False)
    """The arrival of the last message on each pipe."""

    # -- making and breaking

    def attempt(self, below: str, link: int) -> None:
        """Connect a link that is not connected, now or at the next possible time."""
        network = self.network
        above = network.uplinks[below][link]
        if (below, link) in network.pipes or not network.alive(below) or not network.alive(above):
            return  # a process that starts connects its links itself
        if (below, above) in self.cut or (above, below) in self.cut:
            self.agenda.after(0.3, self.attempt, below, link)
            return
        network.join(below, link)
        if not isinstance(network.nodes[below], DeviceMachine):
            network.happen(below, Connected(link))

    def attempt_soon(self, below: str, link: int, seconds: float) -> None:
        """Connect a link within this number of seconds."""
        self.agenda.after(self.draw.uniform(0, seconds), self.attempt, below, link)

    def part(self, name: str, link: int) -> None:
        """Break a connection, with notice to its ends."""
        far = self.network.far((name, link))
        for pipe in ((name, link), far):
            if pipe is not None:
                self.stale.discard(pipe)
                self.full.pop(pipe, None)
                self._last.pop(pipe, None)
        self.network.part(name, link)
        if far is None:
            return
        if not isinstance(self.network.nodes[far[0]], WorkerMachine):
            self.network.happen(far[0], Disconnected(far[1]))
        if isinstance(self.network.nodes[name], ManagerMachine):
            self.network.happen(name, Disconnected(link))

    def deaden(self, name: str, link: int) -> None:
        """Break a connection so that its ends do not notice."""
        far = self.network.far((name, link))
        if far is not None:
            self.stale.update(((name, link), far))
            if not isinstance(self.network.nodes[name], WorkerMachine):
                # Neither a device nor a manager can request a new connection. The heartbeats of
                # the socket detect the broken connection.
                self.agenda.after(1.0, self.rejoin, name, link, far)

    def rejoin(self, name: str, link: int, far: Pipe | None = None) -> None:
        """Break a connection with notice, and make it again."""
        if far is None or self.network.far((name, link)) == far:
            self.part(name, link)
            self.attempt(name, link)

    def reconnect(self, name: str, link: int) -> None:
        """Replace the socket of a worker's link."""
        self.part(name, link)
        self.attempt_soon(name, link, 0.05)

    # -- carrying

    def carry(self, pipe: Pipe, message: Message) -> None:
        """Put a message on its connection; a dead or cut connection loses the message."""
        frames = codec.encode(message)
        self.trace.sent(pipe, frames)
        name, link = pipe
        if pipe in self.stale:
            return
        if self.cut and (name, self.network.receiver(pipe)) in self.cut:
            return
        parked = self.full.get(pipe) if self.full else None
        if parked is None:
            self._travel(pipe, frames)
        elif isinstance(self.network.nodes[name], DeviceMachine) or len(parked) >= _PARKED:
            self.network.happen(name, Undelivered(link, message))
        else:
            parked.append(frames)

    def flush(self, pipe: Pipe) -> None:
        """Let a full pipe take messages again."""
        for frames in self.full.pop(pipe, ()):
            self._travel(pipe, frames)

    def mend(self) -> None:
        """End all faults except half-open connections, which a node must detect itself."""
        self.rates = {}
        self.cut.clear()
        for pipe in tuple(self.full):
            self.flush(pipe)

    @property
    def held_up(self) -> float:
        """Seconds until the last message on the way arrives."""
        return max(0.0, max(self._last.values(), default=0.0) - self.agenda.now)

    def _travel(self, pipe: Pipe, frames: list[Frame]) -> None:
        latency = self.latency[pipe[0]] * (0.5 + 0.5 * self.draw.random())
        when = max(self.network.now + latency, self._last.get(pipe, 0.0))
        fault = self._hit() if self.rates else None
        if fault is Fault.DROP:
            return
        if fault is Fault.DUPLICATE or fault is Fault.REORDER:
            late = when + self.weather.uniform(0, 2)
            self.agenda.at(late, self._arrive_late, pipe, frames, self.network.far(pipe))
            if fault is Fault.REORDER:
                return
        elif fault is Fault.DELAY:
            when += self.weather.uniform(0.1, 3)
        self._last[pipe] = when
        self.network.pipes[pipe].append(frames)
        self.agenda.at(when, self._arrive_next, pipe)

    def _hit(self) -> Fault | None:
        """Draw the fault that hits the current message; None for no fault."""
        luck = self.weather.random()
        for fault, rate in self.rates.items():
            luck -= rate
            if luck < 0:
                self.counts[fault] += 1
                return fault
        return None

    def _arrive_next(self, pipe: Pipe) -> None:
        if self.network.pipes.get(pipe):
            self.network.deliver(pipe)

    def _arrive_late(self, pipe: Pipe, frames: list[Frame], far: Pipe) -> None:
        if self.network.far(pipe) == far:
            self.network.arrive(pipe, frames)
