"""Several dispatchers in virtual time: no job is lost, and no worker gets too many."""

from __future__ import annotations

import pytest

from wmp.testing.dispatcher_world import DispatcherFaults, run_dispatcher_world

ALL = DispatcherFaults(
    crash=0.03,
    pause=0.03,
    partition=0.03,
    lose=0.2,
    worker_crash=0.02,
    jump=0.01,
    cancel=0.1,
    gone=0.002,
)


def check(seed: int, faults: DispatcherFaults, **more: int) -> None:
    world = run_dispatcher_world(seed, faults, **more)
    assert world.problems == [], f"seed {seed}"


def test_without_faults_every_job_runs_once() -> None:
    world = run_dispatcher_world(1, DispatcherFaults())
    assert world.problems == []
    assert [len(one) for one in world.starts.values()] == [1] * world.jobs


@pytest.mark.rule("DSP-3.4", "DSP-3.9", "DSP-3.10", "DSP-4.1", "DSP-4.3")
@pytest.mark.parametrize("seed", range(1))
def test_with_all_faults_every_job_ends(seed: int) -> None:
    check(seed, ALL)


@pytest.mark.deep
def test_worlds_of_dispatchers() -> None:
    for seed in range(1, 30):
        check(seed, ALL)
    for seed in range(60, 66):
        check(seed, ALL, dispatchers=4, workers=3, jobs=12)
        check(seed, DispatcherFaults(pause=0.2))
