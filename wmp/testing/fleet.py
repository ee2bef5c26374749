"""The nodes of a world: their processes start, pause, end and start again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from attrs import define, evolve, field

from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import Superseded
from wmp.events import Drained
from wmp.message import Peer
from wmp.testing.agenda import Agenda, NodeClocks
from wmp.testing.faulty_connections import FaultyConnections
from wmp.testing.invariants import Violation
from wmp.testing.network import LinkQueue, Network
from wmp.testing.observer import Observer
from wmp.testing.topology import Topology
from wmp.testing.trace import Trace

__all__ = ["Fleet", "identity_of"]


def identity_of(name: str) -> bytes:
    """The identity of a node; a name's double has the same identity."""
    return name.rstrip("+").encode()


def _ignore(*_: object) -> None:
    pass


@define(eq=False)
class Fleet:
    """Starts and ends the processes of a topology's nodes.

    Args:
        network: Has the nodes.
        agenda: Holds the times at which nodes go on and start again.
        clocks: Holds the deadlines of the nodes.
        connections: Makes and breaks the connections of the nodes.
        topology: The names, settings and connections of the nodes.
        observer: Records that a manager's process ended.
        trace: Records every start and every end.
        draw: The random stream for the times of starts.
    """

    network: Network
    agenda: Agenda
    clocks: NodeClocks
    connections: FaultyConnections
    topology: Topology
    observer: Observer
    trace: Trace
    draw: Random
    newest: dict[bytes, str] = field(factory=dict, init=False)
    """Identity to the node of its newest epoch."""
    paused: dict[str, list[tuple[Callable[..., None], tuple[Any, ...]]]] = field(
        factory=dict, init=False
    )
    """Paused nodes, with the calls that wait for them."""
    on_started: Callable[[str], None] = field(default=_ignore, init=False)
    on_resumed: Callable[[str], None] = field(default=_ignore, init=False)
    on_killed: Callable[[str, Sequence[LinkQueue]], None] = field(default=_ignore, init=False)
    """Called with the lanes that the killed process ran."""
    _epochs: Counter[bytes] = field(factory=Counter, init=False)

    # -- the nodes

    def add(self, name: str, uplinks: tuple[str, ...]) -> None:
        """Add a node that does not run yet."""
        self.network.uplinks[name] = uplinks
        self.network.lanes[name] = {}
        self.network.down.add(name)
        self.connections.latency[name] = self.topology.timers.latency * self.draw.random()

    def peer(self, name: str) -> Peer:
        """(identity, epoch) of a node's newest process."""
        settings = self.network.nodes[name].settings
        return settings.identity, settings.epoch

    def is_newest(self, name: str) -> bool:
        """Whether this is the newest process of the node's identity."""
        return self.newest.get(identity_of(name), name) == name

    def check_superseded(self) -> None:
        """Check that of two processes of one identity the older one has stopped.

        Raises:
            Violation: "the newest epoch lives".
        """
        for identity, name in self.newest.items():
            for other in self.network.nodes:
                if identity_of(other) == identity and other != name and self.network.alive(other):
                    raise Violation("the newest epoch lives", f"{other} did not stop for {name}")

    # -- starting

    def start_soon(self, name: str) -> None:
        """Start a node for the first time, now or within a second."""
        seconds = self.draw.choice((0.0, self.draw.uniform(0, 1)))
        self.agenda.after(seconds, self._start_first, name)

    def _start_first(self, name: str) -> None:
        if name not in self.network.nodes:  # the end of the faults may have started the node
            self.start(name)

    def start(self, name: str) -> None:
        """Start a process of this node, with an epoch above every earlier one."""
        network, topology = self.network, self.topology
        identity = identity_of(name)
        self._epochs[identity] += 1
        epoch = 1000 + self._epochs[identity]
        upstreams = len(network.uplinks[name])
        if name in topology.managers:
            settings = topology.manager_settings(name, epoch)
            network.nodes[name] = ManagerMachine(settings, least_recently_used)
            network.restart_ids(name)
            self.observer.history.open[identity, epoch] = {}
        elif name in topology.workers:
            worker = evolve(topology.workers[name], epoch=epoch)
            network.nodes[name] = WorkerMachine(worker, upstreams)
        else:
            device = DeviceSettings(identity=identity, epoch=epoch, upstreams=upstreams)
            network.nodes[name] = DeviceMachine(device)
        self.newest[identity] = name
        network.halted.pop(name, None)
        network.down.discard(name)
        self.trace.note(self.agenda.now, f"{name} starts, epoch {epoch}")
        for below, link in network.connections(name):
            self.connections.attempt_soon(below, link, 0.1)
        self.on_started(name)

    def restart(self, name: str, seconds: float) -> None:
        """Start a killed node again after a while, unless it runs by then."""
        self.agenda.after(seconds, self._restart, name, self.network.nodes[name])

    def _restart(self, name: str, node: object) -> None:
        if name in self.network.down and self.network.nodes[name] is node:
            self.start(name)

    # -- ending

    def kill(self, name: str, *, silently: bool = False) -> None:
        """End a node's process; ``silently``: without notice to its peers' connections."""
        network = self.network
        self.trace.note(
            self.agenda.now, f"{name} is killed" + (", its host too" if silently else "")
        )
        network.down.add(name)
        lanes = list(network.lanes[name].values())
        network.lanes[name].clear()
        self.clocks.plan(name, None)
        self.paused.pop(name, None)
        self._forget(name)
        for below, link in network.connections(name):
            if silently and below != name:
                self.connections.deaden(below, link)
            else:
                self.connections.part(below, link)
        self.on_killed(name, lanes)

    def drain(self, name: str) -> None:
        """Drain a worker; it starts again later."""
        if name in self.network.nodes and self.network.alive(name):
            self.network.happen(name, Drained())

    def ended(self, name: str, error: Exception | None) -> None:
        """Close the connections of a node whose machine halted, and start the node again.

        Raises:
            Violation: "the newest epoch lives", when the machine halted without a good reason.
        """
        newest = self.newest[identity_of(name)]
        if error is not None and (not isinstance(error, Superseded) or newest == name):
            detail = f"{name} stopped ({error}); {newest} is the newest"
            raise Violation("the newest epoch lives", detail)
        self.clocks.plan(name, None)
        self._forget(name)
        # The last messages of the node are still on their way.
        node = self.network.nodes[name]
        self.agenda.after(0.05 + self.topology.timers.latency, self._close, name, node)
        if error is None:
            self.agenda.after(0.5, self._start_again, name, node)

    def _close(self, name: str, node: object) -> None:
        if self.network.nodes[name] is node:
            for below, link in self.network.connections(name):
                self.connections.part(below, link)

    def _start_again(self, name: str, node: object) -> None:
        if self.network.nodes[name] is node and self.newest[identity_of(name)] == name:
            self.start(name)

    def _forget(self, name: str) -> None:
        if isinstance(self.network.nodes[name], ManagerMachine):
            self.observer.died(self.peer(name))

    # -- pausing

    def pause(self, name: str, seconds: float) -> None:
        """Give a node no events for a while."""
        if name not in self.paused:
            self.trace.note(self.agenda.now, f"{name} is paused for {seconds:.2f} s")
            self.paused[name] = []
            self.plan(name)
            self.agenda.after(seconds, self.resume, name, self.network.nodes[name])

    def postpone(self, name: str, what: Callable[..., None], *arguments: Any) -> bool:
        """Call ``what`` when a paused node goes on; False when the node is not paused."""
        if name not in self.paused:
            return False
        self.paused[name].append((what, arguments))
        return True

    def resume(self, name: str, node: object = None) -> None:
        """Give a node all events that waited for it."""
        if name not in self.paused or (node is not None and self.network.nodes[name] is not node):
            return
        self.trace.note(self.agenda.now, f"{name} goes on")
        for what, arguments in self.paused.pop(name):
            what(*arguments)
        self.plan(name)
        self.on_resumed(name)

    def plan(self, name: str) -> None:
        """Set the deadline of a node."""
        runs = name not in self.paused and self.network.alive(name)
        self.clocks.plan(name, self.network.nodes[name].deadline() if runs else None)

    # -- the end of the faults

    def mend(self) -> None:
        """Let every node run and connect."""
        network = self.network
        for name in tuple(self.paused):
            self.resume(name)
        for name in network.uplinks:
            if name in network.down and not (name.endswith("+") and name not in network.nodes):
                self.start(name)
            for link in range(len(network.uplinks[name])):
                self.connections.attempt(name, link)
