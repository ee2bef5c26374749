"""Each safeguard between Majordomo and WMP is switched off: a world fails."""

from __future__ import annotations

import pytest

from wmp.gateways import MajordomoService
from wmp.gateways.common.lane_requests import LaneRequests
from wmp.gateways.majordomo.broker_machine import MajordomoDoorMachine
from wmp.message import Outcome
from wmp.testing.gateway_worlds.foreign_world import BrokenPromise
from wmp.testing.gateway_worlds.mixed_majordomo_world import MixedMajordomoWorld

UPWARD = {"clients": 0, "above": True, "pauses": (0.4, 1.2)}


def kills(seed, **settings):
    """Play a world whose Majordomo workers are killed, without its last checks."""
    world = MixedMajordomoWorld(seed=seed, **UPWARD, **settings)
    for name in ("worker 1", "worker 2"):
        world.nodes[name].slow_until = 6.0
    world.run(5.0)
    for name in ("worker 1", "worker 2"):
        world.kill(name, 1.0)
    return world


@pytest.mark.parametrize("safe", [True, False])
def test_a_broker_that_does_not_report_the_jobs_of_lost_workers(safe, monkeypatch):
    if not safe:
        monkeypatch.setattr(LaneRequests, "lose", lambda self, worker, *_: None)
    world = kills(1)
    if safe:
        world.finish(10.0, 8.0)
    else:
        with pytest.raises(BrokenPromise, match=r"nothing is left|served again"):
            world.finish(10.0, 8.0)


@pytest.mark.parametrize("safe", [True, False])
def test_a_broker_that_hands_begun_jobs_back_as_unbegun(safe, monkeypatch):
    if not safe:
        end = LaneRequests.end_job

        def unbegun(self, lane, id, outcome, *others):
            kept = Outcome.CANCELLED if outcome is Outcome.LOST else outcome
            end(self, lane, id, kept, *others)

        monkeypatch.setattr(LaneRequests, "end_job", unbegun)
    world = kills(1, max_worker_losses=0)
    if safe:
        world.finish(10.0, 8.0)
        return
    with pytest.raises(BrokenPromise, match="bounded runs"):
        world.finish(10.0, 8.0)


@pytest.mark.parametrize("safe", [True, False])
def test_a_broker_that_overlooks_the_workers_of_wmp_of_a_service(safe, monkeypatch):
    if not safe:
        monkeypatch.setattr(
            MajordomoDoorMachine, "_served", lambda self, role: self.workers.serves(role)
        )
    hasty = {"services": (MajordomoService("*", unserved=0.5),)}
    world = MixedMajordomoWorld(
        seed=1, workers=0, direct=1, settings=hasty, takes=(0.6, 0.9), pauses=(1.0, 2.0)
    )
    world.run(30.0)
    assert (world.abandoned == 0) is safe
