"""The manager machine, rule by rule: jobs, READY to TAKE, and leases (spec §3 to §6)."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import lease, make, resolved, submit
from wmp.actions import End, Notify, Resolve
from wmp.balance import in_order, least_recently_used, weighted
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.errors import LocalProtocolError
from wmp.events import Cancelled, Drained, Submitted, Ticked
from wmp.message import Columns, Command, Field, Kind, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent
from wmp.testing.state.manager_state import all_jobs

GPU = Kind("default", (("gpu", 1),))


# -- §3 READY and WAKE


@pytest.mark.rule("WMP-3.3")
def test_a_repeated_or_older_ready_is_ignored_and_a_newer_one_replaces(manager, worker):
    worker.ready(3)
    worker.ready(99, ready=1)
    assert manager.statistics().workers[0].credit == 3

    worker.ready(5, ready=2)
    assert manager.statistics().workers[0].credit == 5

    worker.ready(99, ready=1)
    assert manager.statistics().workers[0].credit == 5
    assert manager.statistics().dropped == {"repeated READY": 2}


@pytest.mark.rule("WMP-3.4")
def test_wake_goes_to_credit_role_and_resources_and_consumes_the_credit(manager):
    poor = ScriptedWorker(manager, b"poor", link=b"1")
    other = ScriptedWorker(manager, b"other", link=b"2", roles=("cook",), resources={"gpu": 9})
    able = ScriptedWorker(manager, b"able", link=b"3", resources={"slots": 4, "gpu": 4})
    full = ScriptedWorker(manager, b"full", link=b"4", resources={"gpu": 1})
    for worker, credit in ((poor, 5), (other, 5), (able, 2), (full, 0)):
        worker.ready(credit)

    (wake,) = sent(submit(manager, b"a", b"b", b"c", kind=GPU), Command.WAKE)

    assert wake.receiver == b"able"
    assert wake.fields[Field.COUNT] == 2  # not 3, because the credit is 2
    assert wake.fields[Field.ROLE] == "default"
    assert wake.fields[Field.NEEDS] == {"gpu": 1}
    credits = {row.identity: row.credit for row in manager.statistics().workers}
    assert credits == {b"poor": 5, b"other": 5, b"able": 0, b"full": 0}


@pytest.mark.rule("WMP-3.5")
def test_one_job_wakes_one_worker_and_each_timeout_doubles(manager):
    for index in range(20):
        ScriptedWorker(manager, b"w%d" % index, link=b"l%d" % index).ready(1)

    woken = [len(sent(submit(manager, b"job"), Command.WAKE))]
    assert woken == [1]
    while wakes := sent(tick(manager), Command.WAKE):
        woken.append(len(wakes))

    assert woken == [1, 1, 2, 4, 8, 4]  # 1, 2, 4, 8 and 16 in all, and then all twenty


def tick(manager):
    due = manager.deadline()
    assert due is not None
    actions = manager.handle(Ticked(), due)
    later = manager.deadline()
    assert later is None or later > due
    return actions


@pytest.mark.rule("WMP-3.6")
def test_ready_while_jobs_wait_is_answered_by_wake_at_once(manager, worker):
    submit(manager, b"a", b"b")

    (wake,) = sent(worker.ready(8), Command.WAKE)
    assert wake.fields[Field.COUNT] == 2

    second = ScriptedWorker(manager, b"w2", link=b"l2")
    assert sent(second.ready(8)) == []  # both credits are already spent on WAKEs


@pytest.mark.rule("WMP-3.7")
def test_the_policy_chooses_and_sees_the_oldest_offer_first():
    seen = []

    def last(jobs, offers):
        seen.append((jobs.role, jobs.count, [offer.identity for offer in offers]))
        return offers[-1:]

    manager = make(last, epoch=1)
    for name in (b"a", b"b", b"c"):
        ScriptedWorker(manager, name, link=name).ready(1)

    (wake,) = sent(submit(manager, b"job"), Command.WAKE)

    assert seen == [("default", 1, [b"a", b"b", b"c"])]
    assert wake.receiver == b"c"


def test_a_policy_that_raises_is_reported_and_jobs_go_on():
    def broken(jobs, offers):
        raise ZeroDivisionError("oops")

    manager = make(broken, epoch=1)
    ScriptedWorker(manager).ready(1)

    assert len(sent(submit(manager, b"job"), Command.WAKE)) == 1
    assert manager.statistics().dropped == {"policy failed": 1}


@pytest.mark.rule("WMP-3.14")
def test_ready_of_no_credit_lets_another_be_woken_at_once(manager, worker):
    second = ScriptedWorker(manager, b"w2", link=b"l2")
    worker.ready(1)
    second.ready(1)
    (wake,) = sent(submit(manager, b"job"), Command.WAKE)
    assert wake.receiver == b"w1"

    (wake,) = sent(worker.ready(0), Command.WAKE)

    assert wake.receiver == b"w2"
    assert sent(submit(manager, b"job"), Command.WAKE) == []  # WAKE does not go to w1


def test_a_policy_that_declines_many_does_not_hide_the_one():
    policy = weighted(lambda offer: 1.0 if offer.identity == b"last" else 0.0)
    manager = make(policy, epoch=1, wake_scan=8)
    for index in range(50):
        ScriptedWorker(manager, b"w%d" % index, link=b"l%d" % index).ready(1)
    ScriptedWorker(manager, b"last", link=b"last").ready(1)

    (wake,) = sent(submit(manager, b"job"), Command.WAKE)
    assert wake.receiver == b"last"


def test_a_policy_that_keeps_the_order_sees_few_of_many_and_no_other_is_asked_less():
    def crowd(policy):
        seen = []

        def watch(jobs, offers):
            seen.append(len(offers))
            return policy(jobs, offers)

        manager = make(watch, epoch=1)
        for index in range(100):
            ScriptedWorker(manager, b"w%d" % index, link=b"l%d" % index).ready(1)
        if getattr(policy, "in_order", False):
            in_order(watch)
        wakes = [sent(submit(manager, *[b"x"] * jobs), Command.WAKE) for jobs in (1, 40)]
        return seen, [[wake.receiver for wake in some] for some in wakes]

    seen, few = crowd(least_recently_used)
    assert seen == [8, 64]
    seen, many = crowd(lambda jobs, offers: least_recently_used(jobs, offers))
    assert seen == [64, 64]
    assert few == many


# -- §4 GIVE, TAKE, NO


@pytest.mark.rule("WMP-4.3")
def test_give_is_served_without_any_ready(manager, worker):
    submit(manager, b"job")

    (take,) = sent(worker.give(1))

    assert take.command is Command.TAKE
    assert list(take.columns.payloads) == [b"job"]


@pytest.mark.rule("WMP-4.4")
def test_give_without_hold_is_answered_at_once(manager, worker):
    (no,) = sent(worker.give(1))
    assert (no.command, no.fields[Field.LOCK]) == (Command.NO, 1)

    submit(manager, b"job")
    (take,) = sent(worker.give(5))
    assert (take.command, take.fields[Field.LOCK]) == (Command.TAKE, 2)
    assert Field.MORE not in take.fields  # no further TAKE follows for this lock


@pytest.mark.rule("WMP-4.5")
def test_a_lock_is_served_once(manager, worker):
    submit(manager, b"a", b"b")
    assert len(sent(worker.give(1, lock=5), Command.TAKE)) == 1

    assert sent(worker.give(1, lock=5)) == []
    assert sent(worker.give(1, lock=4)) == []
    assert manager.statistics().dropped == {"repeated lock": 2}
    assert manager.statistics().queued == 1


@pytest.mark.rule("WMP-4.5")
def test_a_give_that_wants_nothing_withdraws_the_lock(manager, worker):
    assert sent(worker.give(3, hold=5.0)) == []

    (no,) = sent(worker.give(0, lock=1))

    assert (no.command, no.fields[Field.LOCK]) == (Command.NO, 1)
    assert sent(submit(manager, b"job")) == []
    assert sent(worker.give(0, lock=1)) == []  # the lock is closed already


@pytest.mark.rule("WMP-4.6")
def test_take_fits_the_give(manager, worker):
    submit(manager, b"cook it", kind=Kind("cook"))
    submit(manager, b"gpu", kind=GPU)
    submit(manager, b"1", b"2", b"3")

    takes = sent(worker.give(2), Command.TAKE)

    assert [list(take.columns.payloads) for take in takes] == [[b"1", b"2"]]
    assert takes[0].fields[Field.ROLE] == "default"
    assert takes[0].fields[Field.NEEDS] == {"slots": 1}


@pytest.mark.rule("WMP-4.6")
def test_jobs_of_two_roles_come_in_two_takes_of_one_lock(manager):
    worker = ScriptedWorker(manager, roles=("a", "b"))
    submit(manager, b"1", kind=Kind("a"))
    submit(manager, b"2", kind=Kind("b"))

    first, second = sent(worker.give(3), Command.TAKE)

    assert (first.fields[Field.ROLE], first.fields[Field.MORE]) == ("a", True)
    assert (second.fields[Field.ROLE], Field.MORE in second.fields) == ("b", False)
    assert first.fields[Field.LOCK] == second.fields[Field.LOCK] == 1


@pytest.mark.rule("WMP-4.7")
def test_take_names_the_manager(manager, worker):
    take = lease(manager, worker, b"job")
    assert take.fields[Field.MANAGER] == (b"m", 7)


def test_a_long_queue_travels_in_bundles_under_one_lock():
    manager = make(epoch=1, bundle=4)
    worker = ScriptedWorker(manager)
    submit(manager, *[b"x"] * 10)

    takes = sent(worker.give(10), Command.TAKE)

    assert [len(take.columns.ids) for take in takes] == [4, 4, 2]
    assert [take.fields.get(Field.MORE, False) for take in takes] == [True, True, False]


def test_a_bundle_is_bounded_by_bytes_but_never_empty():
    settings = ManagerSettings(identity=b"m", epoch=1, bundle_bytes=100)
    manager = ManagerMachine(settings, least_recently_used)
    submit(manager, b"x" * 500, b"x" * 60, b"x" * 40, b"x")

    takes = sent(ScriptedWorker(manager).give(10), Command.TAKE)

    assert [len(take.columns.ids) for take in takes] == [1, 2, 1]


# -- §5 held GIVE


@pytest.mark.rule("WMP-5.3", "WMP-4.4")
def test_a_held_give_is_served_first_and_answered_before_its_hold_ends(manager, worker):
    second = ScriptedWorker(manager, b"w2", link=b"l2")
    second.ready(1)
    assert sent(worker.give(2, hold=5.0)) == []

    (take,) = sent(submit(manager, b"job"))
    assert (take.receiver, take.command) == (b"w1", Command.TAKE)
    assert take.fields[Field.MORE] is True  # one place is still held

    manager.handle(Ticked(), 4.4)
    assert len(manager._workers[b"w1"].gives) == 1
    (no,) = sent(manager.handle(Ticked(), 4.5), Command.NO)
    assert no.fields[Field.LOCK] == 1


@pytest.mark.rule("WMP-5.3")
def test_a_burst_is_shared_among_held_gives(manager):
    for name in (b"a", b"b"):
        ScriptedWorker(manager, name, link=name).give(100, hold=5.0, window=99)

    takes = sent(submit(manager, *[b"x"] * 10), Command.TAKE)

    assert {take.receiver: len(take.columns.ids) for take in takes} == {b"a": 5, b"b": 5}


# -- §6 jobs and leases


@pytest.mark.rule("WMP-6.1", "WMP-6.4")
def test_the_attempt_grows_with_every_lease_and_a_lost_job_comes_first(manager, worker):
    take = lease(manager, worker, b"job")
    assert list(take.columns.attempts) == [1]
    submit(manager, b"later")

    worker.bye()
    second = ScriptedWorker(manager, b"w2", link=b"l2")
    (take,) = sent(second.give(1), Command.TAKE)

    assert list(take.columns.ids) == [1]
    assert list(take.columns.attempts) == [2]


@pytest.mark.rule("WMP-6.2", "WMP-6.3")
def test_a_result_of_an_old_attempt_is_not_accepted(manager, worker):
    lease(manager, worker, b"job")
    worker.ping(held=[(99, 1)])  # the worker has lost the second job
    (take,) = sent(worker.give(1), Command.TAKE)
    assert list(take.columns.attempts) == [2]

    assert resolved(worker.done([1], attempt=1)) == []
    assert manager.statistics().dropped == {"stale result": 1}
    (pong,) = sent(worker.ping(), Command.PONG)
    assert pong.fields[Field.ACK] == 1  # the refused DONE counts as received

    assert resolved(worker.done([1], [b"second"], attempt=2)) == [(1, End.OK, b"second")]
    assert resolved(worker.done([1], [b"third"], attempt=2)) == []


@pytest.mark.rule("WMP-6.4")
def test_a_job_that_was_lost_too_often_ends_as_lost_with_a_reason(manager):
    submit(manager, b"poison", max_worker_losses=1)
    for index in (1, 2):
        worker = ScriptedWorker(manager, b"w%d" % index, link=b"l%d" % index)
        worker.give(1)
        ends = resolved(worker.bye())

    assert ends == [(1, End.LOST, b"7732\nthe worker sent BYE")]
    assert manager.statistics().leased == 0


@pytest.mark.rule("WMP-6.4", "WMP-6.15")
def test_a_job_lost_at_its_worker_is_tried_again_and_then_lost_with_the_cause(manager, worker):
    lease(manager, worker, b"poison", max_worker_losses=1)
    lease(manager, worker, b"other")
    worker.give(1, hold=5.0)

    (take,) = sent(worker.done([1], [b"killed"], outcome=Outcome.LOST), Command.TAKE)
    assert (take.columns.ids, take.columns.attempts) == ([1], [2])
    assert manager.statistics().requeued == {"lost at the worker": 1}

    # One message has two outcomes of the job: the second names no open lease.
    ends = worker.done([1, 1], [b"killed again", b"x"], outcome=Outcome.LOST, attempt=2)
    (resolve,) = [action for action in ends if isinstance(action, Resolve)]
    assert (resolve.ids, resolve.ends, resolve.attempts) == ((1,), (End.LOST,), (2,))
    assert resolve.payloads == (b"7731\nkilled again",)
    assert manager.statistics().leased == 1


@pytest.mark.rule("WMP-6.12", "WMP-6.15")
def test_a_job_that_is_lost_during_its_cancelling_ends_cancelled(manager, worker):
    lease(manager, worker, b"a")
    manager.handle(Cancelled([1]), 0.0)

    ends = resolved(worker.done([1], [b"killed"], outcome=Outcome.LOST))

    assert ends == [(1, End.CANCELLED, b"")]


@pytest.mark.rule("WMP-6.13")
@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.CANCELLED])
def test_jobs_that_are_queued_again_keep_their_order(manager, worker, outcome):
    lease(manager, worker, b"a", b"b", b"c")
    submit(manager, b"d")

    worker.done([1, 2, 3], outcome=outcome)

    (take,) = sent(worker.give(4), Command.TAKE)
    assert take.columns.ids == [1, 2, 3, 4]


@pytest.mark.rule("WMP-6.5")
def test_a_refusal_is_no_worker_loss_and_waits_for_the_next_report_of_the_worker(manager, worker):
    submit(manager, b"job", max_worker_losses=1)
    (take,) = sent(worker.give(3, hold=5.0), Command.TAKE)
    assert take.fields[Field.MORE] is True  # the lock stays open

    actions = worker.done([1], [b"no capacity"], outcome=Outcome.REFUSED)
    assert resolved(actions) == []
    assert sent(actions) == []  # a job comes neither under that lock nor by a WAKE

    second = ScriptedWorker(manager, b"w2", link=b"l2")
    (take,) = sent(second.give(1), Command.TAKE)
    assert list(take.columns.attempts) == [2]
    # The first worker gets no WAKE either.
    assert sent(second.done([1], outcome=Outcome.REFUSED, attempt=2)) == []

    (take,) = sent(worker.give(1), Command.TAKE)
    assert list(take.columns.attempts) == [3]
    # The job has lost one lease, and survives one loss.
    assert resolved(worker.bye()) == []
    assert manager.statistics().queued == 1


@pytest.mark.rule("WMP-6.8")
def test_a_deadline_ends_the_job_wherever_it_is(manager, worker):
    take = lease(manager, worker, b"leased", timeout=2.0)
    assert list(take.columns.left_ms) == [2000]
    submit(manager, b"queued", timeout=1.0)

    assert [(id, end) for id, end, _ in resolved(tick(manager))] == [(2, End.TIMEOUT)]
    actions = tick(manager)

    assert [(id, end) for id, end, _ in resolved(actions)] == [(1, End.TIMEOUT)]
    (cancel,) = sent(actions, Command.CANCEL)
    assert (list(cancel.columns.ids), list(cancel.columns.attempts)) == ([1], [1])
    assert resolved(worker.done([1])) == []
    assert manager.statistics().leased == manager.statistics().queued == 0


@pytest.mark.rule("WMP-6.7")
def test_time_left_is_of_the_job_not_of_the_lease(manager, worker):
    submit(manager, b"job", timeout=10.0, now=5.0)
    worker.now = 9.0004
    (take,) = sent(worker.give(1), Command.TAKE)
    assert list(take.columns.left_ms) == [6000]  # 5999.6 ms, rounded up


@pytest.mark.rule("WMP-6.9")
def test_status_reaches_the_submitter_and_ends_nothing(manager, worker):
    lease(manager, worker, b"job")
    columns = Columns([1], [1], fractions=[0.5], texts=["half"])

    actions = worker.send(worker.numbered(Command.STATUS, columns))

    assert actions == [Notify(1, 0.5, "half")]
    assert resolved(worker.done([1])) == [(1, End.OK, b"result")]


@pytest.mark.rule("WMP-6.2", "WMP-6.9")
def test_progress_of_an_old_attempt_is_ignored(manager, worker):
    lease(manager, worker, b"job")
    worker.ping(held=[(99, 1)])  # the worker has lost the job
    (take,) = sent(worker.give(1), Command.TAKE)
    assert list(take.columns.attempts) == [2]

    for attempt, reported in ((1, []), (2, [Notify(1, 0.5, "half")])):
        columns = Columns([1], [attempt], fractions=[0.5], texts=["half"])
        assert worker.send(worker.numbered(Command.STATUS, columns)) == reported


@pytest.mark.rule("WMP-6.10", "WMP-6.12")
def test_cancel_in_the_queue_is_definite_at_once(manager, worker):
    submit(manager, b"job")
    assert resolved(manager.handle(Cancelled([1]), 0.0)) == [(1, End.CANCELLED, b"")]
    assert [m.command for m in sent(worker.give(1))] == [Command.NO]


@pytest.mark.rule("WMP-6.10", "WMP-6.12")
def test_cancel_of_a_leased_job_waits_for_the_worker(manager, worker):
    lease(manager, worker, b"job")

    actions = manager.handle(Cancelled([1]), 0.0)
    (cancel,) = sent(actions, Command.CANCEL)
    assert list(cancel.columns.ids) == [1]
    assert resolved(actions) == []
    assert sent(manager.handle(Cancelled([1]), 0.0)) == []  # the manager sends one CANCEL only

    answer = worker.done([1], [b""], outcome=Outcome.CANCELLED)
    assert resolved(answer) == [(1, End.CANCELLED, b"")]
    assert [m.command for m in sent(worker.give(1))] == [Command.NO]


@pytest.mark.rule("WMP-6.10")
def test_a_result_that_is_faster_than_the_cancel_counts(manager, worker):
    lease(manager, worker, b"job")
    manager.handle(Cancelled([1]), 0.0)
    assert resolved(worker.done([1], [b"done"])) == [(1, End.OK, b"done")]


@pytest.mark.rule("WMP-6.10")
def test_a_draining_manager_acknowledges_the_answer_to_a_cancel_that_came_late(manager, worker):
    lease(manager, worker, b"job")
    manager.handle(Cancelled([1]), 0.0)
    manager.handle(Drained(), 0.0)
    worker.done([1], ack=1)  # before the CANCEL arrives
    assert manager.deadline() is not None  # the manager has not ended

    (pong,) = sent(worker.done([1], [b""], outcome=Outcome.CANCELLED, ack=2), Command.PONG)
    assert pong.fields[Field.ACK] == 2
    assert manager.deadline() is None


@pytest.mark.rule("WMP-6.12")
def test_a_cancelled_job_whose_worker_dies_is_not_given_again(manager, worker):
    lease(manager, worker, b"job")
    manager.handle(Cancelled([1]), 0.0)
    assert resolved(worker.bye()) == [(1, End.CANCELLED, b"")]
    assert manager.statistics().queued == 0


@pytest.mark.rule("WMP-6.11")
def test_a_job_handed_back_is_queued_again_and_is_no_worker_loss(manager, worker):
    lease(manager, worker, b"job", max_worker_losses=0)
    assert resolved(worker.done([1], [b""], outcome=Outcome.CANCELLED)) == []

    (take,) = sent(worker.give(1), Command.TAKE)
    assert (list(take.columns.ids), list(take.columns.attempts)) == ([1], [2])


@pytest.mark.rule("WMP-6.13")
def test_order_is_priority_then_age(manager, worker):
    submit(manager, b"1", b"2")
    submit(manager, b"urgent", priority=5)
    submit(manager, b"3")
    submit(manager, b"idle", priority=-1)

    (take,) = sent(worker.give(9), Command.TAKE)

    assert list(take.columns.payloads) == [b"urgent", b"1", b"2", b"3", b"idle"]


@pytest.mark.rule("WMP-6.13")
def test_the_most_urgent_kind_is_given_first(manager):
    worker = ScriptedWorker(manager, roles=("a", "b"))
    submit(manager, b"a1", kind=Kind("a"))
    submit(manager, b"b1", kind=Kind("b"), priority=1)

    (take,) = sent(worker.give(1), Command.TAKE)

    assert list(take.columns.payloads) == [b"b1"]


def test_many_cancellations_travel_in_messages_of_the_allowed_size(manager, worker):
    submit(manager, *[b"x"] * 5000)
    worker.resources = {"slots": 5000}
    worker.ready(0)
    worker.give(5000)
    cancels = sent(manager.handle(Cancelled(range(1, 5001)), 0.0), Command.CANCEL)
    assert [len(cancel.columns.ids) for cancel in cancels] == [4096, 904]


def test_jobs_that_ended_while_they_waited_leave_nothing_behind(manager):
    submit(manager, b"stays")
    for _ in range(1000):
        submit(manager, b"goes")
        manager.handle(Cancelled([manager._scheduler.last_id]), 0.0)
    (queue,) = manager._scheduler.queues
    assert sum(len(line) for line in queue._lines.values()) < 100
    (take,) = sent(ScriptedWorker(manager).give(9), Command.TAKE)
    assert list(take.columns.payloads) == [b"stays"]


@pytest.mark.rule("WMP-6.5")
def test_a_worker_that_keeps_refusing_is_asked_less_and_less_often(manager, worker):
    submit(manager, b"job")
    given = []
    for number in range(1, 70):
        if takes := sent(worker.give(1), Command.TAKE):
            given.append(number)
            attempt = takes[0].columns.attempts[0]
            worker.done([1], outcome=Outcome.REFUSED, attempt=attempt)
    assert given == [1, 2, 4, 8, 16, 32, 64]
    assert not sent(worker.ready(1), Command.WAKE)  # no job may go to this worker yet


@pytest.mark.rule("WMP-6.5")
def test_a_worker_that_refused_is_asked_again_at_its_ping(manager, worker):
    """The worker's capacity is unchanged, so it will send neither READY nor GIVE."""
    submit(manager, b"job")
    worker.ready(2)
    assert sent(worker.give(1), Command.TAKE)
    worker.ready(2)
    assert not sent(worker.done([1], outcome=Outcome.REFUSED), Command.WAKE)

    assert sent(worker.ping(), Command.WAKE)


