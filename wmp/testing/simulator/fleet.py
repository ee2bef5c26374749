"""The nodes of a world: their processes start, pause, end and start again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import Any

from attrs import define, evolve, field

from wmp.balance import least_recently_used
from wmp.checks.job_history import Violation
from wmp.checks.observer import Observer
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import Superseded
from wmp.events import Drained
from wmp.message import Peer
from wmp.testing.simulator.agenda import Agenda, NodeClocks
from wmp.testing.simulator.faulty_connections import FaultyConnections
from wmp.testing.simulator.network import LinkQueue, Network
from wmp.testing.simulator.topology import Topology
from wmp.testing.simulator.trace import Trace


def identity_of(name: str) -> bytes:
    """Return the identity of a node; a name's double has the same identity."""
    return name.rstrip("+").encode()


_MOMENT = 2.0
"""Seconds until an operator acts. Until then peers may believe that an ended process still runs."""


def _ignore(*_: object) -> None:
    pass


@define(eq=False)
class SimulatedFleet:
    """Starts and ends the processes of a topology's nodes.

    Args:
        network: Has the nodes.
        agenda: Holds the times at which pauses of nodes end and nodes start again.
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
    paused: dict[str, list[tuple[Callable[..., None], tuple[Any, ...]]]] = field(
        factory=dict, init=False
    )
    """Paused nodes, with the calls that wait for them."""
    on_started: Callable[[str], None] = field(default=_ignore, init=False)
    on_resumed: Callable[[str], None] = field(default=_ignore, init=False)
    on_killed: Callable[[str, Sequence[LinkQueue]], None] = field(default=_ignore, init=False)
    """Called with the lanes that the killed process ran."""
    _epochs: Counter[bytes] = field(factory=Counter, init=False)
    _ended: dict[bytes, float] = field(factory=dict, init=False)
    """Time at which a process of each identity last ended, by identity."""

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

    def rivals(self, name: str) -> list[str]:
        """Return the other running processes with the node's identity."""
        network, identity = self.network, identity_of(name)
        return [
            other
            for other in network.nodes
            if other != name and identity_of(other) == identity and network.alive(other)
        ]

    def unserved(self) -> list[str]:
        """Return the running processes that must stop, because all their peers serve a rival."""
        names = []
        for name, node in self.network.nodes.items():
            if self.network.alive(name) and self.rivals(name):
                if isinstance(node, WorkerMachine) and node.statistics().managers:
                    continue  # the process serves managers of its own
                names.append(name)
        return names

    def check_rivals(self) -> None:
        """Check that of two processes with one identity none continues without peers.

        Raises:
            Violation: "one process for each identity".
        """
        for name in self.unserved():
            rivals = ", ".join(self.rivals(name))
            raise Violation(
                "one process for each identity",
                f"{name} did not stop, although {rivals} has the same identity",
            )

    # -- starting

    def start_soon(self, name: str) -> None:
        """Start a node for the first time, now or within a second."""
        seconds = self.draw.choice((0.0, self.draw.uniform(0, 1)))
        self.agenda.after(seconds, self._start_first, name)

    def _start_first(self, name: str) -> None:
        if name not in self.network.nodes:  # the end of the faults may have started the node
            self.start(name)

    def start(self, name: str) -> None:
        """Start a process of this node, with an epoch of its own.

        If the node's clock is wrong and goes back, its epochs fall from start to start.
        """
        network, topology = self.network, self.topology
        identity = identity_of(name)
        self._epochs[identity] += 1
        slow = self.clocks.skew.get(name, (0.0, 1.0))[1] < 1.0
        epoch = 1000 + self._epochs[identity] * (-1 if slow else 1)
        upstreams = len(network.uplinks[name])
        if name in topology.managers:
            settings = topology.manager_settings(name, epoch)
            standby = name in topology.pair
            network.nodes[name] = ManagerMachine(settings, least_recently_used, standby=standby)
            network.restart_ids(name)
            self.observer.history.open[identity, epoch] = {}
        elif name in topology.workers:
            worker = evolve(topology.workers[name], epoch=epoch)
            network.nodes[name] = WorkerMachine(worker, upstreams)
        else:
            device = topology.device_settings(identity, epoch, upstreams)
            network.nodes[name] = DeviceMachine(device)
        network.halted.pop(name, None)
        network.down.discard(name)
        self.trace.note(self.agenda.now, f"{name} starts, epoch {epoch}")
        for below, link in network.connections(name):
            self.connections.attempt_soon(below, link, 0.1)
        self.on_started(name)

    def restart(self, name: str, seconds: float) -> None:
        """Start a killed node again after some time, unless it already runs."""
        self.agenda.after(seconds, self._restart, name, self.network.nodes[name])

    def _restart(self, name: str, node: object) -> None:
        if name in self.network.down and self.network.nodes[name] is node:
            self.start(name)

    # -- ending

    def kill(self, name: str, *, silently: bool = False) -> None:
        """End a node's process. With ``silently`` the ends of its connections do not notice."""
        network = self.network
        self._ended[identity_of(name)] = self.agenda.now
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
            Violation: "one process for each identity": the machine halted without a good reason.
        """
        identity = identity_of(name)
        beside = self.rivals(name) or self.agenda.now - self._ended.get(identity, -inf) < _MOMENT
        if error is not None and not (isinstance(error, Superseded) and beside):
            detail = f"{name} stopped ({error}), and no other process has its identity"
            raise Violation("one process for each identity", detail)
        self._ended[identity] = self.agenda.now
        self.clocks.plan(name, None)
        self._forget(name)
        # Let the last messages of the node arrive first.
        node = self.network.nodes[name]
        self.agenda.after(0.05 + self.topology.timers.latency, self._close, name, node)
        if error is None:
            self.agenda.after(0.5, self._start_again, name, node)

    def _close(self, name: str, node: object) -> None:
        if self.network.nodes[name] is node:
            for below, link in self.network.connections(name):
                self.connections.part(below, link)

    def _start_again(self, name: str, node: object) -> None:
        if self.network.nodes[name] is node and not self.rivals(name):
            self.start(name)

    # -- the operator

    def refused(self, name: str) -> None:
        """End a manager later, because a worker reported that it serves another process of this
        identity.

        No message stops a manager, so its operator must read the log and stop the process.
        """
        self.agenda.after(_MOMENT, self._stop, name, self.network.nodes[name])

    def _stop(self, name: str, node: object) -> None:
        if self.network.nodes[name] is node and self.network.alive(name) and self.rivals(name):
            self.trace.note(self.agenda.now, f"the operator ends {name}")
            self.kill(name)

    def _forget(self, name: str) -> None:
        if isinstance(self.network.nodes[name], ManagerMachine):
            self.observer.died(self.peer(name))

    # -- pausing

    def pause(self, name: str, seconds: float) -> None:
        """Give a node no events for some time."""
        if name not in self.paused:
            self.trace.note(self.agenda.now, f"{name} is paused for {seconds:.2f} s")
            self.paused[name] = []
            self.plan(name)
            self.agenda.after(seconds, self.resume, name, self.network.nodes[name])

    def postpone(self, name: str, what: Callable[..., None], *arguments: Any) -> bool:
        """Call ``what`` at the end of a node's pause; False if the node is not paused."""
        if name not in self.paused:
            return False
        self.paused[name].append((what, arguments))
        return True

    def resume(self, name: str, node: object = None) -> None:
        """Give a node all events that waited for it."""
        if name not in self.paused or (node is not None and self.network.nodes[name] is not node):
            return
        self.trace.note(self.agenda.now, f"{name} continues")
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
