"""Results are kept after their time to live while somebody waits for them."""

from __future__ import annotations

import pytest

from tests.unit.store.stores import KIND, Client
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import StoredJobInput, StoredJobState

Input = StoredJobInput
State = StoredJobState

SHORT = StoredTerms(keep_ms=0, keep_dead_ms=0)


def succeed(client, id):
    client.reserve()
    client.change(Input.SUCCEED, [id], [1], payloads=[b"result"])


@pytest.mark.rule("STORE-6.8")
@pytest.mark.parametrize("unique", ["open", "kept"])
def test_the_result_is_kept_while_a_joiner_waits(store, clock, unique):
    client, joiner = Client(store, b"one"), Client(store, b"two")
    (id,) = client.add(b"x", keys=["k"], terms=SHORT)
    if unique == "kept":
        succeed(client, id)
    assert joiner.add(b"y", keys=["k"], unique=unique) == [id]
    if unique == "open":
        succeed(client, id)
    for _ in range(10):
        clock.move(10)
        client.sweep()
        joiner.sweep()
    assert joiner.job(id).result == b"result"
    joiner.apply(receipts=[id])
    client.sweep()
    assert client.job(id) is None


@pytest.mark.rule("STORE-6.8")
def test_a_joiner_that_ended_keeps_nothing(store, clock):
    client, joiner = Client(store, b"one"), Client(store, b"two")
    (id,) = client.add(b"x", keys=["k"], terms=SHORT)
    joiner.add(b"y", keys=["k"])
    succeed(client, id)
    clock.move(10)
    client.sweep()
    assert client.job(id) is not None
    clock.move(10)
    client.sweep()  # ends the joiner, whose validity has passed
    client.sweep()
    assert client.job(id) is None


@pytest.mark.rule("STORE-6.8")
def test_a_watched_job_is_kept(store, clock):
    client, other = Client(store, b"one"), Client(store, b"two")
    (id,) = client.add(b"x", terms=SHORT)
    other.apply(watch=[id])
    succeed(client, id)
    clock.move(1)
    client.sweep()
    assert other.job(id).state is State.OK
    client.change(Input.FORGET, [id])  # an operator's word counts
    assert other.job(id) is None


@pytest.mark.rule("STORE-6.8")
def test_the_result_is_kept_for_its_submitter_for_a_minute(store, clock):
    submitter, other = Client(store, b"one"), Client(store, b"two")
    learned, unread = submitter.add(b"x", b"y", terms=SHORT)
    for id in (learned, unread):
        other.reserve(count=1)
        other.change(Input.SUCCEED, [id], [1], payloads=[b"result"])
    clock.move(5)
    other.sweep()
    assert [job.id for job in store.news(submitter.me).ended] == [learned, unread]
    submitter.apply(receipts=[learned])
    other.sweep()
    assert other.job(learned) is None
    for _ in range(11):
        assert other.job(unread) is not None
        clock.move(5)
        submitter.apply()
        other.sweep()
    assert other.job(unread) is None


@pytest.mark.rule("STORE-6.8", "STORE-15.2")
def test_the_result_is_kept_while_another_job_waits_for_it(store, clock):
    client = Client(store)
    first, second = client.add(b"x", b"y", terms=SHORT)
    (child,) = client.add(b"r:", after=[first, second], splice=2)
    client.reserve(count=2)
    client.change(Input.SUCCEED, [first], [1], payloads=[b"1"])
    for _ in range(10):
        clock.move(10)
        client.sweep()
    assert client.job(first).result == b"1"
    client.change(Input.SUCCEED, [second], [1], payloads=[b"2"])
    assert client.job(child).payload == b"r:12"
    clock.move(1)
    client.sweep()
    assert client.job(first) is None
    assert client.reserve(kind=KIND).ids == [child]
