"""A worker hands jobs back that have waited too long, so that others can do them (WMP-6.18)."""

from __future__ import annotations

import pytest

from tests.unit.core.worker.workers import finish, give, make, met, only, runs, until
from wmp.actions import Recall
from wmp.core.worker.timers import PatienceTimer
from wmp.events import Recalled
from wmp.message import Command, Field, Outcome
from wmp.testing.peers.scripted_worker import sent

pytestmark = pytest.mark.rule("WMP-6.18")


def quick(**options):
    """Return a worker and its manager. The worker has done a quick job, so jobs may wait at it."""
    worker = make(**{"window": None, "lane_max": 1, "patience": 0.25, **options})
    manager = met(worker)
    for run in runs(give(manager)):
        finish(worker, run)
    return worker, manager


def taken(manager, count, **changes):
    """Send as many jobs as the worker has capacity for; return the worker's actions."""
    (lock,) = sent(manager.wake(count, **changes), Command.GIVE)
    assert lock.fields[Field.WANT] == count
    return runs(manager.take(lock.fields[Field.LOCK], *[b"job"] * count, **changes))


def handed_back(actions):
    return [
        id
        for done in sent(actions, Command.DONE)
        for id, outcome in zip(done.columns.ids, done.columns.outcomes, strict=True)
        if outcome == Outcome.CANCELLED
    ]


def at(worker, end):
    """Return the worker's actions at all its deadlines until ``end``."""
    return [action for _, actions in until(worker, end) for action in actions]


def test_jobs_that_waited_too_long_are_handed_back_and_the_window_closes():
    worker, manager = quick()
    (run,) = taken(manager, 10)
    assert list(run.ids) == [2]
    assert handed_back(at(worker, 0.249)) == []

    actions = at(worker, 0.25)

    assert handed_back(actions) == list(range(3, 12))
    assert only(actions, Command.READY).fields[Field.CREDIT] == 0
    assert worker.statistics().parked == 0
    worker.check_invariants()


def test_jobs_that_arrive_while_none_can_start_are_handed_back_in_time():
    worker, manager = quick()
    taken(manager, 1)
    manager.now = 1.0
    assert taken(manager, 5) == []

    handed = [(now, handed_back(actions)) for now, actions in until(worker, 1.3)]

    assert [(now, jobs) for now, jobs in handed if jobs] == [(1.25, [3, 4, 5, 6, 7])]
    worker.check_invariants()


def test_the_window_opens_again_once_a_job_has_ended():
    worker, manager = quick()
    (run,) = taken(manager, 10)
    at(worker, 0.25)
    manager.now = 0.3
    assert only(manager.wake(5), Command.READY).fields[Field.CREDIT] == 0

    (ready,) = sent(finish(worker, run, now=0.0), Command.READY)

    assert ready.fields[Field.CREDIT] > 1


def test_jobs_that_their_lane_has_not_begun_are_recalled_and_handed_back():
    worker, manager = quick(lane_max=512)
    (run,) = taken(manager, 10)
    assert list(run.ids) == list(range(2, 12))

    (recall,) = [action for action in at(worker, 0.25) if isinstance(action, Recall)]
    assert (recall.lane, list(recall.ids)) == (run.lane, list(run.ids))
    actions = worker.handle(Recalled(run.lane, run.ids[1:]), 0.3)

    assert handed_back(actions) == list(run.ids[1:])
    assert [a for a in at(worker, 0.9) if isinstance(a, Recall)] == [], "once is enough"
    ended = sent(finish(worker, run, [2], now=0.9), Command.DONE)
    assert [list(done.columns.ids) for done in ended] == [[2]]


def test_a_worker_that_ends_jobs_keeps_the_waiting_ones():
    worker, manager = quick(lane_max=512)
    (run,) = taken(manager, 10)
    for index, id in enumerate(run.ids[:-1], 1):
        actions = at(worker, index * 0.2)
        assert not [action for action in actions if isinstance(action, Recall)]
        assert handed_back(actions) == []
        finish(worker, run, [id], now=index * 0.2)


def test_those_that_another_lane_will_come_to_are_kept():
    worker, manager = quick(resources={"slots": 2})
    slow, other = taken(manager, 20)
    for step in range(1, 8):
        assert handed_back(at(worker, step * 0.2)) == []
        (other,) = runs(finish(worker, other, now=step * 0.2))
    assert list(slow.ids) == [2]


def test_jobs_that_need_the_resource_of_a_slow_job_are_handed_back():
    worker, manager = quick(resources={"slots": 1, "gpu": 1})
    gpu = {"gpu": 1}
    taken(manager, 3, needs=gpu)
    (run,) = taken(manager, 20)
    handed = []
    for step in range(1, 4):
        handed += handed_back(at(worker, step * 0.1))
        (run,) = runs(finish(worker, run, now=step * 0.1))
    assert handed == [3, 4]


def test_a_held_give_is_taken_back_before_the_jobs_are_handed_back():
    worker = make(window=None, lane_max=1, patience=0.25, hold=5.0)
    manager = met(worker)
    (run,) = runs(manager.take(manager.last_lock))
    held = only(finish(worker, run), Command.GIVE)
    assert held.fields[Field.HOLD] > 0
    assert held.fields[Field.WINDOW] > 10
    manager.take(held.fields[Field.LOCK], *[b"job"] * 10, more=True)

    actions = at(worker, 0.25)

    messages = sent(actions)
    assert [message.command for message in messages] == [Command.GIVE, Command.READY, Command.DONE]
    assert (messages[0].fields[Field.WANT], messages[1].fields[Field.CREDIT]) == (0, 0)
    assert len(handed_back(actions)) == 9


def test_a_worker_with_a_fixed_window_lets_its_jobs_wait():
    worker, manager = quick(window=9)
    taken(manager, 10)
    assert handed_back(at(worker, 3.0)) == []
    assert worker.statistics().parked == 9


def test_nor_does_it_take_them_from_their_lane():
    worker, manager = quick(window=9, lane_max=512)
    (run,) = taken(manager, 10)
    assert len(run.ids) == 10
    assert [action for action in at(worker, 3.0) if isinstance(action, Recall)] == []


def test_where_nothing_waits_nothing_is_looked_after():
    worker, manager = quick()
    assert len(taken(manager, 1)) == 1
    assert PatienceTimer() not in worker._outbound.timers
