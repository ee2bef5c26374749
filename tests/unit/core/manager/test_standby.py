"""Managers on standby, and workers that know such managers (WMP section 17)."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import submit
from tests.unit.core.worker.workers import fields, finish, make, met, only, runs
from wmp.actions import Halt
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.errors import LocalProtocolError
from wmp.events import Closed, Connected, Drained, Relieved
from wmp.message import Command, Field
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent


@pytest.fixture
def passive():
    settings = ManagerSettings(identity=b"m", epoch=7)
    return ManagerMachine(settings, least_recently_used, standby=True)


# -- the manager


@pytest.mark.rule("WMP-17.1")
def test_a_manager_on_standby_reports_it_in_every_pong_and_wakes_nobody(passive):
    worker = ScriptedWorker(passive)

    actions = worker.ready(4) + worker.ping()

    pongs = sent(actions, Command.PONG)
    assert pongs
    assert [pong.fields.get(Field.STANDBY) for pong in pongs] == [True] * len(pongs)
    assert fields(pongs[-1], Field.READY, Field.CREDIT) == (1, 4)
    assert not sent(actions, Command.WAKE)
    assert not any(Field.SERVES in pong.fields for pong in pongs)


@pytest.mark.rule("WMP-17.1")
def test_a_manager_on_standby_answers_each_give_by_no_at_once(passive):
    worker = ScriptedWorker(passive)
    worker.ready(4)

    for number in (1, 2):
        actions = worker.give(4, hold=5000)
        assert fields(only(actions, Command.NO), Field.LOCK) == (number,)
        assert not sent(actions, Command.TAKE)


@pytest.mark.rule("WMP-17.1")
def test_a_manager_on_standby_takes_no_jobs(passive):
    ScriptedWorker(passive).ready(4)

    with pytest.raises(LocalProtocolError, match="a manager on standby takes no jobs"):
        submit(passive, b"job")


@pytest.mark.rule("WMP-17.1", "WMP-17.2")
def test_the_end_of_the_standby_is_reported_to_every_worker_at_once(passive):
    one_worker, other = ScriptedWorker(passive, b"w1"), ScriptedWorker(passive, b"w2")
    one_worker.ready(1)
    other.ready(1)

    actions = passive.handle(Relieved(), 1.0)

    pongs = sent(actions, Command.PONG)
    assert sorted(bytes(pong.to[-1]) for pong in pongs) == [b"w1", b"w2"]
    assert not any(Field.STANDBY in pong.fields for pong in pongs)
    assert not any(Field.STANDBY in pong.fields for pong in sent(one_worker.ping()))


@pytest.mark.rule("WMP-17.2")
def test_a_manager_after_standby_wakes_and_grants_with_what_it_remembers(passive):
    worker = ScriptedWorker(passive)
    worker.ready(2)
    passive.handle(Relieved(), 1.0)

    (wake,) = sent(submit(passive, b"a", b"b", now=1.0), Command.WAKE)
    (take,) = sent(worker.give(2), Command.TAKE)

    assert wake.fields[Field.COUNT] == 2
    assert take.columns is not None
    assert list(take.columns.ids) == [1, 2]
    assert passive.handle(Relieved(), 2.0) == []  # it ends once


@pytest.mark.rule("WMP-17.1")
@pytest.mark.parametrize("end", [Drained(), Closed()])
def test_a_manager_on_standby_ends_in_order(passive, end):
    ScriptedWorker(passive).ready(1)

    actions = passive.handle(end, 1.0)

    assert [action for action in actions if isinstance(action, Halt)] == [Halt(None)]
    assert passive.handle(Closed(), 2.0) == []


# -- the worker


def alone_on_standby(worker):
    """Return a manager on standby, the only manager that the worker knows."""
    passive = ScriptedManager(worker)
    passive.note(worker.handle(Connected(0), 0.0))
    passive.pong(standby=True)
    passive.pong(standby=True)
    return passive


@pytest.mark.rule("WMP-17.3")
def test_a_manager_on_standby_leaves_held_gives_where_they_are():
    worker = make(hold=5.0, resources={"slots": 2})
    active = met(worker)
    passive = ScriptedManager(worker, b"m2")

    actions = passive.pong(standby=True) + passive.pong(standby=True)

    assert not [give for give in sent(actions, Command.GIVE) if give.to[-1] == b"m1"]
    (run,) = runs(active.take(active.last_lock, b"job"))
    again = only(finish(worker, run), Command.GIVE)
    assert (again.to[-1], again.fields[Field.HOLD]) == (b"m1", 5000)
    worker.check_invariants()


@pytest.mark.rule("WMP-17.3")
def test_a_manager_on_standby_gets_ready_and_no_held_give():
    passive = alone_on_standby(make(hold=5.0))

    actions = passive.pong(standby=True, ready=None)

    assert not sent(actions, Command.GIVE)
    assert only(actions, Command.READY).fields[Field.CREDIT] == 1


@pytest.mark.rule("WMP-17.3")
def test_a_wake_of_a_manager_on_standby_is_a_wake():
    passive = alone_on_standby(make(hold=5.0))

    give = only(passive.wake(), Command.GIVE)
    assert len(runs(passive.take(give.fields[Field.LOCK], b"job"))) == 1


@pytest.mark.rule("WMP-17.4")
def test_the_end_of_a_standby_frees_the_places_that_the_other_manager_held():
    worker = make(hold=5.0, resources={"slots": 2})
    active = met(worker)
    passive = ScriptedManager(worker, b"m2")
    passive.pong(standby=True)
    passive.pong(standby=True)
    assert worker.statistics().free == {"slots": 0}

    actions = passive.pong()

    withdrawal = only(actions, Command.GIVE)
    assert withdrawal.to[-1] == b"m1"
    assert fields(withdrawal, Field.LOCK, Field.WANT) == (active.last_lock, 0)
    assert worker.statistics().free == {"slots": 2}
    assert only(passive.wake(2), Command.GIVE).fields[Field.WANT] == 2
    worker.check_invariants()


@pytest.mark.rule("WMP-17.4")
def test_the_end_of_a_standby_frees_the_places_of_gives_without_hold():
    worker = make(hold=0.0, resources={"slots": 2})
    active = met(worker)
    passive = ScriptedManager(worker, b"m2")
    passive.pong(standby=True)
    passive.pong(standby=True)
    assert only(active.wake(2), Command.GIVE).fields[Field.WANT] == 2  # the manager is killed now
    assert worker.statistics().free == {"slots": 0}

    assert not sent(passive.pong(), Command.GIVE)

    assert worker.statistics().free == {"slots": 2}
    assert only(passive.wake(2), Command.GIVE).fields[Field.WANT] == 2
    worker.check_invariants()


@pytest.mark.rule("WMP-17.4", "WMP-4.12")
def test_a_take_that_crosses_the_end_of_a_standby_runs_or_is_refused():
    worker = make(hold=5.0)
    active = met(worker)
    passive = ScriptedManager(worker, b"m2")
    passive.pong(standby=True)
    passive.pong(standby=True)
    passive.pong()

    assert len(runs(active.take(1, b"job"))) == 1
    assert not runs(active.take(1, b"job"))
    worker.check_invariants()


@pytest.mark.rule("WMP-17.3")
def test_a_manager_that_reports_standby_later_gets_its_held_gives_back():
    worker = make(hold=5.0)
    manager = met(worker)

    withdrawal = only(manager.pong(standby=True), Command.GIVE)

    assert fields(withdrawal, Field.LOCK, Field.WANT) == (1, 0)
    worker.check_invariants()
