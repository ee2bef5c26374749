"""The worker machine, rule by rule: liveness, epochs, goodbye (spec §9)."""

from __future__ import annotations

import functools
from itertools import pairwise
from math import inf

import pytest

from tests.unit.core.worker import workers
from tests.unit.core.worker.workers import finish, give, met, reasons, runs, until
from wmp.actions import Halt, Interrupt, Recall, Reconnect, Send
from wmp.events import Connected, Drained, Undelivered
from wmp.message import Command, Field, Outcome
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import sent

make = functools.partial(workers.make, resources={"slots": 2})


@pytest.fixture
def worker():
    return make()


@pytest.fixture
def manager(worker):
    return met(worker)


# -- §9.1 PING


@pytest.mark.rule("WMP-9.1")
def test_a_silent_manager_is_pinged_every_interval(worker, manager):
    times = []
    for now, actions in until(worker, 5.0):
        times += [now for m in sent(actions, Command.PING) if m.to == (1, b"m1")]
        manager.now = now
        manager.note(actions)
        manager.pong()
    assert times == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.rule("WMP-9.1")
def test_a_silent_manager_is_pinged_although_messages_are_sent_to_it(worker, manager):
    """The worker sends a message every 0.4 s, so only the other direction is silent."""
    for tenth in range(4, 13, 4):
        manager_cancel = worker.handle(Connected(0), tenth / 10)
        assert sent(manager_cancel)
    pings = [now for now, actions in until(worker, 1.2) if sent(actions, Command.PING)]
    assert pings == [1.0]


@pytest.mark.rule("WMP-9.1")
def test_a_talking_manager_is_pinged_when_nothing_is_sent_to_it(worker, manager):
    times = []
    for tenth in range(1, 25):
        manager.now = tenth / 10
        manager.no(1, number=0)  # a duplicate, which is not answered
        for now, actions in until(worker, manager.now):
            times += [now for m in sent(actions, Command.PING) if m.to]
    assert times == pytest.approx([1.0, 2.0])


@pytest.mark.rule("WMP-9.1")
def test_the_interval_is_at_most_a_third_of_the_managers_expire(worker, manager):
    manager.max_silence = 1.2
    manager.pong()
    times = []
    for now, actions in until(worker, 2.0):
        times += [now for m in sent(actions, Command.PING) if m.to]
        manager.now = now
        manager.note(actions)
        manager.pong()
    assert times == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])


@pytest.mark.rule("WMP-9.1")
def test_a_link_without_a_manager_is_pinged_for_anyone(worker):
    worker.handle(Connected(0), 0.0)
    times = [0.0]
    for now, actions in until(worker, 2.9):
        times += [now for m in sent(actions, Command.PING) if m.to == ()]
    assert len(times) >= 3
    assert all(0.75 <= later - sooner <= 1.0 for sooner, later in pairwise(times))


@pytest.mark.rule("WMP-9.1")
def test_a_device_is_asked_now_and_then_for_managers_it_has_got_since(worker):
    worker.handle(Connected(0), 0.0)
    manager = ScriptedManager(worker, hops=(b"d", 1, 0))
    manager.pong()
    times = []
    for now, actions in until(worker, 9.5):
        times += [now for m in sent(actions, Command.PING) if m.to == ()]
        manager.now = now
        manager.note(actions)
        manager.pong()
    assert len(times) == 3


@pytest.mark.rule("WMP-9.1")
def test_an_idle_worker_has_timers_only_for_ping_ready_and_links(worker, manager):
    """PING has a timer of one second, the link of three seconds, and READY of 32 seconds."""
    ticks = 0
    for now, actions in until(worker, 100.0):
        ticks += 1
        manager.now = now
        manager.note(actions)
        manager.pong()
    assert ticks <= 100 + 100 + 10


