"""The store on PostgreSQL where it differs from a file: many processes at once, sizes, clocks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.unit.store.stores import KIND, TERMS, Client, Clock
from tests.waiting import WAIT
from wmp.errors import ConfigError, InstanceEnded, StoreUnusable
from wmp.message import Kind
from wmp.store.contract import JobFilter, QueuedKind
from wmp.store.job_terms import StoredTerms
from wmp.store.opening import make_store, open_reader, open_writer
from wmp.store.postgres.driver import StoreUrl
from wmp.store.postgres.pg_connection import PostgresConnection
from wmp.store.postgres.postgres_reader import PostgresReader
from wmp.store.postgres.postgres_store import PostgresStore
from wmp.store.postgres.tables import instance_locks
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.transaction import StoreRecord
from wmp.store.write_batch import NewJobs

State, Input = StoredJobState, StoredJobInput


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(url, clock):
    store = PostgresStore(url, clock=lambda: clock.wall, monotonic=lambda: clock.steady)
    yield store
    store.close()


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Run a function in several threads, and raise what one of them raised."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# -- many processes ----------------------------------------------------------------------------


@pytest.mark.rule("STORE-13.3")
def test_no_job_is_reserved_twice_and_none_is_left_by_several_instances_at_once(url):
    client = Client(make_store(url))
    ids = client.add(*[b"x"] * 400)
    numbers: list[list[int]] = [[], [], [], []]

    def reserve(number: int) -> None:
        mine = Client(PostgresStore(url))
        while True:
            reserved = mine.reserve(7)
            if not reserved.ids and not reserved.more and reserved.next_due is None:
                break
            numbers[number] += reserved.ids
        mine.store.close()

    at_once(4, reserve)
    assert sorted(id for each in numbers for id in each) == ids
    client.store.close()


@pytest.mark.rule("STORE-7.1", "STORE-7.3")
def test_adds_of_one_key_at_once_are_one_job(url):
    stores = [PostgresStore(url) for _ in range(4)]
    clients = [Client(store) for store in stores]
    numbers: list[list[int]] = [[], [], [], []]
    keys = [f"key {number}" for number in range(50)]

    def add(number: int) -> None:
        order = keys if number % 2 else keys[::-1]
        for _ in range(3):
            ids = clients[number].add(*[b"x"] * 50, keys=order)
            numbers[number] += ids if number % 2 else ids[::-1]

    at_once(4, add)
    assert all(each == numbers[0] for each in numbers)
    assert len(stores[0].list()) == 50
    for store in stores:
        store.close()


@pytest.mark.rule("STORE-13.4")
def test_transactions_that_decide_from_what_they_read_run_one_after_the_other(url):
    def count(number: int) -> None:
        store = PostgresStore(url)
        me = store.begin(b"d%d" % number, "d")

        def work(transaction) -> None:
            record = transaction.record("counter", 1)
            value = 0 if record is None else record.body["value"]
            transaction.put("counter", StoreRecord(1, True, {"value": value + 1}))

        for _ in range(20):
            store.transact(me, work)
        store.close()

    at_once(3, count)
    store = PostgresStore(url)
    me = store.begin(b"r", "r")
    assert store.transact(me, lambda counters: counters.record("counter", 1)).body == {"value": 60}
    assert [
        counters.id for counters in store.transact(me, lambda counters: counters.records("counter"))
    ] == [1]
    store.transact(me, lambda counters: counters.remove("counter", 1))
    assert store.transact(me, lambda counters: counters.record("counter", 1)) is None
    store.close()


# -- instances, times, sizes -------------------------------------------------------------------


@pytest.mark.rule("STORE-13.9")
@pytest.mark.parametrize("how", ["end", "silent"])
def test_the_jobs_of_an_ended_instance_lapse_after_the_grace(store, clock, how):
    first, two = Client(store), Client(store)
    ids = two.add(b"a", b"b")
    assert first.reserve().ids == ids
    if how == "end":
        store.end(first.me)
    else:
        clock.move(15.1)
        two.sweep()
    clock.move(9.9)
    two.sweep()
    assert [two.job(id).state for id in ids] == [State.RESERVED] * 2
    clock.move(0.2)
    assert two.sweep() == []
    reserved = two.reserve()
    assert (reserved.ids, reserved.attempts, reserved.lost) == (ids, [2, 2], [0, 0])
    with pytest.raises(InstanceEnded, match="begin a new one"):
        first.apply()


class Neighbor:
    """Another process of the store of a test, with the same clock."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.store = PostgresStore(url, clock=lambda: clock.wall, monotonic=lambda: clock.steady)
        self.client = Client(self.store, b"neighbor")
        self._url = url

    def close(self) -> None:
        """End the session without ending the instance, and wait until the server knows it."""
        self.store.close()
        until = time.monotonic() + WAIT
        numbers = instance_locks(StoreUrl.of(self._url).schema), self.client.me.number
        query = (
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"
            " AND classid::bigint = %s & 4294967295 AND objid::bigint = %s"
        )
        with psycopg.connect(self._url.partition("&schema")[0], autocommit=True) as connection:
            while connection.execute(query, numbers).fetchone() is not None:
                assert time.monotonic() < until

    def has_ended(self, store: PostgresStore) -> bool:
        (known,) = [each for each in store.instances() if each.number == self.client.me.number]
        return known.ended is not None


