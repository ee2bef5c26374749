"""The worker machine, rule by rule: jobs from TAKE to DONE (spec §6)."""

from __future__ import annotations

from zlib import crc32

import pytest

from tests.unit.core.worker.workers import finish, give, make, met, runs, until
from wmp.actions import Drop, Interrupt, Recall, Run, Send
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Begun, Finished, Recalled, Reported, Ticked
from wmp.message import Command, Field, Kind, Outcome
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import sent


@pytest.fixture
def worker():
    """Return a worker with two slots. Three more jobs may wait, and a lane has one job."""
    return WorkerMachine(
        WorkerSettings(
            identity=b"w", epoch=5, hold=0.0, window=3, lane_max=1, resources={"slots": 2}
        ),
        1,
    )


@pytest.fixture
def manager(worker):
    return met(worker)


@pytest.fixture
def fast():
    """Return a worker with one slot. A lane has up to four jobs, as for a role with quick jobs."""
    worker = WorkerMachine(
        WorkerSettings(identity=b"w", epoch=5, hold=0.0, window=10, lane_max=4), 1
    )
    manager = met(worker)
    (run,) = runs(give(manager))
    finish(worker, run)
    return worker, manager


def jobs(count):
    return [b"job"] * count


def dones(actions):
    """Return (id, attempt, outcome) of every answer, message by message."""
    return [
        list(zip(m.columns.ids, m.columns.attempts, m.columns.outcomes, strict=True))
        for m in sent(actions, Command.DONE)
    ]


def test_jobs_that_end_together_are_answered_in_one_message(worker, manager):
    first, two = runs(give(manager, *jobs(4)))

    gathered = worker.gather(Finished(first.lane, first.ids, [Outcome.OK], [b"result"]), 0.0)
    worker.check_invariants()
    actions = finish(worker, two)

    assert gathered == []
    assert dones(actions) == [[(1, 1, Outcome.OK), (2, 1, Outcome.OK)]]
    assert [run.ids for run in runs(actions)] == [[3], [4]]


@pytest.mark.rule("WMP-6.14")
def test_a_job_whose_process_died_is_answered_lost_with_the_cause(fast):
    worker, manager = fast
    (run,) = runs(give(manager, *jobs(3)))

    actions = finish(worker, run, run.ids[:1], outcome=Outcome.LOST, payload=b"killed")
    (done,) = sent(actions, Command.DONE)
    assert (done.columns.ids, done.columns.outcomes) == (run.ids[:1], [Outcome.LOST])
    assert done.columns.payloads == [b"killed"]

    # The lane still has the later jobs, and they end.
    (rest,) = dones(finish(worker, run, run.ids[1:]))
    assert [outcome for _, _, outcome in rest] == [Outcome.OK, Outcome.OK]


@pytest.mark.rule("WMP-6.6")
def test_every_job_is_answered_once_to_the_peer_that_sent_it(worker, manager):
    manager.owner = (b"far", 4)
    first, two = runs(give(manager, b"1", b"2", attempt=3))
    assert (first.manager, first.payloads, first.attempts) == ((b"far", 4), [b"1"], [3])

    (done,) = sent(finish(worker, first, outcome=Outcome.ERROR), Command.DONE)

    assert done.to == (1, b"m1")
    assert done.fields[Field.MANAGER] == (b"far", 4)
    assert (done.columns.ids, done.columns.attempts) == ([1], [3])
    assert (done.columns.outcomes, done.columns.payloads) == ([Outcome.ERROR], [b"result"])
    assert dones(finish(worker, first)) == []
    assert dones(finish(worker, two)) == [[(2, 3, Outcome.OK)]]
    assert worker.statistics().held == 0


@pytest.mark.rule("WMP-6.6")
def test_a_lane_may_report_in_parts(fast):
    worker, manager = fast
    (run,) = runs(give(manager, *jobs(4)))
    assert list(run.ids) == [2, 3, 4, 5]

    first = finish(worker, run, [3])
    assert dones(first) == [[(3, 1, Outcome.OK)]]
    assert worker.statistics().free == {"slots": 0}
    assert dones(finish(worker, run, [2, 4, 5])) == [
        [(2, 1, Outcome.OK), (4, 1, Outcome.OK), (5, 1, Outcome.OK)]
    ]
    assert worker.statistics().free == {"slots": 1}


