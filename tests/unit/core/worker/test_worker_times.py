"""The worker machine: expiries and run limits (spec §6)."""

from __future__ import annotations

import pytest

from tests.unit.core.worker.test_worker_jobs import dones, jobs
from tests.unit.core.worker.workers import finish, give, make, met, reasons, runs
from wmp.actions import Halt, Interrupt, Recall
from wmp.events import Begun, Drained, Finished, Recalled, Ticked
from wmp.message import Command, Outcome
from wmp.testing.peers.scripted_worker import sent


def make_worker(**options):
    worker = make(window=5, lane_max=4, lane_time=0.005, overrun_grace=2.0, **options)
    manager = met(worker, max_silence=60.0)
    (run,) = runs(give(manager))
    finish(worker, run)
    return worker, manager


def texts(actions):
    return [bytes(p) for m in sent(actions, Command.DONE) for p in m.columns.payloads]


@pytest.mark.rule("WMP-6.19")
def test_a_job_that_has_not_begun_by_its_expiry_is_not_begun():
    worker, manager = make_worker()
    (run,) = runs(give(manager, *jobs(3), ids=[11, 12, 13], left_ms=[500, None, None]))
    assert (run.ids, run.deadlines, run.begin_by) == ([11, 12, 13], [0.5, None, None], None)
    give(
        manager, *jobs(3), ids=[14, 15, 16], expires_ms=[100, 200, None], left_ms=[None, 150, None]
    )

    actions = finish(worker, run, now=0.12)

    (run,) = runs(actions)
    assert (run.ids, run.deadlines) == ([15], [0.15])
    assert run.begin_by == [0.15]  # the earlier of deadline and expiry
    assert dones(actions)[0][-1] == (14, 1, Outcome.CANCELLED)


@pytest.mark.rule("WMP-6.19")
def test_a_job_that_has_begun_goes_on_after_its_expiry():
    worker, manager = make_worker()
    (run,) = runs(give(manager, expires_ms=[100]))

    worker.handle(Ticked(), 0.5)

    assert dones(finish(worker, run, now=0.6)) == [[(2, 1, Outcome.OK)]]


@pytest.mark.rule("WMP-6.21")
def test_an_attempt_that_runs_for_its_limit_is_interrupted_and_answered_overrun():
    worker, manager = make_worker()
    (run,) = runs(give(manager, limits_ms=[500]))
    assert run.limits == [0.5]
    worker.handle(Begun(run.lane, 2), 0.0)

    assert worker.handle(Ticked(), 0.4) == []
    assert Interrupt(run.lane, [2]) in worker.handle(Ticked(), 0.5)
    actions = finish(worker, run, now=0.6, outcome=Outcome.CANCELLED, payload=b"")

    assert dones(actions) == [[(2, 1, Outcome.OVERRUN)]]
    assert texts(actions) == [b"ran for longer than its run_limit of 0.5 s"]
    worker.check_invariants()


def test_the_limit_counts_from_the_begin_of_each_job():
    worker, manager = make_worker()
    (run,) = runs(give(manager, *jobs(2), limits_ms=[500, None]))
    worker.handle(Begun(run.lane, 2), 0.0)
    finish(worker, run, [2], now=0.4)
    worker.handle(Begun(run.lane, 3), 0.4)

    assert not any(isinstance(action, Interrupt) for action in worker.handle(Ticked(), 9.0))


def test_a_result_that_comes_after_the_limit_counts():
    worker, manager = make_worker()
    (run,) = runs(give(manager, limits_ms=[500]))
    worker.handle(Begun(run.lane, 2), 0.0)
    worker.handle(Ticked(), 0.5)

    assert dones(finish(worker, run, now=0.6)) == [[(2, 1, Outcome.OK)]]


def test_a_process_that_ends_for_the_limit_costs_no_lost_lease():
    worker, manager = make_worker()
    (run,) = runs(give(manager, limits_ms=[500]))
    worker.handle(Begun(run.lane, 2), 0.0)
    worker.handle(Ticked(), 0.5)

    actions = finish(worker, run, now=1.0, outcome=Outcome.LOST, payload=b"killed")

    assert dones(actions) == [[(2, 1, Outcome.OVERRUN)]]
    assert texts(actions) == [b"ran for longer than its run_limit of 0.5 s"]


@pytest.mark.rule("WMP-6.21")
def test_an_attempt_that_goes_on_is_answered_and_keeps_its_resources():
    worker, manager = make_worker()
    (run,) = runs(give(manager, *jobs(2), limits_ms=[500, None]))
    worker.handle(Begun(run.lane, 2), 0.0)
    worker.handle(Ticked(), 0.5)

    actions = worker.handle(Ticked(), 2.5)

    assert dones(actions) == [[(2, 1, Outcome.OVERRUN)]]
    assert texts(actions) == [b"ran for longer than its run_limit of 0.5 s; its handler still runs"]
    assert Recall(run.lane, [3]) in actions  # the job behind it would wait for ever
    worker.check_invariants()
    actions = worker.handle(Recalled(run.lane, [3]), 2.6)
    assert dones(actions) == [[(3, 1, Outcome.CANCELLED)]]
    assert runs(give(manager)) == []  # the only slot is taken
    late = worker.handle(Finished(run.lane, [2], [Outcome.OK], [b"late"]), 9.0)
    assert dones(late) == []
    assert "late result" in reasons(late)
    assert runs(late) != []
    worker.check_invariants()


def test_a_worker_with_an_overdue_handler_can_end():
    worker, manager = make_worker()
    (run,) = runs(give(manager, limits_ms=[500]))
    worker.handle(Begun(run.lane, 2), 0.0)
    worker.handle(Ticked(), 0.5)
    worker.handle(Ticked(), 2.5)
    manager.now = 2.6
    manager.pong(ack=2)

    assert Halt(None) in worker.handle(Drained(), 2.7)


def test_a_cancelled_attempt_is_not_interrupted_again_at_its_limit():
    worker, manager = make_worker()
    (run,) = runs(give(manager, limits_ms=[500]))
    worker.handle(Begun(run.lane, 2), 0.0)
    manager.cancel(2)

    assert not any(isinstance(action, Interrupt) for action in worker.handle(Ticked(), 0.5))
    actions = finish(worker, run, now=3.0, outcome=Outcome.CANCELLED, payload=b"")
    assert dones(actions) == [[(2, 1, Outcome.CANCELLED)]]


def test_a_ping_lists_a_job_whose_answer_follows_in_the_same_step():
    worker, manager = make_worker(ping=0.5)
    (run,) = runs(give(manager, limits_ms=[500]))
    worker.handle(Begun(run.lane, 2), 0.0)
    for now in (0.5, 1.0, 1.5, 2.0):
        worker.handle(Ticked(), now)
        manager.now = now
        manager.pong()

    actions = worker.handle(Ticked(), 2.5)

    assert dones(actions) == [[(2, 1, Outcome.OVERRUN)]]
    lists = [m.columns.ids for m in sent(actions, Command.PING) if m.columns is not None]
    assert [2 in ids for ids in lists] == [True]