@pytest.mark.rule("STORE-13.9")
def test_an_instance_without_a_session_ends_3_s_after_its_last_write(url, store, clock):
    client, neighbor = Client(store), Neighbor(url, clock)
    client.sweep()
    clock.move(5.1)
    neighbor.client.apply()
    neighbor.close()
    clock.move(2.9)
    client.sweep()
    assert not neighbor.has_ended(store)
    clock.move(0.2)
    client.sweep()
    assert neighbor.has_ended(store)


@pytest.mark.rule("STORE-13.9")
@pytest.mark.parametrize("reopened", [False, True])
def test_an_instance_with_a_session_ends_by_its_validity_alone(url, store, clock, reopened):
    client, neighbor = Client(store), Neighbor(url, clock)
    client.sweep()
    clock.move(5.1)
    if reopened:  # after an error the process opens another session, which holds the lock again
        neighbor.store._link.reset()
    neighbor.client.apply()
    clock.move(14.9)
    client.sweep()
    assert not neighbor.has_ended(store)
    clock.move(0.2)
    client.sweep()
    assert neighbor.has_ended(store)
    neighbor.store.close()


@pytest.mark.rule("STORE-13.9")
def test_a_process_whose_session_is_young_waits_for_the_sessions_of_others(url, store, clock):
    client, neighbor = Client(store), Neighbor(url, clock)
    neighbor.close()
    clock.move(4.0)
    store._link.reset()  # as after a restart of the server
    client.sweep()
    clock.move(4.9)
    client.sweep()
    assert not neighbor.has_ended(store)
    clock.move(0.2)
    client.sweep()
    assert neighbor.has_ended(store)


@pytest.mark.rule("STORE-13.5")
def test_the_clock_of_the_server_is_the_time_of_the_store(url, server):
    client = Client(PostgresStore(url))
    with psycopg.connect(server.url, autocommit=True) as connection:
        query = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        (before,) = connection.execute(query).fetchone()
        answer = client.apply()
        (after,) = connection.execute(query).fetchone()
    assert before <= answer.now <= after
    client.store.close()


@pytest.mark.rule("STORE-8.2")
def test_a_full_store_takes_no_jobs_until_others_are_purged(url, clock):
    store = PostgresStore(
        url, max_bytes=10_000, clock=lambda: clock.wall, monotonic=lambda: clock.steady
    )
    client = Client(store)
    (first,) = client.add(b"x" * 7000, terms=StoredTerms(keep_ms=1000))
    assert client.add(b"y" * 7000) == [0]
    client.reserve()
    client.change(Input.SUCCEED, [first], [1], payloads=[b"r" * 2000])
    assert client.add(b"z" * 1000) == [0]
    clock.move(2)
    client.sweep()
    assert client.add(b"y" * 7000) != [0]
    # Bytes stored by an instance still count after the store removed the instance.
    store.end(client.me)
    clock.move(90_000)
    other = Client(store)
    other.sweep()
    assert [instance.number for instance in store.instances()] == [other.me.number]
    assert other.add(b"y" * 7000) == [0]
    store.close()


def test_purged_jobs_leave_nothing_behind(store, clock):
    client = Client(store)
    ids = client.add(b"a" * 5000, b"b", terms=StoredTerms(keep_ms=1000))
    client.reserve()
    client.change(Input.SUCCEED, ids, [1, 1], payloads=[b"r", b"s"])
    clock.move(2)
    client.sweep()
    with store._link.reading() as connection:
        for table in ("jobs", "results", "failures"):
            assert connection.execute(f"SELECT id FROM {table}").fetchall() == []
        assert connection.execute("SELECT sum(bytes) FROM instances").fetchone() == (0,)


