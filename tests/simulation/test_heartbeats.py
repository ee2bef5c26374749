"""How each style of heartbeats misleads, one world for each case of ``docs/heartbeats.md``."""

from __future__ import annotations

import pytest

from wmp.events import Ticked
from wmp.foreign import Emit
from wmp.gateways.common.attendance import Attendance
from wmp.testing.gateway_worlds.foreign_world import ForeignWorld, our_worker


def unplug(world, name):
    """End a machine without any message to its peers."""
    node = world.nodes[name]
    node.connection.dead = True
    node.machine = None


def known(world):
    return len(world.back.workers)


@pytest.mark.parametrize(
    ("protocol", "door", "left"),
    [
        ("simple-pirate", {}, 2),
        ("paranoid-pirate", {"heartbeats": "none"}, 2),
        ("paranoid-pirate", {}, 1),
        ("ping-pong", {}, 1),
    ],
)
def test_without_heartbeats_a_dead_worker_stays_known(protocol, door, left):
    world = ForeignWorld(seed=1, protocol=protocol, clients=1, door=door)
    world.asking = False
    world.run(2.0)
    assert known(world) == 2
    unplug(world, "worker 1")
    world.run(60.0)
    assert known(world) == left


@pytest.mark.parametrize(("heartbeats", "lost"), [("none", True), (None, False)])
def test_without_heartbeats_requests_go_to_a_dead_worker(heartbeats, lost):
    world = ForeignWorld(seed=1, clients=1, door={"heartbeats": heartbeats})
    world.asking = False
    world.run(2.0)
    unplug(world, "worker 1")
    world.run(10.0)
    world.asking = True
    world._ask("client 1", 1)
    world.run(60.0)
    world.asking = False
    world.run(20.0)
    seen = world.back.statistics()
    assert (seen.workers.get("busy", 0) == 1) is lost  # the dead worker has a request for ever


@pytest.mark.parametrize("stops", [2.5, 6.0])
def test_one_way_heartbeats_give_up_a_worker_that_was_only_stopped(stops):
    world = ForeignWorld(seed=1, clients=1, workers=1)
    world.asking = False
    world.run(2.0)
    world.pause("worker 1", stops)
    world.run(stops - 0.1)
    assert known(world) == (1 if stops < 3 else 0)
    # The worker returns: it finds one heartbeat, and sends READY when its queue stays silent.
    world.run(10.0)
    assert known(world) == 1


class Hung:
    """A worker whose loop hangs, and whose thread still answers signs of life."""

    def __init__(self):
        self._inner = our_worker("ping-pong")

    def handle(self, event, now):
        actions = self._inner.handle(event, now)
        if isinstance(event, Ticked):
            return actions
        return [action for action in actions if isinstance(action, Emit)]

    def deadline(self):
        return self._inner.deadline()


@pytest.mark.parametrize(("busy_timeout", "state"), [(None, "BUSY"), (5.0, "LATE")])
def test_ping_pong_takes_a_worker_that_hangs_for_a_living_one(busy_timeout, state):
    door = {"busy_timeout": busy_timeout}
    world = ForeignWorld(
        seed=1,
        protocol="ping-pong",
        clients=1,
        workers=1,
        door=door,
        make_worker=lambda protocol: Hung(),
    )
    world.run(30.0)
    assert list(world.back.workers.values()) == [Attendance[state]]
    assert sum(world.answered.values()) == 0


def test_a_worker_that_returns_finds_one_heartbeat():
    world = ForeignWorld(seed=1, clients=1, workers=1, door={"liveness": 30})
    world.asking = False
    world.run(3.0)
    world.pause("worker 1", 20.0)
    world.run(15.0)
    assert world.nodes["worker 1"].connection.queued <= 2


@pytest.mark.parametrize("heartbeat", [0.01, 30.0])
def test_the_shortest_and_the_longest_heartbeats(heartbeat):
    world = ForeignWorld(seed=1, clients=1, workers=1, door={"heartbeat": heartbeat, "liveness": 5})
    if heartbeat < 1:
        # A worker must know the times of its door: its own heartbeats are 1 s apart.
        world.asking = False
        world.run(5.0)
        assert world.back.statistics().dropped.get("unknown worker", 0) > 0
        return
    world.run(60.0)
    # The worker counts its queue as dead after 3 s of silence, and sends READY again.
    assert sum(world.answered.values()) > 30