@pytest.mark.rule("WMP-9.9")
def test_a_ping_lists_all_jobs_held_for_the_manager(worker, manager):
    first, _ = runs(give(manager, b"1", b"2", attempt=4))
    finish(worker, first)
    pings = [m for _, actions in until(worker, 1.0) for m in sent(actions, Command.PING) if m.to]
    (ping,) = pings
    # Job 1 is answered, but the manager has not acknowledged the answer.
    assert sorted(zip(ping.columns.ids, ping.columns.attempts, strict=True)) == [(1, 4), (2, 4)]

    manager.now, manager.received = 1.0, 1
    manager.pong()
    (ping,) = [m for _, acts in until(worker, 2.0) for m in sent(acts, Command.PING) if m.to]
    assert list(ping.columns.ids) == [2]


@pytest.mark.rule("WMP-9.9")
def test_ping_has_no_job_list_when_another_manager_owns_jobs(worker, manager):
    manager.owner = (b"far", 1)
    give(manager)
    (ping,) = [m for _, acts in until(worker, 1.0) for m in sent(acts, Command.PING) if m.to]
    assert ping.columns is None
    assert Field.IDLE not in ping.fields


# -- silence


@pytest.mark.rule("WMP-9.14")
def test_a_manager_that_is_silent_for_its_expire_is_given_up(worker, manager):
    (run,) = runs(give(manager))
    manager.wake()
    acts = [(now, a) for now, actions in until(worker, 6.0) for a in actions]
    interrupts = [(now, a) for now, a in acts if isinstance(a, Interrupt)]
    assert interrupts == [(6.0, Interrupt(run.lane, [1]))]
    statistics = worker.statistics()
    assert (statistics.managers, statistics.locks, statistics.held) == ((), 0, 0)
    worker.check_invariants()


@pytest.mark.rule("WMP-9.15")
@pytest.mark.parametrize("max_silence", [0.0, 0.001, 0.3])
def test_a_manager_with_a_short_expire_receives_few_messages(worker, manager, max_silence):
    manager.pong(max_silence=max_silence)
    messages = 0
    for now, actions in until(worker, 3.0):
        manager.now = now
        manager.note(actions)
        messages += len(sent(actions))
        manager.pong(max_silence=max_silence)
    assert worker.statistics().managers != ()
    # One PING every tenth of a second, and few READYs and GIVEs.
    assert 30 <= messages <= 90


@pytest.mark.rule("WMP-9.15")
def test_the_min_silence_is_a_setting():
    worker = make(min_silence=1.2)
    manager = met(worker)
    manager.pong(max_silence=0.0)
    times = [now for now, acts in until(worker, 1.0) for _ in sent(acts, Command.PING)]
    assert times == pytest.approx([0.4, 0.8])


@pytest.mark.rule("WMP-9.14")
def test_an_error_of_a_manager_is_no_sign_of_life(worker, manager):
    for now, _ in until(worker, 6.0):
        manager.now = now
        manager.error("limit")
    assert worker.statistics().managers == ()


def test_a_manager_that_was_given_up_is_met_again(worker, manager):
    list(until(worker, 6.0))
    assert worker.statistics().managers == ()
    worker.handle(Connected(0), 6.1)  # the link has been replaced in between
    manager.now = 6.1
    (ping,) = sent(manager.pong(), Command.PING)
    assert Field.SESSION not in ping.fields
    manager.session = 2
    manager.pong(ready=None)
    assert worker.statistics().managers[0].session == 2


@pytest.mark.rule("WMP-9.4")
def test_a_link_behind_which_all_is_silent_is_replaced_with_backoff(worker, manager):
    times = [now for now, acts in until(worker, 250.0) for a in acts if isinstance(a, Reconnect)]
    waits = [later - sooner for sooner, later in pairwise([0.0, *times])]
    assert waits[:8] == pytest.approx([3, 3 + 1, 3 + 2, 3 + 4, 3 + 8, 3 + 16, 3 + 32, 3 + 32])


@pytest.mark.rule("WMP-9.4")
def test_a_message_ends_the_backoff(worker, manager):
    for now, actions in until(worker, 60.0):
        if [a for a in actions if isinstance(a, Reconnect)]:
            last = now
    worker.handle(Connected(0), last)
    manager.now = last + 0.5
    manager.pong()
    times = [now for now, acts in until(worker, 80.0) for a in acts if isinstance(a, Reconnect)]
    assert times[0] == manager.now + 3.0


