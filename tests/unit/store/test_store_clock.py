"""Clocks that are set back, on every store."""

from __future__ import annotations

import pytest

from tests.unit.store.stores import Client
from wmp.store.stored_job import StoredJobState

AHEAD = 1500
"""Seconds by which the clock is ahead."""


@pytest.mark.rule("STORE-4.6")
@pytest.mark.parametrize("seen", ["by this process", "by the next process"])
def test_jobs_that_were_added_while_the_clock_was_ahead_are_due(store, other, clock, seen):
    early = Client(store)
    (old,) = early.add(b"old", timeout_ms=5000)
    clock.jump(AHEAD)
    ids = early.add(b"plain", b"plain")
    (delayed,) = early.add(b"delayed", delay_ms=2000, timeout_ms=3000, expires_in_ms=1000)
    if seen == "by the next process":
        store.end(early.me)
        clock.jump(-AHEAD)
        client = Client(other)
    else:
        clock.jump(-AHEAD)
        client = early

    client.sweep()

    now = round(clock.wall * 1000)
    assert sorted(client.reserve().ids) == sorted([old, *ids])
    job = client.job(delayed)
    assert (job.created, job.due) == (now, now + 2000)
    assert (job.deadline_ms, job.expires_at_ms) == (now + 5000, now + 3000)
    assert client.job(old).deadline_ms == now + 5000
    clock.move(2.5)
    assert list(client.reserve().ids) == [delayed]


@pytest.mark.rule("STORE-4.6")
@pytest.mark.parametrize("began", ["before", "after"])
def test_the_jobs_of_an_instance_that_ended_while_the_clock_was_ahead_lapse(
    store, other, clock, began
):
    client = Client(other) if began == "before" else None
    clock.jump(AHEAD)
    client = client or Client(other)
    early = Client(store)
    (id,) = early.add(b"x")
    assert list(early.reserve().ids) == [id]
    store.end(early.me)
    clock.jump(-AHEAD)
    client.sweep()
    clock.move(11)
    client.sweep()
    assert list(client.reserve().ids) == [id]


def test_a_clock_that_goes_on_moves_no_job(store, clock):
    client = Client(store)
    (id,) = client.add(b"x", delay_ms=9000)
    before = client.job(id)
    for _ in range(3):
        clock.move(1)
        client.sweep()
    assert client.job(id) == before
    assert before.state is StoredJobState.QUEUED