@pytest.mark.rule("WMP-6.13")
def test_jobs_of_one_queue_keep_their_order_however_they_were_handed_in(manager, worker):
    for number in range(200):  # retries and priorities in turn; sometimes many jobs at once
        payloads = [b"x"] * (1 if number % 7 else 300)
        submit(manager, *payloads, max_worker_losses=number % 3, priority=number % 2)
    last = manager._scheduler.last_id
    manager.handle(Cancelled(range(1, last + 1, 5)), 0.0)
    jobs = all_jobs(manager)
    expected = sorted(jobs, key=lambda id: (-jobs[id].priority, id))

    taken = []
    while takes := sent(worker.give(50), Command.TAKE):
        for take in takes:
            taken += take.columns.ids
            worker.done(take.columns.ids, [b""] * len(take.columns.ids))

    assert taken == expected
    assert len(taken) == last - len(range(1, last + 1, 5))
    assert manager.statistics().queued == manager.statistics().leased == 0


def test_nothing_is_kept_of_batches_whose_jobs_are_gone(manager, worker):
    submit(manager, b"stays", priority=-1)
    for number in range(1000):
        # max_worker_losses differs from job to job, so each job has its own batch.
        submit(manager, b"goes", max_worker_losses=number)
        if number % 2:
            manager.handle(Cancelled([manager._scheduler.last_id]), 0.0)
        else:
            worker.give(1)
    assert len(list(manager._scheduler.queues.batches)) < 200


