"""Follow-ups of stored jobs, which outlive the process of their submitter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wmp
from tests.interop.calls import chain_tasks
from tests.waiting import WAIT
from wmp.store.sqlite.sqlite_store import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def manager_of(store: Path, codec: str = "cbor") -> wmp.Manager:
    return wmp.Manager(store=SqliteStore(store, durability="process"), codec=codec)


def worker_of(manager: wmp.Manager) -> wmp.Worker:
    tasks = (chain_tasks.add, chain_tasks.total, chain_tasks.fail)
    return wmp.Worker(
        *manager.endpoints, handlers={task.role: task.handler for task in tasks}, slots=4
    )


@pytest.mark.rule("CALL-4.4", "STORE-15.1", "STORE-15.2", "STORE-15.3")
def test_chains_go_on_after_the_end_of_their_submitter(store: Path) -> None:
    add, total = chain_tasks.add, chain_tasks.total
    with manager_of(store) as manager:
        first = add.submit(1, 2)
        second = first.then(add, 10)
        third = second.then(add.using(key="third"), 100)
        both = wmp.gather(add.submit(1, 1), third)  # type: ignore[arg-type]
        both.then(total.using(key="chord"))
        manager.close(0)
    with manager_of(store) as manager, worker_of(manager):
        chord = total.using(key="chord").submit([])
        assert chord.result(WAIT) == 115
        with wmp.results(store) as results:
            assert results.get(key="third") == 113


def test_a_chain_whose_submitter_lives_has_its_result(store: Path) -> None:
    with manager_of(store) as manager, worker_of(manager):
        jobs = [chain_tasks.add.submit(n, n).then(chain_tasks.add, 1) for n in range(20)]
        assert [job.result(WAIT) for job in jobs] == [2 * n + 1 for n in range(20)]


@pytest.mark.rule("STORE-15.4")
def test_an_error_ends_the_whole_chain(store: Path) -> None:
    with manager_of(store) as manager:
        last = chain_tasks.fail.submit(1).then(chain_tasks.add, 1).then(chain_tasks.add, 2)
        with worker_of(manager), pytest.raises(wmp.JobFailed, match="bad 1"):
            last.result(WAIT)


@pytest.mark.rule("STORE-15.4", "STORE-15.6")
def test_a_cancelled_job_cancels_its_follow_ups_alone(store: Path) -> None:
    with manager_of(store) as manager:
        first = chain_tasks.add.submit(1, 2)
        second = first.then(chain_tasks.add, 10)
        third = second.then(chain_tasks.add, 100)
        assert second.cancel()
        with pytest.raises(wmp.JobCancelled):
            third.result(WAIT)
        with worker_of(manager):
            assert first.result(WAIT) == 3


def test_a_codec_whose_lists_have_separators_keeps_gathered_follow_ups_here(store: Path) -> None:
    with manager_of(store, "json") as manager:
        parts = [chain_tasks.add.submit(n, n) for n in range(2)]
        stored = parts[0].then(chain_tasks.add, 7)
        kept: Any = wmp.gather(*parts).then(chain_tasks.total)
        assert hasattr(stored, "id")
        assert not hasattr(kept, "id")
        tasks = (chain_tasks.add, chain_tasks.total)
        with wmp.Worker(*manager.endpoints, handlers={task.role: task.handler for task in tasks}):
            assert stored.result(WAIT) == 7
            assert kept.result(WAIT) == 2


@pytest.mark.rule("CALL-4.4")
def test_a_follow_up_that_is_not_stored_stays_here(store: Path) -> None:
    with manager_of(store) as manager:
        here = chain_tasks.add.submit(1, 2).then(chain_tasks.add.using(stored=False), 1)
        assert not hasattr(here, "id")
        with worker_of(manager):
            assert here.result(WAIT) == 4
