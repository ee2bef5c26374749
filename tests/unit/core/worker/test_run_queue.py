"""The order in which jobs start, and the number of jobs on a lane."""

from __future__ import annotations

import pytest

from wmp.core.protocol.resources import Resources
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.execution_lifecycle import ExecutionInput
from wmp.core.worker.job_times import JobTimes
from wmp.core.worker.run_queue import HeldJobs, RunQueue, Throughput
from wmp.message import Kind

OWNER = (b"m", 1)
PLAIN = Kind()
BIG = Kind("default", (("slots", 2),))


@pytest.fixture
def queue():
    settings = WorkerSettings(identity=b"w", epoch=1, lane_time=0.005, lane_max=8)
    return RunQueue(Resources.of({"slots": 2}), Throughput(settings, 2))


@pytest.fixture
def held():
    return HeldJobs(b"m", OWNER)


def park(queue, held, *ids, kind=PLAIN, deadlines=None):
    held.add(ids, [1] * len(ids))
    times = None if deadlines is None else JobTimes(deadlines)
    queue.park(held, kind, ids, times, [b"%d" % job for job in ids], 0.0)


def started(queue, now=0.0):
    runs, _, _ = queue.start(now)
    queue.check()
    return [list(run.ids) for run in runs]


def end(queue, number):
    lane = queue.running[number]
    queue.end(lane, list(lane.ids))


def test_jobs_start_in_the_order_in_which_they_came(queue, held):
    park(queue, held, 1, kind=Kind("a"))
    park(queue, held, 2, kind=Kind("b"))
    park(queue, held, 3, kind=Kind("a"))
    assert started(queue) == [[1], [2]]
    end(queue, 1)
    assert started(queue) == [[3]]


def test_a_line_that_does_not_fit_keeps_its_resources_from_those_behind(queue, held):
    park(queue, held, 1)
    assert started(queue) == [[1]]
    park(queue, held, 2, kind=BIG)
    park(queue, held, 3)
    assert started(queue) == []
    end(queue, 1)
    assert started(queue) == [[2]]


def test_resources_that_a_waiting_job_needs_are_not_left_for_others(queue, held):
    park(queue, held, 1)
    park(queue, held, 2, kind=BIG)
    _, _, spare = queue.start(0.0)
    assert spare.free == {"slots": 0}
    assert queue.resources.free == {"slots": 1}


def test_an_unknown_role_gets_one_job_a_lane(queue, held):
    park(queue, held, *range(1, 5))
    assert started(queue) == [[1], [2]]


def test_bundles_take_about_the_lane_time(queue, held):
    queue.throughput.record("default", 0.001, 1)
    park(queue, held, *range(1, 100))
    assert [len(ids) for ids in started(queue)] == [5, 5]


def test_bundles_have_a_limit_and_share_the_free_slots(queue, held):
    queue.throughput.record("default", 0.0, 1)
    park(queue, held, *range(1, 4))
    assert started(queue) == [[1, 2], [3]]
    end(queue, 1)
    end(queue, 2)
    park(queue, held, *range(4, 100))
    assert [len(ids) for ids in started(queue)] == [8, 8]


def test_jobs_are_shared_among_all_lanes_and_not_only_the_free_ones(queue, held):
    queue.throughput.record("default", 0.0, 1)
    park(queue, held, 1)
    assert started(queue) == [[1]]
    park(queue, held, 2, 3, 4, 5)
    assert started(queue) == [[2, 3]]


@pytest.mark.parametrize(("places", "jobs"), [(80, 8), (160, 16), (200, 20), (1000, 20)])
def test_bundles_are_longer_with_many_places(places, jobs):
    settings = WorkerSettings(identity=b"w", epoch=1, lane_time=0.08)
    throughput = Throughput(settings, places)
    throughput.record("default", 0.01, 1)
    assert throughput.bundle("default", 100_000, places) == jobs


def test_a_lane_holds_its_resources_until_its_last_job_ends(queue, held):
    queue.throughput.record("default", 0.0, 1)
    park(queue, held, *range(1, 5))
    assert started(queue) == [[1, 2], [3, 4]]
    queue.end(queue.running[1], [2])
    assert queue.resources.free == {"slots": 0}
    queue.end(queue.running[1], [1])
    assert queue.resources.free == {"slots": 1}


def test_jobs_whose_time_has_passed_are_taken_out(queue, held):
    park(queue, held, 1, 2, 3, deadlines=[1.0, 3.0, 2.0])
    runs, expired, _ = queue.start(2.0)
    assert [(run.ids, run.deadlines) for run in runs] == [([2], [3.0])]
    assert [ids for _, ids in expired] == [[1], [3]]
    assert queue.parked == 0


def test_taken_jobs_are_removed_from_their_lines_only(queue, held):
    other = HeldJobs(b"n", OWNER)
    park(queue, held, 1, 2)
    park(queue, other, 1, 2)
    queue.remove(held, {1, 2})
    queue.check()
    assert queue.parked == 2
    assert started(queue) == [[1], [2]]
    assert {lane.held for lane in queue.running.values()} == {other}


def test_forgetting_a_manager_drops_waiting_jobs_and_marks_running_ones(queue, held):
    park(queue, held, 1, 2, 3)
    queue.start(0.0)
    assert [lane.number for lane in queue.forget(b"m")] == [1, 2]
    assert queue.forget(b"m") == []
    assert queue.parked == 0
    assert queue.resources.free == {"slots": 0}
    queue.check()


@pytest.mark.parametrize(
    ("mean", "places", "window"),
    [(None, 1, 0), (0.03, 8, 0), (0.02, 1, 1), (0.01, 4, 8), (0.0, 1, 1024), (1e-9, 9, 1024)],
)
def test_the_window_keeps_the_places_busy_for_window_time(mean, places, window):
    settings = WorkerSettings(identity=b"w", epoch=1, window_time=0.02, window_max=1024)
    throughput = Throughput(settings, places)
    if mean is not None:
        throughput.record("default", mean, 1)
    assert throughput.window == window


def test_the_slowest_role_counts_for_the_window():
    throughput = Throughput(WorkerSettings(identity=b"w", epoch=1), 4)
    throughput.record("quick", 0.001, 1)
    throughput.record("slow", 1.0, 1)
    assert throughput.window == 0


def test_the_mean_moves_with_the_newest_bundles():
    throughput = Throughput(WorkerSettings(identity=b"w", epoch=1), 4)
    throughput.record("default", 8.0, 4)
    assert throughput.means == {"default": 2.0}
    throughput.record("default", 4.0, 1)
    assert throughput.means == {"default": 2.5}


def test_a_job_that_is_answered_is_off_the_books(held):
    held.add([1, 2], [3, 4])
    assert held.start([1, 2]) == [3, 4]
    assert held.remove([1], ExecutionInput.FINISH) == [3]
    assert len(held) == 1
    assert held.remove([2], ExecutionInput.FINISH) == [4]
    assert (held.attempts, held.states) == ({}, {})
