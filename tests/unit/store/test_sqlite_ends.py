"""The store on SQLite: ends of jobs, keys, and readers."""

from __future__ import annotations

import os

import pytest

from tests.unit.store.stores import KIND, START, TERMS, Client
from wmp.message import Kind
from wmp.store.contract import JobFilter
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import ENDED, StoredJobInput, StoredJobState
from wmp.store.write_batch import NewJobs

State, Input = StoredJobState, StoredJobInput
NOW = int(START * 1000)


# -- ends ------------------------------------------------------------------------------------


@pytest.mark.rule("STORE-6.2", "STORE-6.3")
def test_a_submitter_finds_ends_and_cancellations_by_others_until_its_receipt(store, other):
    first, two = Client(store), Client(other)
    mine, theirs, running = first.add(b"a", b"b", b"c")
    two.reserve(2)
    two.change(Input.SUCCEED, [theirs], [1], payloads=[b"r"])
    first.change(Input.CANCEL, [running])
    first.change(Input.CANCEL, [mine])
    assert two.store.news(two.me).cancelling == [mine]
    news = store.news(first.me)
    assert [(job.id, job.result) for job in news.ended] == [(theirs, b"r")]
    assert store.news(first.me) == news
    first.apply(receipts=[theirs, mine, 999])
    assert store.news(first.me).ended == []
    two.change(Input.RELEASE, [mine], [1])
    assert [(job.id, job.state) for job in store.news(first.me).ended] == [(mine, State.CANCELLED)]


@pytest.mark.rule("STORE-6.4")
def test_ended_jobs_are_purged_after_their_time_to_live(store, clock):
    terms = StoredTerms(keep_ms=1000, keep_dead_ms=3000)
    client = Client(store)
    done, failed, cancelled = client.add(b"a" * 600, b"b", b"c", terms=terms)
    waiting = client.add(b"d", terms=terms, priority=-1)
    client.reserve(3)
    client.change(Input.SUCCEED, [done], [1], payloads=[b"r"])
    client.change(Input.FAIL, [failed], [1], payloads=[b"e"])
    client.change(Input.CANCEL, [cancelled])
    client.change(Input.RELEASE, [cancelled], [1])
    clock.move(0.9)
    client.sweep()
    assert len(store.list()) == 4
    clock.move(0.2)
    client.sweep()
    assert [job.id for job in store.list()] == [failed, *waiting]
    clock.move(2)
    client.sweep()
    assert [job.id for job in store.list()] == waiting
    with store._link.reading() as connection:
        for table in ("bodies", "results"):
            assert connection.execute(f"SELECT * FROM {table}").fetchall() == []


@pytest.mark.rule("STORE-6.4")
def test_an_ended_job_is_forgotten_at_once_and_an_open_one_is_not(store):
    client = Client(store)
    first, second = client.add(b"a", b"b")
    client.change(Input.CANCEL, [first])
    assert client.change(Input.FORGET, [first, second]) == [State.ABSENT, State.QUEUED]


@pytest.mark.rule("STORE-6.5")
@pytest.mark.parametrize("state", ENDED)
def test_an_ended_job_is_revived_whatever_its_end(store, clock, state):
    client = Client(store)
    (id,) = client.add(b"x", timeout_ms=1000, expires_in_ms=900)
    client.reserve()
    client.change(Input.REPEAT, [id], [1], costs=[1])
    if state is State.CANCELLED:
        client.change(Input.CANCEL, [id])
        client.change(Input.RELEASE, [id], [2])
    else:
        what = {
            State.OK: Input.SUCCEED,
            State.ERROR: Input.FAIL,
            State.TIMEOUT: Input.OVERRUN,
            State.LOST: Input.SPEND,
        }[state]
        client.change(what, [id], [2], payloads=[b"old"])
    assert client.job(id).state is state
    clock.move(5)
    assert client.change(Input.REVIVE, [id]) == [State.QUEUED]
    job = client.job(id)
    assert (job.lost, job.failed, job.deadline_ms, job.expires_at_ms, job.purge) == (
        0,
        0,
        None,
        None,
        None,
    )
    assert (job.due, job.result, job.attempt) == (NOW + 5000, None, 2)
    assert client.reserve().attempts == [3]


# -- keys ------------------------------------------------------------------------------------


@pytest.mark.rule("STORE-7.1", "STORE-7.3")
def test_an_add_with_the_key_of_an_open_job_joins_it(store, other):
    first, two = Client(store), Client(other)
    assert first.add(b"a", b"b", keys=["k", "k"]) == [1, 1]
    assert two.add(b"c", keys=["k"]) == [1]
    two.reserve()
    assert two.add(b"d", b"e", keys=["k", "m"]) == [1, two.me.block[2]]
    two.change(Input.SUCCEED, [1], [1], payloads=[b"r"])
    (again,) = two.add(b"f", keys=["k"])
    assert again != 1
    assert [job.id for job in store.list(JobFilter(key="k"))] == [1, again]


@pytest.mark.rule("STORE-7.2")
def test_a_kept_key_joins_the_job_that_ended_last(store, clock):
    client = Client(store)
    for payload in (b"first", b"second"):
        (id,) = client.add(payload, keys=["k"])
        client.reserve()
        client.change(Input.SUCCEED, [id], [1], payloads=[payload])
        clock.move(1)
    new = NewJobs(KIND, TERMS, [90], [b"third"], keys=["k"], unique="kept")
    answer = client.apply(adds=[new]).adds[0]
    assert (answer.ids, answer.states) == ([id], [State.OK])
    client.apply(receipts=[id])
    clock.move(3600)
    client.sweep()
    assert client.apply(adds=[new]).adds[0].ids == [90]


@pytest.mark.rule("STORE-7.4")
def test_a_job_is_not_revived_while_its_key_is_open(store):
    client = Client(store)
    (old,) = client.add(b"a", keys=["k"])
    client.change(Input.CANCEL, [old])
    (new,) = client.add(b"b", keys=["k"])
    assert client.change(Input.REVIVE, [old]) == [State.CANCELLED]
    client.change(Input.CANCEL, [new])
    assert client.change(Input.REVIVE, [old, new]) == [State.QUEUED, State.CANCELLED]


# -- reading ---------------------------------------------------------------------------------


def test_jobs_are_listed_by_every_filter_and_in_pages(store):
    client = Client(store)
    echoes = client.add(b"a", b"b", b"c")
    client.add(b"d", kind=Kind("wc"))
    client.reserve(1)
    states = [State.QUEUED]
    assert [job.id for job in store.list(JobFilter(states=states))] == [*echoes[1:], 4]
    assert [job.id for job in store.list(JobFilter(role="echo", states=states))] == echoes[1:]
    assert [job.id for job in store.list(JobFilter(instance=client.me.number))] == echoes[:1]
    assert [job.id for job in store.list(limit=2)] == echoes[:2]
    assert [job.id for job in store.list(limit=2, after=echoes[1])] == [echoes[2], 4]
    assert store.list(JobFilter(ids=[])) == []
    assert store.counts() == {State.QUEUED: 3, State.RESERVED: 1}


def test_a_write_of_another_process_ends_a_wait(store, other):
    first, two = Client(store), Client(other)
    first.apply(sweep=1)
    reader, writer = os.pipe()
    try:
        while store.wait(reader, 0.0):
            pass
        first.add(b"mine")
        assert not store.wait(reader, 0.0)
        two.add(b"theirs")
        assert store.wait(reader, 5.0)
        os.write(writer, b"x")
        assert not store.wait(reader, 5.0)
    finally:
        os.close(reader)
        os.close(writer)