@pytest.mark.rule("STORE-5.4", "STORE-13.1")
def test_texts_may_have_nul_and_any_length(store):
    client = Client(store)
    keys = ["a\0b", "k" * 100_000, "\ud800"]
    ids = client.add(b"x", b"y", b"z", keys=keys)
    assert client.add(b"x", b"y", b"z", keys=keys) == ids
    assert [job.key for job in store.list()] == keys
    assert [job.id for job in store.list(JobFilter(key=keys[1]))] == [ids[1]]


@pytest.mark.rule("STORE-3.6")
def test_kinds_of_queued_jobs_are_named_and_counted(store, clock):
    client = Client(store)
    assert store.kinds() == store.kinds(counted=True) == []
    client.add(b"a", b"b", priority=3, delay_ms=4000)
    client.add(b"c", b"d", delay_ms=1500)
    wc = Kind("wc", (("gpu", 1),))
    client.add(b"e", kind=wc)
    clock.move(1)
    assert store.kinds() == [QueuedKind(KIND, 500), QueuedKind(wc, 0)]
    assert store.kinds(counted=True) == [QueuedKind(KIND, 500, 4), QueuedKind(wc, 0, 1)]
    assert store.transact(client.me, lambda transaction: transaction.queued()) == store.kinds()


# -- notifications -----------------------------------------------------------------------------


@pytest.mark.rule("STORE-13.6")
def test_notifications_reach_those_whom_they_concern_and_are_sent_once_in_10_ms(url, monkeypatch):
    first, two, three = (Client(PostgresStore(url)) for _ in range(3))
    reader, writer = os.pipe()
    sent = []
    notify = first.store._link.notify
    monkeypatch.setattr(first.store._link, "notify", lambda each: (sent.append(each), notify(each)))
    now = [100.0]
    monkeypatch.setattr("wmp.store.postgres.postgres_store.time.monotonic", lambda: now[0])
    for client in (first, two, three):
        assert client.store.wait(reader, 0.0)  # the first look needs no notification
    ids = [first.add(b"x")[0] for _ in range(20)]
    assert len(sent) == 1
    # Each notification is received before the next one is sent, so that none arrives late.
    for client in (two, three):
        assert client.store.wait(reader, WAIT)
    now[0] += 0.011
    first.store.wait(reader, 0.0)
    assert len(sent) == 2
    for client in (two, three):
        assert client.store.wait(reader, WAIT)
    assert not two.store.wait(reader, 0.0)
    # An end concerns the submitter only.
    two.reserve(1)
    two.change(Input.SUCCEED, ids[:1], [1], payloads=[b"r"])
    two.store.wait(reader, 0.0)
    assert first.store.wait(reader, WAIT)
    assert not three.store.wait(reader, 0.0)
    # A cancellation concerns the instance that has reserved the job.
    two.reserve(1)
    first.change(Input.CANCEL, ids[1:2])
    first.store.wait(reader, 0.0)
    assert two.store.wait(reader, WAIT)
    assert not three.store.wait(reader, 0.0)
    # Without a notification a process looks every two seconds.
    now[0] += 2.0
    assert three.store.wait(reader, 0.0)
    for client in (first, two, three):
        client.store.close()
    for descriptor in (reader, writer):
        os.close(descriptor)


# -- opening -----------------------------------------------------------------------------------


@pytest.mark.rule("STORE-13.2")
def test_a_store_is_made_once_by_several_processes_at_once(url):
    ids = []

    def make(number: int) -> None:
        store = make_store(url)
        ids.append((store.identity, store.generation))
        store.close()

    at_once(4, make)
    assert len(set(ids)) == 1
    reader = open_reader(url)
    assert (reader.identity, reader.generation) == ids[0]
    assert reader.counts() == {}
    assert reader.size() > 0
    reader.close()


def test_readers_make_no_store(url):
    for open in (open_reader, open_writer, PostgresReader.open):
        with pytest.raises(ConfigError, match="there is no store"):
            open(url)


@pytest.mark.rule("STORE-13.7")
def test_a_copy_of_the_tables_is_another_generation(url, store):
    client = Client(store)
    (id,) = client.add(b"x")
    # A dump has the same rows in other tables.
    with store._link.reading() as connection:
        (home,) = connection.execute("SELECT home FROM meta").fetchone()
    assert home.count("/") == 2
    store._link.write(lambda database: database.execute("UPDATE meta SET home = 'elsewhere'"))
    copy = PostgresStore(url)
    assert copy.generation > store.generation
    assert copy.identity == store.identity
    with pytest.raises(StoreUnusable, match="restored copy"):
        client.apply()
    fresh = Client(copy)
    assert fresh.me.block.start > 1 << 50
    assert [job.id for job in copy.list()] == [id]
    generation = copy.generation
    copy.restored()
    assert copy.generation > generation
    copy.close()


