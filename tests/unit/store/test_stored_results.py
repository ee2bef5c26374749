"""Results of a store, read from another process."""

from __future__ import annotations

import asyncio
import threading

import pytest

import wmp
from tests.unit.store.stores import Client, Clock, sqlite_store
from tests.waiting import WAIT
from wmp import codec, stored_results
from wmp.errors import (
    ConfigError,
    JobCancelled,
    JobFailed,
    JobTimeout,
    StoreUnusable,
    WorkerLost,
)
from wmp.message import Kind
from wmp.store.stored_job import StoredJobInput

Input = StoredJobInput


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def client(path):
    store = sqlite_store(path, Clock())
    yield Client(store)
    store.close()


@pytest.fixture
def results(client, path):
    with wmp.results(path) as results:
        yield results


def test_a_result_is_read_by_number_and_by_key(client, results):
    (id,) = client.add(b"x", keys=["k1"])
    assert results.get(id) is None
    assert results.get(key="k1", default="open") == "open"
    client.reserve()
    assert results.get(key="k1", default="open") == "open"
    client.change(Input.SUCCEED, [id], [1], payloads=[b"done"])
    assert results.get(id) == results.get(key="k1") == b"done"


def test_a_result_is_decoded_as_its_job_was_encoded(client, results):
    (id,) = client.add(b"x", kind=Kind("sum", codec="cbor"))
    client.reserve(kind=Kind("sum", codec="cbor"))
    client.change(Input.SUCCEED, [id], [1], payloads=[codec.pack_value({"total": 3})])
    assert results.get(id) == {"total": 3}


def test_the_newest_job_of_a_key_counts(client, results):
    for payload in (b"first", b"second"):
        (id,) = client.add(b"x", keys=["k"])
        assert results.get(key="k", default="open") == "open"
        client.reserve()
        client.change(Input.SUCCEED, [id], [1], payloads=[payload])
        assert results.get(key="k") == payload


def test_the_error_of_a_job_is_raised(client, results):
    failed, lost, overrun, cancelled = client.add(b"a", b"b", b"c", b"d")
    client.reserve()
    error = codec.pack_error("ValueError", "no", "Traceback …")
    client.change(Input.FAIL, [failed], [1], payloads=[error])
    client.change(Input.SPEND, [lost], [1], payloads=[b"pi:7\nsilence"])
    client.change(Input.OVERRUN, [overrun], [1], payloads=[b"run_limit of 2 s passed"])
    client.change(Input.CANCEL, [cancelled])
    client.change(Input.RELEASE, [cancelled], [1])

    with pytest.raises(JobFailed, match="ValueError: no") as caught:
        results.get(failed)
    assert caught.value.job_id == failed
    with pytest.raises(WorkerLost, match="silence") as two:
        results.get(lost)
    assert (two.value.host, two.value.attempts) == ("pi:7", 1)
    with pytest.raises(JobTimeout, match="run_limit of 2 s passed"):
        results.get(overrun)
    with pytest.raises(JobCancelled) as three:
        results.get(cancelled)
    assert three.value.may_have_started


def test_a_job_that_the_store_does_not_have_is_a_key_error(results):
    with pytest.raises(KeyError, match="has no job 7"):
        results.get(7)
    with pytest.raises(KeyError, match="has no job with the key 'k'"):
        results.get(key="k", default=None)


def test_a_job_is_named_once(results):
    for arguments in ({}, {"id": 1, "key": "k"}):
        with pytest.raises(ConfigError, match="not both"):
            results.get(**arguments)


def test_reading_needs_a_store_and_makes_none(tmp_path):
    missing = tmp_path / "none.db"
    with pytest.raises(ConfigError, match="there is no store"):
        wmp.results(missing)
    assert list(tmp_path.iterdir()) == []
    text = tmp_path / "text"
    text.write_text("x" * 5000)
    with pytest.raises(StoreUnusable, match="corrupted"):
        wmp.results(text)


def test_a_reader_changes_nothing_also_not_the_generation_of_a_copy(client, tmp_path):
    (id,) = client.add(b"x")
    client.reserve()
    client.change(Input.SUCCEED, [id], [1], payloads=[b"r"])
    copy = tmp_path / "copy.db"
    client.store.backup(copy)
    before = copy.read_bytes()
    with wmp.results(copy) as results:
        assert results.get(id) == b"r"
    assert copy.read_bytes() == before


@pytest.mark.rule("STORE-3.6")
def test_kinds_name_what_is_queued_and_when_it_is_due(tmp_path):
    clock = Clock()
    store = sqlite_store(tmp_path / "other.db", clock)
    first = Client(store)
    other = Kind("resize", (("gpu", 1),), "cbor", checksum=True)
    first.add(b"due", kind=Kind())
    first.add(b"later", kind=other, delay_ms=5000, priority=1)
    first.add(b"latest", kind=other, delay_ms=9000, priority=7)

    assert {row.kind: row.wait for row in store.kinds()} == {Kind(): 0, other: 5000}
    first.reserve(kind=Kind())
    clock.move(6.0)
    assert {row.kind: row.wait for row in store.kinds()} == {other: 0}
    store.close()


def test_a_key_of_two_roles_needs_the_role(path):
    store = sqlite_store(path, Clock())
    client = Client(store)
    for role in ("a", "b"):
        (id,) = client.add(b"x", kind=Kind(role), keys=["k"])
        client.reserve(kind=Kind(role))
        client.change(StoredJobInput.SUCCEED, [id], [1], payloads=[role.encode()])
    store.close()
    with wmp.results(path) as results:
        with pytest.raises(wmp.ConfigError, match="'a', 'b'; name the role"):
            results.get(key="k")
        assert [results.get(key="k", role=role) for role in ("a", "b")] == [b"a", b"b"]


