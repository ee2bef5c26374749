"""The number of jobs that each of several workers gets, and when."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import submit
from wmp.balance import least_recently_used
from wmp.core.manager import worker_selection
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Submitted
from wmp.message import Command, Field, Kind
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent

PLAIN, LARGE, GPU = Kind(), Kind("default", (("slots", 3),)), Kind("default", (("gpu", 1),))


def test_a_large_window_leaves_the_others_their_share(manager):
    quick, other = (ScriptedWorker(manager, name, link=name) for name in (b"a", b"b"))
    submit(manager, b"x")
    other.give(1)  # this worker is busy with a job of the same kind
    quick.give(500, hold=5.0, window=499)

    actions = submit(manager, *[b"x"] * 100)
    quick.note(actions)
    assert [len(take.columns.ids) for take in sent(actions)] == [50]

    other.done([1])
    (take,) = sent(other.give(500, window=499), Command.TAKE)
    assert len(take.columns.ids) == 25  # half of the waiting jobs

    # The worker gets its next share when it finishes, until no job waits.
    (take,) = sent(quick.done(range(2, 47)), Command.TAKE)
    assert len(take.columns.ids) == 8  # 13, half of the 25 waiting jobs, less the 5 left here
    quick.done([*range(47, 52), *take.columns.ids])
    assert manager.statistics().queued < 17


def test_a_few_jobs_stay_at_the_manager_until_the_worker_has_fewer(manager, worker):
    worker.give(500, hold=5.0, window=499)
    worker.note(submit(manager, *[b"x"] * 100))

    # Of the 100 jobs at the worker 8 run and 92 wait. A quarter of 92 is 23; one more job may
    # start.
    assert sent(submit(manager, *[b"x"] * 23)) == []
    assert manager.statistics().queued == 23
    (take,) = sent(submit(manager, b"x"), Command.TAKE)
    assert len(take.columns.ids) == 24

    assert sent(submit(manager, b"x")) == []
    (take,) = sent(worker.done(range(1, 121)), Command.TAKE)
    assert list(take.columns.ids) == [125]  # four jobs are left at the worker


def test_jobs_held_back_are_granted_when_the_waiting_leases_are_lost(manager, worker):
    worker.give(500, hold=5.0, window=499)
    jobs = Submitted(range(1, 101), [b"x"] * 100, Kind(), max_worker_losses=0)
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


@pytest.mark.rule("WMP-4.16")
def test_a_worker_gets_no_more_leases_than_its_capacity_whatever_it_wants(manager, worker):
    submit(manager, *[b"x"] * 1000)
    worker.ready(0, window=0)  # the worker has 8 slots

    (take,) = sent(worker.give(1 << 40), Command.TAKE)
    assert len(take.columns.ids) == 8
    assert [m.command for m in sent(worker.give(1 << 40))] == [Command.NO]

    (take,) = sent(worker.give(1 << 40, hold=5.0, window=10), Command.TAKE)
    # The worker may have as many waiting jobs as places in use and free places.
    assert len(take.columns.ids) == 20
    (take,) = sent(worker.done([1, 2, 3]), Command.TAKE)
    assert list(take.columns.ids) == [29, 30, 31]
    assert manager.statistics().leased == 28


@pytest.mark.rule("WMP-4.18")
def test_leases_of_different_needs_share_the_resources_of_a_worker(manager, worker):
    submit(manager, *[b"large"] * 9, kind=LARGE)
    submit(manager, *[b"small"] * 9)
    submit(manager, *[b"gpu"] * 9, kind=GPU)
    worker.resources = {"slots": 8, "gpu": 2}
    worker.ready(0)

    takes = sent(worker.give(99, needs={"slots": 3, "gpu": 1}), Command.TAKE)

    # Two large jobs take 6 of the 8 slots, and two small jobs the other 2. Gpu jobs need no slot.
    assert [bytes(payload) for take in takes for payload in take.columns.payloads] == (
        [b"large"] * 2 + [b"small"] * 2 + [b"gpu"] * 2
    )


@pytest.mark.rule("WMP-4.18")
def test_a_window_has_room_for_jobs_as_large_as_the_largest_that_the_worker_holds(manager, worker):
    submit(manager, b"large", kind=LARGE)
    submit(manager, b"small", b"small")
    worker.resources = {"slots": 8, "gpu": 1}
    worker.ready(0)
    takes = sent(worker.give(9, needs={"slots": 3, "gpu": 1}, window=4), Command.TAKE)
    assert sum(len(take.columns.ids) for take in takes) == 3

    submit(manager, *[b"small"] * 100)
    (take,) = sent(worker.give(99, window=4), Command.TAKE)

    # 8 slots, and twice 4 places of 3 slots each, of which the held jobs use 5.
    assert len(take.columns.ids) == 8 + 8 * 3 - 5


@pytest.mark.rule("WMP-4.16")
def test_a_worker_whose_gives_report_halves_of_its_window_fills_the_window(manager, worker):
    submit(manager, *[b"x"] * 1000)
    worker.ready(0)  # the worker has 8 slots
    (take,) = sent(worker.give(208, window=200), Command.TAKE)
    assert len(take.columns.ids) == 208
    (take,) = sent(worker.give(200, window=200), Command.TAKE)
    assert len(take.columns.ids) == 200


@pytest.mark.rule("WMP-4.16")
def test_a_wake_asks_for_no_more_jobs_than_the_worker_may_lease(manager, worker):
    worker.ready(1 << 40)
    (wake,) = sent(submit(manager, *[b"x"] * 1000), Command.WAKE)
    assert wake.fields[Field.COUNT] == 8


@pytest.mark.rule("WMP-4.19")
def test_no_report_of_a_worker_is_believed_above_a_limit():
    settings = ManagerSettings(identity=b"m", epoch=7, max_leases=700, bundle=10_000)
    manager = ManagerMachine(settings, least_recently_used)
    submit(manager, *[b"x"] * 2000)

    unknown = ScriptedWorker(manager, b"unknown", link=b"1")
    (take,) = sent(unknown.give(1 << 40, window=1 << 39), Command.TAKE)
    assert len(take.columns.ids) == 512  # the worker sent no READY

    liar = ScriptedWorker(manager, b"liar", link=b"2", resources={"slots": 1 << 40})
    liar.ready(0)
    (take,) = sent(liar.give(1 << 40), Command.TAKE)
    assert len(take.columns.ids) == 700


@pytest.mark.parametrize("busy", ["for another manager", "with another kind", "for good"])
def test_workers_without_room_that_hold_no_such_job_have_no_share(manager, worker, busy):
    for number in range(40):
        other = ScriptedWorker(manager, b"o%d" % number, link=b"%d" % number)
        other.ready(0)
        if busy == "with another kind":
            submit(manager, b"x", kind=GPU)
            other.give(1, needs={"gpu": 1})
        elif busy == "for good":
            submit(manager, b"x")
            other.give(1)
            other.done([manager._scheduler.last_id])
    worker.give(500, hold=5.0, window=499)

    (take,) = sent(submit(manager, *[b"x"] * 400), Command.TAKE)

    assert len(take.columns.ids) == 400


def test_a_worker_with_room_has_a_share(manager, worker):
    other = ScriptedWorker(manager, b"other", link=b"2")
    other.ready(1)
    worker.give(500, hold=5.0, window=499)
    other.give(8, hold=5.0)

    takes = sent(submit(manager, *[b"x"] * 100), Command.TAKE)

    # The other worker could start eight jobs at once, this worker one. Each worker gets half of all
    # jobs.
    assert {take.receiver: len(take.columns.ids) for take in takes} == {b"w1": 50, b"other": 8}


def test_no_search_passes_the_profiles_that_do_not_suit(manager, worker, monkeypatch):
    demands = []
    fits = worker_selection.fits
    monkeypatch.setattr(
        worker_selection, "fits", lambda *needs: demands.append(needs) or fits(*needs)
    )
    for number in range(1000):
        roles = ("default", f"host-{number}")
        ScriptedWorker(manager, b"o%d" % number, link=b"%d" % number, roles=roles).ready(0)
    submit(manager, b"x")
    assert len(demands) == 1000  # one check for each profile

    for _ in range(10):
        worker.give(8, hold=5.0)
        submit(manager, *[b"x"] * 4)
    assert len(demands) == 1001  # one more check, for the profile of this worker


def test_kinds_that_are_asked_for_no_more_are_dropped(manager, worker):
    worker.resources = {f"r{number}": 1 for number in range(300)}
    worker.ready(1)
    for number in range(300):
        submit(manager, b"x", kind=Kind("default", ((f"r{number}", 1),)))
    manager.check_invariants()
    (profile,) = manager._scheduler.selection.profiles._all.values()
    assert len(profile.eligible) == 256