@pytest.mark.rule("WMP-9.4")
def test_a_replaced_link_starts_again_with_ready_and_ping(worker, manager):
    list(until(worker, 3.0))
    silent = [a for _, acts in until(worker, 3.9) for a in acts if isinstance(a, Send)]
    assert silent == []  # nothing is sent on a link that is not connected

    actions = worker.handle(Connected(0), 4.0)

    assert [(m.command, m.to) for m in sent(actions)] == [
        (Command.READY, ()),
        (Command.PING, ()),
    ]


@pytest.mark.rule("WMP-9.4")
def test_any_message_on_a_link_keeps_the_link(worker):
    worker.handle(Connected(0), 0.0)
    stranger = ScriptedManager(worker, b"d")
    for now, actions in until(worker, 20.0):
        assert not [a for a in actions if isinstance(a, Reconnect)]
        stranger.now = now
        stranger.error("unreachable")


def test_only_the_silent_link_is_replaced():
    worker = make(2)
    worker.handle(Connected(1), 0.0)
    manager = ScriptedManager(worker)
    manager.meet()
    replaced = set()
    for now, actions in until(worker, 10.0):
        replaced |= {a.link for a in actions if isinstance(a, Reconnect)}
        manager.now = now
        manager.note(actions)
        manager.pong()
    assert replaced == {1}


@pytest.mark.rule("WMP-9.5")
def test_liveness_goes_on_while_a_job_runs(worker, manager):
    give(manager)
    pings = 0
    for now, actions in until(worker, 60.0):
        pings += len([m for m in sent(actions, Command.PING) if m.to])
        manager.now = now
        manager.note(actions)
        manager.pong()
    assert pings >= 59
    assert worker.statistics().running == 1


# -- epochs


@pytest.mark.rule("WMP-9.7")
def test_a_newer_epoch_of_a_manager_replaces_the_older(worker, manager):
    (run,) = runs(give(manager))
    manager.wake()
    new = ScriptedManager(worker, epoch=2)

    actions = new.pong(ready=None)

    assert [a for a in actions if isinstance(a, Interrupt)] == [Interrupt(run.lane, [1])]
    greeting = [m for m in sent(actions) if m.to == (2, b"m1")]
    assert {m.command for m in greeting} == {Command.READY, Command.PING}
    assert worker.statistics().locks == 0
    assert reasons(finish(worker, run)) == ["superseded result"]
    new.pong()
    (again,) = runs(give(new))
    (done,) = sent(finish(worker, again), Command.DONE)
    assert done.fields[Field.NUMBER] == 1


@pytest.mark.rule("WMP-9.8")
def test_superseded_about_another_epoch_of_this_worker_changes_nothing(worker, manager):
    actions = manager.error("superseded", about_peer=(b"w", 4))
    assert reasons(actions) == ["ERROR superseded"]
    assert len(actions) == 1


@pytest.mark.rule("WMP-9.8")
def test_superseded_about_a_managers_epoch_forgets_that_epoch(worker, manager):
    (run,) = runs(give(manager))
    actions = manager.error("superseded", about_peer=(b"m1", 1))
    assert [a for a in actions if isinstance(a, Interrupt)] == [Interrupt(run.lane, [1])]
    assert worker.statistics().managers == ()


# -- routes


@pytest.mark.rule("WMP-9.12")
def test_unreachable_drops_the_route_and_keeps_the_jobs(worker, manager):
    (run,) = runs(give(manager))

    manager.error("unreachable", about_peer=(b"m1", 1))

    assert not worker.statistics().managers[0].reachable
    assert worker.statistics().held == 1
    assert not sent(finish(worker, run), Command.DONE)
    manager.hops = (b"d", 1, 0)
    (done,) = sent(manager.pong(ack=0), Command.DONE)
    assert done.to == (0, 1, b"d", 1, b"m1")


@pytest.mark.rule("WMP-9.21")
def test_a_lock_whose_give_did_not_arrive_is_released(worker, manager):
    manager.wake(2)
    manager.error("unreachable", about_peer=(b"m1", 1), about=Command.GIVE, about_number=1)
    assert worker.statistics().free == {"slots": 2}


