"""Pairs of safeguards that repair the same loss, each in the shortest story that needs one of them.

With both safeguards, or with either alone, the story ends well; with neither it does not. Random
worlds rarely produce these stories, so each story is written down as a test without a seed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ablation import manager_side, worker_side
from wmp.actions import Resolve
from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Closed, Received, Submitted
from wmp.message import Command, Kind
from wmp.testing.peers.scripted_worker import ScriptedWorker
from wmp.testing.simulator.network import Network

Switch = Callable[[pytest.MonkeyPatch], None]


def fleet(managers: int, workers: int, **others: int) -> Network:
    """Managers m1, m2, … and workers w1, w2, …; a worker has one place and knows all managers."""
    network = Network()
    names = [f"m{index + 1}" for index in range(managers)]
    for name in names:
        settings = ManagerSettings(identity=name.encode(), epoch=1)
        network.add(name, ManagerMachine(settings, least_recently_used))
    for index in range(workers):
        name = f"w{index + 1}"
        options = WorkerSettings(identity=name.encode(), epoch=1, hold=0.0, window=0, **others)
        network.add(name, WorkerMachine(options, managers), names)
        network.connect(name)
    network.settle()
    return network


def started(network: Network) -> str:
    """Deliver messages until a job runs; return where it runs."""
    while not (lanes := list(network.running())):
        for pipe in network.busy():
            network.deliver(pipe)
    return lanes[0][0]


def dies() -> bool:
    """The worker of a job is killed and never comes back."""
    network = fleet(1, 2)
    network.submit("m1", [b"job"])
    name = started(network)
    network.lanes[name].clear()
    network.down.add(name)
    network.run(network.now + 40.0)
    return ("m1", 1) in network.results


def stalls() -> bool:
    """The process of a worker does not run for longer than ``max_silence``, and beats are sent."""
    network = fleet(1, 2, beat_key=7)
    network.run(2.0)
    network.submit("m1", [b"job"])
    name = started(network)
    worker = network.nodes[name]
    for _ in range(5):  # until the worker has acknowledged the TAKE: nothing is sent again later
        network.advance(network.now + 0.5)
        while pipes := network.busy():
            network.deliver(pipes[0])
    network.down.add(name)
    while network.now < 30.0:
        for _, _, message in worker.beats():
            network.happen("m1", Received(b"the link of the beats", message))
        for pipe in network.busy():
            # Messages to the worker wait in its sockets.
            while network.pipes[pipe] and network.receiver(pipe) != name:
                network.deliver(pipe)
        if any(where != name for where, _ in network.running()):
            return False  # the job runs a second time
        network.advance(network.now + 1.0)
    network.down.discard(name)
    while pipes := network.busy():
        network.deliver(pipes[0])
    network.advance(network.now + 0.5)  # the job goes on after the pause
    if any(lane.cancelled for _, lane in network.running()):
        return False  # the worker has given its manager up
    network.run(40.0)
    return ("m1", 1) in network.results


def resigns() -> bool:
    """The worker of a job is closed while the job runs."""
    network = fleet(1, 2)
    network.submit("m1", [b"job"])
    name = started(network)
    network.happen(name, Closed())
    network.run(network.now + 40.0)
    return ("m1", 1) in network.results


def give_is_lost() -> bool:
    """The GIVE for the only place is lost, and another manager has a job too."""
    network = fleet(2, 1)
    network.submit("m1", [b"job"])
    network.submit("m2", [b"job"])
    while Command.GIVE not in network.sent:
        for pipe in network.busy():
            network.deliver(pipe)
            if Command.GIVE in network.sent:
                break
    network.drop(next(pipe for pipe in network.busy() if pipe[0] == "w1"))
    network.run(network.now + 40.0)
    return len(network.results) == 2


def stays_in_a_ring() -> bool:
    """Two devices are each other's upstream, and a worker below one of them sends READY."""
    network = Network()
    for name, other in (("d1", "d2"), ("d2", "d1")):
        network.add(
            name, DeviceMachine(DeviceSettings(identity=name.encode(), epoch=1, upstreams=1))
        )
        network.uplinks[name] = (other,)
    network.join("d1", 0)
    network.join("d2", 0)
    network.add("w", WorkerMachine(WorkerSettings(identity=b"w", epoch=1), 1), ["d1"])
    network.connect("w")
    try:
        network.settle(budget=200)
    except AssertionError:
        return False
    return True


def result_is_late() -> bool:
    """The result of a lost lease arrives when the same worker has the job again."""
    manager = ManagerMachine(ManagerSettings(identity=b"m", epoch=1), least_recently_used)
    worker = ScriptedWorker(manager)
    manager.handle(Submitted([1], [b"job"], Kind()), 0.0)
    worker.give()
    old = worker.session
    worker.ping(session=0)  # the worker has forgotten the manager: the lease is lost
    worker.give()
    late = worker.done([1], attempt=1, number=1, session=old)
    return not any(isinstance(action, Resolve) for action in late)


STORIES: list[tuple[Callable[[], bool], tuple[Switch, ...]]] = [
    (dies, (manager_side.expiry, worker_side.endless_resends)),
    (stalls, (manager_side.beats,)),
    (stalls, (manager_side.beat_answers,)),
    (resigns, (manager_side.goodbye, manager_side.expiry)),
    (give_is_lost, (worker_side.lock_timeout, worker_side.lost_give)),
    (stays_in_a_ring, (worker_side.loop_check, worker_side.hop_limit, worker_side.path_limit)),
    (result_is_late, (manager_side.fencing, manager_side.session_of_results)),
]
"""A story, and the safeguards of which the story needs one."""


def well(story: Callable[[], bool], *switches: Switch) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        for switch in switches:
            switch(patch)
        return story()


@pytest.mark.parametrize(("story", "switches"), STORIES, ids=[row[0].__name__ for row in STORIES])
def test_a_story_needs_one_of_its_safeguards(story, switches):
    assert well(story)
    if len(switches) > 1:
        assert [well(story, switch) for switch in switches] == [True] * len(switches)
    assert not well(story, *switches)