@pytest.mark.rule("STORE-13.2")
def test_a_store_of_another_version_is_refused(url, store):
    client = Client(store)
    store._link.write(lambda connection: connection.execute("UPDATE meta SET version = 3000"))
    with pytest.raises(StoreUnusable, match=r"has schema 3\.0.*install the wmp"):
        client.apply()
    with pytest.raises(StoreUnusable, match=r"has schema 3\.0"):
        PostgresStore(url)


def test_an_add_with_a_number_that_is_stored_changes_nothing_beside_new_jobs(store):
    client = Client(store)
    (id,) = client.add(b"old", keys=["k"])
    new = NewJobs(KIND, TERMS, [id, 77], [b"new", b"y"], keys=["k", "m"])
    assert client.apply(adds=[new]).adds[0].ids == [id, 77]
    assert client.job(id).payload == b"old"


@pytest.mark.rule("STORE-13.2", "STORE-7.1")
def test_a_store_of_the_first_version_gets_keys_of_roles(url):
    old = make_store(url)
    client = Client(old)
    a, b = Kind("a"), Kind("b")
    (open_,) = client.add(b"x", kind=a, keys=["k"])
    # Made by hand, as version 1.0 was.
    for statement in (
        "DROP TABLE waits, parents, watchers",
        "ALTER TABLE jobs DROP COLUMN worker, DROP COLUMN begun, DROP COLUMN ran",
        "ALTER TABLE jobs DROP COLUMN fraction, DROP COLUMN note, DROP COLUMN unbegun",
        "DROP INDEX jobs_key, jobs_kept",
        "ALTER TABLE jobs DROP COLUMN role",
        "CREATE UNIQUE INDEX jobs_key ON jobs(sha256(key)) WHERE state < 3 AND key IS NOT NULL",
        "CREATE INDEX jobs_kept ON jobs(sha256(key), ended, id) WHERE state >= 3",
        "UPDATE meta SET version = 1000",
    ):
        old._link.write(
            lambda connection, statement=statement: connection.execute(statement), new=True
        )
    old.close()
    store = PostgresStore(url)
    client = Client(store)
    assert client.add(b"y", kind=a, keys=["k"]) == [open_]
    assert client.add(b"y", kind=b, keys=["k"]) != [open_]
    assert client.job(client.add(b"z", kind=b, after=[open_])[0]).state is StoredJobState.WAITING
    store.close()


@pytest.mark.rule("STORE-13.2")
def test_a_store_is_made_in_its_schema_whatever_path_the_session_has(url, monkeypatch):
    prepare = PostgresConnection._prepare

    def stale(self, connection) -> None:
        """Leave the path that a session has whose path was computed without the new schema."""
        prepare(self, connection)
        connection.execute("SET search_path = pg_catalog")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresConnection, "_prepare", stale)
        PostgresStore(url).close()
    reader = open_reader(url)
    assert reader.counts() == {}
    reader.close()


@pytest.mark.rule("STORE-13.2")
@pytest.mark.parametrize("version", ["2_0", "2_1"])
def test_a_store_of_an_older_version_is_named_to_readers_and_migrated(url, version):
    text = (Path(__file__).parent / f"store_{version}.sql").read_text(encoding="utf-8")
    schema = url.rpartition("=")[2]
    with psycopg.connect(url.rpartition("&")[0], autocommit=True) as connection:
        connection.execute(text.replace("wmp_old", schema))
    reader = open_reader(url)
    assert sum(reader.counts().values()) == 4
    seen = version.replace("_", ".")
    with pytest.raises(StoreUnusable, match=f"has schema {seen}, and this wmp reads .* migrates"):
        reader.list()
    reader.close()

    store = open_writer(url)
    client = Client(store)
    states = {job.id: (job.state.name, job.kind.role, job.key) for job in store.list()}
    assert states == {
        1: ("OK", "a", "kept"),
        2: ("QUEUED", "b", "k"),
        3: ("WAITING", "a", None),
        4: ("RESERVED", "a", None),
    }
    assert client.job(1).result == b"result"
    assert [failure.error for failure in client.job(4).history] == ["ValueError: no"]
    assert client.add(b"x", kind=Kind("b"), keys=["k"]) == [2]
    assert client.add(b"x", kind=Kind("a"), keys=["kept"], unique="kept") == [1]
    changed = client.change(Input.SUCCEED, [4], [client.job(4).attempt], payloads=[b"four"])
    assert changed == [State.OK]
    assert (client.job(3).state, client.job(3).payload) == (State.QUEUED, b"resultfour3")
    store.close()