@pytest.mark.rule("WMP-9.21")
def test_locks_of_a_manager_end_when_another_answers_in_its_place(worker, manager):
    (run,) = runs(give(manager))
    manager.wake(1)
    worker.handle(Connected(0), 0.1)
    successor = ScriptedManager(worker, identity=b"m2", now=0.2)

    successor.pong()

    assert worker.statistics().free == {"slots": 1}
    old, new = worker.statistics().managers
    assert (old.reachable, old.held, new.reachable) == (False, 1, True)
    manager.now, manager.hops = 0.3, (b"d", 1, 0)  # the manager lives, behind another hop
    manager.pong()
    assert sent(finish(worker, run, now=0.3), Command.DONE)


@pytest.mark.rule("WMP-9.12")
@pytest.mark.parametrize("hops", [(), (b"d", 1, 0)])
def test_locks_stay_when_the_same_manager_answers_or_another_behind_a_device(worker, manager, hops):
    manager.wake(1)
    worker.handle(Connected(0), 0.1)
    if not hops:
        manager.pong()
    ScriptedManager(worker, identity=b"m2", hops=hops, now=0.2).pong()

    assert worker.statistics().locks == 1
    assert worker.statistics().managers[0].reachable


@pytest.mark.rule("WMP-9.21", "WMP-2.7")
def test_misrouted_about_a_manager_ends_its_locks_and_route_and_keeps_its_jobs(worker, manager):
    give(manager)
    manager.wake(1)

    manager.error("misrouted", about_peer=(b"m1", 1))

    assert worker.statistics().free == {"slots": 1}
    assert not worker.statistics().managers[0].reachable
    assert worker.statistics().held == 1


@pytest.mark.rule("WMP-9.12")
def test_an_undelivered_message_is_sent_again_when_the_link_is_back(worker, manager):
    (run,) = runs(give(manager))
    (done,) = sent(finish(worker, run), Command.DONE)
    (drop,) = worker.handle(Undelivered(0, done), 0.0)
    assert (drop.reason, drop.link) == ("undelivered", 0)

    messages = sent(worker.handle(Connected(0), 0.1))

    assert [m.command for m in messages] == [Command.DONE, Command.READY, Command.PING]
    assert messages[0].columns == done.columns


# -- the end


@pytest.mark.rule("WMP-9.10")
def test_a_draining_idle_worker_sends_bye_to_every_manager(worker, manager):
    other = ScriptedManager(worker, b"m2")
    other.meet()
    actions = worker.handle(Drained(), 0.0)
    assert [m.receiver for m in sent(actions, Command.BYE)] == [b"m1", b"m2"]
    assert actions[-1] == Halt(None)
    assert worker.handle(Connected(0), 1.0) == []
    assert worker.deadline() is None


@pytest.mark.rule("WMP-9.10")
def test_a_draining_worker_hands_back_waiting_jobs_and_finishes_running_ones():
    worker = make(window=2, resources={"slots": 1})
    manager = met(worker)
    (run,) = runs(give(manager, b"1", b"2", b"3"))

    actions = worker.handle(Drained(), 0.0)

    (done,) = sent(actions, Command.DONE)
    assert (done.columns.ids, done.columns.outcomes) == ([2, 3], [Outcome.CANCELLED] * 2)
    (ready,) = sent(actions, Command.READY)
    assert (ready.to, ready.fields[Field.CREDIT]) == ((), 0)
    assert not sent(actions, Command.BYE)

    actions = finish(worker, run)
    done, ping = sent(actions)
    assert (done.command, done.columns.ids) == (Command.DONE, [1])
    assert ping.command is Command.PING  # this PING makes the ack come soon
    bye, halt = manager.pong(ack=2)
    assert (bye.message.command, halt) == (Command.BYE, Halt(None))


@pytest.mark.rule("WMP-9.10")
def test_a_draining_worker_does_not_wait_for_a_silent_manager(worker, manager):
    (run,) = runs(give(manager))
    worker.handle(Drained(), 0.0)
    finish(worker, run)
    ended = [now for now, acts in until(worker, 60.0) if Halt(None) in acts]
    assert ended == [6.0]  # twice the time after which results are sent again


