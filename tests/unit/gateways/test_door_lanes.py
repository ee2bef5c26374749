"""Lanes with several jobs at a back door: the line of jobs that wait, and the ends of a lane."""

from __future__ import annotations

import pytest

from tests.unit.gateways.test_back_doors import HEARTBEAT, Door, reply, request_of
from wmp.actions import Interrupt, Recall, Run
from wmp.codec import pack_frames
from wmp.events import Begun, Finished, Recalled
from wmp.foreign import Dismissed, Left, Of, Staff, Unsent
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.common.job_lanes import LANE_JOBS, LANE_TIME, REPORT_INTERVAL
from wmp.gateways.queue_doors.worker_door_wire import ParanoidDoorWire, PingPongDoorWire
from wmp.message import Kind, Outcome

OK, LOST, CANCELLED, ERROR = Outcome.OK, Outcome.LOST, Outcome.CANCELLED, Outcome.ERROR


@pytest.fixture
def door():
    door = Door(ParanoidDoorWire())
    door.get(b"\x01", peer=b"a")
    assert door.actions == [Staff("workers", ("default",), 1, LANE_JOBS, LANE_TIME)]
    return door


def run(door, count, *, codec="", lane=1, first=1, **columns):
    """Give the door a lane with some jobs."""
    ids = range(first, first + count)
    payloads = [b"%d" % id for id in ids]
    run = Run(
        lane=lane,
        kind=Kind("default", codec=codec),
        manager=(b"m", 1),
        ids=ids,
        attempts=[1] * count,
        deadlines=columns.pop("deadlines", None),
        payloads=columns.pop("payloads", payloads),
        **columns,
    )
    door.order(run)


def bodies(door):
    return [request_of(frames)[1] for _, frames in door.emitted]


def ends(door):
    return [
        (id, outcome, payload)
        for action in door.actions
        if isinstance(action, Of) and isinstance(action.what, Finished)
        for id, outcome, payload in zip(
            action.what.ids, action.what.outcomes, action.what.payloads, strict=True
        )
    ]


@pytest.mark.rule("PIRATE-7.1")
def test_the_next_job_goes_out_with_the_reply_to_the_last_and_the_ends_leave_together(door):
    run(door, 3)
    assert bodies(door) == [(b"1",)]

    reply(door, b"a", b"one")
    assert (bodies(door), ends(door)) == ([(b"2",)], [])
    reply(door, b"a", b"two")
    assert (bodies(door), ends(door)) == ([(b"3",)], [])
    reply(door, b"a", b"three")
    assert bodies(door) == []
    assert ends(door) == [(1, OK, b"one"), (2, OK, b"two"), (3, OK, b"three")]
    assert (door.state(b"a"), door.places) == (Attendance.IDLE, None)
    assert door.machine.deadline() == pytest.approx(door.now + 1.0)  # only heartbeats are due


def test_every_job_of_a_lane_has_a_token_of_its_own(door):
    run(door, 2)
    first = door.sent[0]
    reply(door, b"a", b"one")
    assert request_of(door.sent[0])[0] != request_of(first)[0]

    door.get(*request_of(first)[2], b"one again", peer=b"a")
    assert (door.drops, bodies(door), ends(door)) == (["other reply"], [], [])


def test_an_end_does_not_wait_for_a_slow_job(door):
    run(door, 3)
    reply(door, b"a", b"one")
    door.wait(REPORT_INTERVAL)
    assert ends(door) == [(1, OK, b"one")]
    door.get(*HEARTBEAT, peer=b"a")
    assert ends(door) == []


def test_an_end_that_waited_leaves_with_the_next_reply(door):
    run(door, 4)
    sent = door.emitted
    for number in range(2):
        frames = dict(sent)[b"a"]
        door.now += REPORT_INTERVAL * 0.6
        door.get(*request_of(frames)[2], b"%d" % number, peer=b"a")
        sent = door.emitted
    assert ends(door) == []
    door.now += REPORT_INTERVAL * 0.6
    reply(door, b"a", b"2")
    assert [id for id, _, _ in ends(door)] == [1, 2, 3]
    assert bodies(door) == [(b"4",)]


@pytest.mark.rule("PIRATE-7.3", "PING-4.6")
@pytest.mark.parametrize("how", ["left", "unsent"])
def test_only_the_begun_job_is_lost_with_its_worker_and_the_others_go_back(door, how):
    run(door, 3)
    reply(door, b"a", b"one")

    if how == "left":
        door.feed(Left(0, b"a"))
    else:
        door.feed(Unsent(0, b"a"))
    assert [row[:2] for row in ends(door)] == [(1, OK), (2, LOST), (3, CANCELLED)]
    assert door.places == 0
    assert door.machine.statistics().lost == 1


@pytest.mark.rule("PIRATE-7.3", "PING-4.6")
def test_a_worker_that_begins_anew_loses_its_job_and_gets_the_next_one(door):
    run(door, 3)
    reply(door, b"a", b"one")
    door.get(b"\x01", peer=b"a")
    assert [row[:2] for row in ends(door)] == [(1, OK), (2, LOST)]
    assert (bodies(door), door.places) == ([(b"3",)], None)


