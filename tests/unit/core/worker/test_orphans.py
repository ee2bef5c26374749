"""A worker whose manager has gone: the jobs of a store go on, and another manager gets them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.worker.workers import finish, give, make, met, reasons, runs, until
from wmp.actions import Interrupt, Note, WorkerAction
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Drained
from wmp.message import Command, Field, Message, Outcome
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import sent

STORE = (b"store", 3)


def stored(worker: WorkerMachine, **more: Any) -> ScriptedManager:
    """Return a manager that serves the store."""
    manager = met(worker, owner=STORE, **more)
    manager.note(manager.pong(serves=(STORE,)))
    return manager


def restarted(worker: WorkerMachine, manager: ScriptedManager, **more: Any) -> list[WorkerAction]:
    """Let another process with the identity of the manager begin; return the worker's actions."""
    heir = ScriptedManager(
        worker, identity=manager.identity, epoch=manager.epoch + 1, owner=STORE, now=manager.now
    )
    actions = heir.pong(serves=(STORE,), **more)
    return actions + heir.pong(serves=(STORE,), **more)


def lists(actions: list[WorkerAction]) -> list[Message]:
    """Return the PINGs about the jobs of the store."""
    return [
        message
        for message in sent(actions, Command.PING)
        if message.fields.get(Field.MANAGER) == STORE
    ]


@pytest.mark.rule("WMP-14.5", "WMP-14.6")
def test_a_job_that_came_with_keep_goes_on_under_another_epoch_of_its_manager():
    worker = make()
    manager = stored(worker)
    (run,) = runs(give(manager, b"job", keep=60_000))

    actions = restarted(worker, manager)

    assert not [action for action in actions if isinstance(action, Interrupt)]
    (ping, *_) = lists(actions)
    assert ping.columns is not None
    assert (list(ping.columns.ids), list(ping.columns.attempts)) == ([1], [1])
    assert ping.fields[Field.SENT] == 0
    assert ping.receiver == manager.identity
    (done,) = sent(finish(worker, run), Command.DONE)
    assert done.fields[Field.MANAGER] == STORE
    assert done.fields[Field.NUMBER] == 1
    assert done.to == (manager.epoch + 1, manager.identity)
    worker.check_invariants()


@pytest.mark.rule("WMP-7.6", "WMP-9.7")
def test_a_job_without_keep_ends_with_its_manager():
    worker = make()
    manager = stored(worker)
    (run,) = runs(give(manager, b"job"))

    actions = restarted(worker, manager)

    assert [interrupt.lane for interrupt in actions if isinstance(interrupt, Interrupt)] == [
        run.lane
    ]
    assert not sent(finish(worker, run), Command.DONE)


@pytest.mark.rule("WMP-14.5")
def test_a_result_that_comes_without_a_manager_waits_for_one():
    worker = make()
    manager = stored(worker)
    (run,) = runs(give(manager, b"job", keep=60_000))
    for _ in until(worker, 8.0):
        worker.check_invariants()

    early = finish(worker, run, now=8.0)
    worker.check_invariants()
    heir = ScriptedManager(worker, identity=b"m2", owner=STORE, serves=(STORE,), now=8.5)
    late = heir.meet()

    assert not sent(early, Command.DONE)
    assert worker.statistics().unacknowledged > 0
    (done,) = sent(late, Command.DONE)
    assert done.columns is not None
    assert (done.columns.ids, done.columns.payloads) == ([1], [b"result"])
    assert done.receiver == b"m2"


@pytest.mark.rule("WMP-14.5")
def test_a_job_that_waits_at_the_worker_is_begun_without_a_manager():
    worker = make(window=4)
    manager = stored(worker)
    (run,) = runs(give(manager, b"1", b"2", keep=60_000))

    actions = restarted(worker, manager)
    (second,) = runs(finish(worker, run))

    assert not [action for action in actions if isinstance(action, Interrupt)]
    assert list(second.ids) == [2]
    worker.check_invariants()


@pytest.mark.rule("WMP-14.5")
def test_jobs_and_results_are_dropped_when_no_manager_comes_in_time():
    worker = make(resources={"slots": 2})
    manager = stored(worker)
    first, two = runs(give(manager, b"1", b"2", keep=2_000))
    finish(worker, first)
    seen = [(now, action) for now, actions in until(worker, 10.0) for action in actions]

    interrupted = [now for now, action in seen if isinstance(action, Interrupt)]
    assert interrupted == [pytest.approx(8.0, abs=0.1)]  # 6 s of silence, and keep
    assert "orphaned for too long" in reasons([action for _, action in seen])
    assert not sent(finish(worker, two, now=10.0), Command.DONE)
    assert worker.statistics().unacknowledged == 0
    worker.check_invariants()