def test_a_second_report_of_a_lane_is_dropped(fast):
    worker, manager = fast
    (run,) = runs(give(manager, b"1", b"2"))
    finish(worker, run, [2])

    actions = finish(worker, run, [2, 3])

    assert [a.reason for a in actions if isinstance(a, Drop)] == ["unknown job"]
    assert dones(actions) == [[(3, 1, Outcome.OK)]]
    (drop,) = finish(worker, run, [2])
    assert drop.reason == "unknown lane"


@pytest.mark.rule("WMP-6.6")
def test_the_codec_of_the_jobs_is_that_of_their_results(worker, manager):
    (run,) = runs(give(manager, codec="cbor"))
    assert run.kind == Kind("default", (("slots", 1),), "cbor")
    (done,) = sent(finish(worker, run), Command.DONE)
    assert done.fields[Field.CODEC] == "cbor"


def test_results_come_before_new_room_and_new_room_before_new_work(worker, manager):
    first, _ = runs(give(manager, *jobs(5)))
    manager.wake(1)

    actions = finish(worker, first)

    order = [a.message.command if isinstance(a, Send) else type(a) for a in actions]
    assert order == [Command.DONE, Command.GIVE, Run]


def test_a_large_bundle_of_results_leaves_in_messages_of_bounded_size(fast):
    worker, manager = fast
    (run,) = runs(give(manager, *jobs(4)))
    actions = finish(worker, run, payload=bytes(3 << 20))
    assert dones(actions) == [[(n, 1, Outcome.OK)] for n in (2, 3, 4, 5)]


@pytest.mark.rule("WMP-6.7")
def test_a_job_that_has_not_begun_by_its_deadline_is_not_begun(worker, manager):
    a, b = runs(give(manager, *jobs(5), left_ms=[None, 100, 100, 200, None]))
    assert (a.deadlines, b.deadlines) == (None, [0.1])

    actions = finish(worker, a, now=0.15)

    (run,) = runs(actions)
    assert run.ids == [4]  # job 3 was too late, job 4 is not
    assert run.deadlines == [0.2]
    assert dones(actions) == [[(1, 1, Outcome.OK), (3, 1, Outcome.CANCELLED)]]


@pytest.mark.rule("WMP-6.7")
def test_a_job_that_comes_too_late_is_not_begun(worker, manager):
    actions = give(manager, left_ms=[0])
    assert not runs(actions)
    assert dones(actions) == [[(1, 1, Outcome.CANCELLED)]]


@pytest.mark.rule("WMP-6.9")
def test_progress_is_a_status_and_no_result(worker, manager):
    (run,) = runs(give(manager))

    (status,) = sent(worker.handle(Reported(run.lane, 1, 0.5, "half"), 0.0))

    assert status.command is Command.STATUS
    assert status.fields[Field.NUMBER] == 1
    assert status.fields[Field.MANAGER] == (b"m1", 1)
    assert (status.columns.ids, status.columns.attempts) == ([1], [1])
    assert (status.columns.fractions, status.columns.texts) == ([0.5], ["half"])
    assert worker.statistics().held == 1
    assert dones(finish(worker, run)) == [[(1, 1, Outcome.OK)]]


@pytest.mark.rule("WMP-6.9")
def test_progress_of_a_job_that_is_not_held_is_dropped(worker, manager):
    (run,) = runs(give(manager))
    finish(worker, run)
    (drop,) = worker.handle(Reported(run.lane, 1, None, "late"), 0.0)
    assert drop.reason == "unknown lane"


def test_progress_is_dropped_while_too_much_is_unacknowledged(worker, manager):
    (run,) = runs(give(manager))
    for _ in range(1024):
        worker.handle(Reported(run.lane, 1, None, "x" * 5000), 0.0)
    (drop,) = worker.handle(Reported(run.lane, 1, None, "x"), 0.0)
    assert drop.reason == "too much status"
    manager.received = 1024
    manager.pong()
    (status,) = sent(worker.handle(Reported(run.lane, 1, None, "ä" * 5000), 0.0))
    assert len(status.columns.texts[0].encode()) == 1024


