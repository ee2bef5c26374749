"""The manager machine: expiries and run limits (spec §6)."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.test_manager import lease, resolved, submit
from wmp.actions import End
from wmp.events import Cancelled, Disconnected, Ticked
from wmp.message import Command, Kind, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent


@pytest.mark.rule("WMP-6.20")
def test_a_job_that_waits_ends_at_its_expiry(manager):
    submit(manager, b"job", expires=2.0)

    assert manager.deadline() == 2.0
    ((id, end, text),) = resolved(manager.handle(Ticked(), 2.0))

    assert (id, end) == (1, End.TIMEOUT)
    assert text == b"expired before a worker took the job: no worker is connected"
    assert manager.statistics().queued == 0
    manager.check_invariants()


@pytest.mark.rule("WMP-6.19", "WMP-6.21")
def test_take_has_the_time_to_the_expiry_and_the_limit_of_an_attempt(manager, worker):
    submit(manager, b"a", expires=2.0, run_limit=0.5)
    worker.now = 0.9996

    (take,) = sent(worker.give(1), Command.TAKE)

    assert list(take.columns.expires_ms) == [1001]  # 1000.4 ms, rounded up
    assert list(take.columns.limits_ms) == [500]
    assert take.columns.left_ms is None


def test_take_has_no_columns_of_limits_that_no_job_has(manager, worker):
    take = lease(manager, worker, b"a", run_limit=1.0)

    assert (take.columns.expires_ms, list(take.columns.limits_ms)) == (None, [1000])


def test_jobs_of_different_limits_go_in_one_take(manager, worker):
    submit(manager, b"a", expires=2.0)
    submit(manager, b"b")
    submit(manager, b"c", run_limit=0.5)

    (take,) = sent(worker.give(3), Command.TAKE)

    assert list(take.columns.expires_ms) == [2000, None, None]
    assert list(take.columns.limits_ms) == [None, None, 500]


@pytest.mark.rule("WMP-6.20")
def test_a_leased_job_goes_on_after_its_expiry(manager, worker):
    lease(manager, worker, b"a", b"b", expires=2.0)

    assert sent(manager.handle(Ticked(), 2.0)) == []
    assert manager.statistics().leased == 2
    manager.check_invariants()
    worker.now = 2.0
    assert [end for _, end, _ in resolved(worker.done([1, 2]))] == [End.OK, End.OK]


@pytest.mark.rule("WMP-6.20")
@pytest.mark.parametrize("how", ["handed back", "refused", "lost", "bye"])
def test_a_job_that_comes_back_after_its_expiry_ends(manager, worker, how):
    lease(manager, worker, b"job", expires=2.0)
    worker.now = 2.0
    outcomes = {
        "handed back": Outcome.CANCELLED,
        "refused": Outcome.REFUSED,
        "lost": Outcome.LOST,
    }

    actions = worker.bye() if how == "bye" else worker.done([1], outcome=outcomes[how])

    ((_, end, text),) = resolved(actions)
    assert end is End.TIMEOUT
    assert text.startswith(b"expired before a worker began it; its last lease ended: ")
    second = ScriptedWorker(manager, b"w2", link=b"l2")
    assert [m.command for m in sent(second.give(1))] == [Command.NO]
    manager.check_invariants()


def test_a_job_that_comes_back_before_its_expiry_waits_for_it(manager, worker):
    lease(manager, worker, b"job", expires=2.0)
    worker.now = 1.0
    assert resolved(worker.done([1], outcome=Outcome.REFUSED)) == []
    manager.check_invariants()

    assert [end for _, end, _ in resolved(manager.handle(Ticked(), 2.0))] == [End.TIMEOUT]


def test_the_deadline_of_a_leased_job_counts_after_its_expiry(manager, worker):
    lease(manager, worker, b"job", expires=2.0, timeout=3.0)

    assert resolved(manager.handle(Ticked(), 2.0)) == []
    manager.check_invariants()
    assert manager.deadline() == 3.0
    assert [end for _, end, _ in resolved(manager.handle(Ticked(), 3.0))] == [End.TIMEOUT]


def test_the_earlier_of_deadline_and_expiry_ends_a_waiting_job(manager):
    submit(manager, b"job", expires=3.0, timeout=2.0)

    ((_, _, text),) = resolved(manager.handle(Ticked(), 2.0))

    assert text == b"timed out before a worker took the job: no worker is connected"


def waited_for(manager, kind=None, until=2.0):
    """Return the reason for which a job waited until its expiry."""
    submit(manager, b"late", expires=until, **({} if kind is None else {"kind": kind}))
    ((_, end, text),) = resolved(manager.handle(Ticked(), until))
    assert end is End.TIMEOUT
    how, _, why = text.decode().partition(": ")
    assert how == "expired before a worker took the job"
    manager.check_invariants()
    return why


def test_the_text_of_a_timeout_names_a_missing_role(manager, worker):
    worker.ready(1)

    assert waited_for(manager, Kind("resize")) == (
        "no connected worker offers the role 'resize'; the workers offer 'default'"
    )


def test_the_text_of_a_timeout_names_missing_resources(manager, worker):
    worker.ready(1, resources={"slots": 1})

    assert waited_for(manager, Kind("default", (("gpu", 1), ("slots", 1)))) == (
        "no connected worker of the role 'default' has gpu=1 (these workers have 'slots')"
    )


def test_the_text_of_a_timeout_names_busy_workers(manager, worker):
    worker.ready(1, label="one")
    worker.ready(0, label="one")

    assert waited_for(manager) == "worker one had no free capacity"


def test_the_text_of_a_timeout_names_workers_with_room(manager, worker):
    worker.ready(1, label="one")

    assert waited_for(manager) == "worker one had capacity, and had not taken the job yet"


def test_the_text_of_a_timeout_names_a_lost_connection(manager, worker):
    worker.ready(1)
    manager.handle(Disconnected(worker.link), 0.5)

    assert waited_for(manager, until=0.9) == "the connection to worker w1 is lost"


def test_the_text_of_a_timeout_names_earlier_attempts(manager, worker):
    lease(manager, worker, b"job", timeout=2.0)
    worker.now = 1.0
    worker.done([1], outcome=Outcome.LOST)

    ((_, _, text),) = resolved(manager.handle(Ticked(), 2.0))

    assert text.endswith(b"; 1 earlier attempt ended without a result")


def test_a_cancelled_job_ends_as_cancelled_after_its_expiry(manager, worker):
    lease(manager, worker, b"job", expires=2.0)
    manager.handle(Cancelled([1]), 1.0)
    worker.now = 2.0

    (row,) = resolved(worker.done([1], outcome=Outcome.CANCELLED))

    assert row[1] is End.CANCELLED


@pytest.mark.rule("WMP-6.22")
def test_an_overrun_ends_the_job_as_timed_out_with_the_text(manager, worker):
    lease(manager, worker, b"a", b"b", run_limit=0.5, max_worker_losses=0)

    actions = worker.done([1], [b"ran for too long"], outcome=Outcome.OVERRUN)

    assert resolved(actions) == [(1, End.TIMEOUT, b"ran for too long")]
    assert manager.statistics().leased == 1
    manager.check_invariants()


def test_an_overrun_of_an_earlier_attempt_changes_nothing(manager, worker):
    lease(manager, worker, b"job", run_limit=0.5)
    worker.done([1], outcome=Outcome.REFUSED)
    sent(worker.give(1), Command.TAKE)

    assert resolved(worker.done([1], outcome=Outcome.OVERRUN, attempt=1)) == []
    assert manager.statistics().dropped["stale result"] == 1


@pytest.mark.rule("WMP-6.20")
@pytest.mark.parametrize("count", [1, 3])
def test_no_job_is_granted_after_its_expiry_before_the_clock_is_looked_at(manager, worker, count):
    submit(manager, *[b"late"] * count, expires=2.0)
    submit(manager, b"good")
    worker.now = 2.5  # the timer has not rung yet: the manager was stopped

    actions = worker.give(9)

    assert [list(m.columns.ids) for m in sent(actions, Command.TAKE)] == [[count + 1]]
    assert [(id, end) for id, end, _ in resolved(actions)] == [
        (id, End.TIMEOUT) for id in range(1, count + 1)
    ]
    manager.handle(Ticked(), 2.5)
    manager.check_invariants()


def test_a_give_is_answered_no_when_all_jobs_have_expired(manager, worker):
    submit(manager, b"late", expires=2.0)
    worker.now = 2.5

    assert [m.command for m in sent(worker.give(9))] == [Command.NO]
    manager.check_invariants()


def test_a_job_stays_at_a_living_worker_however_long_it_runs(manager, worker):
    """There is no time after which a job becomes visible to other workers."""
    lease(manager, worker, b"long")
    other = ScriptedWorker(manager, b"other", link=b"other")
    for second in range(1, 20_000, 5):
        worker.now = other.now = float(second)
        worker.ping(held=[(1, 1)])
        manager.handle(Ticked(), float(second))
        assert not sent(other.give(1), Command.TAKE)
    assert resolved(worker.done([1])) == [(1, End.OK, b"result")]
