"""A manager that takes over jobs of its store which workers got from another manager (spec §14)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.manager.stored_manager import StoredManager, cancels, takes
from wmp.actions import End, Note
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.events import Submitted
from wmp.message import Command, ErrorCode, Field, Kind, Outcome
from wmp.retry import Retry
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import StoredJobState
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent

State = StoredJobState
STORE = (b"reference", 1)


@pytest.fixture
def manager() -> StoredManager:
    return StoredManager()


def granted(manager: StoredManager, *payloads: bytes, **more: Any) -> list[int]:
    """Let the worker w1 hold jobs of a manager."""
    ids = manager.submit(*payloads, **more)
    worker = manager.worker()
    assert takes(worker.give(len(payloads), hold=30)) == [(id, 1) for id in ids]
    return ids


def successor(manager: StoredManager) -> tuple[StoredManager, ScriptedWorker]:
    """End a manager's process; return its successor, and the worker w1 in a session with it."""
    manager.store.died.add(manager.me.number)
    other = StoredManager(manager, epoch=8)
    other.wait(1.5)
    return other, met(other)


def met(manager: StoredManager) -> ScriptedWorker:
    """Return the worker w1 in a session with a manager."""
    worker = manager.worker()
    worker.ping()
    return worker


def list_jobs(worker: ScriptedWorker, *jobs: tuple[int, int], **more: Any) -> list[Any]:
    """Send the list of the jobs of the store that the worker holds."""
    idle = None if jobs else True
    return worker.ping(held=jobs, **{"manager": STORE, "sent": worker.number, "idle": idle, **more})


# -- the store is the owner