@pytest.mark.rule("WMP-9.10")
def test_a_draining_worker_takes_nothing(worker, manager):
    manager.wake()
    (run,) = runs(manager.take(1))
    manager.wake()
    worker.handle(Drained(), 0.0)

    (ready,) = sent(manager.wake())
    assert ready.fields[Field.CREDIT] == 0
    actions = manager.take(2)
    assert not runs(actions)
    (done,) = sent(actions)
    assert done.columns.outcomes == [Outcome.CANCELLED]
    assert worker.handle(Drained(), 0.0) == []
    assert not sent(finish(worker, run), Command.GIVE, Command.READY)


def test_held_gives_are_withdrawn_at_the_end():
    worker = make(hold=5.0)
    manager = met(worker)
    (run,) = runs(manager.take(1, more=True))
    (withdrawal,) = sent(worker.handle(Drained(), 0.0), Command.GIVE)
    assert withdrawal.fields[Field.WANT] == 0
    assert not sent(manager.no(1), Command.GIVE)
    finish(worker, run)
    assert manager.pong(ack=1)[-1] == Halt(None)


# -- §9.22 after a pause of the worker itself


def paused(manager):
    """Return what the worker does with a TAKE that waited in its socket while it was stopped."""
    (message,) = sent(manager.wake(1), Command.GIVE)
    manager.now = 20.0
    return manager.take(message.fields[Field.LOCK], b"old")


@pytest.mark.rule("WMP-9.22")
def test_a_worker_that_was_stopped_asks_before_it_begins_a_job(worker, manager):
    actions = paused(manager)
    assert runs(actions) == []
    (ping,) = questions(actions)
    assert ping.fields[Field.IDLE]
    assert runs(manager.pong()) == []  # a PONG from before the pause is no answer
    (run,) = runs(manager.pong(answer=ping.fields[Field.CHALLENGE]))
    assert list(run.payloads) == [b"old"]


def questions(actions):
    return [message for message in sent(actions, Command.PING) if Field.CHALLENGE in message.fields]


@pytest.mark.rule("WMP-9.22")
def test_the_question_lists_held_jobs_and_is_repeated(worker, manager):
    (first,) = runs(give(manager, b"running"))
    manager.now = 20.0
    (question,) = questions(manager.pong())
    assert list(question.columns.ids) == list(first.ids)
    repeated = [challenge for _, actions in until(worker, 21.5) for challenge in questions(actions)]
    assert repeated
    number = question.fields[Field.CHALLENGE]
    assert {challenge.fields[Field.CHALLENGE] for challenge in repeated} == {number}
    manager.now = 21.5
    manager.pong(answer=number)
    assert not [challenge for _, actions in until(worker, 23.0) for challenge in questions(actions)]


@pytest.mark.rule("WMP-9.22")
def test_a_job_that_the_manager_cancels_meanwhile_never_begins(worker, manager):
    (question,) = questions(paused(manager))
    manager.cancel(1)
    assert runs(manager.pong(answer=question.fields[Field.CHALLENGE])) == []
    assert runs(give(manager, b"later"))


@pytest.mark.rule("WMP-9.22")
def test_a_worker_that_was_not_stopped_asks_nothing(worker, manager):
    for now, actions in until(worker, 30.0):
        assert not [message for message in sent(actions) if Field.CHALLENGE in message.fields]
        manager.now = now
        manager.note(actions)
        manager.pong()
    assert runs(give(manager))


@pytest.mark.rule("WMP-9.22")
def test_jobs_that_wait_on_a_lane_are_recalled_after_a_pause(worker, manager):
    started = runs(give(manager, b"running", b"waiting"))
    manager.now = 20.0
    recalls = [action for action in manager.pong() if isinstance(action, Recall)]
    assert {(run.lane, *run.ids) for run in started} == {(r.lane, *r.ids) for r in recalls}
    assert finish(worker, started[0], now=20.0)


@pytest.mark.rule("WMP-9.22")
def test_jobs_may_begin_until_the_worker_has_been_silent_for_too_long(worker, manager):
    silence = worker.begins_until()
    assert 0 < silence < inf
    manager.now = 1.0
    manager.wake(1)  # which the worker answers
    assert worker.begins_until() == silence + 1.0
    assert make().begins_until() == inf  # no manager could give the worker up
