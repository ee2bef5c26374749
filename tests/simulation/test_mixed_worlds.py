"""Worlds of clients and workers of other protocols beside WMP nodes, with faults."""

from __future__ import annotations

import pytest

from wmp.actions import End
from wmp.testing.gateway_worlds.foreign_world import ForeignFault
from wmp.testing.gateway_worlds.mixed_world import ServedByWmp, ServingWmp

DOWN = (
    ForeignFault.KILL_WORKER,
    ForeignFault.CUT,
    ForeignFault.HALF_OPEN,
    ForeignFault.KILL_CLIENT,
    ForeignFault.RESTART_GATEWAY,
    ForeignFault.PAUSE_GATEWAY,
)
UP = (
    ForeignFault.CUT,
    ForeignFault.HALF_OPEN,
    ForeignFault.KILL_WORKER,
    ForeignFault.PAUSE_WORKER,
    ForeignFault.SLOW,
    ForeignFault.FAIL,
    ForeignFault.PAUSE_GATEWAY,
    ForeignFault.RESTART_GATEWAY,
)


def seeds(count, deep):
    return [
        *range(count),
        *(pytest.param(n, marks=pytest.mark.deep) for n in range(count, deep)),
    ]


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_workers_of_wmp_behind_a_device_do_the_requests_of_pirate_clients(seed):
    world = ServedByWmp(seed=seed, clients=2)
    world.strike(DOWN, 4, 8.0)
    world.run(8.0)
    world.finish(16.0, 6.0)
    assert sum(world.answered.values()) > 20


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_paranoid_pirates_and_ping_pong_workers_do_the_jobs_of_a_manager(seed):
    world = ServingWmp(seed=seed, workers=1, pauses=(0.4, 1.0), door={"busy_timeout": 6.0})
    world.strike(UP, 4, 8.0)
    world.run(8.0)
    world.finish(16.0, 10.0)
    assert list(world.ended.values()).count(End.OK) > 20


@pytest.mark.rule("WMP-6.21")
def test_a_run_limit_of_a_job_holds_at_foreign_workers():
    world = ServingWmp(seed=1, workers=1, pauses=(0.4, 1.0), run_limit=1.0)
    world.nodes["worker 1"].slow_until = 10.0
    world.run(10.0)
    world.finish(10.0, 10.0)
    ends = list(world.ended.values())
    assert ends.count(End.TIMEOUT) > 0
    assert ends.count(End.OK) > ends.count(End.TIMEOUT)
