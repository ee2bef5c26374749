"""Copies are independent; snapshots are canonical and show all state that matters."""

from __future__ import annotations

import importlib
import pkgutil
from array import array
from collections import Counter, OrderedDict, deque
from types import MethodType

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wmp.core
from tests.unit.core.manager.managers import make
from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.queues import Batch, Queue
from wmp.core.protocol.outbound import Kept
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Received, Ticked
from wmp.message import Command, Field, Kind, Message
from wmp.testing.simulator.network import Network
from wmp.testing.state import manager_state, worker_state
from wmp.testing.state.clone import clone
from wmp.testing.state.manager_state import all_jobs
from wmp.testing.state.snapshots import snapshot

BIG = Kind("default", (("slots", 2),))


def network(start: float = 0.0, jitter: float = 0.0, **options: object) -> Network:
    net = Network(now=start)
    for name in ("m1", "m2"):
        manager = ManagerSettings(identity=name.encode(), epoch=1)
        net.add(name, ManagerMachine(manager, least_recently_used))
    net.add("d", DeviceMachine(DeviceSettings(identity=b"d", epoch=1, upstreams=2)), ["m1", "m2"])
    for name, above in (("w1", ["m1", "m2"]), ("w2", ["d"])):
        worker = WorkerSettings(
            identity=name.encode(),
            epoch=1,
            resources={"slots": 2},
            window=1,
            lane_max=1,
            hold=0.0,
            jitter=jitter,
            **options,
        )
        net.add(name, WorkerMachine(worker, len(above)), above)
        net.connect(name)
    return net


def do(net: Network, choices: list[int]) -> None:
    """Perform the moves that these numbers select. Every move is legal."""
    for choice in choices:
        what, which = choice % 10, choice // 10
        busy, lanes = net.busy(), list(net.running())
        if what < 4 and busy:
            net.deliver(busy[which % len(busy)])
        elif what == 4 and busy:
            net.drop(busy[which % len(busy)])
        elif what == 5 and lanes:
            net.finish(*lanes[which % len(lanes)])
        elif what == 6:
            kind = BIG if which % 3 == 0 else Kind()
            # A TAKE rounds the rest of this time up to milliseconds. So the rest must not be whole.
            timeout = 2.0005 if which % 5 == 0 else None
            net.submit(("m1", "m2")[which % 2], [b"x"] * (1 + which % 3), kind, timeout=timeout)
        elif what == 7:
            net.cancel(("m1", "m2")[which % 2], [1 + which % 5])
        elif what == 8:
            net.advance(net.now + (0.25, 0.7, 1.0, 3.0)[which % 4])
        else:
            net.settle()


CHOICES = st.lists(st.integers(0, 999), max_size=60)


@settings(max_examples=60, deadline=None)
@given(CHOICES, CHOICES)
def test_a_copy_behaves_the_same_and_apart(before, after):
    net = network()
    do(net, before)
    snapshots = {name: snapshot(node, net.now) for name, node in net.nodes.items()}
    copy = clone(net)

    do(net, after)

    for name, node in copy.nodes.items():
        assert snapshot(node, copy.now) == snapshots[name], "what happened here happened there too"
    do(copy, after)
    assert copy.results == net.results
    assert copy.sent == net.sent
    assert copy.drops == net.drops
    for name, node in net.nodes.items():
        assert snapshot(copy.nodes[name], copy.now) == snapshot(node, net.now)
        assert copy.nodes[name].deadline() == node.deadline()
        assert copy.nodes[name].statistics() == node.statistics()


@settings(max_examples=40, deadline=None)
@given(CHOICES, st.sampled_from([0.125, 1.0, 77.75, 4096.0]))
def test_the_same_history_later_has_the_same_snapshots(choices, later):
    first, two = network(), network(later)
    do(first, choices)
    do(two, choices)
    for name, node in first.nodes.items():
        assert snapshot(node, first.now) == snapshot(two.nodes[name], two.now)
        assert hash(snapshot(node, first.now)) == hash(snapshot(two.nodes[name], two.now))


def mutable(root: object) -> dict[int, object]:
    """Return every mutable object that can be reached from an object."""
    shapes: dict[int, object] = {}
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if id(item) in shapes:
            continue
        entity = attrs.has(type(item)) and type(item).__eq__ is object.__eq__
        if entity or isinstance(item, (dict, list, deque, set, array)):
            shapes[id(item)] = item
        if isinstance(item, Kept):
            continue  # the content of a message never changes
        if entity:
            waiting += [getattr(item, a.name) for a in attrs.fields(type(item))]
        elif isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, (list, tuple, deque, set)):
            waiting += item
        elif isinstance(item, MethodType):
            waiting.append(item.__self__)
    return shapes


