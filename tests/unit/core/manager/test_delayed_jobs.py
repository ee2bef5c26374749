"""The manager machine: delayed jobs (spec §6)."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.test_manager import resolved, submit
from wmp.actions import End
from wmp.core.manager import delayed_jobs
from wmp.events import Cancelled, Drained, Submitted, Ticked
from wmp.message import Command, Kind, Outcome
from wmp.testing.peers.scripted_worker import sent


def taken(actions):
    """Return the numbers of the jobs in TAKEs, in order."""
    return [id for message in sent(actions, Command.TAKE) for id in message.columns.ids]


@pytest.mark.rule("WMP-6.24")
def test_a_delayed_job_is_granted_at_its_time_and_not_before(manager, worker):
    submit(manager, b"job", delay=2.0)
    assert taken(worker.give(1, hold=10.0)) == []
    assert manager.statistics().delayed == 1
    assert manager.statistics().queued == 0

    assert taken(manager.handle(Ticked(), 2.0)) == []
    due = manager.deadline()
    assert 2.0 < due <= 2.0011
    assert taken(manager.handle(Ticked(), due)) == [1]
    assert manager.statistics().delayed == 0
    manager.check_invariants()


@pytest.mark.rule("WMP-6.24")
def test_jobs_that_become_due_stand_behind_those_that_wait(manager, worker):
    submit(manager, b"later", delay=2.0)
    submit(manager, b"sooner", delay=1.0)
    submit(manager, b"waits")
    manager.handle(Ticked(), 3.0)
    submit(manager, b"newer", now=3.0)
    worker.now = 3.0

    assert taken(worker.give(4)) == [3, 2, 1, 4]
    manager.check_invariants()


def test_a_higher_priority_goes_first_among_jobs_that_are_due(manager, worker):
    submit(manager, b"low", delay=1.0)
    submit(manager, b"high", delay=2.0, priority=5)
    manager.handle(Ticked(), 3.0)
    worker.now = 3.0

    assert taken(worker.give(1)) == [2]


def test_jobs_of_one_delay_share_a_batch(manager):
    for _ in range(100):
        submit(manager, b"job", delay=1.0)

    assert len(manager._scheduler.delayed._heap) == 1
    assert manager.statistics().delayed == 100
    manager.check_invariants()


@pytest.mark.rule("WMP-6.24")
def test_a_delayed_job_can_be_cancelled(manager, worker):
    submit(manager, b"a", b"b", delay=1.0)

    assert resolved(manager.handle(Cancelled([1]), 0.5)) == [(1, End.CANCELLED, b"")]
    manager.check_invariants()
    assert resolved(manager.handle(Cancelled([2]), 0.5)) == [(2, End.CANCELLED, b"")]
    manager.check_invariants()
    manager.handle(Ticked(), 2.0)
    worker.now = 2.0
    assert [m.command for m in sent(worker.give(1))] == [Command.NO]
    assert manager.deadline() is not None  # the deadline is that of the worker's timers


def test_many_cancelled_jobs_leave_nothing_behind(manager):
    for number in range(1000):
        submit(manager, b"job", delay=1.0 + number)
    manager.handle(Cancelled(list(range(1, 1000))), 0.0)

    assert len(manager._scheduler.delayed._heap) < 200
    assert manager.statistics().delayed == 1
    manager.check_invariants()


@pytest.mark.rule("WMP-6.24")
def test_the_times_of_a_delayed_job_count_from_its_time(manager, worker):
    submit(manager, b"a", delay=2.0, timeout=1.0)
    submit(manager, b"b", delay=2.0, expires=1.0)

    assert resolved(manager.handle(Ticked(), 2.9)) == []
    ends = resolved(manager.handle(Ticked(), 3.1))

    assert [(id, end) for id, end, _ in ends] == [(1, End.TIMEOUT), (2, End.TIMEOUT)]
    manager.check_invariants()


def test_a_draining_manager_waits_for_its_delayed_jobs(manager, worker):
    submit(manager, b"job", delay=1.0)
    manager.handle(Drained(), 0.0)
    assert taken(manager.handle(Ticked(), 1.1)) == []
    worker.now = 1.1

    assert taken(worker.give(1)) == [1]
    assert resolved(worker.done([1])) == [(1, End.OK, b"result")]
    assert manager.deadline() is None  # the manager has halted


def test_a_new_job_does_not_overtake_one_that_is_due_in_an_older_batch(manager, worker):
    submit(manager, b"first")
    submit(manager, b"due", delay=1.0, kind=Kind())
    manager.handle(Ticked(), 1.1)
    submit(manager, b"last", now=1.2)
    worker.now = 1.2

    assert taken(worker.give(3)) == [1, 2, 3]


def test_a_lost_delayed_job_is_queued_again_at_once(manager, worker):
    submit(manager, b"job", delay=1.0)
    manager.handle(Ticked(), 1.1)
    worker.now = 1.1
    worker.give(1)

    worker.done([1], outcome=Outcome.CANCELLED)

    assert manager.statistics().queued == 1
    manager.check_invariants()


def test_a_step_releases_a_bounded_number_of_entries(manager, monkeypatch):
    monkeypatch.setattr(delayed_jobs, "_MAX", 10)
    for number in range(25):
        submit(manager, b"job", delay=1.0 + number / 100)

    manager.handle(Ticked(), 5.0)

    assert manager.statistics().queued == 10
    assert manager.deadline() == 5.001
    for _ in range(2):
        manager.handle(Ticked(), manager.deadline())
    assert manager.statistics().queued == 25
    manager.check_invariants()


def test_a_submission_without_delay_is_granted_at_once(manager, worker):
    manager.handle(Submitted([1], [b"job"], Kind(), delay=0.0), 0.0)

    assert taken(worker.give(1)) == [1]


@pytest.mark.rule("WMP-6.24")
def test_a_job_with_a_later_time_stays_when_an_earlier_one_is_granted(manager, worker):
    submit(manager, b"first", delay=1.0)
    submit(manager, b"second", delay=1.2)
    worker.give(2, hold=10.0)

    assert taken(manager.handle(Ticked(), 1.1)) == [1]
    assert taken(manager.handle(Ticked(), 1.3)) == [2]
