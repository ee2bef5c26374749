"""The parts of a simulated world, and the loop that lets its time pass.

Theory of operation. The agenda holds the calls to make, each with a time. The clocks hold the
deadlines of the nodes. A step takes the earlier of the agenda's first call and the earliest
deadline. Faults, workload and message times are drawn from separate random streams, so that one
more draw in one stream leaves the others unchanged.

Faults strike up to ``faults.until``. Then all faults end, except half-open connections, which the
nodes must detect themselves, and all accepted jobs must end in bounded time.

A world does not depend on hashes, addresses or the real clock: equal seeds have equal traces in any
process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from attrs import define, field

from wmp.checks.job_history import History, Violation
from wmp.checks.observer import Observer
from wmp.core.manager.machine import ManagerMachine
from wmp.events import Received
from wmp.message import Command, ErrorCode, Field, Message
from wmp.testing.simulator.agenda import Agenda, NodeClocks
from wmp.testing.simulator.fault_injection import FaultInjector
from wmp.testing.simulator.faults import Fault, Faults
from wmp.testing.simulator.faulty_connections import FaultyConnections
from wmp.testing.simulator.fleet import SimulatedFleet
from wmp.testing.simulator.journals import Journals
from wmp.testing.simulator.lane_runner import LaneRunner
from wmp.testing.simulator.network import Action, LinkQueue, Network, Pipe
from wmp.testing.simulator.topology import Topology
from wmp.testing.simulator.trace import Trace
from wmp.testing.worlds.starvation_check import StarvationCheck
from wmp.testing.worlds.world_checks import WorldChecks

BUDGET = 30_000
"""Number of events after which a world counts as livelocked."""
_AT_ONCE = 4_000
"""Number of events at one moment after which the world counts as livelocked."""

Watcher = Callable[[str, object, Sequence[Action]], None]
"""Called with the node that handled an event, the event, and the node's actions."""


def _reports_rival(message: Message) -> bool:
    """Return whether an ERROR reports that another process has the identity of its receiver."""
    fields, to = message.fields, message.to
    about = tuple(fields.get(Field.ABOUT_PEER, ()))
    return fields[Field.CODE] == ErrorCode.SUPERSEDED and bool(to) and about == to[:-3:-1]


@define(eq=False)
class SimulatedNetwork(Network):
    """A network that leaves clocks, messages and handlers to other objects.

    The network itself decides nothing.
    """

    clocks: NodeClocks = field(init=False)
    carrier: FaultyConnections = field(init=False)
    fleet: SimulatedFleet = field(init=False)
    runner: LaneRunner = field(init=False)
    watchers: list[Watcher] = field(factory=list, init=False)

    def happen(self, name: str, event: object) -> None:
        """Give a node an event, or keep the event while the node is paused."""
        if name in self.fleet.paused:
            self.fleet.postpone(name, self.happen, name, event)
        else:
            Network.happen(self, name, event)

    def local(self, name: str) -> float:
        """Return the time on the clock of a node."""
        return self.clocks.local(name)

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Report the event and the actions of a node to all watchers."""
        for watcher in self.watchers:
            watcher(name, event, actions)
        if isinstance(event, Received) and event.message.command is Command.ERROR:
            node = self.nodes[name]
            if isinstance(node, ManagerMachine) and _reports_rival(event.message):
                self.fleet.refused(name)

    def carry(self, pipe: Pipe, message: Message) -> None:
        """Put a message on its way."""
        self.carrier.carry(pipe, message)

    def begin(self, name: str, lane: LinkQueue) -> None:
        """Begin the first job that is left in a lane."""
        self.runner.begin(name, lane)

    def reconnect(self, name: str, link: int) -> None:
        """Replace the socket of a worker's link."""
        self.carrier.reconnect(name, link)


