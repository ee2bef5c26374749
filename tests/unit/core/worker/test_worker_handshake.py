"""The worker machine, rule by rule: links, READY and WAKE (spec §1, §3)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.unit.core.worker.workers import (
    fields,
    finish,
    give,
    make,
    met,
    only,
    reasons,
    runs,
    until,
)
from wmp.actions import Run, Send
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import LocalProtocolError
from wmp.events import Connected, Ticked
from wmp.message import Command, Field
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import sent

# -- §1


@pytest.mark.rule("WMP-1.1")
def test_every_message_is_from_identity_and_epoch():
    for message in sent(make().handle(Connected(0), 0.0)):
        assert message.source == (b"w", 5)


@pytest.mark.rule("WMP-1.3")
def test_a_worker_has_one_link_for_each_manager_endpoint():
    worker = make(2)
    assert worker.deadline() is None
    assert {a.link for a in worker.handle(Connected(0), 0.0)} == {0}
    assert {a.link for a in worker.handle(Connected(1), 0.0)} == {1}
    with pytest.raises(LocalProtocolError, match="link 2"):
        worker.handle(Connected(2), 0.0)


@pytest.mark.rule("WMP-1.5", "WMP-1.8")
def test_a_manager_is_known_by_its_identity_not_by_its_connection():
    worker = make(2)
    manager = met(worker)
    manager.wake()
    worker.handle(Connected(1), 0.0)
    manager.link, manager.hops = 1, (b"d", 9, 0)
    assert reasons(manager.pong()) == ["claimed"]
    manager.now = 1.1
    # The manager did not answer a challenge over its old route.
    worker.handle(Ticked(), manager.now)

    (run,) = runs(manager.take(1))  # the worker finds the lock, although the route has changed

    assert [row.identity for row in worker.statistics().managers] == [b"m1"]
    done = only(finish(worker, run, now=manager.now), Command.DONE)
    assert done.to == (0, 9, b"d", 1, b"m1")


@pytest.mark.rule("WMP-1.6")
def test_an_undelivered_message_affects_no_other_manager():
    from wmp.events import Undelivered

    worker = make(2)
    first, second = met(worker), met(worker, identity=b"m2", link=1)
    give = only(first.wake(), Command.GIVE)

    actions = worker.handle(Undelivered(0, give), 0.0)

    assert reasons(actions) == ["undelivered"]
    assert len(actions) == 1
    assert worker.statistics().managers[1].reachable
    assert not sent(second.wake(), Command.GIVE)  # the lock still belongs to the first manager


# -- §3


@pytest.mark.rule("WMP-3.1")
def test_ready_and_ping_go_out_on_every_link_that_connects():
    worker = make(2, resources={"slots": 3, "gpu": 1}, roles=("a", "b"), label="host/1")
    for link in (0, 1):
        ready, ping = worker.handle(Connected(link), 0.0)
        assert (ready.link, ping.link) == (link, link)
        assert ready.message.to == ping.message.to == ()
        assert ready.message.command is Command.READY
        assert ping.message.command is Command.PING
        assert fields(ready.message, Field.CREDIT, Field.ROLES, Field.RESOURCES) == (
            3,
            ("a", "b"),
            {"slots": 3, "gpu": 1},
        )
        assert ready.message.fields[Field.LABEL] == ping.message.fields[Field.LABEL] == "host/1"


@pytest.mark.rule("WMP-3.1")
def test_a_worker_without_room_connects_with_credit_0():
    worker = make(2)
    manager = met(worker)
    manager.wake()
    assert runs(manager.take(1))

    ready = only(worker.handle(Connected(1), 0.0), Command.READY)

    assert ready.fields[Field.CREDIT] == 0


def test_nothing_happens_before_a_link_is_connected():
    worker = make()
    assert worker.handle(Ticked(), 100.0) == []
    assert worker.deadline() is None


@pytest.mark.rule("WMP-3.2")
def test_the_same_ready_has_one_number_and_a_new_one_a_greater():
    worker = make(2)
    first = only(worker.handle(Connected(0), 0.0), Command.READY)
    second = only(worker.handle(Connected(1), 0.0), Command.READY)
    assert first.fields == second.fields

    manager = ScriptedManager(worker)
    manager.pong()
    manager.wake()
    (run,) = runs(manager.take(1))
    later = only(finish(worker, run), Command.READY)
    assert later.fields[Field.READY] > first.fields[Field.READY]


@pytest.mark.rule("WMP-3.2")
def test_a_ready_that_a_rule_demands_has_a_new_number():
    worker = make(resources={"slots": 2})
    manager = met(worker)
    manager.wake(1)

    after_take = only(manager.take(1), Command.READY)
    manager.wake(1)
    manager.take(2)
    busy = [only(manager.wake(1, role="nobody"), Command.READY) for _ in range(2)]

    numbers = [1, *(ready.fields[Field.READY] for ready in (after_take, *busy))]
    assert numbers == sorted(set(numbers))
    assert [ready.fields[Field.CREDIT] for ready in busy] == [0, 0]


@pytest.mark.rule("WMP-3.13")
def test_a_worker_without_capacity_sends_no_ready_to_a_manager_that_remembers_none():
    worker = make()
    manager = met(worker)
    manager.wake()
    manager.take(1)

    assert not sent(manager.pong(ready=None, credit=None), Command.READY)


@pytest.mark.rule("WMP-3.8", "WMP-4.1")
def test_a_wake_with_room_locks_resources_and_is_answered_by_give():
    worker = make(resources={"slots": 3})
    manager = met(worker)

    actions = manager.wake(2)

    give = only(actions, Command.GIVE)
    assert not sent(actions, Command.READY)
    assert give.to == (1, b"m1")
    assert fields(give, Field.LOCK, Field.WANT, Field.ROLES, Field.NEEDS, Field.HOLD) == (
        1,
        2,
        ("default",),
        {"slots": 1},
        None,
    )
    assert worker.statistics().free == {"slots": 1}


@pytest.mark.rule("WMP-3.9")
def test_a_wake_without_room_is_answered_by_credit_0_and_kept():
    worker = make()
    first, second = met(worker), met(worker, identity=b"m2")
    first.wake()
    (run,) = runs(first.take(1))

    actions = second.wake()
    ready = only(actions, Command.READY)
    assert (ready.to, ready.fields[Field.CREDIT]) == ((1, b"m2"), 0)
    assert not sent(actions, Command.GIVE)

    give = only(finish(worker, run), Command.GIVE)
    assert give.to == (1, b"m2")


@pytest.mark.rule("WMP-3.9")
def test_the_newest_wake_of_a_manager_replaces_the_one_that_is_kept():
    worker = make(resources={"slots": 2})
    manager = met(worker)
    manager.wake(2)
    (a, b) = runs(manager.take(1, b"1", b"2"))
    manager.wake(2)
    manager.wake(1)

    give = only(finish(worker, a), Command.GIVE)
    assert give.fields[Field.WANT] == 1
    assert not sent(finish(worker, b), Command.GIVE)


@pytest.mark.rule("WMP-3.9")
def test_a_wake_is_kept_however_old_it_gets():
    worker = make()
    manager = met(worker)
    manager.wake()
    (run,) = runs(manager.take(1))
    manager.wake()

    for now, _ in until(worker, 60.0):
        manager.now = now
        manager.pong()

    assert worker.statistics().managers[0].waking
    give = only(finish(worker, run, now=60.0), Command.GIVE)
    assert give.fields[Field.WANT] == 1


@pytest.mark.rule("WMP-3.10")
def test_freed_places_go_to_the_manager_served_least_recently():
    worker = make()
    managers = [met(worker, identity=b"m%d" % n) for n in range(3)]
    (run,) = runs(managers[0].wake() and managers[0].take(1))
    for manager in managers:
        manager.wake()
    order = []
    for _ in range(9):
        give = only(finish(worker, run), Command.GIVE)
        manager = next(m for m in managers if m.identity == give.receiver)
        order.append(manager.identity)
        (run,) = runs(manager.take(give.fields[Field.LOCK]))
        manager.wake()
    assert order == [b"m1", b"m2", b"m0"] * 3


@pytest.mark.rule("WMP-3.10")
def test_room_is_shared_among_the_managers_that_wait_for_it():
    worker = make(resources={"slots": 4})
    first, second, third = (met(worker, identity=b"m%d" % n) for n in range(3))
    first.wake(4)
    second.wake(9)
    third.wake(9)

    gives = sent(first.no(1), Command.GIVE)

    assert [(give.receiver, give.fields[Field.WANT]) for give in gives] == [(b"m1", 2), (b"m2", 2)]


@pytest.mark.rule("WMP-3.10", "WMP-3.17")
def test_places_in_the_window_are_gathered_before_a_manager_in_waiting_gets_them():
    worker = make(window=8, lane_max=1)
    busy, first, second = (met(worker, identity=b"m%d" % n) for n in range(3))
    busy.wake(9)
    (run,) = runs(busy.take(1, *[b"x"] * 9))  # one job starts, eight jobs wait
    first.wake(5)
    second.wake(5)
    gives = []
    while not gives:
        actions = finish(worker, run)
        gives = sent(actions, Command.GIVE)
        (run,) = runs(actions)

    # A quarter of the window goes to one manager, and the next quarter to the other.
    assert [(give.receiver, give.fields[Field.WANT]) for give in gives] == [(b"m1", 2)]
    gives = sent(finish(worker, run), Command.GIVE)
    assert not gives


def test_a_job_that_needs_much_is_not_starved_by_small_ones():
    worker = make(resources={"slots": 2})
    small, large = met(worker), met(worker, identity=b"m2")
    a, b = runs(small.wake(2) and small.take(1, b"1", b"2"))
    large.wake(needs={"slots": 2})
    small.wake()

    assert not sent(finish(worker, a), Command.GIVE)  # the free slot is reserved
    give = only(finish(worker, b), Command.GIVE)

    assert (give.receiver, give.fields[Field.NEEDS]) == (b"m2", {"slots": 2})


def test_a_waiting_job_reserves_only_the_resources_that_it_needs():
    worker = make(resources={"slots": 2, "gpu": 1})
    small, large = met(worker), met(worker, identity=b"m2")
    gpu = {"slots": 1, "gpu": 1}
    assert runs(large.wake(needs=gpu) and large.take(1, needs=gpu))
    large.wake(needs={"gpu": 1})

    assert only(small.wake(), Command.GIVE).receiver == b"m1"


@pytest.mark.rule("WMP-3.11")
def test_room_left_after_a_take_is_announced_before_the_jobs_run():
    worker = make(resources={"slots": 3})
    manager = met(worker)
    manager.wake(1)

    actions = manager.take(1)

    ready = only(actions, Command.READY)
    assert ready.fields[Field.CREDIT] == 2
    kinds = [type(action) for action in actions]
    assert kinds.index(Send) < kinds.index(Run)
    assert not sent(actions, Command.DONE)


@pytest.mark.rule("WMP-3.11")
def test_no_room_left_after_a_take_is_not_announced():
    worker = make()
    manager = met(worker)
    manager.wake()
    assert not sent(manager.take(1), Command.READY, Command.GIVE)


@pytest.mark.rule("WMP-3.12")
def test_ready_is_repeated_with_its_number_and_backs_off_to_32_s():
    worker = make()
    manager = met(worker)
    times, numbers = [0.0], {manager.ready}
    for now, actions in until(worker, 300.0):
        manager.now = now
        for ready in sent(actions, Command.READY):
            assert ready.to == ()
            times.append(now)
            numbers.add(ready.fields[Field.READY])
        manager.pong()
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert len(numbers) == 1
    for wait, maximum in zip(waits, [1, 2, 4, 8, 16, 32, 32, 32], strict=False):
        assert 0.75 * maximum <= wait <= maximum
    assert len(waits) >= 8


def test_every_ready_carries_the_headers_of_the_application_and_a_repeated_one_too():
    worker = make(headers={"rack": "r7", "spot": True})
    first = only(worker.handle(Connected(0), 0.0), Command.READY)
    again = next(only(acts, Command.READY) for _, acts in until(worker, 2.0) if acts)
    manager = met(worker)
    (give,) = sent(manager.wake(1), Command.GIVE)
    alone = only(manager.wake(1), Command.READY)

    assert (again.fields[Field.READY], alone.to) == (first.fields[Field.READY], (1, b"m1"))
    for ready in (first, again, alone):
        assert fields(ready, "rack", "spot") == ("r7", True)
    assert not [key for key in give.fields if isinstance(key, str)]


def test_a_ready_without_headers_has_the_keys_of_the_specification_only():
    ready = only(make().handle(Connected(0), 0.0), Command.READY)
    assert not [key for key in ready.fields if isinstance(key, str)]


@pytest.mark.rule("WMP-3.12")
def test_the_repeats_of_two_workers_do_not_fall_together():
    times = []
    for identity in (b"w1", b"w2"):
        worker = WorkerMachine(WorkerSettings(identity=identity, epoch=1, hold=0.0), 1)
        worker.handle(Connected(0), 0.0)
        times.append(next(now for now, acts in until(worker, 2.0) if sent(acts, Command.READY)))
    assert times[0] != times[1]


@pytest.mark.rule("WMP-3.13")
@pytest.mark.parametrize("remembered", [{"ready": None}, {"credit": 0}])
def test_a_pong_that_shows_less_than_the_room_is_answered_by_a_new_ready(remembered):
    worker = make()
    manager = met(worker)
    before = manager.ready

    ready = only(manager.pong(**remembered), Command.READY)

    assert ready.to == (1, b"m1")
    assert ready.fields[Field.READY] > before
    assert ready.fields[Field.CREDIT] == 1
    assert not sent(manager.pong(), Command.READY)


@pytest.mark.rule("WMP-3.13")
def test_a_pong_that_shows_an_older_ready_is_answered_by_a_new_one():
    worker = make(resources={"slots": 2})
    manager = met(worker)
    manager.wake()
    only(manager.take(1), Command.READY)

    ready = only(manager.pong(ready=1, credit=1), Command.READY)

    assert ready.fields[Field.READY] == 3


@pytest.mark.rule("WMP-3.13")
def test_no_ready_while_a_give_is_open_or_a_wake_pending():
    worker = make(resources={"slots": 2})
    manager = met(worker)
    manager.wake()
    assert not sent(manager.pong(credit=0), Command.READY)  # a GIVE is open

    worker = make(resources={"slots": 1, "gpu": 1})
    manager = met(worker)
    manager.wake(needs={"gpu": 1})
    assert runs(manager.take(1, needs={"gpu": 1}))
    manager.wake(needs={"gpu": 1})
    assert worker.statistics().managers[0].waking
    assert not sent(manager.pong(credit=0), Command.READY)


@pytest.mark.rule("WMP-3.9")
@pytest.mark.parametrize("what", [{"role": "cook"}, {"needs": {"slots": 2}}, {"needs": {"gpu": 1}}])
def test_a_wake_that_can_never_be_served_is_answered_and_not_kept(what):
    worker = make()
    manager = met(worker)

    actions = manager.wake(**what)

    assert reasons(actions) == ["wake in vain"]
    assert only(actions, Command.READY).fields[Field.CREDIT] == 0
    assert not worker.statistics().managers[0].waking


@pytest.mark.rule("WMP-3.9")
def test_a_wake_that_can_never_be_served_does_not_replace_a_pending_wake():
    worker = make()
    first, second = met(worker), met(worker, identity=b"m2")
    (run,) = runs(give(first))
    second.wake()

    second.wake(role="cook")

    (message,) = sent(finish(worker, run), Command.GIVE)
    assert message.receiver == b"m2"


def test_there_is_at_most_one_ready_on_a_link_in_a_step():
    worker = make(resources={"slots": 2})
    managers = [met(worker, identity=b"m%d" % n) for n in range(4)]
    for manager in managers:
        manager.pong(credit=2)
    takes = runs(managers[0].wake(2) and managers[0].take(1, b"1", b"2"))
    for manager in managers:
        manager.pong(credit=0)
    for run in takes:
        (ready,) = sent(finish(worker, run), Command.READY)
        assert ready.to == ()  # several managers need this READY, so it goes to all


@pytest.mark.rule("WMP-3.16")
def test_a_waiting_job_starts_before_freed_resources_are_offered():
    worker = make(window=4, lane_max=1)
    busy, other = met(worker), met(worker, identity=b"m2")
    busy.wake(2)
    (run,) = runs(busy.take(1, b"runs", b"waits"))
    other.wake(1, needs={"slots": 1})

    actions = finish(worker, run)

    assert len(runs(actions)) == 1
    gives = sent(actions, Command.GIVE)
    assert all(give.fields.get(Field.WINDOW, 0) == give.fields[Field.WANT] for give in gives)