def rich() -> Network:
    """Return a network in which every table of each machine has an entry."""
    net = network()
    net.settle()
    net.submit("m1", [b"x"] * 6, timeout=9.0)
    net.submit("m2", [b"y"] * 2, BIG)
    net.submit("m2", [b"z"] * 4, priority=2)
    for _ in range(7):
        for pipe in net.busy():
            net.deliver(pipe)
    net.advance(net.now + 0.1)
    return net


def test_a_copy_shares_nothing_that_changes():
    for node in rich().nodes.values():
        copy = clone(node)
        assert not mutable(node).keys() & mutable(copy).keys()
        assert len(mutable(node)) == len(mutable(copy))


def test_payloads_and_messages_are_not_copied():
    net = rich()
    manager = net.nodes["m1"]
    jobs = all_jobs(manager)
    for id, job in all_jobs(clone(manager)).items():
        assert job.payload is jobs[id].payload


def changed(value: object) -> list[object]:
    """Return other values that are legal in place of this value."""
    if isinstance(value, bool):
        return [not value]
    if type(value) is int:
        return [value + 1]
    if isinstance(value, float):
        return [value + 0.0625, value - 0.0625]
    if isinstance(value, str):
        return [value + "x"]
    if isinstance(value, bytes):
        return [value + b"x"]
    if type(value) is tuple and value:
        return [value[:-1]]
    if isinstance(value, (dict, OrderedDict, Counter)) and value:
        return [type(value)(), type(value)(list(value.items())[:-1])]
    if isinstance(value, (list, deque)) and value:
        return [type(value)(list(value)[:-1])]
    return []


LEFT_OUT = {**manager_state.LEFT_OUT, **worker_state.LEFT_OUT}
WITHOUT_EFFECT = {
    # Numbers that are compared with no other number; and ages with a limit.
    "numbers": {
        "RunningLane.number",
        "Lock.number",
        "Give.lock",
        "WaitingBatch.turn",
        "PendingWake.arrival",
        "RemoteWorker.served",
        "RemoteManager.served",
        "Stream.session",
        "Stream.acked",
        "Stream._requested",
        "JobRecord.take",
        "Credit.number",
        "RemoteWorker.ready",
        "RemoteWorker.last_lock",
        "RemoteManager.ready",
        "RemoteManager.last_lock",
        "RemoteManager.pinged_lock",
        "RemoteManager.forgotten",
        "Credit._broadcast",
        "Sessions.last_question",
    },
    "ages": {
        "RemoteManager.hold_after",
        "RemoteManager.announced_at",
        "LinkState.pinged_at",
        "Lock.opened",
        "RemoteManager.sent_at",
        "RemoteManager.confirmed_at",
        "RemoteWorker.confirmed_at",
        "LinkState.refused_at",
    },
    "empty ones are left over": {"Profiles._all"},
    "identities stand as keys": {"RemoteWorker.identity", "Give.worker"},
    "read with their container": {"Give.needs", "Profile.key"},
    "stands with its manager": {
        "HeldJobs.manager",
        "WaitingJobs.held",
        "WaitingJobs.kind",
        "LinkState.index",
    },
    "settings": {"WorkerOutbound.me", "Outbound.me", "Resources.places"},
}


@pytest.mark.parametrize("name", ["m1", "m2", "w1", "w2"])
def test_every_field_changes_the_snapshot_unless_it_is_listed(name):
    """Change one field after the other: the snapshot must differ."""
    net = rich()
    machine = net.nodes[name]
    before = snapshot(machine, net.now)
    blind = set()
    excused = {*LEFT_OUT, *(field for fields in WITHOUT_EFFECT.values() for field in fields)}
    for item in list(mutable(machine).values()):
        forgotten = isinstance(item, Queue) and item not in list(machine._scheduler.queues)
        forgotten = forgotten or (isinstance(item, Batch) and not item.ids)
        if not attrs.has(type(item)) or forgotten:
            continue
        for attribute in attrs.fields(type(item)):
            field = f"{type(item).__name__}.{attribute.name}"
            value = getattr(item, attribute.name)
            for other in changed(value):
                setattr(item, attribute.name, other)
                try:
                    seen = snapshot(machine, net.now) != before
                except (KeyError, IndexError, ValueError, TypeError, AttributeError):
                    seen = True  # the machine cannot have such a state
                setattr(item, attribute.name, value)
                if not seen and field not in excused:
                    blind.add(field)
    assert blind == set()
    assert snapshot(machine, net.now) == before


