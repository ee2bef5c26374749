"""The number of jobs that each of several workers gets, and when."""

from __future__ import annotations

import pytest

from wmp.events import Submitted
from wmp.message import Command, Field, Kind
from wmp.testing.scripted import ScriptedWorker, sent


def submit(manager, *payloads):
    first = manager._scheduler.last_id + 1
    return manager.handle(Submitted(range(first, first + len(payloads)), payloads, Kind()), 0.0)


def test_a_large_window_leaves_the_others_their_share(manager):
    quick, other = (ScriptedWorker(manager, name, link=name) for name in (b"a", b"b"))
    other.ready(0)  # this worker is connected, but busy
    quick.give(500, hold=5.0, window=499)

    actions = submit(manager, *[b"x"] * 100)
    quick.note(actions)
    assert [len(take.columns.ids) for take in sent(actions)] == [50]

    (take,) = sent(other.give(500, window=499), Command.TAKE)
    assert len(take.columns.ids) == 25  # half of the waiting jobs

    # The worker gets its next share when it finishes, until no job waits.
    (take,) = sent(quick.done(range(1, 46)), Command.TAKE)
    assert len(take.columns.ids) == 8  # five jobs are left there, and 13 is half of 25
    quick.done([*range(46, 51), *take.columns.ids])
    assert manager.statistics().queued < 17


def test_a_few_jobs_stay_at_the_manager_until_the_worker_has_fewer(manager, worker):
    worker.give(500, hold=5.0, window=499)
    worker.note(submit(manager, *[b"x"] * 100))

    # Of the 100 jobs at the worker 8 run and 92 wait. A quarter of 92 is 23, and one may start.
    assert sent(submit(manager, *[b"x"] * 23)) == []
    assert manager.statistics().queued == 23
    (take,) = sent(submit(manager, b"x"), Command.TAKE)
    assert len(take.columns.ids) == 24

    assert sent(submit(manager, b"x")) == []
    (take,) = sent(worker.done(range(1, 121)), Command.TAKE)
    assert list(take.columns.ids) == [125]  # four jobs are left at the worker


def test_jobs_held_back_are_granted_when_the_waiting_leases_are_lost(manager, worker):
    worker.give(500, hold=5.0, window=499)
    jobs = Submitted(range(1, 101), [b"x"] * 100, Kind(), retries=0)
    worker.note(manager.handle(jobs, 0.0))
    assert sent(submit(manager, *[b"x"] * 5)) == []

    (take,) = sent(worker.ping(held=[(1, 1)]), Command.TAKE)

    assert list(take.columns.ids) == [101, 102, 103, 104, 105]


def test_a_place_that_is_free_is_filled_however_many_wait_at_the_worker(manager, worker):
    worker.give(100, hold=5.0, window=100)
    submit(manager, *[b"x"] * 100)
    submit(manager, b"x")
    (take,) = sent(worker.give(101, hold=5.0, window=100), Command.TAKE)
    assert list(take.columns.ids) == [101]


def test_a_wake_is_not_in_vain_because_another_worker_was_quicker(manager):
    workers = {name: ScriptedWorker(manager, name, link=name) for name in (b"a", b"b")}
    for each in workers.values():
        each.ready(500, window=492)

    for jobs in (96, 40, 40, 40):
        for wake in sent(submit(manager, *[b"x"] * jobs), Command.WAKE):
            count = wake.fields[Field.COUNT]
            answer = sent(workers[wake.receiver].give(count, window=count))
            assert [message.command for message in answer] == [Command.TAKE]


@pytest.mark.parametrize("others", [0, 1])
def test_a_job_of_another_kind_is_not_held_back_by_those_that_never_end(manager, worker, others):
    for name in [b"b"][:others]:
        ScriptedWorker(manager, name, link=name, roles=("default", "rare")).ready(0)
    worker.give(500, hold=5.0, roles=("default", "rare"), window=500)
    submit(manager, *[b"x"] * 200)

    (take,) = sent(manager.handle(Submitted([201], [b"x"], Kind("rare")), 0.0), Command.TAKE)

    assert take.fields[Field.ROLE] == "rare"


def test_a_lone_worker_fills_its_window(manager, worker):
    worker.give(500, hold=5.0, window=499)
    (take,) = sent(submit(manager, *[b"x"] * 100), Command.TAKE)
    assert len(take.columns.ids) == 100


def test_all_open_gives_of_one_worker_are_served(manager, worker):
    worker.give(1, hold=5.0)
    worker.give(2, hold=5.0)

    takes = sent(submit(manager, *[b"x"] * 4), Command.TAKE)

    assert sorted((take.fields[Field.LOCK], len(take.columns.ids)) for take in takes) == [
        (1, 1),
        (2, 2),
    ]
    assert manager.statistics().queued == 1


def test_credit_is_spread_over_workers_before_windows_are_filled(manager):
    for name in (b"a", b"b"):
        ScriptedWorker(manager, name, link=name).ready(10, window=8)

    wakes = sent(submit(manager, *[b"x"] * 6), Command.WAKE)

    assert {wake.receiver: wake.fields[Field.COUNT] for wake in wakes} == {b"a": 3, b"b": 3}
