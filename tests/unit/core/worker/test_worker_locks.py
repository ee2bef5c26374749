"""The worker machine, rule by rule: locks and held GIVEs (spec §4, §5)."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.unit.core.worker.workers import (
    fields,
    finish,
    give,
    make,
    met,
    only,
    reasons,
    runs,
    until,
)
from wmp.events import Connected, Received, Ticked
from wmp.message import Columns, Command, Field, Outcome
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import sent

# -- §4


@pytest.mark.rule("WMP-4.1")
def test_started_jobs_never_exceed_the_resources():
    worker = make(resources={"slots": 2}, window=4)
    manager = met(worker)
    manager.wake(6)

    started = runs(manager.take(1, *[b"x"] * 6))

    assert len(started) == 2
    assert worker.statistics().parked == 4
    assert len(runs(finish(worker, started[0]))) == 1
    worker.check_invariants()


@pytest.mark.rule("WMP-4.1")
def test_two_managers_never_get_the_same_slot():
    worker = make()
    first, second = met(worker), met(worker, identity=b"m2")
    assert sent(first.wake(), Command.GIVE)
    assert not sent(second.wake(), Command.GIVE)
    assert len(runs(first.take(1))) == 1
    assert worker.statistics().free == {"slots": 0}


@pytest.mark.rule("WMP-4.1")
def test_lock_numbers_grow_over_all_managers():
    worker = make(resources={"slots": 3})
    numbers = [
        only(met(worker, identity=b"m%d" % n).wake(), Command.GIVE).fields[Field.LOCK]
        for n in range(3)
    ]
    assert numbers == sorted(set(numbers))


@pytest.mark.rule("WMP-4.2")
def test_want_exceeds_the_locked_resources_by_the_window():
    worker = make(resources={"slots": 2}, window=3)
    manager = met(worker)

    give = only(manager.wake(9), Command.GIVE)

    assert fields(give, Field.WANT, Field.WINDOW) == (5, 3)
    assert worker.statistics().locked == {"slots": 2}
    assert manager.wake(9)
    assert worker.statistics().locks == 1


@pytest.mark.rule("WMP-4.8")
def test_a_lock_is_looked_up_by_the_peer_that_answers_it():
    worker = make()
    first, second = met(worker), met(worker, identity=b"m2")
    first.wake()

    second.no(1)
    # The lock belongs to the first manager, so the second manager's NO changes nothing.
    assert worker.statistics().locks == 1
    actions = second.take(1)
    assert only(actions, Command.DONE).columns.outcomes == [Outcome.REFUSED]

    (run,) = runs(first.take(1))
    assert run.manager == (b"m1", 1)


@pytest.mark.rule("WMP-4.8")
def test_a_job_is_looked_up_by_its_owner():
    worker = make(resources={"slots": 2})
    manager = met(worker)
    manager.wake(2)
    manager.take(1, more=True, ids=[7])
    manager.owner = (b"far", 3)
    # The id is the same, but with another owner it is another job.
    (run,) = runs(manager.take(1, ids=[7]))

    assert run.manager == (b"far", 3)
    assert only(finish(worker, run), Command.DONE).fields[Field.MANAGER] == (b"far", 3)


@pytest.mark.rule("WMP-4.9")
def test_a_take_closes_its_lock_and_releases_the_rest():
    worker = make(resources={"slots": 3})
    manager = met(worker)
    manager.wake(3)

    actions = manager.take(1)

    assert worker.statistics().locks == 0
    assert worker.statistics().free == {"slots": 2}
    assert only(actions, Command.READY).fields[Field.CREDIT] == 2


@pytest.mark.rule("WMP-4.9")
def test_a_take_with_more_leaves_the_rest_locked():
    worker = make(resources={"slots": 3})
    manager = met(worker)
    manager.wake(3)

    assert not sent(manager.take(1, more=True), Command.READY)
    assert worker.statistics().locks == 1
    assert worker.statistics().free == {"slots": 0}
    assert len(runs(manager.take(1, b"2", b"3"))) == 2
    assert worker.statistics().locks == 0


@pytest.mark.rule("WMP-4.10")
def test_a_no_releases_the_rest_of_the_lock():
    worker = make(resources={"slots": 2})
    manager = met(worker)
    manager.wake(2)
    manager.take(1, more=True)

    actions = manager.no(1)

    assert worker.statistics().free == {"slots": 1}
    assert only(actions, Command.READY).fields[Field.CREDIT] == 1


@pytest.mark.rule("WMP-4.11")
@pytest.mark.parametrize("hold", [0.0, 4.0])
def test_a_lock_without_answer_is_released_5_s_after_its_hold(hold):
    worker = make(hold=hold, lock_timeout=5.0)
    manager = met(worker)
    manager.wake()  # with `hold` the held GIVE is open already
    for now, actions in until(worker, hold + 4.99):
        manager.now = now
        manager.pong()
        assert worker.statistics().free == {"slots": 0}, actions

    timeout = [now for now, _ in until(worker, hold + 5.0)][-1]
    assert timeout == pytest.approx(hold + 5.0)
    assert worker.statistics().dropped.get("lock already released") is None
    manager.now = timeout
    assert reasons(manager.no(1)) == ["lock already released"]


@pytest.mark.rule("WMP-4.11", "WMP-5.4")
def test_a_withdrawn_lock_is_released_5_s_after_its_withdrawal():
    worker = make(hold=20.0, lock_timeout=5.0)
    first = met(worker)
    second = ScriptedManager(worker, identity=b"m2", now=2.0)
    assert fields(only(second.pong(), Command.GIVE), Field.LOCK, Field.WANT) == (1, 0)
    for now, _ in until(worker, 6.99):
        assert worker.statistics().locks == 1
        for manager in (first, second):
            manager.now = now
            manager.pong()

    messages = [message for _, actions in until(worker, 7.0) for message in sent(actions)]

    assert worker.statistics().locks == 0
    assert Command.READY in {message.command for message in messages}


@pytest.mark.rule("WMP-4.11", "WMP-3.5")
def test_a_manager_that_did_not_answer_a_give_gets_a_new_ready():
    """The manager counts the credit as spent, and no other message would correct this."""
    worker = make(resources={"slots": 2}, lock_timeout=5.0)
    first, second = met(worker), met(worker, identity=b"m2")
    give(second)
    assert sent(first.wake(), Command.GIVE)
    messages = []
    for now, actions in until(worker, 5.0):
        first.now = second.now = now
        messages += [message.receiver for message in sent(actions, Command.READY) if message.to]
        for manager in (first, second):
            manager.pong()
    assert messages == [b"m1"]


@pytest.mark.rule("WMP-4.12")
def test_a_take_whose_lock_is_gone_runs_if_there_is_room():
    worker = make()
    manager = met(worker)
    manager.wake()
    manager.no(1)
    assert len(runs(manager.take(1))) == 1
    assert worker.statistics().late == 1


@pytest.mark.rule("WMP-4.12")
def test_a_take_whose_lock_is_gone_is_refused_without_room_each_job_of_it():
    worker = make(resources={"slots": 2})
    first, second = met(worker), met(worker, identity=b"m2")
    first.wake(2)
    first.no(1)
    second.wake()

    actions = first.take(1, b"1", b"2", b"3")

    (run,) = runs(actions)
    done = only(actions, Command.DONE)
    assert (run.ids, done.columns.ids) == ([1], [2, 3])
    assert done.columns.outcomes == [Outcome.REFUSED] * 2
    assert done.columns.payloads == [b"lock expired and no capacity"] * 2
    assert worker.statistics().locks == 1  # the second manager's slot stays reserved


@pytest.mark.rule("WMP-4.12", "WMP-4.2")
def test_a_late_take_runs_on_the_place_of_a_newer_lock_of_its_manager():
    worker = make(hold=5.0)
    manager = met(worker)
    manager.now = 1.0
    worker.handle(Ticked(), 1.0)
    # The PONG is older than the GIVE. So the worker releases the lock, and sends another GIVE.
    assert fields(only(manager.pong(lock=None), Command.GIVE), Field.LOCK) == (2,)

    actions = manager.take(1, b"late")

    assert not sent(actions, Command.DONE)
    (run,) = runs(actions)
    assert worker.statistics().late == 1
    worker.check_invariants()
    # The newer lock keeps its promise: its job waits, and is not refused.
    assert not sent(manager.take(2, b"in time"), Command.DONE)
    assert worker.statistics().parked == 1
    assert len(runs(finish(worker, run))) == 1
    worker.check_invariants()


@pytest.mark.rule("WMP-4.12")
def test_jobs_of_a_take_beyond_its_lock_run_only_if_they_fit():
    worker = make(resources={"slots": 3})
    first, second = met(worker), met(worker, identity=b"m2")
    first.wake()
    second.wake()

    actions = first.take(1, b"1", b"2", b"3")

    # One job uses the lock, one the free place. The third place belongs to the other manager.
    assert [id for run in runs(actions) for id in run.ids] == [1, 2]
    done = only(actions, Command.DONE)
    assert (done.columns.ids, done.columns.outcomes) == ([3], [Outcome.REFUSED])
    assert worker.statistics().locks == 1


@pytest.mark.rule("WMP-4.13")
def test_a_no_is_counted_when_late_and_refused_when_the_lock_never_was():
    worker = make()
    manager = met(worker)
    manager.wake()
    manager.no(1)

    late = manager.no(1)
    assert reasons(late) == ["lock already released"]
    assert not sent(late)

    unknown = only(manager.no(2), Command.ERROR)
    assert fields(unknown, Field.CODE, Field.ABOUT) == ("unknown", Command.NO)
    assert unknown.to == (1, b"m1")


@pytest.mark.rule("WMP-4.14")
@pytest.mark.parametrize("attempt", [1, 2])
def test_a_job_that_is_held_already_is_not_run_twice(attempt):
    worker = make(resources={"slots": 2})
    manager = met(worker)
    manager.wake(2)
    (run,) = runs(manager.take(1, ids=[7], attempt=2, more=True))

    actions = manager.take(1, ids=[7], attempt=attempt)

    assert not runs(actions)
    assert not sent(actions, Command.DONE)
    assert reasons(actions) == ["job held already"]
    assert only(finish(worker, run), Command.DONE).columns.attempts == [2]


@pytest.mark.rule("WMP-4.14")
def test_of_two_entries_of_one_job_in_a_take_the_higher_attempt_counts():
    worker = make(resources={"slots": 2})
    manager = met(worker)
    manager.wake(2)
    columns = Columns([7, 7], [3, 2], payloads=[b"job", b"job"])
    message = manager.compose_take(1, [b"job"], number=1)

    (run,) = runs(manager.send(evolve(message, columns=columns)))

    assert only(finish(worker, run), Command.DONE).columns.attempts == [3]


@pytest.mark.rule("WMP-4.14")
@pytest.mark.parametrize("window", [0, 1])
def test_the_higher_attempt_of_a_job_that_is_held_counts(window):
    worker = make(window=window, resources={"slots": 2 - window})
    manager = met(worker)
    manager.wake(2)
    first = runs(manager.take(1, b"1", b"2", ids=[6, 7]))

    manager.take(9, ids=[7], attempt=3)

    answers = {}
    while first:
        actions = finish(worker, first.pop(0))
        first += runs(actions)
        for done in sent(actions, Command.DONE):
            answers.update(zip(done.columns.ids, done.columns.attempts, strict=True))
    assert answers == {6: 1, 7: 3}


@pytest.mark.rule("WMP-4.15")
def test_a_role_without_a_handler_is_refused():
    worker = make()
    manager = met(worker)
    manager.wake()

    done = only(manager.take(1, role="cook"), Command.DONE)

    assert done.columns.outcomes == [Outcome.REFUSED]
    assert b"cook" in done.columns.payloads[0]
    assert worker.statistics().locks == 0


def test_jobs_that_need_more_than_there_is_are_refused():
    worker = make()
    manager = met(worker)
    manager.wake()
    done = only(manager.take(1, needs={"slots": 2}), Command.DONE)
    assert done.columns.outcomes == [Outcome.REFUSED]
    worker.check_invariants()


def test_jobs_that_need_more_than_their_lock_wait_for_it():
    worker = make(resources={"slots": 2})
    first, second = met(worker), met(worker, identity=b"m2")
    (run,) = runs(first.wake() and first.take(1))
    lock = only(second.wake(), Command.GIVE).fields[Field.LOCK]

    assert not runs(second.take(lock, needs={"slots": 2}))
    assert worker.statistics().parked == 1
    (large,) = runs(finish(worker, run))
    assert dict(large.kind.needs) == {"slots": 2}


# -- §5


@pytest.mark.rule("WMP-5.1")
def test_one_manager_gets_a_held_give_without_wake():
    worker = make(hold=5.0, resources={"slots": 2}, roles=("a", "b"))
    manager = ScriptedManager(worker)

    give = only(manager.meet(), Command.GIVE)

    assert fields(give, Field.WANT, Field.HOLD, Field.ROLES, Field.NEEDS) == (
        2,
        5000,
        ("a", "b"),
        {"slots": 1},
    )


@pytest.mark.rule("WMP-5.1")
def test_a_freed_slot_is_given_at_once():
    worker = make(hold=5.0)
    manager = met(worker)
    (run,) = runs(manager.take(1))
    done, give = sent(finish(worker, run))
    assert (done.command, give.command) == (Command.DONE, Command.GIVE)
    assert give.fields[Field.HOLD] == 5000


@pytest.mark.rule("WMP-5.1")
def test_a_held_give_that_ends_is_renewed():
    worker = make(hold=5.0)
    manager = met(worker)
    manager.now = 4.5
    give = only(manager.no(1), Command.GIVE)
    assert fields(give, Field.LOCK, Field.HOLD) == (2, 5000)


def test_a_manager_that_does_not_hold_is_not_asked_again_and_again():
    worker = make(hold=5.0)
    manager = met(worker)
    manager.now = 0.1

    actions = manager.no(1)
    assert not sent(actions, Command.GIVE)
    manager.pong(credit=0)
    assert not sent(manager.wake() and manager.no(2), Command.GIVE)

    manager.now = 1.2
    assert only(manager.pong(), Command.GIVE).fields[Field.HOLD] == 5000


def test_a_worker_with_a_window_does_not_give_for_every_job():
    worker = make(hold=5.0, window=15, lane_max=1)
    manager = met(worker)
    (run,) = runs(manager.take(1, *[b"x"] * 16))
    gives = []
    for _ in range(12):
        actions = finish(worker, run)
        gives += sent(actions, Command.GIVE)
        (run,) = runs(actions)
    assert [give.fields[Field.WANT] for give in gives] == [4, 4, 4]


def test_a_job_of_an_older_give_starts_on_the_place_that_a_newer_one_holds():
    worker = make(hold=5.0, window=2, resources={"slots": 2}, lane_max=1)
    manager = met(worker)
    waiting = runs(manager.take(1, *[b"x"] * 4))
    gives = []
    while waiting:
        actions = finish(worker, waiting.pop(0))
        waiting += runs(actions)
        gives += [give.fields[Field.LOCK] for give in sent(actions, Command.GIVE)]
    # Locks 2 and 3 promise places of the window, 4 and 5 hold the slots.
    assert gives == [2, 3, 4, 5]

    actions = manager.take(2)

    assert len(runs(actions)) == 1
    assert not sent(actions)  # lock 5 still has its slot
    assert worker.statistics().locked == {"slots": 2}
    worker.check_invariants()
    assert len(runs(manager.take(5))) == 1
    assert not runs(manager.take(4))


@pytest.mark.rule("WMP-5.2")
def test_no_held_give_while_a_wake_is_pending_or_a_second_manager_is_known():
    worker = make(hold=5.0, resources={"slots": 2, "gpu": 1})
    first = met(worker)
    second = met(worker, identity=b"m2")
    assert fields(only(first.no(1), Command.READY), Field.CREDIT) == (2,)
    (run,) = runs(second.wake() and second.take(2))
    assert not sent(finish(worker, run), Command.GIVE)


@pytest.mark.rule("WMP-5.4")
def test_held_gives_are_withdrawn_when_a_second_manager_shows_up():
    worker = make(hold=5.0)
    first = met(worker)
    second = ScriptedManager(worker, b"m2")

    withdrawal = only(second.pong(ready=1, credit=1), Command.GIVE)
    assert withdrawal.to == (1, b"m1")
    assert fields(withdrawal, Field.LOCK, Field.WANT) == (1, 0)
    assert worker.statistics().free == {"slots": 0}  # a TAKE may be on its way

    second.wake()
    assert only(first.no(1), Command.GIVE).to == (1, b"m2")


def test_jobs_that_a_held_give_cannot_bring_call_it_back():
    worker = make(hold=5.0, resources={"slots": 2})
    manager = met(worker)

    actions = manager.wake(needs={"slots": 2})

    assert fields(only(actions, Command.GIVE), Field.LOCK, Field.WANT) == (1, 0)
    give = only(manager.no(1), Command.GIVE)
    assert fields(give, Field.NEEDS, Field.HOLD) == ({"slots": 2}, None)
    (run,) = runs(manager.take(2, needs={"slots": 2}))
    assert only(finish(worker, run), Command.READY).fields[Field.CREDIT] == 2


def test_credit_is_kept_up_beside_held_gives_once_an_interval():
    worker = make(hold=5.0)
    manager = met(worker)
    manager.wake()  # the held GIVE answers this WAKE with credit 0
    assert manager.credit == 0
    (run,) = runs(manager.take(1))
    give = only(finish(worker, run), Command.GIVE)  # the answer to the WAKE; READY is not due
    manager.now = 1.5

    held, ready = sent(manager.no(give.fields[Field.LOCK]))

    assert held.fields[Field.HOLD] == 5000
    assert ready.fields[Field.CREDIT] == 1


def test_ready_of_a_worker_without_slots_counts_the_scarcest_resource():
    worker = make(resources={"gpu": 2, "memory": 64})
    ready = only(worker.handle(Connected(0), 0.0), Command.READY)
    assert ready.fields[Field.CREDIT] == 2


def test_an_event_that_changes_nothing_causes_no_action():
    worker = make(resources={"slots": 2})
    manager = met(worker)
    manager.pong()
    pong = manager.message(Command.PONG, {Field.MAX_SILENCE: 6000, Field.READY: 1, Field.CREDIT: 2})
    assert worker.handle(Received(0, pong), 0.1) == []


@pytest.mark.rule("WMP-5.5")
def test_a_give_that_was_lost_is_found_by_the_next_pong():
    worker = make(hold=5.0)
    manager = met(worker)
    assert worker.statistics().locks == 1
    manager.pong(lock=None)  # this PONG answers a PING that was sent before the GIVE
    assert worker.statistics().locks == 1

    manager.now = 1.0
    assert sent(worker.handle(Ticked(), 1.0), Command.PING)
    actions = manager.pong(lock=None)

    assert reasons(actions) == ["GIVE was lost"]
    again = only(actions, Command.GIVE)  # the freed place is offered again
    assert fields(again, Field.LOCK, Field.WANT) == (2, 1)


@pytest.mark.rule("WMP-5.5")
def test_a_give_that_was_seen_stays_open():
    worker = make(hold=5.0)
    manager = met(worker)
    manager.now = 1.0
    worker.handle(Ticked(), 1.0)
    assert not reasons(manager.pong(lock=1))
    assert worker.statistics().locks == 1
