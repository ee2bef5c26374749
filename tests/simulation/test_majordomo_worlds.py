"""Worlds of clients, workers and a broker of Majordomo, with faults."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import printed, seeds
from wmp.actions import Reconnect
from wmp.events import Connected
from wmp.gateways.majordomo.worker_machine import MajordomoTimes, MajordomoWorkerMachine
from wmp.testing.gateway_worlds.foreign_world import ForeignFault
from wmp.testing.gateway_worlds.majordomo_world import MajordomoWorld

FAULTS = list(ForeignFault)


class GuideWorker:
    """A worker as in the guide: it does not notice that ZeroMQ has connected its socket again."""

    def __init__(self, service):
        self._inner = MajordomoWorkerMachine(service, MajordomoTimes(1.0, 3.0, 1.0, 1.0))
        self._fresh = True

    def handle(self, event, now):
        if isinstance(event, Connected):
            if not self._fresh:
                return []
            self._fresh = False
        actions = self._inner.handle(event, now)
        self._fresh = self._fresh or any(isinstance(action, Reconnect) for action in actions)
        return actions

    def deadline(self):
        return self._inner.deadline()


def play(seed, **settings):
    """Play a world of drawn faults; return it after its checks."""
    world = MajordomoWorld(seed=seed, **settings)
    kinds = [kind for kind in FAULTS if world.draw.random() < 0.5] or FAULTS
    world.strike(kinds, world.draw.randint(1, 8), 20.0)
    world.run(22.0)
    world.finish(30.0, 10.0)
    return world


FLEETS = {
    "majordomo": {},
    "mixed": {"wmp_workers": 1},
    "wmp": {"workers": 0, "wmp_workers": 2},
    "guide": {"new_worker": GuideWorker},
    "strict": {"settings": {"busy": "strict", "busy_timeout": None}},
}


SHORT = {"majordomo": 1, "mixed": 1}
"""The number of worlds of a fleet in each run of the tests."""


@pytest.mark.rule("MDP-2.1", "MDP-4.2", "MDP-4.4", "MDP-4.8", "MDP-5.1", "MDP-6.1")
@pytest.mark.parametrize(
    ("fleet", "some"),
    [
        pytest.param(
            fleet, *world_seed.values, id=f"{fleet}-{world_seed.id}", marks=world_seed.marks
        )
        for fleet in FLEETS
        for world_seed in seeds(SHORT.get(fleet, 0), 300)
    ],
)
def test_every_client_gets_its_own_replies_and_is_served_again(fleet, some):
    for seed in printed(some):
        world = play(seed, **FLEETS[fleet])
        assert sum(world.answered.values()) > 30


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=() if number % 3 == 0 else pytest.mark.deep)
        for number, fault in enumerate(FAULTS)
    ],
)
def test_each_kind_of_fault_alone(fault):
    world = MajordomoWorld(seed=1, clients=2, workers=2)
    world.strike([fault], 3, 5.0)
    world.run(5.0)
    world.finish(18.0, 6.0)
    assert world.faults[fault] == 3


@pytest.mark.deep
@pytest.mark.rule("MDP-3.3")
def test_without_worker_losses_no_request_runs_more_often_than_it_was_sent():
    world = MajordomoWorld(seed=5, max_worker_losses=0, clients=2)
    world.strike([ForeignFault.KILL_WORKER, ForeignFault.CUT, ForeignFault.SLOW], 6, 10.0)
    world.run(12.0)
    assert max(world.begun.values()) <= 3  # the tries of a client


@pytest.mark.rule("MDP-3.3", "MDP-4.4")
def test_workers_that_die_cost_their_clients_only_time():
    world = MajordomoWorld(seed=2, workers=4, max_worker_losses=10)
    world.strike([ForeignFault.KILL_WORKER], 8, 15.0)
    world.run(20.0)
    world.finish(10.0, 5.0)
    assert world.abandoned == 0
    assert world.broker.statistics().lost > 0


def test_a_broker_that_starts_again_and_again_loses_no_request_that_is_not_abandoned():
    world = MajordomoWorld(seed=3, workers=4, clients=2)
    for _ in range(10):
        world.run(3.0)
        world.restart_gateway(0.3)
    world.run(1.0)
    world.finish(10.0, 5.0)
    assert world.abandoned == 0