@pytest.mark.rule("WMP-14.1")
def test_a_take_of_stored_jobs_names_the_store_and_how_long_workers_keep_them(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()

    (take,) = sent(worker.give(1, hold=30), Command.TAKE)

    assert take.columns is not None
    assert list(take.columns.ids) == [id]
    assert take.fields[Field.MANAGER] == STORE
    assert take.fields[Field.KEEP] == 300_000


@pytest.mark.rule("WMP-14.1")
def test_a_take_has_jobs_of_one_owner(manager):
    (id,) = manager.submit(b"one")
    manager.handle(Submitted([FIRST_UNSTORED], [b"plain"], Kind()))
    worker = manager.worker()

    some = sent(worker.give(2, hold=30), Command.TAKE)

    owners = {tuple(take.columns.ids): take.fields[Field.MANAGER] for take in some}
    assert owners == {(id,): STORE, (FIRST_UNSTORED,): (b"m", 7)}
    assert [Field.KEEP in take.fields for take in some].count(True) == 1


@pytest.mark.rule("WMP-14.1")
def test_every_pong_names_the_store(manager):
    worker = manager.worker()

    (pong,) = sent(worker.ping(), Command.PONG)

    assert pong.fields[Field.SERVES] == (STORE,)


@pytest.mark.rule("WMP-14.2")
def test_an_attempt_is_written_before_a_take_names_it(manager):
    manager.holds = True
    manager.submit(b"one")
    worker = manager.worker()

    early = takes(worker.give(1, hold=30))
    manager.answer_all()

    assert early == []
    assert [attempt for _, attempt in takes(manager.actions)] == [1]


@pytest.mark.rule("WMP-10.5")
def test_a_result_under_the_wrong_owner_does_not_count(manager):
    (id,) = granted(manager, b"one")
    worker = manager.workers[0]

    for owner in ((b"m", 7), (b"other store", 1)):
        (error,) = sent(worker.done([id], manager=owner), Command.ERROR)
        assert error.fields[Field.CODE] == ErrorCode.UNKNOWN
    worker.done([FIRST_UNSTORED], manager=STORE)

    assert manager.ends() == {}
    worker.done([id])
    assert manager.ends() == {id: (End.OK, b"result")}


# -- results that are not written yet


@pytest.mark.rule("WMP-14.3")
def test_kept_names_the_last_done_whose_results_are_written(manager):
    first, second, third = granted(manager, b"1", b"2", b"3")
    worker = manager.workers[0]
    worker.done([first])
    manager.holds = True

    worker.done([second])
    worker.done([third])
    (early,) = sent(worker.ping(), Command.PONG)
    manager.answer()
    (between,) = sent(worker.ping(), Command.PONG)
    manager.answer_all()
    (late,) = sent(worker.ping(), Command.PONG)

    fields = [
        (message.fields[Field.ACK], message.fields.get(Field.KEPT))
        for message in (early, between, late)
    ]
    assert fields == [(3, 1), (3, 2), (3, None)]


@pytest.mark.rule("WMP-14.3")
def test_kept_stays_when_the_instance_ended_before_the_result_was_written(manager):
    (id,) = granted(manager, b"1")
    worker = manager.workers[0]
    manager.holds = True
    worker.done([id])
    manager.store.died.add(manager.me.number)
    StoredManager(manager, identity=b"other").wait(1.5)
    manager.writes.clear()

    manager.begin([id])
    (pong,) = sent(worker.ping(), Command.PONG)
    manager.answer_all()

    assert pong.fields[Field.KEPT] == 0
    assert Field.KEPT not in sent(worker.ping(), Command.PONG)[0].fields
    assert manager.row(id).state is State.OK


# -- lists


@pytest.mark.rule("WMP-14.7")
def test_a_successor_takes_a_listed_job_over_in_its_attempt(manager):
    (id,) = granted(manager, b"one")
    other, worker = successor(manager)

    actions = list_jobs(worker, (id, 1))
    row = other.row(id)

    assert (row.state, row.attempt, row.instance) == (State.RESERVED, 1, other.me.number)
    assert takes(actions) == []
    assert cancels(actions) == []
    assert [action.ids for action in actions if isinstance(action, Note)] == [[id]]
    worker.done([id], [b"work of attempt 1"], manager=STORE)
    assert other.ends() == {id: (End.OK, b"work of attempt 1")}
    assert other.row(id).attempt == 1


@pytest.mark.rule("WMP-14.7")
def test_a_job_that_was_taken_over_is_not_given_to_others_and_lapses_no_more(manager):
    (id,) = granted(manager, b"one")
    other, worker = successor(manager)
    list_jobs(worker, (id, 1))
    second = other.worker(b"w2")

    got = takes(second.give(1, hold=60))
    for _ in range(12):
        got += takes(other.wait(1.0))
        second.ping()
        list_jobs(worker, (id, 1))

    assert got == []


@pytest.mark.rule("WMP-14.7")
def test_a_listed_job_of_a_manager_that_lives_is_taken_over_at_a_later_list(manager):
    (id,) = granted(manager, b"one")
    other = StoredManager(manager, identity=b"other", epoch=8)
    worker = met(other)

    early = list_jobs(worker, (id, 1))
    before = other.row(id).instance
    manager.store.died.add(manager.me.number)
    other.wait(1.5)
    late = list_jobs(worker, (id, 1))

    assert cancels(early) == cancels(late) == []
    assert before == manager.me.number
    assert other.row(id).instance == other.me.number


@pytest.mark.rule("WMP-14.7")
@pytest.mark.parametrize("attempt", [2, 7])
def test_a_listed_attempt_that_is_not_the_current_one_is_cancelled(manager, attempt):
    (id,) = granted(manager, b"one")
    _, worker = successor(manager)

    (cancel,) = cancels(list_jobs(worker, (id, attempt)))

    assert cancel.columns is not None
    assert (list(cancel.columns.ids), list(cancel.columns.attempts)) == ([id], [attempt])
    assert cancel.fields[Field.MANAGER] == STORE


@pytest.mark.rule("WMP-14.7")
def test_a_listed_job_that_ended_or_is_not_in_the_store_is_cancelled(manager):
    ended, gone = granted(manager, b"one", b"two")
    manager.workers[0].done([ended])
    _, worker = successor(manager)

    (cancel,) = cancels(list_jobs(worker, (ended, 1), (gone + 1000, 1)))

    assert cancel.columns is not None
    assert list(cancel.columns.ids) == [ended, gone + 1000]


@pytest.mark.rule("WMP-14.7", "WMP-6.12")
def test_a_job_that_was_cancelled_is_taken_over_and_cancelled_at_its_worker(manager):
    (id,) = granted(manager, b"one")
    manager.cancel(id)
    other, worker = successor(manager)

    actions = list_jobs(worker, (id, 1))

    assert [list(message.columns.ids) for message in cancels(actions)] == [[id]]
    worker.done([id], outcome=Outcome.CANCELLED, manager=STORE)
    assert other.row(id).state is State.CANCELLED


@pytest.mark.rule("WMP-9.13")
def test_a_list_of_the_store_is_about_its_jobs_only(manager):
    (id,) = manager.submit(b"one")
    manager.handle(Submitted([FIRST_UNSTORED], [b"plain"], Kind(), max_worker_losses=0))
    worker = manager.worker()
    worker.give(2, hold=30)

    list_jobs(worker, (id, 1))
    assert manager.ends() == {}
    worker.ping(manager=(b"m", 7), sent=0, idle=True)

    assert [end for end, _ in manager.ends().values()] == [End.LOST]
    assert manager.row(id).attempt == 1


@pytest.mark.rule("WMP-9.13")
@pytest.mark.parametrize("more", [{"more": True}, {"sent": 1}])
def test_a_list_that_is_not_whole_or_ahead_of_the_stream_ends_no_lease(manager, more):
    (id,) = granted(manager, b"one")
    worker = manager.workers[0]

    list_jobs(worker, **more)
    before = manager.row(id).attempt
    list_jobs(worker)

    assert (before, manager.row(id).attempt) == (1, 2)


def test_a_worker_that_leaves_before_the_answer_does_not_keep_the_job(manager):
    (id,) = granted(manager, b"one")
    other, worker = successor(manager)
    other.holds = True
    list_jobs(worker, (id, 1))

    worker.bye()
    other.answer_all()
    second = other.worker(b"w2")

    assert takes(second.give(1, hold=30)) == [(id, 2)]


# -- results


@pytest.mark.rule("WMP-14.8")
def test_a_result_of_the_current_attempt_counts_whoever_granted_it(manager):
    (id,) = granted(manager, b"one")
    other, worker = successor(manager)

    worker.done([id], [b"work of attempt 1"], manager=STORE)

    row = other.row(id)
    assert (row.state, row.attempt, row.result) == (State.OK, 1, b"work of attempt 1")


@pytest.mark.rule("WMP-14.8")
def test_a_result_counts_while_the_manager_that_granted_the_job_lives(manager):
    (id,) = granted(manager, b"one")
    other = StoredManager(manager, identity=b"other", epoch=8)

    met(other).done([id], [b"result"], manager=STORE)
    manager.wake()

    assert other.row(id).state is State.OK
    assert manager.ends() == {id: (End.OK, b"result")}


@pytest.mark.rule("WMP-14.8", "WMP-6.2")
@pytest.mark.parametrize("attempt", [1, 3])
def test_a_result_of_another_attempt_does_not_count(manager, attempt):
    (id,) = granted(manager, b"one")
    other, worker = successor(manager)
    other.wait(12.0)
    other.wake()
    assert takes(other.worker(b"w2").give(1, hold=30) + other.wait(0.1)) == [(id, 2)]

    worker.done([id], attempt=attempt, manager=STORE)

    assert (other.row(id).state, other.row(id).attempt) == (State.RESERVED, 2)


@pytest.mark.rule("WMP-14.8")
def test_a_result_counts_beside_a_list_that_is_not_answered(manager):
    (id,) = granted(manager, b"one")
    other, worker = successor(manager)
    other.holds = True

    list_jobs(worker, (id, 1))
    worker.done([id], [b"result"], manager=STORE)
    list_jobs(worker)
    other.answer_all()

    assert other.row(id).state is State.OK
    assert not cancels(other.actions)


@pytest.mark.rule("WMP-14.8", "WMP-6.26")
def test_a_failure_counts_with_the_settings_of_the_job(manager):
    retry = Retry(times=1, on="builtins.ValueError", backoff=0.5, jitter=False)
    (id,) = granted(manager, b"one", retry=retry)
    other, worker = successor(manager)

    worker.done(
        [id],
        outcome=Outcome.ERROR,
        manager=STORE,
        texts=["bad\nbuiltins.ValueError builtins.Exception"],
    )

    row = other.row(id)
    assert (row.state, row.failed, row.attempt) == (State.QUEUED, 1, 1)


@pytest.mark.rule("WMP-14.8")
@pytest.mark.parametrize(
    ("outcome", "state", "lost"),
    [
        (Outcome.ERROR, State.ERROR, 0),
        (Outcome.OVERRUN, State.TIMEOUT, 0),
        (Outcome.CANCELLED, State.RESERVED, 0),
        (Outcome.REFUSED, State.RESERVED, 0),
        (Outcome.LOST, State.RESERVED, 1),
    ],
)
def test_every_end_of_an_attempt_counts_in_the_store(manager, outcome, state, lost):
    (id,) = granted(manager, b"one", stored=StoredTerms(max_worker_losses=1))
    other, worker = successor(manager)

    worker.done([id], outcome=outcome, manager=STORE)

    assert (other.row(id).state, other.row(id).lost) == (state, lost)
    if state is State.RESERVED:
        assert takes(other.worker(b"w2").give(1, hold=30)) == [(id, 2)]


@pytest.mark.rule("WMP-14.8", "WMP-6.15")
def test_a_lost_attempt_ends_a_job_that_was_lost_too_often(manager):
    (id,) = granted(manager, b"one", max_worker_losses=0)
    other, worker = successor(manager)

    worker.done([id], [b"its process died"], outcome=Outcome.LOST, manager=STORE)

    assert other.row(id).state is State.LOST
    assert b"its process died" in (other.row(id).result or b"")


@pytest.mark.rule("WMP-14.8")
def test_a_result_is_kept_when_the_instance_ends_before_the_store_was_asked(manager):
    (id,) = granted(manager, b"one")
    other, worker = successor(manager)
    other.holds = True
    worker.done([id], [b"result"], manager=STORE)
    other.writes.clear()

    other.begin()
    other.answer_all()

    assert other.row(id).state is State.OK


@pytest.mark.rule("WMP-14.2")
@pytest.mark.parametrize("first", [True, False], ids=["of the adoption", "of the row"])
def test_after_a_lost_answer_a_job_with_a_result_is_not_given_again(manager, first):
    (id,) = granted(manager, b"one")
    other, worker = successor(manager)
    second = other.worker(b"w2")
    second.give(1, hold=60)
    other.holds = True

    list_jobs(worker, (id, 1))
    worker.done([id], [b"result"], manager=STORE)
    other.answer(lost=first)
    other.answer(lost=not first)
    other.answer_all()
    other.wait(2.0)

    assert (other.row(id).state, other.row(id).result) == (State.OK, b"result")
    assert takes(other.actions) == []
