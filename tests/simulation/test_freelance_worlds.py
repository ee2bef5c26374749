"""Worlds of clients and servers of Freelance, with faults."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import printed, seeds
from wmp.testing.gateway_worlds.freelance_world import FreelanceFault, FreelanceWorld

MODELS = ("failover", "shotgun", "agent")


def play(seed, model, **settings):
    """Play a world of drawn faults; return it after its checks."""
    world = FreelanceWorld(seed=seed, model=model, **settings)
    kinds = [kind for kind in FreelanceFault if world.draw.random() < 0.5] or list(FreelanceFault)
    world.strike(kinds, world.draw.randint(1, 12), 20.0)
    world.run(22.0)
    world.finish(10.0)
    return world


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("some", seeds(4, 400))
def test_every_request_is_answered_when_the_faults_end(some, model):
    for seed in printed(some):
        world = play(seed, model)
        assert world.answered > 100


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fault", FreelanceFault)
def test_each_kind_of_fault_alone(model, fault):
    world = FreelanceWorld(seed=1, model=model)
    world.strike([fault], 5, 10.0)
    world.run(10.0)
    world.finish(5.0)
    assert world.faults[fault] == 5


@pytest.mark.parametrize("seed", range(5))
def test_an_agent_loses_no_request_while_another_server_lives(seed):
    world = FreelanceWorld(seed=seed, model="agent", clients=4)
    world.run(5.0)
    for number in (0, 1) * 20:
        world.kill(number, 0.5)
        world.run(1.0)
    world.finish(5.0)
    assert (world.abandoned, world.answered > 500) == (0, True)
    assert any(machine.statistics().resent for machine in world.machines)


@pytest.mark.parametrize("seed", range(5))
def test_a_server_of_agents_runs_a_request_once(seed):
    world = FreelanceWorld(seed=seed, model="agent", servers=1, depth=4)
    world.strike([FreelanceFault.FULL_PIPE, FreelanceFault.SLOW], 80, 20.0)
    world.run(30.0)
    assert world.machines[0].statistics().resent
    assert set(world.begun.values()) == {1}