def test_a_bundle_ends_where_its_bytes_end_also_between_batches():
    settings = ManagerSettings(identity=b"m", epoch=7, bundle_bytes=10)
    manager = ManagerMachine(settings, least_recently_used)
    worker = ScriptedWorker(manager)
    submit(manager, b"1" * 4, b"2" * 4)
    submit(manager, b"3" * 2, b"4" * 20, b"5", max_worker_losses=1)  # a second batch

    takes = sent(worker.give(9), Command.TAKE)

    sizes = [[len(payload) for payload in take.columns.payloads] for take in takes]
    assert sizes == [[4, 4, 2], [20], [1]]


def test_a_cancelled_job_never_granted_ends_once(manager):
    submit(manager, b"1", b"2", b"3")
    actions = manager.handle(Cancelled([2, 2, 9]), 0.0)
    assert resolved(actions) == [(2, End.CANCELLED, b"")]
    assert sorted(all_jobs(manager)) == [1, 3]


def test_a_payload_for_each_job_is_asked_for(manager):
    with pytest.raises(LocalProtocolError, match="2 jobs have 1 payloads"):
        manager.handle(Submitted([1, 2], [b"x"], Kind()), 0.0)
    assert manager.statistics().queued == 0


def test_no_jobs_at_all_are_no_event(manager):
    assert submit(manager) == []
    assert list(manager._scheduler.queues) == []


def test_an_error_reaches_the_submitter(manager, worker):
    lease(manager, worker, b"job")
    assert resolved(worker.done([1], [b"why"], outcome=Outcome.ERROR)) == [(1, End.ERROR, b"why")]
    assert manager.statistics().ended == {End.ERROR: 1}