def test_of_very_many_jobs_with_one_key_the_newest_counts(client, results, monkeypatch):
    monkeypatch.setattr(stored_results, "_PAGE", 2)
    ids = []
    for number in range(5):
        ids += client.add(b"x", keys=["k"])
        client.reserve()
        client.change(Input.SUCCEED, [ids[-1]], [1], payloads=[b"%d" % number])
    assert results.job(key="k").id == ids[-1]
    assert results.get(key="k") == b"4"


# -- handles


@pytest.mark.rule("STORE-6.7")
def test_a_handle_tells_running_from_reserved(client, results):
    (id,) = client.add(b"x", keys=["k"])
    job = results.job(key="k")
    assert (job.id, job.state, job.attempts, job.worker, job.done()) == (
        id,
        "queued",
        0,
        None,
        False,
    )
    client.reserve()
    status = job.status()
    assert (status.state, status.attempts, status.begun) == ("reserved", 1, None)
    client.change(
        Input.BEGIN, [id], [1], workers=["w"], ages_ms=[500], fractions=[0.25], notes=["a"]
    )
    status = job.status()
    assert (status.state, status.worker, status.fraction, status.text) == (
        "running",
        "w",
        0.25,
        "a",
    )
    assert status.begun == status.added - 0.5
    client.change(Input.BEGIN, [id], [1], workers=["w"], ages_ms=[0], fractions=[0.5])
    assert (job.status().fraction, job.status().text) == (0.5, None)
    assert job.status().begun == status.begun  # the first start of an attempt counts
    client.change(Input.AGAIN, [id], [1])
    status = job.status()
    assert (status.state, status.worker, status.fraction) == ("queued", "w", 0.5)
    client.reserve()
    status = job.status()
    assert (status.state, status.worker, status.begun, status.fraction) == (
        "reserved",
        None,
        None,
        None,
    )


@pytest.mark.rule("STORE-6.7")
def test_a_report_of_an_old_attempt_changes_nothing(client, results):
    (id,) = client.add(b"x")
    client.reserve()
    client.change(Input.AGAIN, [id], [1])
    client.reserve()
    client.change(Input.BEGIN, [id], [1], workers=["old"], ages_ms=[0])
    assert results.job(id).status().state == "reserved"


@pytest.mark.rule("STORE-6.7")
@pytest.mark.parametrize(
    ("what", "state"), [(Input.SUCCEED, "ok"), (Input.FAIL, "error"), (Input.SPEND, "lost")]
)
def test_an_ended_job_names_its_worker_and_times(client, results, what, state):
    (id,) = client.add(b"x")
    client.reserve()
    client.change(what, [id], [1], payloads=[b""], workers=["pi:7"], ages_ms=[1500])
    status = results.job(id).status()
    assert (status.state, status.worker, status.attempts) == (state, "pi:7", 1)
    assert status.begun == status.ended - 1.5


def test_a_handle_waits_for_the_end(client, results):
    (id,) = client.add(b"x")
    client.reserve()
    job = results.job(id)
    with pytest.raises(TimeoutError, match="is reserved"):
        job.wait(0.001)
    end = threading.Thread(
        target=client.change, args=(Input.SUCCEED, [id], [1]), kwargs={"payloads": [b"done"]}
    )
    end.start()
    assert job.result(WAIT) == b"done"
    end.join()
    assert job.wait().state == job.state == "ok"
    assert job.done()


def test_a_handle_stops_a_job(client, results):
    queued, reserved, ended = client.add(b"a", b"b", b"c")
    job = results.job(queued)
    assert job.stop()
    assert job.state == "cancelled"
    with pytest.raises(JobCancelled):
        job.result()
    client.reserve()
    job = results.job(reserved)
    assert job.stop()
    assert job.state == "cancelling"
    client.change(Input.SUCCEED, [ended], [1], payloads=[b""])
    assert not results.job(ended).stop()


def test_a_handle_of_an_absent_job_is_an_error(client, results):
    with pytest.raises(KeyError, match="no job 7"):
        results.job(7)
    with pytest.raises(ConfigError, match=r"job\(\) needs the number or the key"):
        results.job()
    (id,) = client.add(b"x")
    client.reserve()
    client.change(Input.SUCCEED, [id], [1], payloads=[b""])
    job = results.job(id)
    client.change(Input.FORGET, [id])
    with pytest.raises(KeyError, match="purged"):
        job.wait()


def test_handles_for_asyncio(client, path):
    first, two = client.add(b"x", b"y", keys=["k", None])
    client.reserve()

    async def read():
        async with wmp.aio.results(path) as results:
            assert await results.get(key="k", default="open") == "open"
            job, other = await results.job(key="k"), await results.job(two)
            assert (job.id, job.state, job.attempts, job.worker) == (first, "reserved", 1, None)
            assert not job.done()
            assert await other.stop()
            assert other.state == "cancelling"
            waiting = asyncio.ensure_future(job.wait())
            await asyncio.to_thread(client.change, Input.SUCCEED, [first], [1], payloads=[b"done"])
            assert (await waiting).state == "ok"
            assert await job == b"done"
            with pytest.raises(KeyError):
                await results.job(99)

    asyncio.run(read())


def test_a_handle_of_blocking_code_can_be_awaited(client, results):
    (id,) = client.add(b"x")
    client.reserve()
    client.change(Input.SUCCEED, [id], [1], payloads=[b"done"])

    async def read():
        return await results.job(id)

    assert asyncio.run(read()) == b"done"
