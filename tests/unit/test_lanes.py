"""Who starts next, with how many on a lane."""

from __future__ import annotations

import pytest

from wmp.core.protocol.resources import Resources
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.execution_lifecycle import ExecutionInput, HeldJobs
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.run_queue import RunQueue
from wmp.core.worker.throughput import Throughput
from wmp.message import Kind

OWNER = (b"m", 1)
PLAIN = Kind()
BIG = Kind("default", (("slots", 2),))


@pytest.fixture
def lanes():
    settings = WorkerSettings(identity=b"w", epoch=1, lane_time=0.005, lane_max=8)
    return RunQueue(Resources.of({"slots": 2}), Throughput(settings))


@pytest.fixture
def upstream():
    return RemoteManager(b"m", 1, 0, (), 0.0, 0.0, 0.0)


def park(lanes, upstream, *ids, kind=PLAIN, deadlines=None):
    upstream.taken.setdefault(OWNER, HeldJobs()).add(ids, [1] * len(ids))
    deadlines = deadlines or [None] * len(ids)
    lanes.park(upstream, OWNER, kind, ids, deadlines, [b"%d" % job for job in ids], 0.0)


def started(lanes, now=0.0):
    runs, _, _ = lanes.start(now)
    lanes.check()
    return [list(run.ids) for run in runs]


def end(lanes, number):
    lane = lanes.running[number]
    lanes.end(lane, list(lane.ids))


def test_jobs_start_in_the_order_in_which_they_came(lanes, upstream):
    park(lanes, upstream, 1, kind=Kind("a"))
    park(lanes, upstream, 2, kind=Kind("b"))
    park(lanes, upstream, 3, kind=Kind("a"))
    assert started(lanes) == [[1], [2]]
    end(lanes, 1)
    assert started(lanes) == [[3]]


def test_a_line_that_does_not_fit_keeps_its_resources_from_those_behind(lanes, upstream):
    park(lanes, upstream, 1)
    assert started(lanes) == [[1]]
    park(lanes, upstream, 2, kind=BIG)
    park(lanes, upstream, 3)
    assert started(lanes) == []
    end(lanes, 1)
    assert started(lanes) == [[2]]


def test_what_is_left_for_others_is_what_nobody_waits_for(lanes, upstream):
    park(lanes, upstream, 1)
    park(lanes, upstream, 2, kind=BIG)
    _, _, spare = lanes.start(0.0)
    assert spare.free == {"slots": 0}
    assert lanes.resources.free == {"slots": 1}


def test_an_unknown_role_gets_one_job_a_lane(lanes, upstream):
    park(lanes, upstream, *range(1, 5))
    assert started(lanes) == [[1], [2]]


def test_bundles_take_about_the_lane_time(lanes, upstream):
    lanes.pace.record("default", 0.001, 1)
    park(lanes, upstream, *range(1, 100))
    assert [len(ids) for ids in started(lanes)] == [5, 5]


def test_bundles_have_a_limit_and_share_the_free_slots(lanes, upstream):
    lanes.pace.record("default", 0.0, 1)
    park(lanes, upstream, *range(1, 4))
    assert started(lanes) == [[1, 2], [3]]
    end(lanes, 1)
    end(lanes, 2)
    park(lanes, upstream, *range(4, 100))
    assert [len(ids) for ids in started(lanes)] == [8, 8]


def test_a_lane_holds_its_resources_until_its_last_job_ends(lanes, upstream):
    lanes.pace.record("default", 0.0, 1)
    park(lanes, upstream, *range(1, 5))
    assert started(lanes) == [[1, 2], [3, 4]]
    lanes.end(lanes.running[1], [2])
    assert lanes.resources.free == {"slots": 0}
    lanes.end(lanes.running[1], [1])
    assert lanes.resources.free == {"slots": 1}


def test_jobs_whose_time_has_passed_are_taken_out(lanes, upstream):
    park(lanes, upstream, 1, 2, 3, deadlines=[1.0, 3.0, 2.0])
    runs, expired, _ = lanes.start(2.0)
    assert [(run.ids, run.deadlines) for run in runs] == [([2], [3.0])]
    assert [ids for _, ids in expired] == [[1], [3]]
    assert lanes.parked == 0


def test_taken_jobs_are_removed_from_their_lines_only(lanes, upstream):
    other = RemoteManager(b"n", 1, 0, (), 0.0, 0.0, 0.0)
    park(lanes, upstream, 1, 2)
    park(lanes, other, 1, 2)
    lanes.remove(upstream, OWNER, {1, 2})
    lanes.check()
    assert lanes.parked == 2
    assert started(lanes) == [[1], [2]]
    assert {lane.upstream for lane in lanes.running.values()} == {other}


def test_forgetting_a_manager_drops_what_waits_and_marks_what_runs(lanes, upstream):
    park(lanes, upstream, 1, 2, 3)
    lanes.start(0.0)
    assert [lane.number for lane in lanes.forget(upstream)] == [1, 2]
    assert lanes.forget(upstream) == []
    assert lanes.parked == 0
    assert lanes.resources.free == {"slots": 0}
    lanes.check()


@pytest.mark.parametrize(
    ("mean", "places", "window"),
    [(None, 1, 0), (0.03, 8, 0), (0.02, 1, 1), (0.01, 4, 8), (0.0, 1, 1024), (1e-9, 9, 1024)],
)
def test_the_window_is_what_keeps_the_places_busy_for_its_time(mean, places, window):
    pace = Throughput(WorkerSettings(identity=b"w", epoch=1, window_time=0.02, window_max=1024))
    if mean is not None:
        pace.record("default", mean, 1)
    assert pace.window(places) == window


def test_the_slowest_role_counts_for_the_window():
    pace = Throughput(WorkerSettings(identity=b"w", epoch=1))
    pace.record("quick", 0.001, 1)
    pace.record("slow", 1.0, 1)
    assert pace.window(4) == 0


def test_the_mean_moves_with_the_newest_bundles():
    pace = Throughput(WorkerSettings(identity=b"w", epoch=1))
    pace.record("default", 8.0, 4)
    assert pace.means == {"default": 2.0}
    pace.record("default", 4.0, 1)
    assert pace.means == {"default": 2.5}


def test_a_job_that_is_answered_is_off_the_books(upstream):
    upstream.taken[OWNER] = taken = HeldJobs()
    taken.add([1, 2], [3, 4])
    assert taken.start([1, 2]) == [3, 4]
    assert upstream.end(OWNER, [1], ExecutionInput.FINISH) == [3]
    assert upstream.held == 1
    assert upstream.end(OWNER, [2], ExecutionInput.FINISH) == [4]
    assert upstream.taken == {}