@pytest.mark.rule("WMP-6.10")
def test_cancel_of_a_job_that_is_not_held_is_answered_cancelled(worker, manager):
    assert dones(manager.cancel(7, attempt=2)) == [[(7, 2, Outcome.CANCELLED)]]


@pytest.mark.rule("WMP-6.10")
@pytest.mark.parametrize("unstarted", [False, True])
def test_cancel_of_a_job_that_waits_takes_it_out(worker, manager, unstarted):
    a, _ = runs(give(manager, *jobs(4)))

    actions = manager.cancel(3, unstarted=unstarted)

    assert dones(actions) == [[(3, 1, Outcome.CANCELLED)]]
    assert not [x for x in actions if isinstance(x, Interrupt | Recall)]
    assert [run.ids for run in runs(finish(worker, a))] == [[4]]


@pytest.mark.rule("WMP-6.10")
def test_cancel_interrupts_a_running_job_and_its_outcome_is_reported(worker, manager):
    a, b = runs(give(manager, b"1", b"2"))

    actions = manager.cancel(1, 2)

    interrupts = [x for x in actions if isinstance(x, Interrupt)]
    assert interrupts == [Interrupt(a.lane, [1]), Interrupt(b.lane, [2])]
    assert not dones(actions)
    # Job 1 was interrupted already.
    assert not [x for x in manager.cancel(1) if isinstance(x, Interrupt)]
    assert dones(finish(worker, a, outcome=Outcome.CANCELLED)) == [[(1, 1, Outcome.CANCELLED)]]
    assert dones(finish(worker, b)) == [[(2, 1, Outcome.OK)]]


@pytest.mark.rule("WMP-6.10")
def test_cancel_unstarted_leaves_running_jobs_alone(fast):
    worker, manager = fast
    (run,) = runs(give(manager, *jobs(6)))

    actions = manager.cancel(2, 3, 4, 7, 9, unstarted=True)

    assert [x for x in actions if isinstance(x, Recall)] == [Recall(run.lane, [2, 3, 4])]
    assert not [x for x in actions if isinstance(x, Interrupt)]
    assert dones(actions) == [[(9, 1, Outcome.CANCELLED), (7, 1, Outcome.CANCELLED)]]
    recalled = worker.handle(Recalled(run.lane, [3, 4]), 0.0)
    assert dones(recalled) == [[(3, 1, Outcome.CANCELLED), (4, 1, Outcome.CANCELLED)]]
    ended = dones(finish(worker, run, [2, 5]))
    assert ended == [[(2, 1, Outcome.OK), (5, 1, Outcome.OK)]]


@pytest.mark.rule("WMP-6.10")
def test_cancel_of_an_older_attempt_leaves_the_newer_one_alone(worker, manager):
    (run,) = runs(give(manager, attempt=2))

    actions = manager.cancel(1, attempt=1)

    assert dones(actions) == [[(1, 1, Outcome.CANCELLED)]]
    assert not [x for x in actions if isinstance(x, Interrupt)]
    assert dones(finish(worker, run)) == [[(1, 2, Outcome.OK)]]


def test_a_job_handed_back_may_come_again(worker, manager):
    a, _ = runs(give(manager, *jobs(3)))
    manager.cancel(3, unstarted=True)
    assert dones(give(manager, ids=[3], attempt=2)) == []
    (run,) = runs(finish(worker, a))
    assert (run.ids, run.attempts) == ([3], [2])
    worker.check_invariants()


# -- throughput


def test_quick_jobs_are_bundled_and_shared_by_free_slots():
    worker = WorkerMachine(
        WorkerSettings(
            identity=b"w", epoch=1, hold=0.0, window=20, lane_max=8, resources={"slots": 2}
        ),
        1,
    )
    manager = met(worker)
    (run,) = runs(give(manager))
    finish(worker, run, now=0.0)  # the job took no time: the lane gets as many jobs as possible

    bundles = [len(run.ids) for run in runs(give(manager, *[b"x"] * 10))]

    assert bundles == [5, 5]


