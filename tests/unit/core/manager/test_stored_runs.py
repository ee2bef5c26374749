"""A manager with a store: what the store learns of running jobs, and the ends of joined jobs."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.stored_manager import StoredManager, takes
from wmp.actions import End, Write
from wmp.message import Outcome
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, WriteBatch

State = StoredJobState


@pytest.fixture
def manager() -> StoredManager:
    return StoredManager()


@pytest.mark.rule("STORE-12.14")
def test_the_store_learns_once_a_second_which_jobs_run(manager):
    (id,) = manager.submit(b"one")
    worker = manager.worker()
    assert takes(worker.give(1, hold=30)) == [(id, 1)]
    assert not manager.row(id).running
    manager.wait(1.5)
    row = manager.row(id)
    assert (row.running, row.worker, row.ran) == (True, worker.identity.decode(), 1)
    begins = [
        change
        for action in manager.actions
        if isinstance(action, Write)
        for change in action.batch.changes
        if change.input is StoredJobInput.BEGIN
    ]
    manager.wait(5)
    assert len(begins) == 1  # nothing is written twice
    worker.done([id])
    assert (manager.row(id).worker, manager.row(id).begun) == (row.worker, row.begun)


@pytest.mark.rule("STORE-12.14")
def test_a_short_job_names_its_worker_and_times(manager):
    ok, failed = manager.submit(b"one", b"two")
    worker = manager.worker()
    assert takes(worker.give(2, hold=30)) == [(ok, 1), (failed, 1)]
    manager.now += 0.25
    worker.done([ok])
    worker.done([failed], [b""], outcome=Outcome.ERROR)
    for id in (ok, failed):
        row = manager.row(id)
        assert (row.worker, row.ran) == (worker.identity.decode(), 1)
        assert row.begun == row.ended - 250


@pytest.mark.rule("STORE-12.15", "STORE-6.8")
def test_a_joiner_gets_a_result_whose_time_to_live_is_over(manager):
    other = StoredManager(manager, identity=b"other")
    short = StoredTerms(keep_ms=0)
    (id,) = other.submit(b"theirs", keys=["k"], stored=short)
    worker = other.worker()
    assert takes(worker.give(1, hold=30)) == [(id, 1)]
    manager.submit(b"mine", keys=["k"])
    worker.done([id], [b"theirs"])
    other.wait(3)  # its sweeps would purge the job
    assert manager.row(id).state is State.OK

    manager.wait(1.5)
    assert manager.ends() == {id: (End.OK, b"theirs")}
    manager.wait(1.5)
    other.wait(1.5)
    assert other.rows(ids=[id]) == []


@pytest.mark.rule("STORE-12.15")
def test_a_job_that_somebody_removed_is_lost_and_not_cancelled(manager):
    other = StoredManager(manager, identity=b"other")
    (id,) = other.submit(b"theirs", keys=["k"])
    worker = other.worker()
    assert takes(worker.give(1, hold=30)) == [(id, 1)]
    manager.submit(b"mine", keys=["k"])
    worker.done([id], [b"theirs"])
    operator = manager.store.begin(b"o", "operator")
    forget = JobChanges(StoredJobInput.FORGET, [id])
    manager.store.apply(operator, 1, WriteBatch(changes=[forget]))

    manager.wait(1.5)
    ((end, text),) = manager.ends().values()
    assert end is End.LOST
    assert b"somebody removed the job" in text