def test_every_field_on_the_list_of_exceptions_exists():
    names = set()
    for module in pkgutil.walk_packages(wmp.core.__path__, "wmp.core."):
        for item in vars(importlib.import_module(module.name)).values():
            if isinstance(item, type) and attrs.has(item):
                names |= {f"{item.__name__}.{a.name}" for a in attrs.fields(item)}
    assert set(LEFT_OUT) <= names
    assert {field for fields in WITHOUT_EFFECT.values() for field in fields} <= names


def test_statistics_and_leftovers_make_no_difference():
    net = rich()
    manager, worker = net.nodes["m1"], net.nodes["w1"]
    before = snapshot(manager, net.now), snapshot(worker, net.now)

    manager._outbound.dropped["of no interest"] = 7
    manager._timers.set("gone", 99.0)
    manager._timers.clear("gone")
    worker._outbound.dropped["of no interest"] = 7
    worker._outbound.timers.set("gone", 99.0)
    worker._outbound.timers.clear("gone")

    assert (snapshot(manager, net.now), snapshot(worker, net.now)) == before


def test_locks_sessions_and_streams_count_from_where_they_are():
    """A worker has equal snapshots after two jobs and after three jobs.

    Only its numbers are higher.
    """
    net = Network()
    net.add("m1", make(identity=b"m1", epoch=1))
    first = WorkerSettings(identity=b"w1", epoch=1, window=0, lane_max=1, hold=0.0, jitter=0.0)
    net.add("w1", WorkerMachine(first, 1), ["m1"])
    net.connect("w1")
    snapshots, locks, sent = [], [], []
    for _ in range(4):
        net.submit("m1", [b"x"])
        net.run(until=net.now + 40.0)
        worker = net.nodes["w1"]
        snapshots.append(snapshot(worker, net.now))
        locks.append(worker._locks.newest)
        sent.append(worker._links.managers[b"m1"].stream.sent)
    assert snapshots[1] == snapshots[2]
    assert locks[1] < locks[2]
    assert sent[1] < sent[2]


def test_the_time_until_deadlines_changes_the_snapshot():
    net = rich()
    for name in ("m1", "w1"):
        machine = net.nodes[name]
        assert snapshot(machine, net.now) != snapshot(machine, net.now + 0.01)


def test_a_timer_that_rang_makes_a_difference():
    net = rich()
    machine = net.nodes["w1"]
    due = machine.deadline()
    copy = clone(machine)
    copy.handle(Ticked(), due)
    assert snapshot(copy, due) != snapshot(machine, due)
    assert machine.deadline() == due


def test_a_stream_that_begins_is_not_one_that_goes_on():
    """Number 1 opens a session, so it must differ from later numbers."""

    def manager(numbers: list[int]) -> ManagerMachine:
        machine = make(epoch=1)
        source = (b"w", 1)
        ready = {Field.READY: 1, Field.CREDIT: 0, Field.ROLES: ("r",), Field.RESOURCES: {}}
        machine.handle(Received(b"l", Message(Command.READY, (), source, ready)), 0.0)
        for number in numbers:
            machine._workers[b"w"].stream.arrive(number)
        return machine

    assert snapshot(manager([]), 0.0) != snapshot(manager([1]), 0.0)
    assert snapshot(manager([1]), 0.0) != snapshot(manager([1, 2]), 0.0)
    long = manager([1, 2, 3])
    longer = manager([1, 2, 3, 4])
    for machine in (long, longer):
        stream = machine._workers[b"w"].stream
        stream.sent = stream.acked = 5
    assert snapshot(long, 0.0) == snapshot(longer, 0.0)


def test_a_device_has_no_state_but_whether_it_runs():
    device = rich().nodes["d"]
    fresh = DeviceMachine(DeviceSettings(identity=b"d", epoch=1, upstreams=2))
    assert device.statistics() != fresh.statistics()
    assert snapshot(device, 0.0) == snapshot(fresh, 5.0)
    fresh._halted = True
    assert snapshot(device, 0.0) != snapshot(fresh, 0.0)
