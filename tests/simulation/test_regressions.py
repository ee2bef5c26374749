"""Faults that worlds found: for each the shortest conversation, and the seed of the world."""

from __future__ import annotations

from typing import Any

import pytest

from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Submitted, Ticked
from wmp.message import Command, Field, Kind
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent
from wmp.testing.worlds.world import simulate

SEEDS = [
    49,
    373,
    379,
    459,
    610,
    642,
    777,
    1048,
    1382,
    1488,
    5747,
    6793,
    6912,
    7953,
    7999,
    9494,
    10087,
    10106,
    10404,
    10469,
    11054,
    11396,
    12254,
    13815,
    17478,
    18257,
    18348,
    22134,
    37616,
    40276,
    48809,
    67468,
    89602,
]
"""Worlds that broke an invariant once."""


@pytest.mark.parametrize("seed", SEEDS)
def test_worlds_that_broke_an_invariant_once(seed):
    assert simulate(seed).violation is None


def idle_worker(**options: Any) -> tuple[WorkerMachine, ScriptedManager]:
    worker = WorkerMachine(WorkerSettings(identity=b"w1", epoch=1, window=0, **options), 1)
    return worker, ScriptedManager(worker)


def pings(actions: Any) -> list[dict[int | str, Any]]:
    return [dict(message.fields) for message in sent(actions, Command.PING) if message.to]


@pytest.mark.rule("WMP-9.3", "WMP-5.3")
def test_timers_of_one_worker_that_ring_in_one_tick():
    """The worker expires while its held GIVE and its unacknowledged TAKE are due too."""
    settings = ManagerSettings(identity=b"m1", epoch=1)
    manager = ManagerMachine(settings, least_recently_used)
    worker = ScriptedWorker(manager)
    manager.handle(Submitted([1], [b"job"], Kind()), 0.0)
    worker.give(want=3, hold=60.0)
    # The host slept: all timers are due at once.
    manager.handle(Ticked(), 1000.0)
    assert manager.statistics().workers == ()
    assert manager.statistics().queued == 1


def forgotten_session(ack: int) -> tuple[WorkerMachine, ScriptedManager]:
    """A worker that did a job and then received nothing for longer than ``max_silence``."""
    worker, manager = idle_worker(hold=0.0)
    manager.meet()
    give = sent(manager.wake(), Command.GIVE)[0]
    manager.take(give.fields[Field.LOCK])
    for at in range(1, 40):
        manager.now = at / 4
        worker.handle(Ticked(), manager.now)
    assert worker.statistics().managers == ()
    worker.handle(Connected(0), manager.now)
    manager.received = ack
    return worker, manager


@pytest.mark.rule("WMP-7.8")
@pytest.mark.parametrize("ack", [0, 1])
def test_a_session_that_was_forgotten_is_not_entered_again(ack):
    """The PING that reports no session is lost, and the PONG answers another PING."""
    worker, manager = forgotten_session(ack)
    assert Field.SESSION not in pings(manager.pong())[0]  # this PING is lost
    manager.now += 0.5
    manager.pong()  # the answer to a PING without `to`
    (row,) = worker.statistics().managers
    assert row.session is None, "numbers that it knows nothing of were used in that session"
    manager.now += 2.0
    again = pings(worker.handle(Ticked(), manager.now))
    assert again
    assert Field.SESSION not in again[0]
    # The manager opens another session, as the rule requires, and both sides begin at 1.
    manager.session, manager.number, manager.received = 2, 0, 0
    manager.pong()
    assert worker.statistics().managers[0].session == 2


@pytest.mark.rule("WMP-7.8")
def test_a_forgotten_session_is_not_entered_at_a_late_number_1():
    worker, manager = forgotten_session(0)
    manager.pong()
    manager.number = 0
    manager.take(1, ids=[7], ack=0)
    assert worker.statistics().held == 0
    assert worker.statistics().managers[0].session is None


@pytest.mark.rule("WMP-7.8")
def test_a_session_in_which_nothing_was_numbered_is_entered_again():
    """Both streams are still at 1. A new session would lose a lease that is on its way."""
    worker, manager = idle_worker(hold=0.0)
    manager.meet()
    for at in range(1, 40):
        manager.now = at / 4
        worker.handle(Ticked(), manager.now)
    assert worker.statistics().managers == ()
    manager.meet()
    assert worker.statistics().managers[0].session == 1


@pytest.mark.rule("WMP-3.13", "WMP-9.1")
def test_a_lost_wake_is_noticed_under_the_traffic_of_held_gives():
    """The manager spent the credit on a lost WAKE for jobs that no held GIVE can bring."""
    worker, manager = idle_worker(hold=1.0, resources={"slots": 1, "gpu": 1})
    manager.meet()
    pinged, readies, answered = [], [], 0
    for step in range(1, 81):
        manager.now = step / 20
        actions = worker.handle(Ticked(), manager.now)
        if step % 12 == 0 and manager.last_lock > answered:  # each held GIVE is answered by NO
            answered = manager.last_lock
            actions += manager.no(answered)
        if pings(actions):
            pinged.append(manager.now)
            readies += sent(manager.pong(credit=0), Command.READY)
    assert pinged, "nothing asks what the manager remembers"
    assert pinged[0] <= 3.5
    assert readies, "the worker does not report its capacity to the manager"
    assert readies[0].fields[Field.CREDIT] == 1


@pytest.mark.rule("WMP-3.13")
def test_a_lost_wake_is_noticed_although_more_credit_is_remembered_than_there_is_room():
    """The window shrank after READY, and the manager waits for an answer to its WAKE."""
    worker, manager = idle_worker(hold=0.0)
    manager.meet()
    worker._links.managers[b"m1"].announced = 16  # as if READY had been sent with a window
    actions = manager.pong(credit=15)  # the manager spent one credit on a WAKE that was lost
    (ready,) = sent(actions, Command.READY)
    assert ready.fields[Field.CREDIT] == 1
    assert not sent(manager.pong(), Command.READY), "once is enough"
