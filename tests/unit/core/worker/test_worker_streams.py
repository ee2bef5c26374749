"""The worker machine, rule by rule: sessions, numbers, acks, repeats (spec §7)."""

from __future__ import annotations

import functools

import pytest

from tests.unit.core.worker import workers
from tests.unit.core.worker.workers import finish, give, met, reasons, runs
from wmp.actions import Drop, Interrupt
from wmp.events import Connected, Ticked, Undelivered
from wmp.message import Command, Field
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import sent

make = functools.partial(workers.make, resources={"slots": 2})


@pytest.fixture
def worker():
    return make()


@pytest.fixture
def manager(worker):
    return met(worker)


def numbers(actions, command=Command.DONE):
    return [message.fields[Field.NUMBER] for message in sent(actions, command)]


# -- order


@pytest.mark.rule("WMP-7.1")
def test_results_are_numbered_from_1_on_in_the_session(worker, manager):
    first, two = runs(give(manager, b"1", b"2"))
    messages = sent(finish(worker, first), Command.DONE) + sent(finish(worker, two), Command.DONE)
    assert [m.fields[Field.NUMBER] for m in messages] == [1, 2]
    assert {m.fields[Field.SESSION] for m in messages} == {1}


@pytest.mark.rule("WMP-7.1")
def test_a_duplicate_is_dropped(worker, manager):
    give(manager)
    actions = manager.take(1, ids=[9], number=1)
    assert reasons(actions) == ["duplicate"]
    assert not runs(actions)
    assert worker.statistics().held == 1


@pytest.mark.rule("WMP-7.1")
def test_a_gap_is_asked_for_once_and_nothing_in_it_is_accepted(worker, manager):
    manager.wake(2)
    actions = manager.take(1, number=2)
    assert not runs(actions)
    assert reasons(actions) == ["gap"]
    (ping,) = sent(actions)
    assert (ping.command, ping.to) == (Command.PING, (1, b"m1"))
    assert ping.fields[Field.AGAIN] is True
    assert (ping.fields[Field.ACK], ping.fields[Field.SESSION]) == (0, 1)

    again = manager.no(1, number=3)
    assert reasons(again) == ["ahead"]
    assert not sent(again)
    assert worker.statistics().locks == 1

    assert runs(manager.take(1, number=1, ids=[1]))


@pytest.mark.rule("WMP-7.2")
def test_acks_ride_on_every_message_with_a_receiver(worker, manager):
    messages = sent(give(manager))  # READY with the remaining credit
    messages += sent(manager.wake())  # GIVE
    messages += sent(manager.cancel(99))  # DONE
    messages += sent(worker.handle(Ticked(), 1.0))  # PING
    directed = [message for message in messages if message.to]
    assert {m.command for m in directed} >= {
        Command.READY,
        Command.GIVE,
        Command.DONE,
        Command.PING,
    }
    for message in directed:
        assert message.fields[Field.SESSION] == 1
        assert message.fields[Field.ACK] == (2 if message.command in (6, 9) else 1)


@pytest.mark.rule("WMP-7.2")
def test_an_ack_covers_a_message_that_was_refused(worker, manager):
    manager.no(99)
    (ping,) = sent(worker.handle(Ticked(), 1.0), Command.PING)
    assert ping.fields[Field.ACK] == 1


@pytest.mark.rule("WMP-7.4")
def test_an_ack_for_a_number_never_sent_is_ignored(worker, manager):
    (run,) = runs(give(manager))
    finish(worker, run)
    manager.pong(ack=7)
    assert numbers(manager.pong(again=True, ack=0)) == [1]


# -- sending again


@pytest.mark.rule("WMP-7.3")
def test_again_sends_all_that_is_not_acknowledged_in_order(worker, manager):
    for _ in range(3):
        (run,) = runs(give(manager))
        finish(worker, run)
    assert numbers(manager.pong(again=True, ack=1)) == [2, 3]
    assert numbers(manager.pong(again=True, ack=3)) == []


@pytest.mark.rule("WMP-7.3")
def test_a_new_route_gets_all_that_is_not_acknowledged():
    worker = make(2)
    manager = ScriptedManager(worker)
    manager.meet()
    worker.handle(Connected(1), 0.0)
    (run,) = runs(give(manager))
    finish(worker, run)
    manager.link, manager.hops = 1, (b"d", 3, b"x")
    (challenge,) = sent(manager.pong(ack=0))

    actions = worker.handle(Undelivered(0, challenge), 0.0)

    (done,) = sent(actions, Command.DONE)
    assert done.to == (b"x", 3, b"d", 1, b"m1")
    assert {a.link for a in actions if not isinstance(a, Drop)} == {1}
    # Nothing is sent again, because the route is the same.
    assert numbers(manager.pong(ack=0)) == []


