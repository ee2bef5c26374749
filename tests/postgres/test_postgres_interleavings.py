"""Transactions of two connections in every interleaving, at the statements of one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.store.stores import Client
from wmp.store.contract import JobFilter
from wmp.store.postgres.postgres_store import PostgresStore
from wmp.store.stored_job import StoredJobInput, StoredJobState


class Interleaved:
    """Statements of one connection, at one of which another transaction begins.

    The other one runs on a thread of its own, until it has ended or waits for a lock.

    Args:
        connection: The connection of the first store, which runs all statements.
        at: Number of the statement before which the other transaction begins.
        work: The other transaction.
        watched: A connection that shows whether the other transaction waits.
    """

    def __init__(self, connection: Any, at: int, work: Callable[[], object], watched: Any) -> None:
        self.connection, self.at, self.watched = connection, at, watched
        self.count = 0
        self.errors: list[BaseException] = []
        self.thread = threading.Thread(target=self.run, args=(work,))

    def run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)

    def execute(self, *args: Any, **more: Any) -> Any:
        if self.count == self.at:
            self.thread.start()
            while self.thread.is_alive() and not self.waits():
                self.thread.join(0.005)
        self.count += 1
        return self.connection.execute(*args, **more)

    def waits(self) -> bool:
        (count,) = self.watched.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND pid <> pg_backend_pid()"
        ).fetchone()
        return bool(count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


def interleave(
    url: str, first: Callable[[], object], store: Any, at: int, other: Callable[[], object]
) -> bool:
    """Run two transactions so; return whether the first one has so many statements."""
    watched = PostgresStore(url)
    link = store._link
    connection = link.open()
    proxy = Interleaved(connection, at, other, watched._link.open())
    link._connection = proxy
    try:
        first()
    finally:
        link._connection = connection
        reached = proxy.count > at
        if reached:
            proxy.thread.join()
        watched.close()
    assert proxy.errors == []
    return reached


@pytest.mark.rule("STORE-7.2")
@pytest.mark.parametrize("unique", ["open", "kept"])
def test_no_interleaving_makes_two_kept_jobs_of_one_key(new_url, unique):
    at = 0
    while True:
        url = new_url()
        first, two = PostgresStore(url), PostgresStore(url)
        mine, others = Client(first), Client(two)
        mine.add(b"warm", keys=["other"], unique="kept")  # kinds and terms have their numbers
        answers: list[list[int]] = []

        def ends(others: Client = others) -> None:
            (id,) = others.add(b"a", keys=["k"], unique=unique, priority=1)
            if id in others.reserve(1).ids:
                others.change(StoredJobInput.SUCCEED, [id], [1], payloads=[b"r"])

        def adds(mine: Client = mine, answers: list[list[int]] = answers) -> None:
            answers.append(mine.add(b"b", keys=["k"], unique="kept"))

        reached = interleave(url, adds, first, at, ends)
        jobs = [job.id for job in first.list(JobFilter(key="k"))]
        first.close()
        two.close()
        if not reached:
            break
        assert len(jobs) == 1 or (unique == "open" and answers == [jobs[:1]]), at
        assert answers[0][0] in jobs
        at += 1
    assert at >= 5


@pytest.mark.rule("STORE-15.2")
def test_no_interleaving_of_two_ends_leaves_a_job_waiting(new_url):
    at = 0
    while True:
        url = new_url()
        first, two = PostgresStore(url), PostgresStore(url)
        mine, others = Client(first), Client(two)
        parents = mine.add(b"a", b"b")
        mine.reserve()
        (id,) = mine.add(b"c", after=parents, splice=0)

        def end(client: Client, index: int, parents: list[int] = parents) -> None:
            client.change(StoredJobInput.SUCCEED, [parents[index]], [1], payloads=[b"r"])

        reached = interleave(url, lambda c=mine: end(c, 0), first, at, lambda c=others: end(c, 1))
        job = mine.job(id)
        first.close()
        two.close()
        if not reached:
            break
        assert (job.state, job.payload) == (StoredJobState.QUEUED, b"rrc"), at
        at += 1
    assert at >= 5


@pytest.mark.rule("STORE-15.2")
def test_no_interleaving_of_an_add_and_an_end_leaves_a_job_waiting(new_url):
    at = 0
    while True:
        url = new_url()
        first, two = PostgresStore(url), PostgresStore(url)
        mine, others = Client(first), Client(two)
        parents = others.add(b"a")
        others.reserve()
        ids: list[int] = []

        def add(mine: Client = mine, ids: list[int] = ids, parents: list[int] = parents) -> None:
            ids.extend(mine.add(b"c", after=parents, splice=0))

        def end(others: Client = others, parents: list[int] = parents) -> None:
            others.change(StoredJobInput.SUCCEED, parents, [1], payloads=[b"r"])

        reached = interleave(url, add, first, at, end)
        job = mine.job(ids[0])
        first.close()
        two.close()
        if not reached:
            break
        assert (job.state, job.payload) == (StoredJobState.QUEUED, b"rc"), at
        at += 1
    assert at >= 5
