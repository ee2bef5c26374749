"""Submits the workload of a world to its managers, and knows the expected result of each job."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from attrs import define, evolve, field

from wmp.actions import End
from wmp.checks.job_history import History
from wmp.events import Submitted
from wmp.message import Peer
from wmp.testing.simulator.agenda import Agenda
from wmp.testing.simulator.fleet import SimulatedFleet
from wmp.testing.simulator.network import Network
from wmp.testing.simulator.workload import (
    CancelBatch,
    SimulatedTask,
    SubmitBatch,
    Workload,
    draw_batch,
)


@define(eq=False)
class WorkloadDriver:
    """Submits batches and cancels some of their jobs.

    Args:
        network: Has the managers.
        agenda: Holds the times of submissions and cancellations.
        fleet: Knows the running processes.
        history: Records accepted jobs.
    """

    network: Network
    agenda: Agenda
    fleet: SimulatedFleet
    history: History
    choose: Callable[[str], str] = field(default=str, init=False)
    """Returns the manager that takes the jobs for a manager; empty if none takes them."""
    tasks: dict[bytes, SimulatedTask] = field(factory=dict, init=False)
    """The task of each payload."""
    _submitted: dict[int, tuple[str, int, range]] = field(factory=dict, init=False)
    """(manager, the manager's epoch, the jobs' ids) of each batch, by its number."""

    def plan(self, workload: Workload) -> None:
        """Put a workload on the agenda."""
        for number, batch in enumerate(workload.batches):
            self.agenda.at(batch.at, self.offer, batch, number)
        for cancel in workload.cancels:
            self.agenda.at(cancel.at, self._cancel, cancel)
        for drain in workload.drains:
            self.agenda.at(drain.at, self.fleet.drain, drain.worker)

    def offer(self, batch: SubmitBatch, number: int | None = None) -> None:
        """Submit a batch, if its manager runs."""
        name = self.choose(batch.manager)
        if not name or not self.network.alive(name):
            return
        for task in batch.tasks:
            self.tasks[task.payload] = task
        ids = self.network.submit(
            name,
            [task.payload for task in batch.tasks],
            batch.kind,
            priority=batch.priority,
            timeout=batch.timeout,
            max_worker_losses=batch.max_worker_losses,
            expires=batch.expires,
            run_limit=batch.run_limit,
            delay=batch.delay,
            retry=batch.retry,
        )
        if number is not None:
            self._submitted[number] = (name, self.fleet.peer(name)[1], ids)

    def probe(self, draw: Random) -> None:
        """Submit one more job to every manager, after all others have ended."""
        topology = self.fleet.topology
        for name in topology.managers:
            if self.network.alive(name):
                batch = draw_batch(topology, self.agenda.now, f"probe {name}", 1, draw)
                batch = evolve(batch, manager=name, timeout=None)
                self.offer(evolve(batch, kind=draw.choice(topology.kinds(name))))

    def accepted(self, owner: Peer, event: Submitted) -> None:
        """Record that a manager accepted jobs."""
        for id, payload in zip(event.ids, event.payloads, strict=True):
            task = self.tasks[bytes(payload)]
            results = {End.ERROR if task.fails else End.OK: task.result}
            if task.fails_first:
                results[End.ERROR] = b"failed " + task.payload
            self.history.accepted(owner, id, results, event.max_worker_losses)

    def _cancel(self, cancel: CancelBatch) -> None:
        name, epoch, ids = self._submitted.get(cancel.batch, ("", 0, range(0)))
        if name and self.network.alive(name) and self.fleet.peer(name)[1] == epoch:
            self.network.cancel(name, [ids[row] for row in cancel.rows])
