"""Attempts of stored jobs: their numbers, and the failures that are kept, in store and manager."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest

from tests.unit.core.manager.stored_manager import StoredManager, takes
from tests.unit.store.stores import START, Client, Clock, sqlite_store
from wmp.actions import Resolve
from wmp.events import Woken
from wmp.message import Outcome
from wmp.retry import Retry
from wmp.store.sqlite import schema
from wmp.store.sqlite.statements import CHANGES
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import StoredFailure

State, Input = StoredJobState, StoredJobInput
NOW = int(START * 1000)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    store = sqlite_store(tmp_path / "jobs.db", clock)
    yield store
    store.close()


@pytest.fixture
def manager() -> StoredManager:
    return StoredManager()


@pytest.mark.rule("STORE-2.8", "STORE-2.4")
def test_attempts_count_leases_without_a_gap(store):
    client = Client(store)
    (id,) = client.add(b"x")
    histories = []
    for what in (Input.AGAIN, Input.RELEASE, Input.REPEAT, Input.AGAIN):
        (attempt,) = client.reserve().attempts
        histories.append(attempt)
        client.change(what, [id], [attempt])
        if what is Input.REPEAT:
            histories.append(client.job(id).attempt)
            client.change(Input.AGAIN, [id], [attempt + 1])
    assert histories == [1, 2, 2, 3, 4]
    # An attempt that was given back is over: no result of an earlier one counts.
    (attempt,) = client.reserve().attempts
    client.change(Input.RELEASE, [id], [attempt])
    assert client.change(Input.SUCCEED, [id], [attempt - 1], payloads=[b"r"]) == [State.QUEUED]


@pytest.mark.rule("STORE-6.6")
def test_failures_are_stored_with_the_change_of_their_attempt_and_only_then(store, clock):
    client = Client(store)
    ids = client.add(b"x", b"y", b"z")
    client.reserve()

    def failures(attempt: int) -> list[StoredFailure]:
        return [StoredFailure(attempt, f"w{id}", "no") for id in ids]

    client.change(Input.REPEAT, ids, [1, 1, 7], failures=failures(1))
    clock.move(1)
    client.change(Input.AGAIN, ids[:1], [2], failures=failures(2)[:1])
    client.change(Input.FAIL, ids[1:], [2, 9], payloads=[b"e", b""], failures=failures(2)[1:])
    assert [len(client.job(id).history) for id in ids] == [2, 2, 0]
    assert client.job(ids[1]).history[1] == StoredFailure(2, f"w{ids[1]}", "no", NOW + 1000)
    again = client.reserve()
    assert {id: [failure.attempt for failure in rows] for id, rows in again.histories.items()} == {
        ids[0]: [1, 2]
    }
    client.change(Input.REVIVE, ids[1:2])
    assert client.job(ids[1]).history == ()


@pytest.mark.rule("STORE-6.6")
def test_the_first_and_the_last_failures_of_a_job_are_kept(store):
    client = Client(store)
    (id,) = client.add(b"x")
    for attempt in range(1, 61):
        client.reserve()
        client.change(Input.AGAIN, [id], [attempt], failures=[StoredFailure(attempt, "w", "no")])
    kept = [failure.attempt for failure in client.job(id).history]
    assert kept == [*range(1, 17), *range(45, 61)]


def test_changes_of_many_jobs_find_each_by_its_number():
    """No change may read the whole table, however many jobs it names."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        schema.create(connection, b"", 0, 0)
        for statements in CHANGES.values():
            for statement in statements:
                for step in (*statement.steps, *filter(None, [statement.failure])):
                    values = [1] * step.text(2).count("?")
                    plan = connection.execute(f"EXPLAIN QUERY PLAN {step.text(2)}", values)
                    for row in plan.fetchall():
                        assert not re.match(r"SCAN (jobs|results|bodies|failures)", row[3]), step


# -- at a manager


