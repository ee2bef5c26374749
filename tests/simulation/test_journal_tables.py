"""A reader can follow a worker's locks and jobs from step to step by the lines of the journal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest
from attrs import define, field

from tests.simulation.journal_mirror import Mirror
from wmp.core.worker.machine import WorkerMachine
from wmp.journal.formatter import JournalFormatter
from wmp.journal.header import JournalHeader
from wmp.journal.reader import whole
from wmp.message import Peer
from wmp.testing.simulator.network import Action
from wmp.testing.worlds.world import World

SEEDS = range(0, 100, 4)


@define(eq=False)
class Watched:
    """A world that compares each worker with the lines of its journal, step by step."""

    seed: int
    world: World = field(init=False)
    mirrors: dict[Peer, tuple[JournalFormatter, Mirror]] = field(factory=dict, init=False)
    looks: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        self.world = World(seed=self.seed)
        self.world.simulation.network.watchers.insert(0, self.handled)

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        node = self.world.simulation.network.nodes[name]
        if isinstance(node, WorkerMachine):
            self._look(name, node, event, actions)

    def _look(
        self, name: str, node: WorkerMachine, event: object, actions: Sequence[Action]
    ) -> None:
        me = self.world.simulation.fleet.peer(name)
        if me not in self.mirrors:
            self.mirrors[me] = JournalFormatter(JournalHeader.of(node.settings)), Mirror()
        formatter, mirror = self.mirrors[me]
        mirror.step([whole(json.loads(line)) for line in formatter.step(event, actions, 0, 0)])
        managers = node._links.managers.values()
        open_locks = {
            (manager.peer, number): (lock.state, lock.want)
            for manager in managers
            for number, lock in node._locks.of(manager.identity).items()
        }
        assert mirror.locks == open_locks, f"seed {self.seed}, {name}"
        held = {
            (jobs.owner, job): (state, jobs.attempts[job])
            for manager in managers
            for jobs in node._executions.held(manager.identity)
            for job, state in jobs.states.items()
        }
        columns = {
            (owner, job): row for owner, jobs in mirror.jobs.items() for job, row in jobs.items()
        }
        # An answer without a route is in the journal when it is sent.
        unsent = {
            (manager.peer, job)
            for manager in managers
            if manager.stream is not None
            for kept in manager.stream.kept
            if kept.columns is not None
            for job in kept.columns.ids
        }
        assert held.items() <= columns.items(), f"seed {self.seed}, {name}"
        assert columns.keys() - held.keys() <= unsent, f"seed {self.seed}, {name}"
        self.looks["locks"] += len(open_locks)
        self.looks["jobs"] += len(held)


@pytest.mark.parametrize("seed", SEEDS)
def test_locks_and_jobs_of_workers_follow_the_tables(seed):
    report = Watched(seed).world.play()

    assert report.violation is None, f"seed {seed}: {report.violation.__cause__!r}"


def test_there_was_something_to_follow():
    watched = [Watched(seed) for seed in range(6)]
    for each in watched:
        each.world.play()

    assert min(sum((each.looks for each in watched), Counter()).values()) > 100
