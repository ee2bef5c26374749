"""The checks of a world at every step: invariants of the history and of the machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from attrs import define, field

from wmp.actions import End, Halt, Resolve
from wmp.checks.job_history import Violation
from wmp.checks.observer import Observer
from wmp.checks.pauses import Pauses
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Submitted
from wmp.message import Peer
from wmp.testing.simulator.agenda import NodeClocks
from wmp.testing.simulator.fleet import SimulatedFleet
from wmp.testing.simulator.journals import Journals
from wmp.testing.simulator.network import Action, Network
from wmp.testing.simulator.trace import Trace
from wmp.testing.worlds.memory_bounds import check_tables

_CHECK_EVERY = 24
"""Number of events between two checks of the machines' tables."""


@define(eq=False)
class WorldChecks:
    """Records the actions of every node, and checks the invariants.

    Args:
        network: Has the nodes.
        fleet: Restarts the nodes whose machines halt.
        clocks: Has the time on each node's clock.
        observer: Records the nodes' actions in the history.
        trace: Records every step.
        journals: The journals of the nodes; None for none.
    """

    network: Network
    fleet: SimulatedFleet
    clocks: NodeClocks
    observer: Observer
    trace: Trace
    journals: Journals | None
    looks: bool = field(default=True, init=False)
    """Whether the machines' tables are checked; only where their bounds are known."""
    accepted: Callable[[Peer, Submitted], None] = field(init=False)
    """Records the jobs that a manager accepted in the history."""
    ends: Counter[End] = field(factory=Counter, init=False)
    _pauses: Pauses = field(factory=Pauses, init=False)

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Record the actions of a node.

        Raises:
            Violation: An invariant is broken.
        """
        node, now = self.network.nodes[name], self.clocks.shown[name]
        self.trace.step(self.network.now, name, event, actions)
        if self.journals is not None:
            self.journals.step(name, node.settings, event, actions, now)
        if isinstance(node, ManagerMachine):
            if isinstance(event, Submitted):
                self.accepted(self.fleet.peer(name), event)
            self.observer.manager_did(node.settings, event, actions, now)
            for action in actions:
                if isinstance(action, Resolve):
                    self.ends.update(action.ends)
        elif isinstance(node, WorkerMachine):
            me = self.fleet.peer(name)
            self._pauses.worker_did(me, event, actions, now)
            self.observer.worker_did(me, event, actions, now)
        if actions and isinstance(actions[-1], Halt):
            self.fleet.ended(name, actions[-1].error)
        self.fleet.plan(name)
        if self.trace.steps % _CHECK_EVERY == 0:
            self.look()

    def begun(self, worker: Peer, manager: Peer, id: int) -> None:
        """Check a job that begins, perhaps behind another one on its lane.

        Raises:
            Violation: "a pause ends with a question".
        """
        self._pauses.began(worker, manager, id)

    def look(self) -> None:
        """Check the machines' tables against their bounds, and check the machines' own invariants.

        Raises:
            Violation: "no crash" or "tables are bounded".
        """
        if not self.looks:
            return
        history = self.observer.history
        jobs = sum(map(len, history.jobs.values()))
        peers = len(self.network.uplinks)
        for name, node in self.network.nodes.items():
            if not self.network.alive(name) or isinstance(node, DeviceMachine):
                continue
            try:
                node.check_invariants()
            except AssertionError as error:
                raise Violation("no crash", f"an invariant of {name} is broken: {error}") from error
            if isinstance(node, WorkerMachine):
                check_tables(name, node, jobs, peers)
            elif (unended := history.open.get(self.fleet.peer(name))) is not None:
                forwards = name in self.network.forwarders
                check_tables(name, node, jobs if forwards else len(unended), peers)
