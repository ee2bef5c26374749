"""Jobs through real sockets, real threads and both APIs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import wmp
import wmp.aio
from tests.interop.faults.process_handlers import wait_for_file
from tests.interop.nodes.pair import Gate, async_pair, pair
from tests.waiting import WAIT, wait_until


def test_a_job_goes_there_and_back() -> None:
    with pair() as manager:
        job = manager.submit(b"hello")

        assert job.result(WAIT) == b"HELLO"
        assert job.done()
        assert not job.cancelled()
        assert job.exception() is None
        assert job.cancel() is False


def test_a_job_goes_there_and_back_in_asyncio() -> None:
    async def main() -> None:
        async with async_pair() as manager:
            job = await manager.submit(b"hello")
            with pytest.raises(asyncio.InvalidStateError):
                job.result()
            async with asyncio.timeout(WAIT):
                assert await job == b"HELLO"
            assert job.result() == b"HELLO"

    asyncio.run(main())


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 100_000, 3_000_000])
def test_payloads_of_every_size_arrive_whole(size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with pair(lambda data: data[::-1]) as manager:
        assert manager.submit(payload).result(WAIT) == payload[::-1]


def test_a_failure_travels_with_its_traceback() -> None:
    def divide(payload: bytes) -> bytes:
        return bytes([1 // len(payload)])

    with pair(divide) as manager:
        job = manager.submit(b"")
        with pytest.raises(wmp.JobFailed) as caught:
            job.result(WAIT)

    assert caught.value.type_name == "ZeroDivisionError"
    assert "1 // len(payload)" in caught.value.remote_traceback
    assert caught.value.job_id == job.id


def test_cbor_values_go_there_and_back() -> None:
    value = {"a": [1, 2.5, None, True, b"x", "ä"], "b": {}}
    with pair(lambda data: {"got": data}, codec="cbor") as manager:
        assert manager.submit(value).result(WAIT) == {"got": value}
        assert list(manager.map([1, "two", [3]])) == [{"got": 1}, {"got": "two"}, {"got": [3]}]
        with pytest.raises(TypeError, match="cannot be encoded by codec 'cbor'"):
            manager.submit(object())


def test_a_payload_that_is_no_payload_is_refused_at_once() -> None:
    with wmp.Manager() as manager:
        with pytest.raises(TypeError, match="codec='cbor'"):
            manager.submit({"a": 1})
        with pytest.raises(wmp.ConfigError, match="role"):
            manager.submit(b"", role="")
        with pytest.raises(wmp.ConfigError, match="timeout"):
            manager.submit(b"", timeout=-1)
        with pytest.raises(wmp.ConfigError, match="whole number"):
            manager.submit(b"", needs={"gpu": 0.5})  # type: ignore[dict-item]


@pytest.mark.parametrize("handler_kind", ["thread", "async", "inline"])
def test_every_kind_of_handler_does_jobs(handler_kind: str) -> None:
    async def shout(payload: bytes) -> bytes:
        await asyncio.sleep(0)
        return payload.upper()

    handler: Callable[..., Any] = shout if handler_kind == "async" else bytes.upper
    pool = "inline" if handler_kind == "inline" else "thread"
    with pair(handler, slots=2, pool=pool) as manager:
        assert list(manager.map([b"a"] * 100)) == [b"A"] * 100


def test_process_pools_do_jobs() -> None:
    with pair(bytes.upper, slots=2, pool="process") as manager:
        assert list(manager.map([b"a"] * 200)) == [b"A"] * 200


def test_roles_find_their_handlers() -> None:
    worker_handlers = {"up": bytes.upper, "down": bytes.lower}
    with pair(worker_handlers) as manager:
        assert manager.submit(b"Ab", role="up").result(WAIT) == b"AB"
        assert manager.submit(b"Ab", role="down").result(WAIT) == b"ab"


def test_a_job_waits_until_a_worker_offers_its_role() -> None:
    with pair() as manager:
        job = manager.submit(b"a", role="rare")
        with pytest.raises(TimeoutError, match=r"role 'rare'; 1 connected worker offers.*default"):
            manager.wait_for_workers(role="rare", timeout=0.05)
        worker = wmp.Worker(*manager.endpoints)

        @worker.handler("rare")
        def rare(payload: bytes) -> str:
            return "rare " + payload.decode()

        with worker:
            assert job.result(WAIT) == b"rare a"


def test_higher_priorities_go_first() -> None:
    gate, order = Gate(), []

    def handler(payload: bytes) -> bytes:
        if payload == b"first":
            return gate(payload)
        order.append(payload)
        return payload

    with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=handler, window=0):
        first = manager.submit(b"first")
        gate.wait_begun()
        jobs = [manager.submit(str(p), priority=p) for p in (0, 5, -5, 5, 9)]
        wait_until(lambda: manager.statistics().queued == 5)
        gate.go.set()
        concurrent.futures.wait([first, *jobs], WAIT)

    assert order == [b"9", b"5", b"5", b"0", b"-5"]


def test_a_handler_sees_that_it_is_cancelled() -> None:
    begun = threading.Event()

    def patient(payload: bytes, job: wmp.RunningJob) -> bytes:
        begun.set()
        until = time.monotonic() + WAIT
        while not job.cancelled and time.monotonic() < until:
            time.sleep(0.001)
        raise wmp.JobCancelled("as asked")

    with pair(patient) as manager:
        job = manager.submit(b"")
        assert begun.wait(WAIT)
        job.stop()
        with pytest.raises(wmp.JobCancelled) as caught:
            job.result(WAIT)

    assert caught.value.may_have_started


def test_an_abandoned_wait_cancels_the_job_in_asyncio() -> None:
    gate = Gate()

    async def main() -> None:
        async with async_pair(gate) as manager:
            running = await manager.submit(b"running")
            await asyncio.to_thread(gate.wait_begun)
            waiting = await manager.submit(b"waiting")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting, 0.01)  # type: ignore[arg-type]
            with pytest.raises(wmp.JobCancelled):
                await waiting
            gate.go.set()
            assert await running == b"running"

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert gate.calls == 1


def test_progress_arrives() -> None:
    seen: list[wmp.Status] = []
    arrived = threading.Event()
    go = threading.Event()

    def note(status: wmp.Status) -> None:
        seen.append(status)
        arrived.set()

    def handler(payload: bytes, job: wmp.RunningJob) -> bytes:
        job.report(0.5, "half way")
        assert go.wait(WAIT)
        return payload

    with pair(handler) as manager:
        job = manager.submit(b"", on_status=note)
        assert arrived.wait(WAIT)
        assert job.status() == wmp.Status(0.5, "half way")
        go.set()
        job.result(WAIT)

    assert seen[0] == wmp.Status(0.5, "half way")


def test_several_reports_in_a_row_reach_the_submitter_as_one_and_the_last_one_comes() -> None:
    seen: list[wmp.Status] = []

    def handler(payload: bytes, job: wmp.RunningJob) -> bytes:
        for number in range(1000):
            job.report(text=f"part {number}")
        return payload

    with pair(handler) as manager:
        manager.submit(b"", on_status=seen.append).result(WAIT)
        wait_until(lambda: seen[-1:] == [wmp.Status(None, "part 999")], "the last report")
    assert len(seen) < 1000


def test_a_timeout_ends_a_job_that_waits_and_one_that_runs() -> None:
    gate = Gate()
    with pair(gate) as manager:
        running = manager.submit(b"running", timeout=2.0)
        gate.wait_begun()
        waiting = manager.submit(b"waiting", timeout=0.1)

        for job in (waiting, running):
            with pytest.raises(wmp.JobTimeout):
                job.result(WAIT)
        gate.go.set()
    assert gate.calls == 1


def test_a_full_manager_raises_or_waits() -> None:
    gate = Gate()
    with pair(gate, max_jobs=2) as manager:
        jobs = [manager.submit(b"a"), manager.submit(b"b")]
        with pytest.raises(wmp.QueueFull, match="max_jobs"):
            manager.submit_nowait(b"c")

        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(manager.submit, b"c")
            gate.wait_begun()
            assert not waiting.done()
            gate.go.set()
            jobs.append(waiting.result(WAIT))
        assert [job.result(WAIT) for job in jobs] == [b"a", b"b", b"c"]


def test_many_threads_share_a_manager() -> None:
    with pair(slots=2, max_jobs=50) as manager:

        def some(thread: int) -> list[bytes]:
            return [
                manager.submit(f"{thread} {number}").result(WAIT) for number in range(50)
            ] + list(manager.map([b"m"] * 50))

        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            results = list(threads.map(some, range(8)))

    for thread, result in enumerate(results):
        assert result == [f"{thread} {n}".encode() for n in range(50)] + [b"M"] * 50


def test_as_completed_yields_the_earliest_first() -> None:
    gate = Gate()
    with pair({"slow": gate, "fast": bytes.upper}, slots=2) as manager:
        slow = manager.submit(b"slow", role="slow")
        gate.wait_begun()
        fast = manager.submit(b"fast", role="fast")
        ended = manager.as_completed([slow, fast])

        assert next(ended) is fast
        gate.go.set()
        assert next(ended) is slow


def test_as_completed_yields_the_earliest_first_in_asyncio() -> None:
    gate = Gate()

    async def main() -> None:
        async with wmp.aio.Manager() as manager:
            handlers = {"slow": gate, "fast": bytes.upper}
            async with wmp.aio.Worker(*manager.endpoints, handlers=handlers, slots=2):
                slow = await manager.submit(b"slow", role="slow")
                fast = await manager.submit(b"fast", role="fast")
                order = []
                async for job in manager.as_completed([slow, fast]):
                    order.append(job)
                    gate.go.set()
                assert order == [fast, slow]

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_as_completed_raises_when_jobs_take_longer_than_its_timeout() -> None:
    gate = Gate()
    with pair({"slow": gate, "fast": bytes.upper}, slots=2) as manager:
        slow = manager.submit(b"slow", role="slow")
        fast = manager.submit(b"fast", role="fast")
        fast.result(WAIT)
        ended = manager.as_completed([slow, fast, fast], timeout=0.05)

        assert next(ended) is fast
        with pytest.raises(TimeoutError, match=r"1 .*of 2"):
            next(ended)
        gate.go.set()
        assert slow.result(WAIT)


def test_as_completed_raises_when_jobs_take_longer_than_its_timeout_in_asyncio() -> None:
    gate = Gate()

    async def main() -> None:
        async with wmp.aio.Manager() as manager:
            handlers = {"slow": gate, "fast": bytes.upper}
            async with wmp.aio.Worker(*manager.endpoints, handlers=handlers, slots=2):
                slow = await manager.submit(b"slow", role="slow")
                fast = await manager.submit(b"fast", role="fast")
                await fast
                ended = manager.as_completed([slow, fast, fast], timeout=0.05)
                assert await anext(ended) is fast
                with pytest.raises(TimeoutError, match=r"1 job has not ended after 0\.05 s"):
                    await anext(ended)
                gate.go.set()
                assert await slow

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_a_close_that_waits_for_jobs_logs_their_number(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    with pair(gate) as manager:
        running, waiting = manager.submit(b"a"), manager.submit(b"b")
        gate.wait_begun()
        with caplog.at_level("WARNING", "wmp"):
            closing = threading.Thread(target=manager.close)
            closing.start()
            wait_until(lambda: "1 waiting and 1 running" in caplog.text)
            gate.go.set()
            closing.join(WAIT)
    assert (running.result(), waiting.result()) == (b"a", b"b")


def test_the_status_of_a_job_that_no_worker_can_do_states_the_cause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wmp.runtime.manager.unserved_watch._LOOK", 0.02)

    def unserved(job: wmp.Job | wmp.aio.Job) -> str:
        status = job.status()
        return status.unserved if status is not None else ""

    with pair({"greeter": bytes.upper}) as manager:
        job = manager.submit(b"a", role="greter")
        wait_until(lambda: "did you mean 'greeter'?" in unserved(job))
        wait_until(lambda: "jobs of role 'greter' wait (1 job)" in caplog.text)
        with wmp.Worker(*manager.endpoints, handlers={"greter": bytes.upper}):
            assert job.result(WAIT) == b"A"
        assert job.status() is None

    async def main() -> None:
        async with wmp.aio.Manager() as manager:
            job = await manager.submit(b"a")
            while unserved(job) != "no worker is connected":
                await asyncio.sleep(0)
            job.cancel()

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_statistics_are_json() -> None:
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper) as worker,
    ):
        assert manager.submit(b"a").result(WAIT) == b"A"
        seen = json.loads(json.dumps(manager.statistics().as_dict()))
        done = json.loads(json.dumps(worker.statistics().as_dict()))
    assert seen["ended"]["ok"] == 1
    assert [bytes.fromhex(row["identity"]) for row in seen["workers"]]
    assert seen["workers"][0]["roles"] == ["default"]
    assert done["outcomes"] == {"ok": 1}
    assert [bytes.fromhex(row["identity"]) for row in done["managers"]] == [manager.identity]
    device = wmp.Device(bind="tcp://127.0.0.1:*", connect="tcp://127.0.0.1:1")
    seen = json.loads(json.dumps(device.statistics().as_dict()))
    assert seen == {"forwarded": {}, "dropped": {}, "managers": 0}


def test_callbacks_run_and_may_fail_without_harm(caplog: pytest.LogCaptureFixture) -> None:
    called = threading.Event()
    threads: list[str] = []

    def fail(job: wmp.Job) -> None:
        raise RuntimeError("a careless callback")

    def note(job: wmp.Job) -> None:
        threads.append(threading.current_thread().name)
        called.set()

    with pair() as manager:
        job = manager.submit(b"a")
        job.add_done_callback(fail)
        job.add_done_callback(note)
        assert called.wait(WAIT)
        assert manager.submit(b"b").result(WAIT) == b"B"

    assert threads == ["wmp-manager-callbacks"]
    assert "a careless callback" in caplog.text


def test_a_second_worker_joins_and_shares() -> None:
    gate = Gate()
    with pair(gate) as manager:
        jobs = [manager.submit(str(n)) for n in range(2)]
        gate.wait_begun()
        with wmp.Worker(*manager.endpoints, handlers=gate):
            manager.wait_for_workers(2, timeout=WAIT)
            gate.wait_begun()
            gate.go.set()
            assert [job.result(WAIT) for job in jobs] == [b"0", b"1"]
            assert len(manager.statistics().workers) == 2


@pytest.mark.rule("WMP-6.18")
@pytest.mark.parametrize("pool", ["thread", "process"])
def test_jobs_behind_a_slow_job_are_done_by_another_worker(pool: Any, tmp_path: Any) -> None:
    go = tmp_path / "go"
    with (
        pair(wait_for_file, pool=pool) as manager,
        wmp.Worker(*manager.endpoints, handlers=wait_for_file, pool=pool),
    ):
        manager.wait_for_workers(2, timeout=WAIT)
        # From now on the manager grants both workers many jobs at once.
        for _ in manager.map([b"quick"] * 400):
            pass
        slow = manager.submit(os.fsencode(go))
        quick = [manager.submit(b"quick") for _ in range(400)]
        for job in quick:
            assert job.result(WAIT) == b"quick"
        assert not slow.done()
        go.touch()
        assert slow.result(WAIT) == os.fsencode(go)


@pytest.mark.rule("WMP-1.3")
def test_a_worker_serves_several_managers() -> None:
    with (
        wmp.Manager() as first,
        wmp.Manager() as two,
        wmp.Worker(*first.endpoints, *two.endpoints, handlers=bytes.upper),
    ):
        for manager in (first, two):
            assert list(manager.map([b"a"] * 20)) == [b"A"] * 20


def test_resources_are_matched() -> None:
    with wmp.Manager() as manager:
        job = manager.submit(b"a", needs={"gpu": 1})
        with wmp.Worker(*manager.endpoints, handlers=lambda _: b"plain"):
            manager.wait_for_workers(timeout=WAIT)
            with wmp.Worker(
                *manager.endpoints, handlers=lambda _: b"with a gpu", resources={"gpu": 1}
            ):
                assert job.result(WAIT) == b"with a gpu"


@pytest.mark.rule("WMP-1.4")
def test_jobs_pass_a_chain_of_two_devices() -> None:
    with (
        wmp.Manager() as manager,
        wmp.Device(bind="tcp://127.0.0.1:*", connect=manager.endpoints) as upper,
        wmp.Device(bind=["tcp://127.0.0.1:*"], connect=upper.endpoints[0]) as lower,
        wmp.Worker(*lower.endpoints, handlers=bytes.upper, slots=2),
    ):
        assert list(manager.map([b"a" * 10_000] * 200)) == [b"A" * 10_000] * 200
        assert lower.statistics().forwarded["DONE"] > 0
        assert upper.statistics().forwarded["TAKE"] > 0


def test_a_worker_waits_for_a_manager_that_starts_later(tmp_path: Any) -> None:
    endpoint = f"ipc://{tmp_path}/later"
    with wmp.Worker(endpoint, handlers=bytes.upper), wmp.Manager(endpoint) as manager:
        assert manager.submit(b"a").result(WAIT) == b"A"


def test_blocking_calls_on_the_loop_of_the_node_raise_an_error() -> None:
    caught: list[BaseException] = []
    with wmp.Manager() as manager:

        def misuse() -> None:
            for call in (lambda: manager.wait_for_workers(), manager.close):
                try:
                    call()
                except RuntimeError as error:
                    caught.append(error)

        done = threading.Event()
        manager._portal.post(misuse)
        manager._portal.post(done.set)
        assert done.wait(WAIT)

    assert [type(error) for error in caught] == [RuntimeError, RuntimeError]
    assert "wmp.aio" in str(caught[0])


def test_statistics_count_queued_leased_and_done_jobs() -> None:
    with pair() as manager:
        list(manager.map([b"a"] * 10))
        statistics = manager.statistics()

    assert sum(row.done for row in statistics.workers) == 10
    assert statistics.queued == statistics.leased == 0
    assert manager.statistics().queued == 0


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(wmp.ConfigError, match=r"no setting 'expires'; its settings are .*resend"):
        wmp.Manager(expires=5)
    with pytest.raises(wmp.ConfigError, match="more than 0"):
        wmp.Worker("tcp://127.0.0.1:1", handlers=bytes.upper, lock_timeout=-1)
    with pytest.raises(wmp.ConfigError, match="policy"):
        wmp.Manager(policy="fairest")
    with pytest.raises(wmp.ConfigError, match="codec"):
        wmp.Manager(codec="xml")
    with pytest.raises(wmp.ConfigError, match="endpoint"):
        wmp.Worker(handlers=bytes.upper)


def test_a_key_joins_the_job_in_progress() -> None:
    go = threading.Event()
    runs: list[bytes] = []

    def once(payload: bytes) -> bytes:
        runs.append(payload)
        go.wait(WAIT)
        return payload

    with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=once, slots=2):
        first = manager.submit(b"one", key="order 17")
        assert manager.submit_nowait(b"two", key="order 17") is first
        go.set()
        assert first.result(WAIT) == b"one"
        assert manager.submit(b"three", key="order 17").result(WAIT) == b"three"
    assert runs == [b"one", b"three"]


def test_a_key_joins_the_job_in_progress_in_asyncio() -> None:
    async def main() -> None:
        async with wmp.aio.Manager() as manager:
            first = await manager.submit(b"one", key="k")
            assert await manager.submit(b"two", key="k") is first
            async with wmp.aio.Worker(*manager.endpoints, handlers=bytes.upper):
                assert await first == b"ONE"
                assert await (await manager.submit(b"two", key="k")) == b"TWO"

    asyncio.run(asyncio.wait_for(main(), WAIT))