@define(eq=False)
class Simulation:
    """All parts that share one virtual time: nodes, connections, handlers, faults and checks.

    Args:
        seed: The seed of the random streams.
        topology: The nodes of the world.
        trace: Records every step.
        history: Records the facts about jobs.
        journals: The journals of the nodes; None for none.
    """

    seed: int
    topology: Topology
    trace: Trace
    history: History
    journals: Journals | None = None
    budget: int = field(default=BUDGET, init=False)
    faults: Faults = field(factory=lambda: Faults(until=0.0), init=False)
    """The current faults."""
    network: SimulatedNetwork = field(factory=SimulatedNetwork, init=False)
    agenda: Agenda = field(init=False)
    clocks: NodeClocks = field(init=False)
    connections: FaultyConnections = field(init=False)
    fleet: SimulatedFleet = field(init=False)
    runner: LaneRunner = field(init=False)
    injector: FaultInjector = field(init=False)
    checks: WorldChecks = field(init=False)
    starvation: StarvationCheck = field(init=False)
    draw: Random = field(init=False)
    """The random stream for message times, starts and connecting."""
    _held_up: float = field(default=0.0, init=False)
    """Seconds after the faults within which delayed messages still arrive."""
    _at_once: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        network, trace, counts = self.network, self.trace, Counter[Fault]()
        self.draw = self.stream("net")
        weather, observer = self.stream("weather"), Observer(self.history)
        self.agenda = Agenda(network)
        self.clocks = NodeClocks(network)
        self.connections = FaultyConnections(
            network, self.agenda, trace, self.draw, weather, counts
        )
        self.fleet = SimulatedFleet(
            network,
            self.agenda,
            self.clocks,
            self.connections,
            self.topology,
            observer,
            trace,
            self.draw,
        )
        self.runner = LaneRunner(network, self.agenda, self.fleet, self.history, trace)
        self.injector = FaultInjector(
            network, self.agenda, self.connections, self.fleet, self.runner, trace, counts
        )
        self.checks = WorldChecks(network, self.fleet, self.clocks, observer, trace, self.journals)
        self.runner.on_begun = self.checks.begun
        self.starvation = StarvationCheck(self.runner)
        network.clocks, network.carrier = self.clocks, self.connections
        network.fleet, network.runner = self.fleet, self.runner
        network.watchers.append(self.checks.handled)

    def stream(self, name: str) -> Random:
        """Return a random stream of its own, by name."""
        return Random(f"{self.seed}:{name}")

    # -- time

    @property
    def now(self) -> float:
        """Virtual seconds since the world began."""
        return self.network.now

    def run(self, until: float) -> None:
        """Let time pass.

        Raises:
            Violation: An invariant is broken.
        """
        network, agenda, clocks = self.network, self.agenda, self.clocks
        while True:
            due, name = clocks.earliest()
            first = agenda.first
            now = min(due, first)
            if now > until:
                break
            if now > network.now:
                network.now, self._at_once = now, 0
            self._at_once += 1
            if self._at_once > _AT_ONCE or self.trace.steps > self.budget:
                detail = f"the world needed {self.trace.steps} events until {network.now:.3f} s"
                raise Violation(
                    "no livelock",
                    f"{detail}, {self._at_once} of them at the same time; expected fewer",
                )
            if due <= first:
                clocks.ring(name)
            else:
                agenda.call_first()
        network.now = max(network.now, until)

    # -- faults

    def begin_faults(self, faults: Faults) -> None:
        """Let these faults strike from now on; :meth:`mend` ends them."""
        self.faults = faults
        self.clocks.skew = faults.skew
        self.connections.rates = faults.rates
        self.injector.active = True
        if faults.skew:
            self.injector.counts[Fault.CLOCK_SKEW] = len(faults.skew)

    def mend(self) -> None:
        """End all faults; half-open connections stay until a node detects them."""
        self.trace.note(self.now, "the faults stop")
        self.injector.active = False
        self.runner.slow.clear()
        self.connections.mend()
        self.fleet.mend()
        self._held_up = self.connections.held_up

    # -- the end

    @property
    def calm(self) -> float:
        """The time by which all nodes must be connected again, including delayed connections."""
        timers = self.fleet.topology.timers
        connected = 4 * timers.ping + timers.backoff + max(timers.max_silence, 6.0) + 1.0
        freed = timers.hold + timers.lock_timeout + 2 * timers.resend
        return self.faults.until + self._held_up + 1.05 * (connected + freed + 4 * timers.trip)

    @property
    def settled(self) -> bool:
        """Return whether every job has ended, and no process without peers runs beside a rival."""
        if any(self.history.open.values()):
            return False
        return not self.fleet.unserved()

    def wait(self, patience: float, settled: Callable[[], bool]) -> None:
        """Wait until everything has ended that must end.

        Args:
            patience: Seconds that the ends may take once the nodes are connected.
            settled: Returns whether everything has ended.

        Raises:
            Violation: The ends take longer than that.
        """
        until = max(self.now, self.calm) + patience
        while self.now < until and not settled():
            self.run(min(until, self.now + 0.1))
            if self.now >= self.calm:
                self.starvation.look()
        self.fleet.check_rivals()
        if not settled():
            self.history.finish()
