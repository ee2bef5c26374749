"""Worlds of Majordomo and WMP around one broker, under the same service names, with faults."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import printed, seeds
from wmp.actions import End
from wmp.message import Outcome
from wmp.testing.gateway_worlds.foreign_world import ForeignFault
from wmp.testing.gateway_worlds.mixed_majordomo_world import MixedMajordomoWorld

FAULTS = list(ForeignFault)

FLEETS = {  # clients have requests, and a manager above has jobs
    "direct": {"workers": 0, "direct": 2},
    "device": {"workers": 0, "behind": 2},
    "upward": {"clients": 0, "above": True, "max_worker_losses": 6},
    "beside": {"clients": 0, "above": True, "beside": 1, "max_worker_losses": 6},
    "both": {"direct": 1, "behind": 1},
    "all": {"direct": 1, "behind": 1, "above": True, "beside": 1},
}

SHORT = {"device": 1, "all": 1}
"""The number of worlds of a fleet in each run of the tests."""


def play(seed, **settings):
    """Play a world of drawn faults; return it after its checks."""
    world = MixedMajordomoWorld(seed=seed, pauses=(0.4, 1.2), **settings)
    kinds = [kind for kind in FAULTS if world.draw.random() < 0.5] or FAULTS
    world.strike(kinds, world.draw.randint(1, 8), 12.0)
    world.run(14.0)
    world.finish(20.0, 8.0)
    return world


@pytest.mark.rule("MDP-2.1", "MDP-3.3", "MDP-4.2", "MDP-4.4")
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
def test_all_are_served_again_and_nothing_is_left(fleet, some):
    for seed in printed(some):
        assert play(seed, **FLEETS[fleet]).done() > 30


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=() if number % 6 == 0 else pytest.mark.deep)
        for number, fault in enumerate(FAULTS)
    ],
)
def test_each_kind_of_fault_alone(fault):
    world = MixedMajordomoWorld(seed=1, clients=2, pauses=(0.4, 1.2), **FLEETS["all"])
    world.strike([fault], 3, 5.0)
    world.run(5.0)
    world.finish(18.0, 6.0)
    assert world.faults[fault] == 3


def test_workers_of_both_protocols_do_the_work_of_one_service():
    world = MixedMajordomoWorld(seed=3, direct=1, behind=1, pauses=(0.05, 0.2))
    world.run(12.0)
    # Each worker of WMP at the broker ended jobs, and so did those of Majordomo.
    assert world.broker.statistics().given > 0
    of_wmp = [world.fleet[name].machine.statistics() for name in ("direct 1", "behind 1")]
    assert all(own_world.outcomes[Outcome.OK] > 0 for own_world in of_wmp)


@pytest.mark.rule("MDP-3.3")
def test_without_worker_losses_no_job_of_a_manager_runs_twice():
    world = MixedMajordomoWorld(
        seed=4, clients=0, above=True, beside=1, max_worker_losses=0, pauses=(0.4, 1.2)
    )
    world.strike([ForeignFault.KILL_WORKER, ForeignFault.CUT, ForeignFault.SLOW], 8, 10.0)
    world.run(12.0)
    world.finish(10.0, 8.0)
    ends = list(world.ended.values())
    assert ends.count(End.LOST) > 0
    assert max(world.begun.values()) == 1