@pytest.mark.rule("WMP-14.6")
def test_a_manager_of_another_store_gets_nothing():
    worker = make()
    manager = stored(worker)
    (run,) = runs(give(manager, b"job", keep=60_000))
    for _ in until(worker, 7.0):
        pass

    other = ScriptedManager(worker, identity=b"m2", now=7.0)
    actions = other.pong(serves=((b"another", 3), (b"store", 4)))
    actions += other.pong(serves=((b"another", 3), (b"store", 4)))

    assert not [ping for ping in sent(actions, Command.PING) if ping.columns is not None]
    assert not sent(finish(worker, run, now=7.0), Command.DONE)


@pytest.mark.rule("WMP-14.4")
def test_a_result_that_is_acknowledged_and_not_stored_is_sent_to_the_successor():
    worker = make()
    manager = stored(worker)
    (run,) = runs(give(manager, b"job", keep=60_000))
    manager.note(finish(worker, run))
    manager.pong(serves=(STORE,), kept=0)
    assert worker.statistics().unacknowledged > 0

    (done,) = sent(restarted(worker, manager), Command.DONE)

    assert done.columns is not None
    assert (done.columns.ids, done.columns.payloads) == ([1], [b"result"])
    worker.check_invariants()


@pytest.mark.rule("WMP-14.4", "WMP-7.2")
def test_a_result_that_is_stored_is_kept_no_longer():
    worker = make()
    manager = stored(worker)
    (run,) = runs(give(manager, b"job", keep=60_000))
    manager.note(finish(worker, run))
    manager.pong(serves=(STORE,), kept=0)
    again = sent(manager.pong(serves=(STORE,), again=True), Command.DONE)

    manager.pong(serves=(STORE,))

    assert again == []  # an acknowledged DONE is not sent again in its session
    assert worker.statistics().unacknowledged == 0
    assert not sent(restarted(worker, manager), Command.DONE)
    worker.check_invariants()


@pytest.mark.rule("WMP-14.9", "WMP-9.9")
def test_lists_are_repeated_and_an_empty_one_is_idle():
    worker = make()
    manager = stored(worker)
    (run,) = runs(give(manager, b"job", keep=60_000))

    held = [ping for _, actions in until(worker, 1.5) for ping in lists(actions)]
    manager.now = 1.6
    manager.note(finish(worker, run, now=1.6))
    manager.pong(serves=(STORE,))
    empty = [ping for _, actions in until(worker, 3.5) for ping in lists(actions)]

    assert held[0].columns is not None
    assert list(held[0].columns.ids) == [1]
    assert empty[0].fields[Field.IDLE] is True
    assert empty[0].fields[Field.SENT] == 1


@pytest.mark.rule("WMP-9.9")
def test_a_manager_without_a_store_gets_the_list_without_an_owner():
    worker = make()
    manager = met(worker)
    give(manager, b"job")

    pings = [p for _, actions in until(worker, 1.5) for p in sent(actions, Command.PING)]

    assert [Field.MANAGER in ping.fields for ping in pings] == [False] * len(pings)
    assert [list(p.columns.ids) for p in pings if p.columns is not None] == [[1]]


@pytest.mark.rule("WMP-14.6", "WMP-6.10")
def test_the_successor_can_cancel_the_jobs_that_it_got():
    worker = make()
    manager = stored(worker)
    (run,) = runs(give(manager, b"job", keep=60_000))
    restarted(worker, manager)
    heir = ScriptedManager(worker, identity=manager.identity, epoch=manager.epoch + 1, owner=STORE)

    actions = heir.cancel(1)

    assert [interrupt.lane for interrupt in actions if isinstance(interrupt, Interrupt)] == [
        run.lane
    ]
    (done,) = sent(finish(worker, run, outcome=Outcome.CANCELLED), Command.DONE)
    assert done.to == (manager.epoch + 1, manager.identity)


@pytest.mark.rule("WMP-14.5")
def test_jobs_move_when_another_manager_answers_in_place_of_theirs():
    worker = make()
    manager = stored(worker)
    give(manager, b"job", keep=60_000)

    heir = ScriptedManager(worker, identity=b"m2", owner=STORE, serves=(STORE,))
    actions = worker.handle(Connected(0), 0.0)
    actions += heir.pong() + heir.pong()

    notes = [(note.reason, note.peer[0]) for note in actions if isinstance(note, Note)]
    assert notes == [("orphan", b"m1"), ("adopt", b"m2")]
    worker.check_invariants()


