"""Worlds of clients, workers and a gateway of other protocols, with faults."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import printed, seeds
from wmp.events import Connected
from wmp.gateways.common.job_lanes import JobLanes
from wmp.testing.gateway_worlds.foreign_world import ForeignFault, ForeignWorld, our_worker

PROTOCOLS = ("simple-pirate", "paranoid-pirate", "ping-pong")


def play(seed, protocol, **settings):
    """Play a world of drawn faults; return it after its checks."""
    settings = {"door": {"busy_timeout": 8.0}, **settings}
    world = ForeignWorld(seed=seed, protocol=protocol, **settings)
    kinds = [kind for kind in ForeignFault if world.draw.random() < 0.5] or list(ForeignFault)
    if protocol == "ping-pong":
        # A reply that is sent twice has no token, and may be taken for the reply to the next job.
        kinds = [kind for kind in kinds if kind is not ForeignFault.TWICE] or [ForeignFault.CUT]
    world.strike(kinds, world.draw.randint(1, 8), 20.0)
    world.run(22.0)
    world.finish(30.0, 10.0)
    return world


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("some", seeds(1, 400))
def test_every_client_gets_its_own_replies_and_is_served_again(some, protocol):
    for seed in printed(some):
        world = play(seed, protocol)
        assert sum(world.answered.values()) > 30


@pytest.mark.parametrize(
    ("protocol", "fault"),
    [
        pytest.param(protocol, fault, marks=() if number % 3 == index else pytest.mark.deep)
        for index, protocol in enumerate(PROTOCOLS)
        for number, fault in enumerate(ForeignFault)
        # A job of ping-pong has no token.
        if protocol != "ping-pong" or fault is not ForeignFault.TWICE
    ],
)
def test_each_kind_of_fault_alone(protocol, fault):
    world = ForeignWorld(seed=1, protocol=protocol, clients=2, door={"busy_timeout": 6.0})
    world.strike([fault], 3, 5.0)
    world.run(5.0)
    world.finish(18.0, 6.0)
    assert world.faults[fault] == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_worker_losses_no_request_runs_more_often_than_it_was_sent(protocol):
    world = ForeignWorld(seed=5, protocol=protocol, max_worker_losses=0, clients=2)
    world.strike([ForeignFault.KILL_WORKER, ForeignFault.CUT, ForeignFault.SLOW], 6, 10.0)
    world.run(12.0)
    assert world.begun
    assert max(world.begun.values()) <= 3  # the tries of a client


def test_a_request_that_is_sent_again_joins_its_job_if_the_door_has_a_key():
    tries = {}
    for key in (None, "body"):
        world = ForeignWorld(seed=3, clients=1, workers=1, front={"key": key})
        world.nodes["worker 1"].slow_until = 20.0
        world.run(30.0)
        tries[key] = max(world.begun.values())
        assert sum(world.answered.values()) > 0 or key is None
    assert tries[None] > 1
    assert tries["body"] == 1


def quick_world(seed, protocol="paranoid-pirate", clients=12):
    """Return a world of quick requests, of which many wait."""
    return ForeignWorld(
        seed=seed,
        protocol=protocol,
        clients=clients,
        takes=(0.0001, 0.002),
        pauses=(0.0, 0.001),
        way=(0.00005, 0.0002),
        door={"busy_timeout": 2.0},
    )


def hurry(seed, protocol="paranoid-pirate"):
    """Play a world of quick requests with faults."""
    world = quick_world(seed, protocol)
    kinds = [kind for kind in ForeignFault if kind is not ForeignFault.TWICE]
    world.run(1.02)
    world.strike(kinds, 4, 0.1)
    world.run(0.13)
    world.pauses = (0.3, 0.6)
    world.finish(14.0, 4.0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("some", seeds(0, 8))
def test_many_quick_requests_and_faults(some, protocol):
    for seed in printed(some):
        hurry(seed, protocol)


def test_quick_requests_that_wait_are_done_by_lanes_of_several(monkeypatch):
    lanes = []
    add = JobLanes.add

    def watched(self, group, run):
        lanes.append(len(run.ids))
        add(self, group, run)

    monkeypatch.setattr(JobLanes, "add", watched)
    world = quick_world(0, clients=8)
    world.run(1.01)
    assert max(lanes) > 2
    assert sum(world.answered.values()) > 50


class PlainReq:
    """A worker with a REQ socket, as in the guide: READY is sent once, at the start."""

    def __init__(self):
        self._inner = our_worker("simple-pirate")
        self._connected = False
        self.wire = self._inner.wire

    def handle(self, event, now):
        if isinstance(event, Connected):
            if self._connected:
                return []
            self._connected = True
        return self._inner.handle(event, now)

    def deadline(self):
        return self._inner.deadline()


@pytest.mark.parametrize("ours", [True, False])
def test_simple_pirate_workers_with_req_sockets_do_not_survive_a_restart_of_their_queue(ours):
    make = {} if ours else {"make_worker": lambda protocol: PlainReq()}
    world = ForeignWorld(seed=2, protocol="simple-pirate", **make)
    world.run(4.0)
    before = sum(world.answered.values())
    assert before > 0
    world.restart_gateway(1.0)
    world.run(15.0)
    assert (sum(world.answered.values()) > before + 10) is ours
