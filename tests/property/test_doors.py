"""Any frames at the doors of other protocols: no crash, one end for each job, no wrong reply."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.gateways.foreign import Driven
from wmp.actions import End, Interrupt, Resolve, Run
from wmp.events import Cancelled, Finished
from wmp.foreign import Emit, Left, Of, Settled, Staff, Unsent
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.queue_doors.client_door_machine import FrontDoorMachine
from wmp.gateways.queue_doors.settings import BackDoorSettings, Service
from wmp.gateways.queue_doors.worker_door_machine import BackDoorMachine
from wmp.gateways.queue_doors.worker_door_wire import (
    ParanoidDoorWire,
    PingPongDoorWire,
    SimpleDoorWire,
)
from wmp.message import Kind, Outcome

WORDS = (b"", b"\x01", b"\x02", b"READY", b"PING", b"PONG", b"EXIT", b"DISCONNECT", b"a", b"b")
FRAMES = st.lists(st.sampled_from(WORDS) | st.binary(max_size=9), min_size=1, max_size=11).map(
    tuple
)
PEERS = st.sampled_from([b"A", b"B", b"C"])
WIRES = {
    "simple": (SimpleDoorWire, (b"", b"\x01"), None),
    "paranoid": (ParanoidDoorWire, (b"\x01",), 3.0),
    "ping-pong": (PingPongDoorWire, (b"", b"READY"), 3.0),
}
STEPS = st.one_of(
    st.tuples(PEERS, FRAMES),
    st.tuples(PEERS, st.sampled_from(["ready", "reply", "replay", "steal", "leave", "unsent"])),
    st.tuples(st.just(b""), st.sampled_from(["run", "run", "interrupt", "wait"])),
)


@pytest.mark.rule("PIRATE-1.3", "PIRATE-7.2", "PIRATE-7.3", "PING-1.2", "PING-4.3")
@pytest.mark.parametrize("name", WIRES)
@given(steps=st.lists(STEPS, max_size=40))
def test_each_job_ends_once_and_with_the_reply_of_the_worker_that_has_it(name, steps):
    wire, ready, max_silence = WIRES[name]
    settings = BackDoorSettings(epoch=7, max_silence=max_silence, busy_timeout=4.0, max_workers=2)
    door = Driven(BackDoorMachine(wire(), settings))
    kind = Kind("default", codec="frames")
    given_: dict[bytes, tuple[int, tuple[bytes, ...]]] = {}
    """The newest job of each worker, which is the only one of a lane, and its frames."""
    running: set[int] = set()
    lanes = 0
    reported = 0
    for peer, step in steps:
        door.actions = []
        honest = None
        if isinstance(step, tuple):
            door.get(*step, peer=peer)
        elif step == "ready":
            door.get(*ready, peer=peer)
        elif step in ("reply", "replay", "steal") and given_:
            owner = peer if step != "steal" else min(given_)
            if owner in given_:
                lane, frames = given_[owner]
                honest = lane if owner == peer else None
                door.get(*frames[: frames.index(b"body")], b"result", peer=peer)
        elif step == "leave":
            door.feed(Left(0, peer))
        elif step == "unsent":
            door.feed(Unsent(0, peer))
        elif step == "run":
            lanes += 1
            running.add(lanes)
            run = Run(lanes, kind, (b"m", 1), [lanes], [1], None, [b"\x81\x44body"])
            door.feed(Of("workers", run))
        elif step == "interrupt" and running:
            door.feed(Of("workers", Interrupt(min(running), [min(running)])))
        elif step == "wait":
            door.wait(2.5)
        for action in door.actions:
            if isinstance(action, Of):
                action = action.what
            if isinstance(action, Finished):
                running.remove(action.lane)
                if action.outcomes[0] is Outcome.OK and not isinstance(step, tuple):
                    assert action.lane == honest or name == "ping-pong"
                    assert action.payloads[0] == b"\x81\x46result"
                if action.outcomes[0] is Outcome.OK:
                    assert given_[peer][0] == action.lane
            elif isinstance(action, Emit) and b"body" in action.frames:
                given_[action.peer] = (door.machine._workers[action.peer].job, action.frames)
            elif isinstance(action, Staff):
                reported = action.places
        workers = door.machine._workers.values()
        states = [worker.state for worker in workers]
        assert reported == states.count(Attendance.IDLE) + states.count(Attendance.BUSY)
        assert {lane for _, lane in door.machine._requests._lanes} == running
        waiting = door.machine._requests.waiting("workers")
        assert states.count(Attendance.BUSY) + waiting == len(running)
        assert not waiting or Attendance.IDLE not in states
        assert Attendance.UNKNOWN not in states
        assert len(states) <= 2
        idle = {worker.peer for worker in workers if worker.state is Attendance.IDLE}
        assert set(door.machine._idle) == idle


@pytest.mark.rule("PIRATE-7.6", "PIRATE-7.8")
@given(
    steps=st.lists(
        st.tuples(PEERS, FRAMES | st.sampled_from(["leave", "settle", "end", "lose"])), max_size=40
    ),
    join=st.booleans(),
)
def test_each_request_has_one_reply_at_most_and_its_own(steps, join):
    door = Driven(FrontDoorMachine(Service(limit=5, client_limit=3, join=join), count(1)))
    requests: dict[bytes, list[tuple[bytes, ...]]] = {}
    jobs: list[int] = []
    for peer, step in steps:
        door.actions = []
        if step == "leave":
            door.feed(Left(0, peer))
            requests.pop(peer, None)
        elif step in ("end", "lose"):
            if not jobs:
                continue
            job = jobs.pop(len(jobs) // 2)
            end = End.OK if step == "end" else End.LOST
            asker = door.machine._askers.get(job)
            payload = b"\x81\x45reply" if asker is not None and asker.codec else b"reply"
            door.feed(Resolve([job], [end], [payload], [1]))
        elif step == "settle":
            jobs += [id for answer in door.feed(Settled()) for id in answer.ids]
        else:
            door.get(*step, peer=peer)
            if not door.drops:
                requests.setdefault(peer, []).append(step[: step.index(b"") + 1])
        for action in door.actions:
            if isinstance(action, Emit):
                assert step == "end"
                assert action.frames[-1] == b"reply"
                requests[action.peer].remove(action.frames[:-1])
            elif isinstance(action, Cancelled):
                assert step == "leave"
                assert set(action.ids) <= set(jobs)
        machine = door.machine
        assert len(machine._askers) <= 5
        assert machine._bytes.total == sum(answer.size for answer in machine._askers.values())
        listed = sorted(number for numbers in machine._of_peer.values() for number in numbers)
        assert listed == sorted(machine._askers)
