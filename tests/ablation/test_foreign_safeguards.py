"""Each safeguard of the doors and peers of other protocols is switched off: a world fails."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.simulation.test_foreign_worlds import play, quick_world
from tests.unit.gateways.test_back_doors import Door, reply
from tests.unit.gateways.test_door_lanes import ends as lane_ends
from tests.unit.gateways.test_door_lanes import run as run_lane
from tests.unit.gateways.test_front_doors import Front
from wmp.actions import Reconnect
from wmp.foreign import Arrived, Emit, Left
from wmp.gateways.common import attendance
from wmp.gateways.common.job_lanes import JobLanes
from wmp.gateways.common.lane_requests import LaneRequests
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.common.worker_machine import ForeignWorkerMachine
from wmp.gateways.queue_doors.client_door_machine import FrontDoorMachine
from wmp.gateways.queue_doors.worker_door_machine import BackDoorMachine
from wmp.gateways.queue_doors.worker_door_wire import Notice, ParanoidDoorWire
from wmp.testing.gateway_worlds.foreign_world import BrokenPromise, ForeignFault, ForeignWorld


def some_world_fails(protocol="paranoid-pirate", seeds=range(3), **settings):
    """Play worlds until one breaks a promise; return its name."""
    for seed in seeds:
        try:
            play(seed, protocol, **settings)
        except BrokenPromise as broken:
            return broken.name
    return None


def ignoring(event, machine):
    """Return ``handle`` of a machine without one kind of event."""
    handle = machine.handle

    def deaf(self, what, now):
        return [] if isinstance(what, event) else handle(self, what, now)

    return deaf


def test_a_door_that_does_not_notice_the_ends_of_connections(monkeypatch):
    monkeypatch.setattr(BackDoorMachine, "handle", ignoring(Left, BackDoorMachine))
    assert some_world_fails("simple-pirate", door={}) in ("served again", "nothing is left")


def test_a_door_that_never_forgets_silent_workers(monkeypatch):
    monkeypatch.setattr(BackDoorMachine, "_watch", lambda *_: None)
    monkeypatch.setattr(BackDoorMachine, "_ring", lambda *_: None)
    world = ForeignWorld(seed=1, clients=2)
    world.run(5.0)
    world.nodes["worker 1"].machine = None  # the machine lost its power
    world.nodes["worker 1"].connection.dead = True
    world.run(30.0)
    assert len(world.back.workers) == 2  # with the safeguard: 1


def test_a_door_that_takes_a_late_worker_for_an_idle_one(monkeypatch):
    table = dict(attendance.TRANSITIONS)
    table[attendance.Attendance.BUSY, attendance.AttendanceInput.INTERRUPT] = (
        attendance.Attendance.IDLE
    )
    monkeypatch.setattr("wmp.gateways.queue_doors.worker_door_machine.TRANSITIONS", table)
    world = ForeignWorld(seed=1, door={"busy_timeout": 1.0})
    world.nodes["worker 1"].slow_until = 20.0
    with pytest.raises(BrokenPromise, match="one request at a time"):
        world.run(20.0)


def test_a_door_that_ignores_tokens(monkeypatch):
    read = BackDoorMachine._reply

    def trusting(self, worker, message, now, actions):
        return read(self, worker, evolve(message, token=None), now, actions)

    monkeypatch.setattr(BackDoorMachine, "_reply", trusting)
    world = ForeignWorld(seed=1, protocol="paranoid-pirate", clients=4, workers=1)
    world.nodes["worker 1"].twice_until = 100.0
    with pytest.raises(BrokenPromise, match=r"is the reply to|a second request"):
        world.run(100.0)


@pytest.mark.parametrize("eager", [False, True])
def test_a_door_that_takes_every_message_of_a_stranger_for_ready(eager, monkeypatch):
    if eager:
        admit = BackDoorMachine._admit

        def admit_all(self, port, peer, message, *others):
            return admit(self, port, peer, evolve(message, meaning=Notice.READY), *others)

        monkeypatch.setattr(BackDoorMachine, "_admit", admit_all)
    world = ForeignWorld(seed=1, workers=1)
    world.run(2.0)
    world._at_gateway(world._epoch, Arrived(1, b"\0stranger", (b"any", b"frames")))
    assert len(world.back.workers) == (2 if eager else 1)


def test_a_door_without_the_bound_of_unanswered_heartbeats():
    maximum = {}
    for bound in (True, False):
        world = ForeignWorld(seed=1, clients=1, workers=1, door={"liveness": 30})
        if not bound:
            arrive = BackDoorMachine._ring

            def flood(self, timer, now, actions, arrive=arrive):
                for worker in self._workers.values():
                    worker.answered = True
                arrive(self, timer, now, actions)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(BackDoorMachine, "_ring", flood)
                maximum[bound] = queued_while_stopped(world)
        else:
            maximum[bound] = queued_while_stopped(world)
    assert maximum[True] <= 2
    assert maximum[False] >= 10


def queued_while_stopped(world):
    """Return how many messages wait for a worker that was stopped for some time."""
    world.asking = False
    world.run(3.0)
    world.max_queued = 0
    world.pause("worker 1", 20.0)
    world.run(15.0)
    return world.nodes["worker 1"].connection.queued


def test_a_client_that_keeps_its_socket(monkeypatch):
    handle = LazyClientMachine.handle

    def lazy(self, event, now):
        actions = handle(self, event, now)
        if any(isinstance(action, Reconnect) for action in actions):
            self._up = {0}
            actions = [action for action in actions if not isinstance(action, Reconnect)]
            if self.state.name == "PENDING":
                self._send(actions)
        return actions

    monkeypatch.setattr(LazyClientMachine, "handle", lazy)
    world = ForeignWorld(seed=1, clients=2, workers=2)
    world.nodes["worker 1"].slow_until = 60.0
    with pytest.raises(BrokenPromise, match=r"is the reply to|a second request"):
        world.run(100.0)


def test_a_worker_that_sends_ready_once(monkeypatch):
    connected = ForeignWorkerMachine._connected

    def once(self, now, actions):
        connected(self, now, actions)
        if getattr(once, "seen", None) is None:
            once.seen = set()
        if id(self) in once.seen:
            actions[:] = [action for action in actions if not isinstance(action, Emit)]
        once.seen.add(id(self))

    monkeypatch.setattr(ForeignWorkerMachine, "_connected", once)
    world = ForeignWorld(seed=1, protocol="simple-pirate")
    world.run(5.0)
    for name in ("worker 1", "worker 2"):
        world.cut(name)
    with pytest.raises(BrokenPromise, match=r"served again|got no reply"):
        world.finish()


def test_a_worker_that_does_not_replace_its_socket(monkeypatch):
    def deaf(self, now, actions):
        return None

    monkeypatch.setattr(ForeignWorkerMachine, "_ticked", deaf)
    monkeypatch.setattr(ForeignWorkerMachine, "deadline", lambda self: None)
    world = ForeignWorld(seed=1, workers=1, clients=1)
    world.run(3.0)
    world.strike([ForeignFault.HALF_OPEN], 1, 0.1)
    with pytest.raises(BrokenPromise):
        world.finish(3.0)


@pytest.mark.parametrize("notices", [True, False])
def test_a_front_door_that_keeps_the_requests_of_clients_that_left(notices, monkeypatch):
    if not notices:
        monkeypatch.setattr(FrontDoorMachine, "handle", ignoring(Left, FrontDoorMachine))
    world = ForeignWorld(seed=1, clients=4, workers=1)
    world.nodes["worker 1"].slow_until = 40.0
    world.run(30.0)
    # Each client has one request at a time, and sends it over a new connection after some time.
    assert (world.gateway.manager.statistics().queued <= 4) is notices


@pytest.mark.parametrize("notices", [True, False])
def test_a_front_door_that_answers_joined_requests_of_clients_that_left(notices, monkeypatch):
    if not notices:
        monkeypatch.setattr(FrontDoorMachine, "handle", ignoring(Left, FrontDoorMachine))
    door = Front(join=True)
    door.get(b"", b"one", peer=b"a")
    assert set(door.settle()) == {1}
    door.feed(Left(0, b"a"))
    door.end(1, b"result")
    assert (door.emitted == []) is notices


def test_a_door_that_gives_a_worker_all_requests_of_a_lane_at_once(monkeypatch):
    def greedy(self, group, worker, now, actions):
        while self._begin(group, worker, now, actions):
            self._busy[worker] = None
        return worker in self._busy

    monkeypatch.setattr(LaneRequests, "begin", greedy)
    world = quick_world(0)
    with pytest.raises(BrokenPromise, match="one request at a time"):
        world.run(1.1)


@pytest.mark.parametrize("hands_back", [True, False])
def test_a_door_that_keeps_the_requests_that_wait_for_a_worker_that_left(hands_back, monkeypatch):
    if not hands_back:
        monkeypatch.setattr(JobLanes, "hand_back", lambda self, group, *_: self._waiting.clear())
    world = quick_world(2, clients=8)
    world.run(1.005)
    for name in ("worker 1", "worker 2"):
        world.kill(name, 0.05)
    world.asking = False
    world.run(3.0)
    assert (world.gateway.manager.statistics().leased == 0) is hands_back


def test_a_door_whose_results_wait_for_a_slow_request(monkeypatch):
    waits = {}
    for timed in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not timed:
                patch.setattr("wmp.gateways.common.job_lanes.REPORT_INTERVAL", 1e9)
            door = Door(ParanoidDoorWire())
            door.get(b"\x01", peer=b"a")
            run_lane(door, 2)
            reply(door, b"a", b"one")
            begin, ends = door.now, lane_ends(door)
            while not ends and door.now < begin + 60.0:
                door.wait(1.0 if door.now > begin + 0.01 else 0.001)
                ends = lane_ends(door)
            waits[timed] = door.now - begin
    assert waits[True] < 0.01
    assert waits[False] >= 60.0
