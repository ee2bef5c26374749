"""Jobs in columns from their grant to their end, and the events that turn them into records."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.manager.managers import make
from wmp.actions import Resolve
from wmp.core.manager.job_lifecycle import JobRecord
from wmp.core.manager.leases import Leases
from wmp.events import Cancelled, Submitted, Ticked
from wmp.message import Columns, Command, Kind, Outcome
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent
from wmp.testing.state.manager_state import all_jobs
from wmp.testing.state.snapshots import snapshot

OK, ERROR, REFUSED, BACK, LOST, OVERRUN = Outcome


def leased(manager, worker, count=5, **options):
    """Let the worker take jobs 1 to ``count`` in one TAKE."""
    ids = range(1, count + 1)
    manager.handle(Submitted(ids, [b"%d" % id for id in ids], Kind(), **options), 0.0)
    (take,) = sent(worker.give(count), Command.TAKE)
    assert list(take.columns.ids) == list(ids)
    return take


def grants(manager):
    """Return the number of jobs without a record, worker by worker."""
    return [worker.granted for worker in manager._workers.values()]


def answer(worker, ids, outcomes=None, attempts=None):
    """Send DONE with these columns."""
    columns = Columns(
        ids=list(ids),
        attempts=list(attempts or [1] * len(ids)),
        outcomes=list(outcomes or [OK] * len(ids)),
        payloads=[b"r%d" % id for id in ids],
    )
    return worker.send(worker.numbered(Command.DONE, columns))


def ends(actions):
    """Return (id, end, attempts) of the resolved jobs."""
    return [
        (id, end.value, attempts)
        for action in actions
        if isinstance(action, Resolve)
        for id, end, attempts in zip(action.ids, action.ends, action.attempts, strict=True)
    ]


def test_results_of_a_grant_make_no_record(manager, worker):
    leased(manager, worker)
    assert grants(manager) == [5]

    assert ends(answer(worker, [2, 1])) == [(2, "ok", 1), (1, "ok", 1)]
    assert grants(manager) == [3]
    assert ends(answer(worker, [3, 4, 5], [OK, ERROR, OK]))[1] == (4, "error", 1)
    assert grants(manager) == [0]
    assert manager._scheduler.empty
    assert not manager._workers[b"w1"].grants


@pytest.mark.rule("WMP-6.3")
def test_a_result_is_taken_once_however_often_it_comes(manager, worker):
    leased(manager, worker)
    assert ends(answer(worker, [1, 2, 1])) == [(1, "ok", 1), (2, "ok", 1)]
    assert ends(answer(worker, [2, 3])) == [(3, "ok", 1)]
    assert manager.statistics().dropped == {"stale result": 2}


@pytest.mark.rule("WMP-6.2")
def test_a_worker_cannot_end_the_jobs_of_another_worker(manager, worker):
    leased(manager, worker)
    other = ScriptedWorker(manager, b"w2", link=b"l2")
    other.ready(1)
    assert ends(answer(other, [1, 2, 3, 4, 5])) == []
    assert grants(manager) == [5, 0]
    assert len(ends(answer(worker, [1, 2, 3, 4, 5]))) == 5


@pytest.mark.rule("WMP-6.2")
def test_another_attempt_ends_nothing(manager, worker):
    leased(manager, worker)
    assert ends(answer(worker, [1, 2], attempts=[1, 2])) == [(1, "ok", 1)]
    assert ends(answer(worker, [2])) == [(2, "ok", 1)]


@pytest.mark.rule("WMP-6.5")
def test_refused_jobs_wait_again_and_the_others_end(manager, worker):
    leased(manager, worker)
    assert len(ends(answer(worker, [1, 2, 3], [OK, REFUSED, OK]))) == 2
    assert manager.statistics().queued == 1
    assert manager._scheduler.ends.find(2).attempt == 1
    assert len(ends(answer(worker, [4, 5]))) == 2


@pytest.mark.rule("WMP-6.4")
def test_all_that_had_not_ended_is_lost_with_its_worker_oldest_first(manager, worker):
    leased(manager, worker)
    answer(worker, [2])
    worker.bye()
    assert manager.statistics().requeued == {"the worker sent BYE": 4}

    other = ScriptedWorker(manager, b"w2", link=b"l2")
    (take,) = sent(other.give(9), Command.TAKE)
    assert list(take.columns.ids) == [1, 3, 4, 5]
    assert list(take.columns.attempts) == [2, 2, 2, 2]


@pytest.mark.rule("WMP-9.13")
def test_a_list_of_held_jobs_loses_only_the_leases_that_are_not_in_it(manager, worker):
    leased(manager, worker)
    worker.ping(held=[(id, 1) for id in range(1, 6)])
    assert grants(manager) == [5]

    worker.ping(held=[(1, 1), (5, 1)])
    assert manager.statistics().queued == 3
    assert len(ends(answer(worker, [1, 5]))) == 2


@pytest.mark.rule("WMP-6.8")
def test_the_time_of_each_job_of_a_grant_passes(manager, worker):
    leased(manager, worker, timeout=3.0)
    answer(worker, [1, 4])
    actions = manager.handle(Ticked(), 3.0)
    assert ends(actions) == [(2, "timeout", 1), (3, "timeout", 1), (5, "timeout", 1)]
    assert manager._scheduler.empty


@pytest.mark.rule("WMP-6.12")
def test_one_that_is_cancelled_leaves_the_others_alone(manager, worker):
    leased(manager, worker)
    (cancel,) = sent(manager.handle(Cancelled([3]), 0.0), Command.CANCEL)
    assert list(cancel.columns.ids) == [3]
    assert len(ends(answer(worker, [1, 2, 4, 5]))) == 4
    assert ends(answer(worker, [3], [BACK])) == [(3, "cancelled", 1)]


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["done", "cancel", "ping", "bye", "tick"]),
        st.lists(st.integers(1, 13), min_size=1, max_size=8),
        st.sampled_from([OK, OK, OK, ERROR, REFUSED, BACK, LOST]),
        st.integers(1, 2),
    ),
    max_size=12,
)


@given(MOVES)
def test_columns_and_records_come_to_the_same(moves):
    """A manager with grants and a manager without grants make the same events."""
    messages = []
    for whole in (True, False):
        manager = make()
        workers = [ScriptedWorker(manager, b"w%d" % n, link=b"l%d" % n) for n in (1, 2)]
        heard = []

        def hear(actions, manager=manager, workers=workers, heard=heard, whole=whole):
            for worker in workers:
                worker.note(actions)
            if not whole:
                leases: Leases = manager._scheduler.leases
                for job in list(all_jobs(manager).values()):
                    leases.record(job.id)
            for worker in manager._workers.values():
                leased = [
                    job for job in all_jobs(manager).values() if job.holder == worker.identity
                ]
                assert worker.held == Counter(job.kind for job in leased)
            heard.append((ends(actions), [message.command for message in sent(actions)]))

        for start, timeout in ((1, None), (7, 5.0), (11, None)):
            ids = range(start, {1: 7, 7: 11, 11: 14}[start])
            jobs = [b"%d" % id for id in ids]
            hear(
                manager.handle(
                    Submitted(ids, jobs, Kind(), timeout=timeout, max_worker_losses=1), 0.0
                )
            )
        now = 0.0
        for n, worker in enumerate(workers):
            hear(worker.give(6 + n, hold=5.0))
        for what, ids, outcome, attempt in moves:
            worker = workers[ids[0] % 2]
            if what == "done":
                outcomes = [OK] * (len(ids) - 1) + [outcome]
                hear(answer(worker, ids, outcomes, [attempt] * len(ids)))
            elif what == "cancel":
                hear(manager.handle(Cancelled(ids), now))
            elif what == "ping":
                hear(worker.ping(held=[(id, 1) for id in ids]))
            elif what == "bye" and b"w1" in manager._workers:
                hear(workers[0].bye())
            elif what == "tick":
                now += 2.0
                hear(manager.handle(Ticked(), now))
        messages.append((heard, manager.statistics(), snapshot(manager, now)))
    assert messages[0] == messages[1]


def test_a_lone_job_and_a_grant_end_in_one_step_without_the_table(manager, worker, monkeypatch):
    manager.handle(Submitted([1], [b"1"], Kind(), priority=1), 0.0)
    leased_too = range(2, 5)
    manager.handle(Submitted(leased_too, [b"x"] * 3, Kind(), timeout=9.0), 0.0)
    (take,) = sent(worker.give(4), Command.TAKE)
    assert list(take.columns.ids) == [1, 2, 3, 4]

    def never(self, what):
        raise AssertionError(f"{what} went by the table")

    monkeypatch.setattr(JobRecord, "step", never)
    actions = answer(worker, [3, 1])
    assert ends(actions) == [(3, "ok", 1), (1, "ok", 1)]
    assert sum(isinstance(action, Resolve) for action in actions) == 1
    assert ends(answer(worker, [2, 4], [ERROR, OK])) == [(2, "error", 1), (4, "ok", 1)]
    assert manager._scheduler.empty
    assert not manager._workers[b"w1"].held
    assert not any(id in manager._timers for id in leased_too)


def test_the_result_of_an_earlier_attempt_is_not_settled(manager, worker):
    manager.handle(Submitted([1], [b"1"], Kind()), 0.0)
    worker.give(1)
    answer(worker, [1], [BACK])
    (take,) = sent(worker.give(1), Command.TAKE)
    assert list(take.columns.attempts) == [2]
    assert ends(answer(worker, [1], attempts=[1])) == []
    assert manager.statistics().dropped == {"stale result": 1}
    assert ends(answer(worker, [1], attempts=[2])) == [(1, "ok", 2)]
