"""The store on PostgreSQL when the server, the connection, the URL or the extra fails it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.postgres.server import PostgresServer
from tests.unit.store.stores import KIND, TERMS, Client, fork
from tests.waiting import WAIT
from wmp.errors import ConfigError, InstanceEnded, StoreError, StoreUnavailable, StoreUnusable
from wmp.store.opening import make_store
from wmp.store.postgres.driver import in_words
from wmp.store.postgres.postgres_store import PostgresStore
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, NewJobs, Reservation, WriteBatch

State, Input = StoredJobState, StoredJobInput


@pytest.fixture
def store(url):
    store = PostgresStore(url)
    yield store
    store.close()


# -- unknown outcomes ----------------------------------------------------------------------------


@pytest.mark.rule("STORE-3.3", "STORE-13.8")
@pytest.mark.parametrize("committed", [False, True])
def test_a_batch_whose_commit_got_no_answer_is_applied_once(store, committed, monkeypatch):
    client = Client(store)
    (id,) = client.add(b"x")
    client.reserve()
    batch = WriteBatch(
        adds=[NewJobs(KIND, TERMS, [50], [b"y"])], changes=[JobChanges(Input.AGAIN, [id], [1])]
    )

    commit = store._link.commit

    def lose(connection) -> None:
        if committed:
            commit(connection)
        connection.pgconn.finish()
        raise psycopg.OperationalError("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(store._link, "commit", lose)
        with pytest.raises(StoreUnavailable, match="the same write can be made again"):
            store.apply(client.me, 3, batch)
    answer = store.apply(client.me, 3, batch)
    assert answer.repeated is committed
    assert (answer.adds[0].ids, answer.changes[0].states) == ([50], [State.QUEUED])
    assert client.job(id).failed == 1


def test_a_session_that_the_server_ends_is_opened_again(store, server):
    client = Client(store)
    client.add(b"x")
    pid = store._link.open().info.backend_pid
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    with pytest.raises(StoreUnavailable, match="start the server, or check the URL"):
        store.apply(client.me, 2, WriteBatch())
    assert store.apply(client.me, 2, WriteBatch()).repeated is False


@pytest.mark.rule("STORE-8.3", "STORE-13.8")
def test_no_acknowledged_job_is_lost_when_the_server_is_killed_under_load():
    server = PostgresServer()
    try:
        killed = 0
        stored: list[set[int]] = [set(), set(), set()]
        done: list[set[int]] = [set(), set(), set()]
        enough = threading.Event()
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                run(Client(make_store(server.url)), stored[number], done[number], enough)
            except BaseException as error:
                errors.append(error)
                enough.set()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        while killed < 2 and not enough.is_set():
            before = sum(map(len, done))
            until = time.monotonic() + WAIT
            while sum(map(len, done)) < before + 60 and time.monotonic() < until:
                enough.wait(0.01)
            server.kill()
            server.start()
            killed += 1
        enough.set()
        for thread in threads:
            thread.join()
        assert not errors, errors[0]
        reader = make_store(server.url)
        states = {job.id: job.state for job in reader.list(limit=1_000_000)}
        reader.close()
        everything = set().union(*stored)
        assert len(everything) > 100
        assert everything <= set(states)
        ended = set().union(*done)
        assert {states[id] for id in ended} == {State.OK}
        assert sum(map(len, done)) == len(ended)
    finally:
        server.stop()


def run(client: Client, stored: set[int], done: set[int], enough: threading.Event) -> None:
    """Add jobs, reserve and end them, and note what the store has acknowledged."""
    number = 0
    while not enough.is_set():
        ids = [next(client.ids) for _ in range(5)]
        added = WriteBatch(
            adds=[NewJobs(KIND, TERMS, ids, [b"x"] * 5)], reservations=[Reservation(KIND, 5, 999)]
        )
        answer = until_answered(client.store.apply, client.me, number + 1, added)
        stored.update(ids)
        if answer.repeated:
            jobs = until_answered(client.store.list, where_held(client))
            taken, attempts = [job.id for job in jobs], [job.attempt for job in jobs]
        else:
            (reserved,) = answer.reserved
            taken, attempts = list(reserved.ids), list(reserved.attempts)
        ends = JobChanges(Input.SUCCEED, taken, attempts, [b"r"] * len(taken))
        changed = WriteBatch(changes=[ends])
        answer = until_answered(client.store.apply, client.me, number + 2, changed)
        assert set(answer.changes[0].states) <= {State.OK}
        done.update(taken)
        number += 2
    client.store.close()


def until_answered(call: Callable[..., Any], *arguments: object) -> Any:
    """Call the store again while its server cannot be reached."""
    until = time.monotonic() + WAIT
    while True:
        try:
            return call(*arguments)
        except StoreUnavailable:
            assert time.monotonic() < until
            time.sleep(0.02)


def where_held(client: Client):
    from wmp.store.contract import JobFilter

    return JobFilter(instance=client.me.number)


# -- opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://h/db?nothing=1", "the URL of the store is wrong"),
        ("postgresql://h/db?schema=Jobs", "the schema of a store is 'Jobs'"),
        ("mysql://h/db", "expected the path of a file, or postgresql://"),
    ],
)
def test_a_wrong_url_is_named(url, text):
    with pytest.raises(ConfigError, match=text):
        make_store(url)


def test_errors_name_the_store_without_its_password(tmp_path):
    with pytest.raises(
        StoreUnavailable, match="start the server, or check host and port"
    ) as caught:
        make_store(f"postgresql://me:secret@/jobs?host={tmp_path}")
    assert "secret" not in str(caught.value)
    assert "/jobs" in str(caught.value)


def test_a_missing_database_is_named(server):
    with pytest.raises(StoreUnavailable, match='database "nothing" does not exist'):
        make_store(server.url.replace("/postgres?", "/nothing?"))


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install 'worker-manager-protocol\[postgres\]'"):
        make_store("postgresql://localhost/db")


def test_a_fork_uses_no_store_of_its_parent(store):
    client = Client(store)
    pid = fork()
    if pid == 0:
        try:
            store.list()
        except StoreUnusable:
            store.close()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert client.add(b"x") == [1]


def test_a_role_without_the_privilege_gets_the_remedy(server, url):
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS poor")
        connection.execute("CREATE ROLE poor LOGIN")
    poor = url.replace("wmp@", "poor@")
    with pytest.raises(StoreUnusable, match="GRANT the privilege, or make the schema"):
        make_store(poor)


def test_a_server_that_takes_no_writes_is_named(store):
    client = Client(store)
    store._link.open().execute("SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match="connect to the primary server"):
        client.apply()


def test_a_lock_that_is_held_for_too_long_is_named(store, url):
    client = Client(store)
    with psycopg.connect(store._link.url.conninfo) as other:
        other.execute(f"SELECT 1 FROM {store._link.url.schema}.instances FOR UPDATE")
        store._link.open().execute("SET lock_timeout = '50ms'")
        with pytest.raises(StoreUnavailable, match="locked the store"):
            client.apply()
    store.apply(client.me, 1, WriteBatch())


@pytest.mark.parametrize(
    ("code", "text"),
    [("53100", "make space on the server"), ("42P01", "restore a backup"), ("XX000", "XX000")],
)
def test_other_errors_of_the_server_have_a_remedy(code, text):
    class Failure(psycopg.Error):
        sqlstate = code

    assert text in str(in_words(Failure("no luck"), "postgresql://h/d"))
    assert isinstance(in_words(Failure("no luck"), ""), StoreError)
    ended = InstanceEnded("x")
    assert in_words(ended, "") is ended
