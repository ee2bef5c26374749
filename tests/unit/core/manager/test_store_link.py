"""A manager with a store: what it writes, what waits for the answer, and what does not."""

from __future__ import annotations

from collections import deque

import pytest

from tests.unit.core.manager.stored_manager import StoredManager, cancels, takes
from wmp.actions import End, Halt, Write
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.errors import InstanceEnded
from wmp.events import Closed, Drained, StoreFilled, Submitted
from wmp.message import Command, Kind, Outcome
from wmp.retry import Retry
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, NewJobs, Reservation, WriteBatch
from wmp.testing.peers.scripted_worker import sent
from wmp.testing.store_worlds.reference_store import ReferenceStore

State = StoredJobState


@pytest.fixture
def manager() -> StoredManager:
    return StoredManager()


# -- acknowledged means stored


@pytest.mark.rule("STORE-12.1")
def test_a_job_is_acknowledged_when_the_answer_of_the_store_has_come(manager):
    manager.holds = True

    (id,) = manager.submit(b"one")
    before = manager.acknowledged()
    manager.answer_all()

    assert before == []
    assert manager.acknowledged() == [id]
    assert manager.row(id).payload == b"one"


@pytest.mark.rule("STORE-12.1")
def test_a_result_is_reported_when_it_is_written(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()
    assert takes(worker.give(1, hold=30)) == [(id, 1)]
    manager.holds = True

    worker.done([id], [b"result"])
    before = manager.ends()
    manager.answer_all()

    assert before == {}
    assert manager.ends() == {id: (End.OK, b"result")}
    assert manager.row(id).state is State.OK
    assert manager.row(id).result == b"result"


@pytest.mark.rule("STORE-12.4")
def test_heartbeats_and_jobs_that_are_not_stored_do_not_wait_for_the_store(manager):
    manager.holds = True
    manager.submit(b"stored")
    worker = manager.worker()

    assert [message.command for message in sent(worker.ping())] == [Command.PONG]
    manager.handle(Submitted([FIRST_UNSTORED], [b"plain"], Kind()))
    assert takes(worker.give(1, hold=30)) == [(FIRST_UNSTORED, 1)]
    worker.done([FIRST_UNSTORED])
    assert manager.ends() == {FIRST_UNSTORED: (End.OK, b"result")}


def test_what_happens_during_a_write_is_in_the_next_one(manager):
    manager.holds = True

    ids = [id for payload in (b"1", b"2", b"3") for id in manager.submit(payload)]
    first = manager.writes[0]
    manager.answer()
    second = manager.writes[0]

    assert [len(write.batch.adds) for write in (first, second)] == [1, 2]
    manager.answer_all()
    assert manager.acknowledged() == ids


# -- grants


@pytest.mark.rule("STORE-2.4")
def test_a_grant_names_the_attempt_that_the_store_has(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()

    assert takes(worker.give(1, hold=30)) == [(id, 1)]
    assert manager.row(id).attempt == 1
    assert manager.row(id).instance == manager.me.number


def test_a_job_for_which_a_worker_has_capacity_is_reserved_with_its_add(manager):
    worker = manager.worker()
    worker.give(2, hold=30)
    manager.actions.clear()

    (id,) = manager.submit(b"one")

    assert len([write for write in manager.actions if isinstance(write, Write)]) == 1
    assert takes(manager.actions) == [(id, 1)]


def test_jobs_of_other_processes_are_found_and_done(manager):
    other = StoredManager(manager, identity=b"other")
    (id,) = other.submit(b"theirs", kind=Kind("resize"))
    worker = manager.worker()
    worker.ready(0, roles=["resize"], resources={"slots": 1})
    worker.give(1, roles=["resize"], hold=30)

    assert takes(manager.wake()) == [(id, 1)]
    worker.done([id], [b"done"])
    assert manager.row(id).state is State.OK
    other.wake()
    assert other.ends() == {id: (End.OK, b"done")}
    assert not other.store.news(other.me).ended


@pytest.mark.rule("STORE-12.2")
def test_only_as_many_jobs_as_workers_have_capacity_for_are_in_memory(manager):
    for start in range(0, 400, 100):
        manager.submit(*[b"%d" % number for number in range(start, start + 100)])
    leases = manager.machine._scheduler.leases
    assert len(leases) == 0

    worker = manager.worker()
    ids = [id for id, _ in takes(worker.give(4, hold=30))]
    assert len(ids) == 4
    for _ in range(20):
        worker.done(ids)
        ids = [id for id, _ in takes(worker.give(4, hold=30))]
        assert len(ids) == 4
        assert len(leases) <= 8


@pytest.mark.rule("STORE-12.6")
def test_jobs_that_no_worker_has_capacity_for_are_given_back_after_a_second(manager):
    ids = manager.submit(b"1", b"2", b"3", b"4")
    worker = manager.worker()
    worker.ready(4, resources={"slots": 4})
    manager.tick()
    assert {manager.row(id).state for id in ids} == {State.RESERVED}

    worker.bye()
    manager.wait(4.0)

    assert {manager.row(id).state for id in ids} == {State.QUEUED}
    assert len(manager.machine._scheduler.leases) == 0


@pytest.mark.rule("STORE-12.6")
def test_a_refused_job_that_is_given_back_waits_ever_longer(manager):
    (id,) = manager.submit(b"1")
    waits = []
    for _ in range(3):
        worker = manager.worker()
        (taken,) = takes(worker.give(1, hold=30)) or takes(manager.wait(40.0))
        worker.done([id], [b""], outcome=Outcome.REFUSED, attempt=taken[1])
        worker.bye()
        while manager.row(id).state is not State.QUEUED:
            manager.wait(0.1)
        waits.append(manager.row(id).due / 1000 - manager.now)
        manager.now += 40.0

    assert waits == pytest.approx([1.0, 2.0, 4.0], abs=0.15)


# -- leases that end without a result


def test_a_lost_lease_gets_its_next_attempt_from_the_store(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()
    worker.give(1, hold=30)
    manager.holds = True

    worker.bye()
    other = manager.worker(b"w2")
    assert takes(other.give(1, hold=30)) == []
    actions = manager.answer_all()

    assert takes(actions) == [(id, 2)]
    assert (manager.row(id).attempt, manager.row(id).lost) == (2, 1)


def test_a_refused_job_is_no_worker_loss(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()
    worker.give(1, hold=30)

    worker.done([id], [b""], outcome=Outcome.REFUSED)

    assert (manager.row(id).attempt, manager.row(id).lost) == (2, 0)
    other = manager.worker(b"w2")
    assert takes(other.give(1, hold=30)) == [(id, 2)]


def test_a_job_that_was_lost_too_often_is_a_dead_letter(manager):
    (id,) = manager.submit(b"one", max_worker_losses=0)
    worker = manager.worker()
    worker.give(1, hold=30)

    worker.bye()

    row = manager.row(id)
    assert (row.state, row.lost) == (State.LOST, 1)
    end, text = manager.ends()[id]
    assert end is End.LOST
    assert row.result == text


def test_a_failed_job_waits_in_the_store_for_its_next_attempt(manager):
    retry = Retry(times=2, on=ValueError, backoff=5.0, jitter=False)
    (id,) = manager.submit(b"one", retry=retry)
    worker = manager.worker()
    worker.give(1, hold=30)

    worker.done([id], [b"error"], outcome=Outcome.ERROR, texts=["bad\nbuiltins.ValueError"])
    row = manager.row(id)
    assert (row.state, row.failed, row.attempt) == (State.QUEUED, 1, 1)
    assert manager.ends() == {}
    assert manager.machine.statistics().stored == 1
    worker.give(1, hold=60)
    assert takes(manager.wait(4.5)) == []
    worker.ping(held=[])
    assert takes(manager.wait(1.0)) == [(id, 2)]
    assert [(failure.attempt, failure.error) for failure in manager.row(id).history] == [(1, "bad")]


def test_a_delayed_job_is_granted_when_its_time_has_come(manager):
    worker = manager.worker()
    worker.give(1, hold=60)
    (id,) = manager.submit(b"one", delay=3.0)

    assert takes(manager.wait(2.5)) == []
    assert takes(manager.wait(1.0)) == [(id, 1)]


# -- cancellations and times


def test_a_job_in_the_store_is_cancelled_there(manager):
    (id,) = manager.submit(b"one")

    manager.cancel(id)

    assert manager.row(id).state is State.CANCELLED
    assert manager.ends() == {id: (End.CANCELLED, b"")}


def test_a_reserved_job_that_waits_is_cancelled(manager):
    worker = manager.worker()
    worker.ready(1)
    (id,) = manager.submit(b"one")
    assert manager.row(id).state is State.RESERVED

    manager.cancel(id)

    assert manager.row(id).state is State.CANCELLED
    assert manager.ends() == {id: (End.CANCELLED, b"")}
    assert takes(worker.give(1, hold=30)) == []


def test_a_leased_job_is_cancelled_at_its_worker(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()
    worker.give(1, hold=30)

    assert len(cancels(manager.cancel(id))) == 1
    assert manager.row(id).state is State.CANCELLING
    assert manager.ends() == {}
    worker.done([id], [b""], outcome=Outcome.CANCELLED)

    assert manager.row(id).state is State.CANCELLED
    assert manager.ends() == {id: (End.CANCELLED, b"")}


def test_a_job_that_is_cancelled_while_its_add_is_written_is_never_granted(manager):
    worker = manager.worker()
    worker.give(1, hold=30)
    manager.holds = True
    (id,) = manager.submit(b"one")

    manager.cancel(id)
    actions = manager.answer_all()

    assert takes(actions) == []
    assert manager.row(id).state is State.CANCELLED
    assert manager.ends()[id][0] is End.CANCELLED


@pytest.mark.rule("STORE-12.11")
def test_jobs_of_a_key_and_their_cancellations_are_written_in_their_order(manager):
    (first,) = manager.submit(b"first", keys=["k"])
    manager.holds = True
    manager.submit(b"under way")
    ids = []
    for name in (b"second", b"third", b"fourth"):
        manager.cancel(ids[-1] if ids else first)
        ids += manager.submit(name, keys=["k"])

    manager.answer_all()

    ended = [manager.row(id).state for id in (first, *ids)]
    assert ended == [State.CANCELLED, State.CANCELLED, State.CANCELLED, State.QUEUED]
    assert manager.ends() == dict.fromkeys((first, *ids[:2]), (End.CANCELLED, b""))


def test_a_job_that_another_process_cancels_is_stopped_at_its_worker(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()
    worker.give(1, hold=30)
    operator = manager.store.begin(b"operator", "operator")
    change = JobChanges(StoredJobInput.CANCEL, [id])
    manager.store.apply(operator, 1, WriteBatch(changes=[change]))

    assert len(cancels(manager.wake())) == 1
    worker.done([id], [b""], outcome=Outcome.CANCELLED)

    assert manager.ends() == {id: (End.CANCELLED, b"")}


def test_a_job_whose_timeout_passes_in_the_store_is_reported(manager):
    (id,) = manager.submit(b"one", timeout=2.0)

    manager.wait(4.0)

    assert manager.row(id).state is State.TIMEOUT
    assert manager.ends()[id][0] is End.TIMEOUT


def test_a_job_whose_timeout_passes_at_a_worker_is_cancelled_there(manager):
    (id,) = manager.submit(b"one", timeout=2.0)
    worker = manager.worker()
    worker.give(1, hold=30)

    actions = manager.wait(2.5)

    assert len(cancels(actions)) == 1
    assert manager.row(id).state is State.TIMEOUT
    assert manager.ends()[id][0] is End.TIMEOUT


# -- a store that is away, full, or of another opinion


@pytest.mark.rule("STORE-12.2")
def test_no_stored_job_is_granted_seven_seconds_after_the_last_renewal(manager):
    worker = manager.worker()
    worker.ready(2, resources={"slots": 2})
    first, second = manager.submit(b"1", b"2")
    manager.wait(1.5)
    manager.holds = True
    worker.ping()
    assert takes(worker.give(1, hold=30)) == [(first, 1)]

    manager.now += 8.0
    assert takes(worker.give(1, hold=30)) == []
    manager.tick()
    actions = manager.answer_all()

    assert manager.row(second).state is State.RESERVED
    assert takes([*actions, *worker.give(1, hold=30)]) == [(second, 1)]


@pytest.mark.rule("STORE-12.2")
def test_a_store_is_swept_and_the_instance_renewed_each_second(manager):
    manager.actions.clear()

    manager.wait(5.5)

    writes = [write for write in manager.actions if isinstance(write, Write)]
    assert len(writes) == 5
    assert all(write.batch.sweep for write in writes)


@pytest.mark.rule("STORE-12.1")
def test_a_full_store_refuses_new_jobs_and_takes_results(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()
    worker.give(1, hold=30)
    manager.holds = True
    manager.wait(1.0)
    (refused,) = manager.submit(b"two")
    worker.done([id])
    manager.answer()

    (write,) = manager.writes
    manager.handle(StoreFilled(write.step, "the disk is full"))
    assert manager.declined() == [refused]
    assert manager.ends() == {}
    manager.writes[0] = Write(write.step, WriteBatch(changes=write.batch.changes))
    manager.answer_all()

    assert manager.ends() == {id: (End.OK, b"result")}
    assert manager.acknowledged() == [id]
    assert not manager.rows(ids=[refused])


@pytest.mark.rule("STORE-12.1")
def test_a_full_store_refuses_jobs_that_wait_behind_a_batch(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()
    worker.give(1, hold=30)
    manager.holds = True
    worker.done([id])
    (write,) = manager.writes
    (refused,) = manager.submit(b"two")
    manager.handle(StoreFilled(write.step, "the disk is full"))
    assert manager.declined() == [refused]
    manager.answer_all()

    assert manager.ends() == {id: (End.OK, b"result")}
    assert not manager.rows(ids=[refused])


def test_a_lost_answer_loses_no_reserved_job(manager):
    worker = manager.worker()
    manager.submit(b"1", b"2")
    manager.holds = True
    worker.give(2, hold=30)
    (write,) = manager.writes
    assert write.batch.reservations

    actions = manager.answer(lost=True)

    assert [attempt for _, attempt in takes(actions)] == [1, 1]
    assert {row.state for row in manager.held()} == {State.RESERVED}


def test_a_reservation_whose_answer_is_lost_is_given_back_when_the_job_is_cancelled(manager):
    (id,) = manager.submit(b"one")
    operator = manager.store.begin(b"operator", "operator")
    worker = manager.worker()
    manager.holds = True
    worker.give(1, hold=30)
    (write,) = manager.writes
    manager.store.apply(manager.me, manager.number + 1, write.batch)
    change = JobChanges(StoredJobInput.CANCEL, [id])
    manager.store.apply(operator, 1, WriteBatch(changes=[change]))
    assert manager.row(id).state is State.CANCELLING

    manager.answer()
    manager.answer_all()

    assert manager.row(id).state is State.CANCELLED
    assert manager.ends() == {id: (End.CANCELLED, b"")}


def test_a_cancelled_job_that_is_reserved_and_not_known_here_is_given_back(manager):
    (id,) = manager.submit(b"one")
    operator = manager.store.begin(b"operator", "operator")
    manager.number += 1  # a reservation of which the machine knows nothing
    batch = WriteBatch(reservations=[Reservation(Kind(), 1, 100)])
    manager.store.apply(manager.me, manager.number, batch)
    change = JobChanges(StoredJobInput.CANCEL, [id])
    manager.store.apply(operator, 1, WriteBatch(changes=[change]))

    manager.wake()

    assert manager.row(id).state is State.CANCELLED
    assert manager.writes == deque()


def test_a_lost_answer_to_an_add_acknowledges_it_once(manager):
    worker = manager.worker()
    worker.give(1, hold=30)
    manager.holds = True
    (id,) = manager.submit(b"one")

    actions = manager.answer(lost=True)

    assert manager.acknowledged() == [id]
    assert takes(actions) == [(id, 1)]


@pytest.mark.rule("STORE-12.3")
def test_a_new_instance_writes_the_results_and_adopts_the_attempts_of_the_old_one(manager):
    done, held = manager.submit(b"1", b"2")
    worker = manager.worker()
    worker.give(2, hold=30)
    manager.holds = True
    manager.store.died.add(manager.me.number)
    other = StoredManager(manager, identity=b"other")
    other.wait(1.5)
    worker.done([done])
    with pytest.raises(InstanceEnded):
        manager.answer()

    manager.writes.clear()
    manager.holds = False
    manager.begin([done, held])

    assert manager.ends() == {done: (End.OK, b"result")}
    row = manager.row(held)
    assert (row.state, row.attempt, row.instance) == (State.RESERVED, 1, manager.me.number)
    worker.done([held])
    assert manager.ends()[held] == (End.OK, b"result")


@pytest.mark.rule("STORE-12.5", "STORE-12.8")
def test_a_job_that_lapsed_before_a_new_instance_is_cancelled_at_the_worker(manager):
    (id,) = manager.submit(b"1")
    worker = manager.worker()
    worker.give(1, hold=30)
    manager.store.died.add(manager.me.number)
    other = StoredManager(manager, identity=b"other")
    other.wait(12.0)
    other.wake()
    theirs = other.worker(b"w2")
    assert takes(theirs.give(1, hold=30) + other.wait(0.1)) == [(id, 2)]

    actions = list(manager.actions)
    manager.begin([id])

    assert len(cancels(manager.actions[len(actions) :])) == 1
    theirs.done([id], [b"theirs"], attempt=2)
    manager.wait(1.5)
    assert manager.ends() == {id: (End.OK, b"theirs")}


# -- keys


@pytest.mark.rule("STORE-12.8")
def test_a_job_that_joins_one_of_another_process_gets_its_result(manager):
    other = StoredManager(manager, identity=b"other")
    (id,) = other.submit(b"theirs", keys=["k"])
    worker = other.worker()
    assert takes(worker.give(1, hold=30)) == [(id, 1)]

    (mine,) = manager.submit(b"mine", keys=["k"])
    joined = [action.joined for action in manager.actions if getattr(action, "joined", None)]
    worker.done([id], [b"theirs"])
    manager.wait(1.5)

    assert joined == [{mine: id}]
    assert manager.ends() == {id: (End.OK, b"theirs")}


def test_a_job_that_joins_an_ended_one_gets_its_result_at_once(manager):
    (id,) = manager.submit(b"one", keys=["k"])
    worker = manager.worker()
    worker.give(1, hold=30)
    worker.done([id])
    manager.actions.clear()

    manager.submit(b"again", keys=["k"], unique="kept")

    assert manager.ends() == {id: (End.OK, b"result")}


# -- the end


@pytest.mark.rule("STORE-12.7")
def test_close_gives_back_what_no_worker_has_and_leaves_the_rest(manager):
    worker = manager.worker()
    worker.ready(2, resources={"slots": 2})
    leased, waiting = manager.submit(b"1", b"2")
    worker.give(1, hold=30)

    actions = manager.handle(Closed())

    assert manager.row(leased).state is State.RESERVED
    assert manager.row(waiting).state is State.QUEUED
    assert cancels(actions) == []
    assert any(isinstance(action, Halt) for action in actions)


@pytest.mark.rule("STORE-12.7")
def test_close_writes_the_results_that_are_not_written_yet(manager):
    (id,) = manager.submit(b"1")
    worker = manager.worker()
    worker.give(1, hold=30)
    manager.holds = True
    manager.wait(1.0)
    worker.done([id])

    manager.handle(Closed())
    while manager.writes:
        manager.answer()

    assert manager.row(id).state is State.OK


def test_a_draining_manager_ends_when_its_results_are_written(manager):
    leased, waiting = manager.submit(b"1", b"2")
    worker = manager.worker()
    worker.give(1, hold=30)

    actions = manager.handle(Drained())
    assert manager.row(waiting).state is State.QUEUED
    assert not any(isinstance(action, Halt) for action in actions)
    manager.holds = True
    assert not any(isinstance(action, Halt) for action in worker.done([leased]))
    actions = manager.answer_all()

    assert manager.row(leased).state is State.OK
    assert any(isinstance(action, Halt) for action in actions)


def test_a_store_with_many_jobs_is_emptied_by_two_managers():
    manager = StoredManager()
    other = StoredManager(manager, identity=b"other")
    ids = [id for node in (manager, other) for id in node.submit(*[b"%d" % n for n in range(50)])]
    workers = [(node, node.worker()) for node in (manager, other)]

    for _ in range(100):
        for node, worker in workers:
            got = takes([*node.wake(), *worker.give(4, hold=30)])
            for id, attempt in got:
                worker.done([id], attempt=attempt)

    assert {row.state for row in manager.rows()} == {State.OK}
    assert set(manager.ends()) | set(other.ends()) == set(ids)


def test_the_store_of_a_new_manager_has_the_jobs_of_the_old_one():
    store = ReferenceStore(lambda: 1000.0)
    me = store.begin(b"old", "old")
    new = NewJobs(Kind(), StoredTerms(), [1, 2], [b"a", b"b"])
    store.apply(me, 1, WriteBatch(adds=[new]))
    store.died.add(me.number)

    manager = StoredManager(store=store)
    worker = manager.worker()
    manager.wake()

    assert takes(worker.give(2, hold=30)) == [(1, 1), (2, 1)]
