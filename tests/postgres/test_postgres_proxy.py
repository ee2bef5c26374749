"""The store on PostgreSQL through a proxy: counted round trips, lost answers, holes and delays."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest

from tests.postgres.proxy import PostgresProxy
from tests.postgres.test_postgres_faults import run
from tests.unit.store.stores import KIND, TERMS, Client
from tests.waiting import WAIT
from wmp.errors import StoreUnavailable
from wmp.store.opening import make_store
from wmp.store.postgres.postgres_store import PostgresStore
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, NewJobs, WriteBatch

State, Input = StoredJobState, StoredJobInput


@pytest.fixture
def proxy(url):
    proxy = PostgresProxy(url)
    yield proxy
    proxy.close()


@pytest.fixture
def store(proxy):
    store = PostgresStore(proxy.url)
    yield store
    store.close()


@pytest.mark.rule("STORE-13.10")
def test_the_round_trips_of_a_lone_job(store, proxy):
    client = Client(store)

    def trips(call) -> int:
        before = proxy.trips
        call()
        return proxy.trips - before

    def notify() -> None:
        """Send the notifications of the last writes, so that they are not counted."""
        while store._waiting:
            store.wait(reader, 0.01)

    def reserve() -> JobChanges:
        jobs = client.reserve()
        notify()
        return client.changed(Input.SUCCEED, jobs.ids, jobs.attempts, payloads=[b"r"])

    reader, writer = os.pipe()
    # The first jobs make the rows of their kind and terms, and the server prepares statements.
    for _ in range(4):
        client.add(b"x")
        client.apply(changes=[reserve()])
    notify()
    assert trips(lambda: client.add(b"x")) == 3
    notify()
    change = reserve()
    assert trips(lambda: client.apply(changes=[change])) == 4
    notify()
    assert trips(lambda: client.apply()) == 2
    os.close(reader)
    os.close(writer)


@pytest.mark.rule("STORE-3.3", "STORE-13.8")
def test_a_commit_whose_answer_is_lost_is_made_once(store, proxy):
    client = Client(store)
    client.add(b"x")
    proxy.loses = lambda request: request.endswith("COMMIT\0")
    ids = [next(client.ids)]
    batch = WriteBatch(adds=[NewJobs(KIND, TERMS, ids, [b"y"])])
    with pytest.raises(StoreUnavailable, match="the same write can be made again"):
        store.apply(client.me, 2, batch)
    assert proxy.lost == 1
    proxy.loses = lambda request: False
    answer = store.apply(client.me, 2, batch)
    assert answer.repeated
    assert (answer.adds[0].ids, answer.adds[0].states) == (ids, [State.QUEUED])
    assert len(store.list()) == 2


@pytest.mark.rule("STORE-13.8")
def test_a_store_in_a_hole_answers_when_the_hole_is_gone(store, proxy):
    client = Client(store)
    client.add(b"x")
    proxy.hole = True
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.add(b"y")))
    thread.start()
    thread.join(0.1)
    assert not answers
    proxy.hole = False
    thread.join(WAIT)
    assert answers == [[2]]


@pytest.mark.rule("STORE-13.8")
@pytest.mark.parametrize("rounds", [12, pytest.param(200, marks=pytest.mark.deep)])
def test_no_acknowledged_job_is_lost_through_a_network_of_faults(server, new_url, rounds):
    seed = int(os.environ.get("WMP_SEED") or random.randrange(1 << 30))
    print(f"seed {seed}: WMP_SEED={seed} plays it again")
    draw = random.Random(seed)
    url = new_url()
    make_store(url).close()
    proxies = [PostgresProxy(url) for _ in range(3)]
    clients = [Client(make_store(proxy.url)) for proxy in proxies]
    stored: list[set[int]] = [set(), set(), set()]
    done: list[set[int]] = [set(), set(), set()]
    enough = threading.Event()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            run(clients[number], stored[number], done[number], enough)
        except BaseException as error:
            errors.append(error)
            enough.set()

    def progress(count: int) -> None:
        before, until = sum(map(len, done)), time.monotonic() + WAIT
        while sum(map(len, done)) < before + count and not enough.is_set():
            assert time.monotonic() < until, "nothing goes on"
            enough.wait(0.005)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(rounds):
            progress(10)
            proxy, fault = draw.choice(proxies), draw.choice(["lose", "cut", "hole", "slow"])
            if fault == "lose":
                proxy.loses = lambda request: request.endswith("COMMIT\0")
                before, until = proxy.lost, time.monotonic() + WAIT
                while proxy.lost == before and not enough.is_set():
                    assert time.monotonic() < until, "no COMMIT came"
                    enough.wait(0.001)
                proxy.loses = lambda request: False
            elif fault == "cut":
                proxy.cut()
            elif fault == "hole":
                proxy.hole = True
                progress(5)  # of the others
                if draw.random() < 0.5:
                    proxy.cut()
                proxy.hole = False
            else:
                proxy.pause = 0.002
                progress(10)
                proxy.pause = 0.0
    finally:
        enough.set()
        for proxy in proxies:
            proxy.hole = False
        for thread in threads:
            thread.join(WAIT)
        for proxy in proxies:
            proxy.close()
    assert not errors, errors[0]
    reader = make_store(url)
    states = {job.id: job.state for job in reader.list(limit=1_000_000)}
    reader.close()
    assert set().union(*stored) <= set(states)
    ended = set().union(*done)
    assert {states[id] for id in ended} == {State.OK}
    assert sum(map(len, done)) == len(ended)
