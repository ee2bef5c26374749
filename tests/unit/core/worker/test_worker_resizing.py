"""A worker whose resources change: READY, held GIVEs, jobs that run and jobs that wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.worker.workers import fields, finish, make, met, only, runs
from wmp.core.protocol.resources import Resources
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Resized
from wmp.message import Command, Field, Kind, Outcome
from wmp.testing.peers.scripted_worker import sent
from wmp.testing.simulator.network import Network

SLOT = (("slots", 1),)


def resize(worker: WorkerMachine, slots: int, now: float = 0.0):
    actions = worker.handle(Resized({"slots": slots}), now)
    worker.check_invariants()
    return actions


@pytest.mark.rule("WMP-3.15")
@pytest.mark.parametrize("slots", [0, 1, 5])
def test_ready_with_the_new_resources_goes_out_on_every_link(slots):
    worker = make(2, resources={"slots": 2})
    first = only(worker.handle(Connected(0), 0.0), Command.READY)
    worker.handle(Connected(1), 0.0)

    readys = sent(resize(worker, slots), Command.READY)

    assert len(readys) == 2
    for ready in readys:
        assert ready.to == ()
        assert fields(ready, Field.CREDIT, Field.RESOURCES) == (slots, {"slots": slots})
        assert ready.fields[Field.READY] > first.fields[Field.READY]


@pytest.mark.rule("WMP-3.15", "WMP-5.4")
def test_held_gives_above_the_rest_are_withdrawn_and_sent_again_for_the_rest():
    worker = make(resources={"slots": 3}, hold=5.0)
    manager = met(worker)
    lock = manager.last_lock
    assert worker.statistics().locked == {"slots": 3}

    withdrawal = only(resize(worker, 1), Command.GIVE)
    assert fields(withdrawal, Field.LOCK, Field.WANT) == (lock, 0)

    give = only(manager.no(lock), Command.GIVE)
    assert give.fields[Field.WANT] == 1
    worker.check_invariants()


def test_a_held_give_covers_places_that_came_later():
    worker = make(resources={"slots": 0}, hold=5.0)
    manager = met(worker)
    assert manager.last_lock == 0

    actions = resize(worker, 2)

    assert only(actions, Command.GIVE).fields[Field.WANT] == 2
    assert only(actions, Command.READY).fields[Field.CREDIT] == 2


@pytest.mark.rule("WMP-3.15")
def test_jobs_that_run_go_on_and_none_begins_before_there_is_room():
    worker = make(resources={"slots": 2})
    manager = met(worker)
    give = only(manager.wake(2), Command.GIVE)
    first, second = runs(manager.take(give.fields[Field.LOCK], b"a", b"b"))

    ready = only(resize(worker, 1), Command.READY)
    assert ready.fields[Field.CREDIT] == 0
    assert worker.statistics().free == {"slots": -1}

    actions = finish(worker, first)
    assert only(actions, Command.DONE).columns.outcomes == [Outcome.OK]
    assert sent(manager.wake(1), Command.GIVE) == []
    actions = finish(worker, second)
    assert only(actions, Command.GIVE).fields[Field.WANT] == 1
    worker.check_invariants()


@pytest.mark.rule("WMP-3.15", "WMP-6.11")
def test_a_job_that_can_never_start_any_more_is_handed_back():
    worker = make(resources={"slots": 1}, window=1)
    manager = met(worker)
    give = only(manager.wake(2), Command.GIVE)
    (run,) = runs(manager.take(give.fields[Field.LOCK], b"a", b"b"))

    done = only(resize(worker, 0), Command.DONE)

    assert (done.columns.ids, done.columns.outcomes) == ([2], [Outcome.CANCELLED])
    assert only(finish(worker, run), Command.DONE).columns.ids == [1]


def test_a_result_may_have_another_codec_than_its_job():
    worker = make()
    manager = met(worker)
    give = only(manager.wake(1), Command.GIVE)
    (run,) = runs(manager.take(give.fields[Field.LOCK], b"a"))
    assert run.kind == Kind("default", SLOT)

    from wmp.events import Finished

    actions = worker.handle(Finished(run.lane, [1], [Outcome.OK], [b"x"], codec="frames"), 0.0)

    assert only(actions, Command.DONE).fields[Field.CODEC] == "frames"


def test_resources_that_shrink_leave_a_debt_until_earlier_jobs_end():
    resources = Resources.of({"slots": 3, "gpu": 1})
    resources.take(SLOT, 2)

    resources.resize({"slots": 1})
    resources.check()
    assert (resources.free, resources.overdrawn) == ({"slots": -1, "gpu": 0}, True)
    assert resources.fits(SLOT) == 0
    resources.take(SLOT, 0)
    resources.release(SLOT, 2)
    assert (resources.fits(SLOT), resources.overdrawn) == (1, False)
    resources.resize({"slots": 4, "tpu": 2})
    assert resources.free == {"slots": 4, "gpu": 0, "tpu": 2}


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("resize"), st.integers(0, 3)),
            st.tuples(st.just("submit"), st.integers(1, 4)),
            st.tuples(st.just("finish"), st.integers(0, 9)),
            st.tuples(st.just("deliver"), st.integers(0, 9)),
            st.tuples(st.just("wait"), st.integers(1, 9)),
        ),
        max_size=30,
    ),
    hold=st.sampled_from([0.0, 5.0]),
    window=st.sampled_from([None, 0, 2]),
)
def test_all_jobs_end_whenever_the_resources_change(steps, hold, window):
    from tests.unit.core.manager.managers import make as make_manager

    network = Network()
    network.add("m", make_manager())
    worker = make(resources={"slots": 1}, hold=hold, window=window)
    network.add("w", worker, ["m"])
    network.connect("w")
    slots = maximum = 1
    for step, number in steps:
        if step == "resize":
            slots = number
            maximum = max(maximum, slots)
            network.happen("w", Resized({"slots": slots}))
        elif step == "submit":
            network.submit("m", [b"x"] * number)
        elif step == "wait":
            network.advance(network.now + number / 4)
        elif step == "deliver" and (pipes := network.busy()):
            network.deliver(pipes[number % len(pipes)])
        elif step == "finish" and (lanes := list(network.running())):
            network.finish(*lanes[number % len(lanes)])
        worker.check_invariants()
        assert len(list(network.running())) <= maximum
    network.happen("w", Resized({"slots": 1}))
    for _ in range(40):
        network.settle()
        network.advance(network.now + 1.0)
    assert not network.twice
    assert len(network.results) == network._last_id.get("m", 0)
