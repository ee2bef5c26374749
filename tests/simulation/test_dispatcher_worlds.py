"""Several dispatchers in virtual time: no job is lost, and no worker gets too many.

Managers of WMP workers take jobs of the same queue.
"""

from __future__ import annotations

from typing import Any

import pytest

from wmp.testing.search.dispatch_search import search_endings
from wmp.testing.store_worlds.dispatcher_parties import DispatcherFaults
from wmp.testing.store_worlds.dispatcher_world import run_dispatcher_world

ALL = DispatcherFaults(
    crash=0.03,
    pause=0.03,
    partition=0.03,
    lose=0.2,
    worker_crash=0.02,
    jump=0.01,
    cancel=0.1,
    gone=0.002,
    isolate=0.02,
    apart=0.03,
    manager_crash=0.02,
    drift=0.3,
    resign=0.01,
    refuse=0.05,
    err=0.05,
)


def check(seed: int, faults: DispatcherFaults, **more: Any) -> None:
    world = run_dispatcher_world(seed, faults, **more)
    assert world.problems == [], f"seed {seed}"


def test_without_faults_every_job_runs_once() -> None:
    world = run_dispatcher_world(1, DispatcherFaults())
    assert world.problems == []
    assert [len(start) for start in world.starts.values()] == [1] * world.jobs


@pytest.mark.rule("DSP-3.4", "DSP-3.9", "DSP-3.10", "DSP-4.1", "DSP-4.3")
@pytest.mark.parametrize("seed", range(3))
def test_with_all_faults_every_job_ends(seed: int) -> None:
    check(seed, ALL)


@pytest.mark.rule("DSP-3.7", "DSP-7.1", "DSP-7.2")
@pytest.mark.parametrize("seed", range(3))
def test_jobs_end_beside_managers_and_their_callbacks_are_sent(seed: int) -> None:
    check(seed, ALL, managers=1, callbacks=True)


@pytest.mark.rule("DSP-3.14", "DSP-3.15")
@pytest.mark.parametrize("seed", range(3))
def test_jobs_that_workers_refuse_or_answer_by_an_error_end(seed: int) -> None:
    check(seed, DispatcherFaults(refuse=0.3, err=0.3, lose=0.05))


@pytest.mark.rule("DSP-5.9")
@pytest.mark.parametrize("seed", [4, 15])
def test_a_worker_behind_a_partition_does_no_job_that_another_one_gets(seed: int) -> None:
    check(seed, DispatcherFaults(isolate=0.05))


@pytest.mark.rule("DSP-3.10", "DSP-4.1", "DSP-4.3", "DSP-4.6", "DSP-4.7")
@pytest.mark.parametrize(
    ("faults", "states"), [(1, 100), pytest.param(3, 5_000, marks=pytest.mark.deep)]
)
def test_every_way_of_a_job_leads_to_one_end(faults: int, states: int) -> None:
    endings = search_endings(faults)
    assert endings.trace is None
    assert endings.states > states


@pytest.mark.deep
def test_worlds_of_dispatchers() -> None:
    for seed in range(3, 60):
        check(seed, ALL)
        check(seed, ALL, managers=1, callbacks=True)
        check(seed, DispatcherFaults(isolate=0.05))
        check(seed, DispatcherFaults(apart=0.1, drift=0.5, pause=0.1))
    for seed in range(60, 66):
        check(seed, ALL, dispatchers=4, workers=3, managers=2, jobs=12, callbacks=True)
        check(seed, DispatcherFaults(pause=0.2))