def test_slow_jobs_never_wait_here():
    worker = WorkerMachine(WorkerSettings(identity=b"w", epoch=1, hold=0.0, window_time=0.02), 1)
    manager = ScriptedManager(worker)
    manager.meet()
    assert manager.credit == 1  # the job's time is not known yet
    (run,) = runs(give(manager))
    finish(worker, run, now=1.0)
    assert worker.statistics().window == 0


def test_the_window_follows_the_time_of_the_jobs():
    worker = WorkerMachine(WorkerSettings(identity=b"w", epoch=1, hold=0.0, window_time=0.02), 1)
    manager = met(worker)
    (run,) = runs(give(manager))
    manager.note(finish(worker, run, now=0.002))
    assert worker.statistics().window == 10
    assert manager.credit == 11


def test_each_part_of_a_lane_is_timed_from_the_one_before():
    worker = WorkerMachine(WorkerSettings(identity=b"w", epoch=1, hold=0.0, window_time=0.02), 1)
    manager = met(worker)
    (run,) = runs(give(manager))
    finish(worker, run, now=0.002)
    manager.now = 1.0
    (run,) = runs(give(manager, b"1", b"2"))
    finish(worker, run, [2], now=1.01)
    finish(worker, run, [3], now=1.02)
    # The mean is 2 ms. It moves twice by a quarter of the distance to 10 ms: 5.5 ms.
    assert worker.statistics().window == 3


def test_a_tick_starts_nothing_twice(worker, manager):
    give(manager, b"1", b"2", b"3")
    assert not runs(worker.handle(Ticked(), 0.0))


@pytest.mark.rule("WMP-4.17")
@pytest.mark.parametrize("outcome", ["refused", "expired"])
def test_a_job_that_never_begins_holds_no_resources(outcome):
    worker = make()
    manager = met(worker)
    first = give(manager, role="nobody's") if outcome == "refused" else give(manager, left_ms=[0])

    assert not runs(first)
    assert worker.statistics().free == {"slots": 1}
    assert len(runs(give(manager))) == 1


@pytest.mark.rule("WMP-4.17")
def test_a_job_holds_its_resources_until_its_handler_ends():
    """DONE of a job that runs for too long is sent before its handler ends."""
    worker = make(overrun_grace=1.0)
    manager = met(worker)
    (run,) = runs(give(manager, limits_ms=[1000]))
    worker.handle(Begun(run.lane, 1), 0.0)
    done = [m for _, actions in until(worker, 2.0) for m in sent(actions, Command.DONE)]

    assert [m.columns.outcomes for m in done] == [[Outcome.OVERRUN]]
    assert worker.statistics().free == {"slots": 0}
    finish(worker, run, now=3.0)
    assert worker.statistics().free == {"slots": 1}


@pytest.mark.rule("WMP-4.17")
def test_done_goes_out_before_the_capacity_that_it_frees_is_offered():
    worker = make()
    manager, other = met(worker), met(worker, identity=b"m2")
    (run,) = runs(give(manager))
    other.wake()

    commands = [message.command for message in sent(finish(worker, run))]

    assert commands.index(Command.DONE) < commands.index(Command.GIVE)


@pytest.mark.rule("WMP-2.12", "WMP-4.14")
def test_a_held_job_goes_on_with_its_first_payload_whatever_a_higher_attempt_brings():
    worker = make(resources={"slots": 2})
    manager = met(worker)
    (run,) = runs(give(manager, b"123456789", checksums=[0xCBF43926]))

    again = give(manager, b"damaged", b"new", ids=[1, 2], attempt=2, checksums=[1, None])

    assert dones(again) == [[(2, 2, Outcome.REFUSED)]]
    (done,) = sent(finish(worker, run), Command.DONE)
    assert (run.payloads, done.columns.attempts) == ([b"123456789"], [2])
    assert done.columns.checksums == [crc32(b"result")]


@pytest.mark.rule("WMP-4.14")
@pytest.mark.parametrize("attempt", [1, 2])
def test_a_job_is_not_held_when_its_done_was_sent(attempt):
    worker = make()
    manager = met(worker)
    (first,) = runs(give(manager, attempt=1))
    finish(worker, first)
    assert worker.statistics().unacknowledged

    (second,) = runs(give(manager, ids=[1], attempt=attempt))

    assert dones(finish(worker, second)) == [[(1, attempt, Outcome.OK)]]