@pytest.mark.rule("WMP-7.3")
def test_a_result_unacknowledged_for_3_s_is_sent_again(worker, manager):
    (run,) = runs(give(manager))
    finish(worker, run, now=0.5)
    resent = []
    while (due := worker.deadline()) <= 8.0:
        actions = worker.handle(Ticked(), due)
        resent += [(due, number) for number in numbers(actions)]
        manager.now = due
        manager.pong(ack=0)
    assert resent == [(3.5, 1), (6.5, 1)]


# -- sessions


@pytest.mark.rule("WMP-7.6")
def test_a_newer_session_forgets_locks_jobs_and_results_of_the_old(worker, manager):
    (first,) = runs(give(manager))
    finish(worker, first)
    (run,) = runs(give(manager))
    manager.wake()
    manager.session, manager.number = 2, 0

    actions = manager.pong(ready=None, ack=0)

    assert [a for a in actions if isinstance(a, Interrupt)] == [Interrupt(run.lane, [2])]
    assert "lost session" in reasons(actions)
    statistics = worker.statistics()
    assert (statistics.held, statistics.locks, statistics.unacknowledged) == (0, 0, 0)
    assert statistics.free == {"slots": 1}  # an interrupted job still has its slot

    late = finish(worker, run)
    assert not sent(late, Command.DONE)
    assert reasons(late) == ["superseded result"]
    assert worker.statistics().free == {"slots": 2}
    (again,) = runs(give(manager))
    assert numbers(finish(worker, again)) == [1]


@pytest.mark.rule("WMP-7.6")
def test_parked_jobs_of_an_old_session_never_run():
    worker = make(window=2, resources={"slots": 1})
    manager = met(worker)
    (run,) = runs(give(manager, b"1", b"2"))
    manager.session, manager.number = 2, 0
    manager.pong()
    assert not runs(finish(worker, run))
    assert worker.statistics().parked == 0


@pytest.mark.rule("WMP-7.6")
def test_a_message_of_an_older_session_is_dropped(worker, manager):
    manager.session = 2
    manager.pong()
    for send in (
        lambda: manager.take(1, session=1, number=1),
        lambda: manager.no(1, session=1, number=1),
        lambda: manager.pong(session=1, again=True),
    ):
        actions = send()
        assert reasons(actions) == ["old session"]
        assert len(actions) == 1


@pytest.mark.rule("WMP-7.6")
def test_a_newer_session_may_begin_with_its_first_take(worker, manager):
    manager.wake()
    manager.session = 2
    (run,) = runs(manager.take(1, number=1))
    assert worker.statistics().late == 1  # the lock belonged to the old session
    assert numbers(finish(worker, run)) == [1]


@pytest.mark.rule("WMP-7.6")
@pytest.mark.parametrize(("number", "ack"), [(1, 3), (2, 0), (2, 3)])
def test_every_message_of_a_newer_session_leads_into_it(worker, manager, number, ack):
    manager.session = 2

    actions = manager.take(1, number=number, ack=ack)

    assert worker.statistics().managers[0].session == 2
    assert bool(runs(actions)) is (number == 1)
    assert [ping.fields[Field.SESSION] for ping in sent(actions, Command.PING)] == [2] * (
        number - 1
    )


@pytest.mark.rule("WMP-7.6")
def test_a_wake_and_a_lock_from_before_the_first_session_stay():
    worker = workers.make()
    worker.handle(Connected(0), 0.0)
    manager = ScriptedManager(worker, session=4)
    assert sent(manager.wake(session=None, ack=None), Command.GIVE)
    manager.wake(session=None, ack=None)

    (run,) = runs(manager.take(1, number=1))

    assert worker.statistics().managers[0].session == 4
    assert worker.statistics().late == 0
    assert sent(finish(worker, run), Command.GIVE)


@pytest.mark.rule("WMP-7.8", "WMP-7.16")
def test_a_worker_without_a_session_pings_without_a_session_at_a_later_number(worker):
    worker.handle(Connected(0), 0.0)
    manager = ScriptedManager(worker, session=4)

    actions = manager.take(1, number=5)

    assert not runs(actions)
    assert reasons(actions) == ["unknown session"]
    (ping,) = sent(actions, Command.PING)
    assert ping.to == (1, b"m1")
    assert Field.SESSION not in ping.fields

    manager.session, manager.number = 5, 0
    manager.pong(ack=0)
    assert worker.statistics().managers[0].session == 5


