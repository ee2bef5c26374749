"""Managers that share a store, in worlds full of faults."""

from __future__ import annotations

import pytest

from wmp.testing.store_worlds.store_world import StoreFaults, StoreWorld

CALM = StoreFaults(0, 0, 0, 0, 0, 0, 0, 0, 0)

RESTARTS = StoreFaults(
    slow=0,
    absent=0.3,
    lost=0.1,
    killed_managers=1.0,
    down=8.0,
    long=0.1,
    killed_workers=0,
    paused_managers=0,
    jumps=0,
)
"""Only managers end, again and again; the store fails for moments."""


def played(seed: int, seconds: float, **settings: object) -> StoreWorld:
    world = StoreWorld(seed=seed, **settings)  # type: ignore[arg-type]
    world.play(seconds)
    return world


def test_in_a_world_without_faults_every_job_runs_once():
    world = played(1, 3.0, faults=CALM)

    ran = {id for id, _ in world.begun}
    assert len(world.acknowledged) > 50
    assert len(ran) > 40


@pytest.mark.parametrize("seed", range(3))
def test_what_is_acknowledged_ends_once(seed: int) -> None:
    world = played(seed, 3.0)

    assert world.acknowledged


@pytest.mark.rule("WMP-14.5", "WMP-14.7")
@pytest.mark.parametrize("managers", [1, 2])
def test_no_work_is_done_again_when_managers_restart(managers: int) -> None:
    world = played(managers, 4.0, faults=RESTARTS, managers=managers)

    assert world.instances > managers
    assert world.acknowledged


def test_workers_that_know_nothing_of_successors_do_their_jobs() -> None:
    world = played(1, 3.0, faults=RESTARTS, old=2)

    assert world.acknowledged


@pytest.mark.deep
@pytest.mark.parametrize("start", range(0, 40, 20))
def test_no_work_is_done_again_in_many_worlds_of_restarts(start: int) -> None:
    for seed in range(start, start + 20):
        world = played(seed, 6.0, faults=RESTARTS, managers=1 + seed % 3, workers=1 + seed % 4)
        assert world.acknowledged, seed


@pytest.mark.deep
@pytest.mark.parametrize("start", range(0, 200, 25))
def test_what_is_acknowledged_ends_once_in_many_worlds(start: int) -> None:
    for seed in range(start, start + 25):
        old = seed % 5 % 3
        world = played(seed, 10.0, managers=1 + seed % 3, workers=1 + seed % 4, old=old)
        assert world.acknowledged, seed