@pytest.mark.rule("WMP-14.6", "WMP-4.14")
def test_of_one_job_from_two_managers_the_higher_attempt_is_answered():
    worker = make(resources={"slots": 2})
    stored_run = stored(worker)
    two = stored(worker, identity=b"m2")
    (first,) = runs(give(stored_run, b"job", keep=60_000))
    (second,) = runs(give(two, b"job", keep=60_000, attempt=2))
    lost: list[WorkerAction] = []
    for now in (2.0, 4.0, 6.0, 7.0):
        lost += [action for _, actions in until(worker, now) for action in actions]
        two.now = now
        lost += two.pong(serves=(STORE,))
    worker.check_invariants()

    assert [action.lane for action in lost if isinstance(action, Interrupt)] == [first.lane]
    assert not sent(finish(worker, first, now=7.0), Command.DONE)
    (done,) = sent(finish(worker, second, now=7.0), Command.DONE)
    assert done.columns is not None
    assert done.columns.attempts == [2]
    worker.check_invariants()


@pytest.mark.rule("WMP-14.5")
def test_a_worker_that_ends_hands_back_orphaned_jobs_when_a_manager_comes():
    worker = make(window=4)
    manager = stored(worker)
    (run,) = runs(give(manager, b"1", b"2", keep=60_000))
    for _ in until(worker, 7.0):
        pass

    worker.handle(Drained(), 7.0)
    worker.check_invariants()
    heir = ScriptedManager(worker, identity=b"m2", owner=STORE, serves=(STORE,), now=7.0)
    actions = heir.meet()

    (done,) = sent(actions, Command.DONE)
    assert done.columns is not None
    assert (done.columns.ids, done.columns.outcomes) == ([2], [Outcome.CANCELLED])
    assert run.ids == [1]


def taken_over(worker: WorkerMachine, *, last: float, now: float) -> list[WorkerAction]:
    """End the standby of a second manager; the last message of the first one came at ``last``."""
    manager = stored(worker)
    passive = ScriptedManager(worker, identity=b"m2", owner=STORE)
    passive.pong(standby=True)
    passive.pong(standby=True)
    give(manager, b"job", keep=60_000)
    for _ in until(worker, now):
        worker.check_invariants()
    manager.now, passive.now = last, now
    if last:
        manager.pong(serves=(STORE,))
    return passive.pong(serves=(STORE,))


@pytest.mark.rule("WMP-14.5", "WMP-14.6", "WMP-17.4")
def test_a_takeover_moves_the_jobs_of_a_silent_manager_at_once():
    worker = make()
    actions = taken_over(worker, last=0.0, now=2.5)

    (ping, *_) = lists(actions)
    assert ping.receiver == b"m2"
    assert ping.columns is not None
    assert list(ping.columns.ids) == [1]
    worker.check_invariants()


@pytest.mark.rule("WMP-14.5", "WMP-17.4")
def test_a_takeover_moves_no_job_of_a_manager_that_is_not_silent():
    worker = make()
    assert not lists(taken_over(worker, last=2.0, now=2.5))
    worker.check_invariants()


@pytest.mark.rule("WMP-14.5", "WMP-14.6", "WMP-17.4")
def test_a_takeover_moves_the_results_that_are_not_written():
    worker = make()
    manager = stored(worker)
    passive = ScriptedManager(worker, identity=b"m2", owner=STORE)
    passive.pong(standby=True)
    passive.pong(standby=True)
    (run,) = runs(give(manager, b"job", keep=60_000))
    finish(worker, run)
    for _ in until(worker, 2.5):
        worker.check_invariants()
    passive.now = 2.5

    (done,) = sent(passive.pong(serves=(STORE,)), Command.DONE)

    assert done.receiver == b"m2"
    assert done.columns is not None
    assert (done.columns.ids, done.columns.payloads) == ([1], [b"result"])
    worker.check_invariants()
    for _ in until(worker, 9.0):  # the first manager is given up
        worker.check_invariants()


@pytest.mark.rule("WMP-14.10")
def test_known_managers_of_the_store_are_asked_when_jobs_become_orphaned():
    worker = make()
    manager = stored(worker)
    other = stored(worker, identity=b"m2")
    give(manager, b"job", keep=60_000)

    heir = ScriptedManager(worker, identity=manager.identity, epoch=manager.epoch + 1)
    actions = heir.pong()

    assert other.identity in [ping.receiver for ping in sent(actions, Command.PING)]