@pytest.mark.rule("WMP-7.8")
def test_a_session_found_by_discovery_is_not_taken_for_a_new_one(worker):
    """The answer to a PING without receiver may name a session that the worker has forgotten."""
    worker.handle(Connected(0), 0.0)
    manager = ScriptedManager(worker, session=4)

    (ping,) = sent(manager.pong(), Command.PING)

    assert Field.SESSION not in ping.fields
    assert worker.statistics().managers[0].session is None
    manager.pong()
    assert worker.statistics().managers[0].session == 4


@pytest.mark.rule("WMP-7.8")
def test_a_session_begins_with_number_1_when_nothing_was_acknowledged(worker):
    worker.handle(Connected(0), 0.0)
    manager = ScriptedManager(worker, session=4)
    actions = manager.take(1, number=1)
    assert runs(actions)
    assert not sent(actions, Command.PING)

    other = ScriptedManager(worker, b"m2", session=4)
    # The manager has results of a session that the worker has forgotten.
    actions = other.take(1, number=1, ack=3)
    assert not runs(actions)
    assert sent(actions, Command.PING)


@pytest.mark.rule("WMP-7.9")
def test_results_are_kept_until_they_are_acknowledged(worker, manager):
    (run,) = runs(give(manager))
    finish(worker, run, payload=b"x" * 1000)
    assert worker.statistics().unacknowledged >= 1000
    manager.pong(ack=0)
    assert worker.statistics().unacknowledged >= 1000
    manager.pong(ack=1)
    assert worker.statistics().unacknowledged == 0


@pytest.mark.rule("WMP-7.9")
def test_too_many_kept_results_close_the_room_until_they_are_acknowledged():
    worker = make(unacked_bytes=1000)
    manager = met(worker)
    (run,) = runs(give(manager))
    manager.received = 0

    actions = finish(worker, run, payload=b"x" * 1000)
    assert not sent(actions, Command.READY)
    (ready,) = sent(manager.wake(), Command.READY)
    assert ready.fields[Field.CREDIT] == 0

    (give_,) = sent(manager.pong(ack=1), Command.GIVE)  # the worker has kept the WAKE
    assert give_.fields[Field.WANT] == 1


@pytest.mark.rule("WMP-7.9")
def test_results_are_dropped_after_expire_of_silence(worker, manager):
    (run,) = runs(give(manager))
    finish(worker, run)
    dropped = []
    while (due := worker.deadline()) <= 6.0:
        dropped += [a for a in worker.handle(Ticked(), due) if isinstance(a, Drop)]
    assert [(d.reason, d.detail) for d in dropped] == [
        ("lost session", "lost with the session: 0 jobs and 1 unacknowledged message")
    ]
    assert worker.statistics().unacknowledged == 0


# -- entering a session


@pytest.mark.rule("WMP-7.10")
def test_a_worker_without_a_session_names_none(worker):
    manager = ScriptedManager(worker)
    worker.handle(Connected(0), 0.0)

    messages = sent(manager.wake(session=None, ack=None))

    assert {message.command for message in messages} == {Command.GIVE, Command.PING}
    assert all(not {Field.SESSION, Field.ACK} & message.fields.keys() for message in messages)


@pytest.mark.rule("WMP-7.10")
def test_the_pong_that_answers_a_ping_without_session_names_the_session(worker):
    manager = ScriptedManager(worker, session=4)
    worker.handle(Connected(0), 0.0)
    (ping,) = [m for m in sent(manager.pong(), Command.PING) if m.to]
    assert Field.SESSION not in ping.fields

    manager.pong()

    (give,) = sent(manager.wake(), Command.GIVE)
    assert give.fields[Field.SESSION] == 4


@pytest.mark.rule("WMP-7.10")
@pytest.mark.parametrize(("number", "ack", "enters"), [(1, 0, True), (1, 3, False), (2, 0, False)])
def test_a_worker_enters_a_session_at_its_number_1(worker, number, ack, enters):
    manager = ScriptedManager(worker, identity=b"new", session=4)
    worker.handle(Connected(0), 0.0)

    started = runs(manager.take(9, number=number, ack=ack))

    assert bool(started) is enters