@pytest.mark.rule("STORE-12.10")
@pytest.mark.parametrize("other", [False, True], ids=["the same manager", "the next manager"])
def test_an_error_has_the_history_of_all_attempts(manager, other):
    retry = Retry(times=1, on=ValueError, jitter=False)
    (id,) = manager.submit(b"one", retry=retry, max_worker_losses=5)
    worker = manager.worker()
    worker.give(1, hold=30)
    worker.done([id], [b"error"], outcome=Outcome.ERROR, texts=["first\nbuiltins.ValueError"])
    began = manager.now
    if other:
        manager.store.end(manager.me)
        manager = StoredManager(manager)
        manager.wake()
    manager.wait(2.0)
    worker = manager.worker(b"w2")
    worker.give(1, hold=30)
    worker.bye()
    worker = manager.worker(b"w3")
    ((_, attempt),) = takes(worker.give(1, hold=30))

    worker.done([id], [b"last"], outcome=Outcome.ERROR, texts=["second"], attempt=attempt)

    history = manager.row(id).history
    assert [failure.attempt for failure in history] == [1, 2, 3]
    assert [failure.error for failure in history][::2] == ["first", "second"]
    (resolve,) = [failure for failure in manager.actions if isinstance(failure, Resolve)]
    assert resolve.histories is not None
    reported = resolve.histories[id]
    assert [(failure.attempt, failure.error) for failure in reported] == [
        (failure.attempt, failure.error) for failure in history
    ]
    assert reported[0].at == pytest.approx(began)


@pytest.mark.rule("STORE-2.8", "STORE-12.9")
def test_a_job_that_was_given_back_begins_with_the_first_attempt(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()
    worker.ready(1)
    assert manager.row(id).state is State.RESERVED
    worker.bye()
    manager.wait(2.5)
    assert manager.row(id).state is State.QUEUED

    assert takes(manager.worker(b"w2").give(1, hold=30)) == [(id, 1)]


def test_the_jobs_in_the_store_are_counted(manager):
    manager.submit(*[b"x"] * 5)
    assert manager.machine.statistics().stored == 5
    manager.submit(b"later", delay=60.0)
    assert manager.machine.statistics().stored == 6
    other = StoredManager(manager, identity=b"other")
    other.handle(Woken((), (), other.store.kinds(counted=True)))
    assert other.machine.statistics().stored == 6
    worker = other.worker()
    worker.give(2, hold=30)
    statistics = other.machine.statistics()
    assert (statistics.leased, statistics.queued, statistics.stored) == (2, 2, 2)


@pytest.mark.rule("STORE-2.9")
def test_leases_that_ended_before_the_job_began_are_counted(store):
    client = Client(store)
    first, second = client.add(b"x", b"y")
    assert list(client.reserve().unbegun) == [0, 0]
    client.change(Input.REPEAT, [first, second], [1, 1], unbegun=[1, 0])
    client.change(Input.REPEAT, [first, second], [2, 2], costs=[0, 1], unbegun=[1, 0])
    assert [(job.attempt, job.unbegun, job.lost) for job in store.list()] == [(3, 2, 0), (3, 0, 1)]
    client.change(Input.AGAIN, [first], [3])
    client.change(Input.RELEASE, [second], [3])
    reserved = client.reserve()
    assert (list(reserved.attempts), list(reserved.unbegun)) == ([4, 3], [2, 0])
    # A job that is queued again by hand goes on to count.
    client.change(Input.FAIL, [first], [4], payloads=[b"e"])
    client.change(Input.REVIVE, [first])
    reserved = client.reserve()
    assert (list(reserved.attempts), list(reserved.unbegun)) == ([5], [2])


@pytest.mark.rule("STORE-10.1")
def test_a_store_of_version_3_1_counts_its_leases_as_runs(tmp_path, clock):
    path = tmp_path / "old.db"
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript((Path(__file__).parent / "store_3_1.sql").read_text(encoding="utf-8"))
    store = sqlite_store(path, clock)
    assert [(job.attempt, job.unbegun) for job in store.list()] == [(4, 0), (0, 0)]
    client = Client(store)
    (id,) = client.add(b"new")
    client.reserve()
    client.change(Input.REPEAT, [id], [1], unbegun=[1])
    assert client.job(id).unbegun == 1
    store.close()
