"""Jobs that wait for the results of other jobs, and keys of roles, on every store."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.unit.store.stores import KIND, TERMS, Client, sqlite_store
from wmp.message import Kind
from wmp.store.contract import JobFilter
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import NewJobs

State, Input = StoredJobState, StoredJobInput


def reserved(client: Client, count: int = 2) -> list[int]:
    """Add jobs and reserve them; return their numbers."""
    ids = client.add(*[b"parent %d" % number for number in range(count)])
    assert list(client.reserve(count, kind=KIND).ids) == ids
    return ids


def waiting(client: Client, after: list[int], **more: Any) -> int:
    """Add a job that waits for others; return its number."""
    (id,) = client.add(b"head|tail", after=after, splice=5, **more)
    return id


@pytest.mark.rule("STORE-15.1", "STORE-15.2", "STORE-15.3", "STORE-15.7")
def test_the_end_of_the_last_other_job_releases_a_job(store):
    client = Client(store)
    parents = reserved(client)
    id = waiting(client, parents[::-1])
    client.change(Input.SUCCEED, parents[:1], [1], payloads=[b"first "])
    assert client.job(id).state is State.WAITING
    assert not client.reserve().ids

    answer = client.apply(
        changes=[client.changed(Input.SUCCEED, parents[1:], [1], payloads=[b"second "])]
    )
    assert answer.stirred
    taken = client.reserve()
    assert (list(taken.ids), list(taken.payloads)) == ([id], [b"head|second first tail"])


@pytest.mark.rule("STORE-15.2")
def test_a_job_that_was_released_needs_the_other_jobs_no_more(store):
    client = Client(store)
    parents = reserved(client)
    id = waiting(client, parents)
    client.change(Input.SUCCEED, parents, [1, 1], payloads=[b"x" * 600, b"y"])
    client.change(Input.FORGET, parents)
    assert client.reserve().payloads == [b"head|" + b"x" * 600 + b"ytail"]
    # An end of a job that was purged early, or runs again, changes nothing.
    assert client.change(Input.SUCCEED, [id], [1], payloads=[b"z"]) == [State.OK]


@pytest.mark.rule("STORE-15.2")
def test_a_removed_result_ends_the_jobs_that_still_wait_for_others(store, clock):
    client = Client(store)
    parents = reserved(client)
    first, second = waiting(client, parents), waiting(client, parents[::-1])
    client.change(Input.SUCCEED, parents[:1], [1], payloads=[b"gone"])
    assert client.job(first).state is State.WAITING
    client.change(Input.FORGET, parents[:1])
    assert [client.job(id).state for id in (first, second)] == [State.LOST, State.LOST]
    assert b"does not have job %d" % parents[0] in client.job(first).result


ENDS = {
    "error": (Input.FAIL, State.ERROR),
    "timeout": (Input.OVERRUN, State.TIMEOUT),
    "loss": (Input.SPEND, State.LOST),
}


@pytest.mark.rule("STORE-15.4")
@pytest.mark.parametrize("how", ENDS)
def test_an_end_without_a_result_ends_all_jobs_that_wait_for_it(store, how):
    what, state = ENDS[how]
    client = Client(store)
    parents = reserved(client)
    first = waiting(client, parents)
    second = waiting(client, [first])
    client.change(what, parents[:1], [1], payloads=[b"the cause"])
    for id in (first, second):
        job = client.job(id)
        assert (job.state, job.result, job.ended) == (
            state,
            b"the cause",
            client.job(parents[0]).ended,
        )
        assert job.purge > job.ended
    # The submitter's own batch did it, and the submitter learns it nevertheless.
    assert [job.id for job in store.news(client.me).ended] == [first, second]


@pytest.mark.rule("STORE-15.4", "STORE-15.6")
def test_a_cancelled_job_cancels_the_jobs_that_wait_for_it_and_not_those_before_it(store):
    client = Client(store)
    (parent,) = client.add(b"x", delay_ms=1000)
    first = waiting(client, [parent])
    second = waiting(client, [first])
    assert client.change(Input.CANCEL, [first]) == [State.CANCELLED]
    assert client.job(second).state is State.CANCELLED
    assert client.job(parent).state is State.QUEUED
    assert client.change(Input.REVIVE, [second]) == [State.CANCELLED]


@pytest.mark.rule("STORE-15.4")
def test_a_job_that_expires_ends_the_jobs_that_wait_for_it(store, clock):
    client = Client(store)
    (parent,) = client.add(b"x", timeout_ms=1000)
    id = waiting(client, [parent])
    clock.move(2)
    client.sweep()
    assert client.job(id).state is State.TIMEOUT


@pytest.mark.rule("STORE-15.5")
def test_a_job_whose_other_jobs_have_ended_already_is_queued_or_ends(store):
    client = Client(store)
    good, bad = reserved(client)
    client.change(Input.SUCCEED, [good], [1], payloads=[b"good "])
    client.change(Input.FAIL, [bad], [1], payloads=[b"bad"])
    assert client.job(waiting(client, [good])).state is State.QUEUED
    assert client.job(waiting(client, [good, bad])).state is State.ERROR
    lost = client.job(waiting(client, [987_654]))
    assert (lost.state, lost.result) == (
        State.LOST,
        b"the store does not have job 987654, for whose result this job waits",
    )


@pytest.mark.rule("STORE-15.6")
def test_the_times_of_a_job_count_from_its_release(store, clock):
    client = Client(store)
    parents = reserved(client, 1)
    id = waiting(client, parents, delay_ms=500, timeout_ms=1000, expires_in_ms=700)
    clock.move(5)
    client.sweep()
    assert client.job(id).state is State.WAITING
    client.change(Input.SUCCEED, parents, [1], payloads=[b""])
    job, now = client.job(id), round(clock.wall * 1000)
    assert (job.state, job.due) == (State.QUEUED, now + 500)
    assert (job.deadline_ms, job.expires_at_ms) == (now + 1500, now + 1200)


def test_a_repeated_add_waits_once(store):
    client = Client(store)
    parents = reserved(client, 1)
    id = waiting(client, parents)
    again = NewJobs(KIND, TERMS, [id], [b"other"], after=[id + 1])
    assert client.apply(adds=[again]).adds[0].states == [State.WAITING]
    client.change(Input.SUCCEED, parents, [1], payloads=[b"r"])
    assert client.job(id).payload == b"head|rtail"


@pytest.mark.rule("STORE-7.1", "STORE-7.4")
def test_a_key_belongs_to_a_role(store):
    client = Client(store)
    kinds = [Kind("a"), Kind("a", (("gpu", 1),)), Kind("b")]
    ids = [client.add(b"x", kind=kind, keys=["k"])[0] for kind in kinds]
    assert ids[0] == ids[1] != ids[2]
    assert [job.id for job in store.list(JobFilter(key="k"))] == [ids[0], ids[2]]
    assert [job.id for job in store.list(JobFilter(key="k", role="b"))] == [ids[2]]
    assert client.change(Input.CANCEL, ids[:1]) == [State.CANCELLED]
    assert client.change(Input.REVIVE, ids[:1]) == [State.QUEUED]
    kept = client.add(b"y", kind=Kind("c"), keys=["k"], unique="kept")
    assert kept[0] not in ids


@pytest.mark.rule("STORE-7.1")
def test_nobody_joins_a_job_that_is_being_cancelled(store):
    client = Client(store)
    (old,) = client.add(b"old", keys=["k"])
    client.reserve()
    assert client.change(Input.CANCEL, [old]) == [State.CANCELLING]
    (new,) = client.add(b"new", keys=["k"])
    assert new != old
    assert client.add(b"third", keys=["k"], unique="kept") == [new]
    assert client.change(Input.SUCCEED, [old], [1], payloads=[b"done"]) == [State.OK]
    assert client.job(new).state is State.QUEUED


ORDERS = {
    "in order": lambda ids: ids,
    "backwards": lambda ids: ids[::-1],
    "shuffled": lambda ids: Random(5).sample(ids, len(ids)),
}


@pytest.mark.rule("STORE-15.2")
@pytest.mark.parametrize("order", ORDERS)
def test_the_work_for_the_ends_of_n_other_jobs_grows_with_n(tmp_path, clock, order):
    def steps(count: int) -> int:
        """Return how many steps SQLite makes while the other jobs end, one by one."""
        store = sqlite_store(tmp_path / f"{count}.db", clock)
        client = Client(store)
        parents = reserved(client, count)
        id = waiting(client, parents)
        counts = [0]

        def note() -> None:
            counts[0] += 1

        store._link._open().set_progress_handler(note, 10)
        for parent in ORDERS[order](parents):
            client.change(Input.SUCCEED, [parent], [1], payloads=[b"r"])
        store._link._open().set_progress_handler(None, 0)
        assert client.job(id).payload == b"head|" + b"r" * count + b"tail"
        store.close()
        return counts[0]

    # If each end looked at all other jobs, four times as many jobs would take ten times the steps.
    assert steps(200) < 6 * steps(50)


@pytest.mark.rule("STORE-15.2", "STORE-15.4")
def test_a_job_that_is_revived_is_waited_for_again(store):
    client = Client(store)
    parents = reserved(client, 3)
    id = waiting(client, parents)
    for parent in (parents[0], parents[1]):
        client.change(Input.SUCCEED, [parent], [1], payloads=[b"old"])
    client.change(Input.REVIVE, parents[:1])
    client.change(Input.SUCCEED, parents[2:], [1], payloads=[b"c"])
    assert client.job(id).state is State.WAITING
    client.change(Input.SUCCEED, client.reserve().ids, [2], payloads=[b"new"])
    assert client.job(id).payload == b"head|newoldctail"
