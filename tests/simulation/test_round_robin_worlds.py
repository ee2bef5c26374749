"""Worlds of clients, workers and a server of round robin, with faults."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import printed, seeds
from wmp.testing.gateway_worlds.foreign_world import ForeignFault
from wmp.testing.gateway_worlds.round_robin_world import RoundRobinWorld

# The layer has no token that shows a worker's second answer to one message: the server drops it.
FAULTS = [fault for fault in ForeignFault if fault is not ForeignFault.TWICE]


def play(seed, **settings):
    """Play a world of drawn faults; return it after its checks."""
    world = RoundRobinWorld(seed=seed, **settings)
    kinds = [kind for kind in FAULTS if world.draw.random() < 0.5] or FAULTS
    world.strike(kinds, world.draw.randint(1, 8), 20.0)
    world.strike_table(world.draw.randint(0, 6), 20.0)
    world.run(22.0)
    world.finish(30.0, 10.0)
    return world


@pytest.mark.rule("RR-4.8", "RR-4.10", "RR-2.5", "RR-6.1", "RR-6.8", "RR-7.4")
@pytest.mark.parametrize("some", seeds(2, 400))
def test_no_slot_and_no_tracked_message_is_lost_for_ever(some):
    for seed in printed(some):
        world = play(seed)
        assert sum(world.answered.values()) > 30


@pytest.mark.parametrize("seed", [0, *(pytest.param(1, marks=pytest.mark.deep),)])
def test_exec_runs_at_most_once(seed):
    world = play(seed, tracked=False)
    assert world.begun
    assert max(world.begun.values()) == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_each_kind_of_fault_alone(fault):
    world = RoundRobinWorld(seed=1, clients=2, workers=2)
    world.strike([fault], 3, 5.0)
    world.run(5.0)
    world.finish(18.0, 6.0)
    assert world.faults[fault] == 3


@pytest.mark.rule("RR-4.2", "RR-4.7")
@pytest.mark.parametrize("seed", range(2))
def test_no_slot_is_lost_when_workers_leave_and_register_again(seed):
    world = RoundRobinWorld(seed=seed)
    world.strike_table(10, 10.0)
    world.run(12.0)
    world.finish(12.0, 5.0)
    assert world.left
    assert world.registered_again


def test_without_worker_losses_no_message_runs_twice():
    world = RoundRobinWorld(seed=5, max_worker_losses=0, clients=2)
    world.strike([ForeignFault.KILL_WORKER, ForeignFault.CUT, ForeignFault.SLOW], 6, 10.0)
    world.run(12.0)
    assert max(world.begun.values()) == 1


@pytest.mark.rule("RR-4.8")
@pytest.mark.parametrize("seed", range(3))
def test_every_tracked_message_is_answered_although_workers_die(seed):
    world = RoundRobinWorld(seed=seed, workers=3, max_worker_losses=10)
    world.strike([ForeignFault.KILL_WORKER], 8, 15.0)
    world.run(20.0)
    world.finish(10.0, 5.0)
    assert world.abandoned == 0
    assert world.server.statistics().lost > 0