@pytest.mark.rule("PIRATE-7.1")
def test_the_jobs_of_all_lanes_go_out_in_the_order_of_their_arrival(door):
    door.get(b"\x01", peer=b"b")
    run(door, 3)
    sent = dict(door.emitted)
    order = [int(body) for (body,) in bodies(door)]
    run(door, 3, lane=2, first=4)
    assert bodies(door) == []
    for peer in (b"b", b"b", b"a", b"b"):
        door.get(*request_of(sent[peer])[2], b"done", peer=peer)
        order += [int(body) for (body,) in bodies(door)]
        sent |= dict(door.emitted)
    assert order == [1, 2, 3, 4, 5, 6]


@pytest.mark.rule("PIRATE-7.4")
def test_a_job_that_takes_too_long_is_lost_and_the_others_go_back():
    door = Door(ParanoidDoorWire(), busy_timeout=2.0)
    door.get(b"\x01", peer=b"a")
    run(door, 3)
    door.wait(1.5)
    door.actions = []
    door.get(*HEARTBEAT, peer=b"a")
    door.wait(0.5)
    assert [row[:2] for row in ends(door)] == [(1, LOST), (2, CANCELLED), (3, CANCELLED)]
    assert door.state(b"a") is Attendance.LATE


def test_the_time_of_each_job_counts_from_its_own_begin():
    door = Door(ParanoidDoorWire(), busy_timeout=2.0)
    door.get(b"\x01", peer=b"a")
    run(door, 2)
    frames = door.sent[0]
    door.wait(1.5)
    door.get(*request_of(frames)[2], b"one", peer=b"a")
    door.wait(1.9)
    assert [row[:2] for row in ends(door)] == [(1, OK)]
    door.wait(0.1)
    assert [row[:2] for row in ends(door)] == [(2, LOST)]


def test_jobs_that_have_not_begun_can_be_recalled(door):
    run(door, 4)

    door.order(Recall(1, [1, 3]))
    assert door.actions == [Of("workers", Recalled(1, (3,)))]
    reply_to = door.machine._workers[b"a"].token
    door.get(reply_to, b"", b"one", peer=b"a")
    assert bodies(door) == [(b"2",)]
    reply(door, b"a", b"two")
    assert bodies(door) == [(b"4",)]


@pytest.mark.rule("PIRATE-7.4")
def test_an_interruption_ends_only_the_jobs_that_it_names(door):
    run(door, 4)
    token = door.machine._workers[b"a"].token

    door.order(Interrupt(1, [3]))
    assert (ends(door), door.state(b"a")) == ([(3, CANCELLED, b"")], Attendance.BUSY)
    door.order(Interrupt(1, [1]))
    assert ends(door) == [(1, CANCELLED, b""), (2, CANCELLED, b""), (4, CANCELLED, b"")]
    assert door.state(b"a") is Attendance.LATE
    door.get(token, b"", b"late", peer=b"a")
    assert (door.drops, door.state(b"a")) == (["late reply"], Attendance.IDLE)


def test_a_job_whose_time_has_passed_does_not_begin(door):
    run(door, 3, deadlines=[None, door.now + 0.001, None])
    door.now += 0.002
    reply(door, b"a", b"one")
    assert bodies(door) == [(b"3",)]
    reply(door, b"a", b"three")
    assert ends(door) == [(1, OK, b"one"), (2, CANCELLED, b""), (3, OK, b"three")]


def test_the_begin_of_each_job_is_reported_if_jobs_of_the_lane_have_limits(door):
    run(door, 2, limits=[None, 5.0])
    assert Of("workers", Begun(1, 1)) in door.actions
    reply(door, b"a", b"one")
    assert Of("workers", Begun(1, 2)) in door.actions


def test_results_of_another_codec_leave_in_a_report_of_their_own():
    door = Door(ParanoidDoorWire(), home=(b"m", 1))
    door.get(b"\x01", peer=b"a")
    run(door, 3)
    reply(door, b"a", b"one")
    reply(door, b"a", b"two", b"parts")
    assert ends(door) == [(1, OK, b"one")]
    reply(door, b"a", b"three")
    reports = [action.what for action in door.actions if isinstance(action, Of)]
    assert [(list(report.ids), report.codec) for report in reports] == [
        ([2], "frames"),
        ([3], None),
    ]


@pytest.mark.rule("PING-4.5")
def test_a_job_that_no_worker_would_take_ends_and_the_next_one_begins():
    door = Door(PingPongDoorWire())
    door.get(b"", b"READY", peer=b"a")
    run(door, 3, payloads=[b"PONG", b"2", b"EXIT"])
    assert bodies(door) == [(b"2",)]
    reply(door, b"a", b"two")
    assert [row[:2] for row in ends(door)] == [(1, ERROR), (2, OK), (3, ERROR)]


def test_a_payload_that_is_no_list_of_frames_ends_its_job(door):
    run(door, 2, codec="frames", payloads=[b"no list", pack_frames([b"a", b"b"])])
    assert bodies(door) == [(b"a", b"b")]
    door.wait(REPORT_INTERVAL)
    assert [row[:2] for row in ends(door)] == [(1, ERROR)]


@pytest.mark.rule("PING-4.9")
def test_a_dismissed_worker_gets_no_further_job_of_its_lane():
    door = Door(PingPongDoorWire())
    door.get(b"", b"READY", peer=b"a")
    run(door, 3)
    door.feed(Dismissed(0, b"a"))
    assert ends(door) == [(2, CANCELLED, b""), (3, CANCELLED, b"")]
    door.get(b"", b"one", peer=b"a")
    assert (ends(door), door.places) == ([(1, OK, b"one")], 0)
