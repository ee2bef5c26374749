"""Every wait takes a ``timedelta``: as a limit that is not reached, and as one that passes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import wmp
from tests.waiting import WAIT

LONG, SHORT = timedelta(seconds=WAIT), timedelta(milliseconds=20)


def test_the_waits_for_a_manager_and_its_worker() -> None:
    with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=bytes.upper) as worker:
        manager.wait_for_workers(1, timeout=LONG)
        manager.wait_active(LONG)
        job = manager.submit(b"a")
        assert list(manager.as_completed([job], LONG)) == [job]
        assert job.result(LONG) == b"A"
        assert job.exception(LONG) is None
        waiting = manager.submit(b"b", role="nobody")
        for wait in (waiting.result, waiting.exception, lambda t: manager.drain(timeout=t)):
            with pytest.raises(TimeoutError):
                wait(SHORT)
        with pytest.raises(TimeoutError, match=r"after 0\.02 s"):
            waiting.result(SHORT)
        with pytest.raises(TimeoutError, match=r"after 0\.02 s"):
            manager.wait_for_workers(2, timeout=SHORT)
        waiting.cancel()
        worker.drain(LONG)
        worker.close(LONG)
        manager.close(SHORT)


def test_the_waits_of_asyncio() -> None:
    async def main() -> None:
        async with wmp.aio.Manager() as manager:
            worker = wmp.aio.Worker(*manager.endpoints, handlers=bytes.upper)
            serving = asyncio.create_task(worker.run(drain_timeout=LONG))
            await manager.wait_for_workers(1, timeout=LONG)
            await manager.wait_active(LONG)
            job = await manager.submit(b"a")
            assert [await job async for job in manager.as_completed([job], LONG)] == [b"A"]
            waiting = await manager.submit(b"b", role="nobody")
            with pytest.raises(TimeoutError, match=r"after 0\.02 s"):
                async for _ in manager.as_completed([waiting], SHORT):
                    pass
            with pytest.raises(TimeoutError, match=r"after 0\.02 s"):
                await manager.drain(SHORT)
            waiting.cancel()
            worker.interrupt()
            await serving
            await worker.close(LONG)
            await manager.close(SHORT)

    asyncio.run(main())


def test_the_waits_for_stored_jobs(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with wmp.Manager(store=wmp.SqliteStore(path, grace=timedelta(seconds=5))) as manager:
        manager.submit(b"a", key="a", result_ttl=timedelta(hours=2))
        with wmp.results(path) as results:
            handle = results.job(key="a")
            for wait in (handle.wait, handle.result):
                with pytest.raises(TimeoutError, match=r"after 0\.02 s"):
                    wait(SHORT)
            with wmp.Worker(*manager.endpoints, handlers=bytes.upper):
                assert handle.result(LONG) == b"A"
                assert handle.wait(LONG).state == "ok"


def test_the_waits_for_calls() -> None:
    with wmp.Executor(workers=1) as executor:
        assert list(executor.map(abs, [-1, 2], timeout=LONG)) == [1, 2]
        calls = [executor.submit(abs, -3), executor.submit(abs, -4)]
        assert wmp.gather(*calls).result(LONG) == [3, 4]
        assert wmp.gather(*calls).exception(LONG) is None
        assert calls[0].results(LONG) == [3]
    with wmp.Manager(codec="cbor") as manager:
        never = manager.submit(1, role="nobody")
        with pytest.raises(TimeoutError):
            wmp.gather(never).result(SHORT)
        never.cancel()


def test_the_waits_of_gateways() -> None:
    broker = wmp.gateways.MajordomoDoor("tcp://127.0.0.1:*")
    with wmp.gateways.Gateway(broker) as gateway:
        address = gateway.doors[0][0]
        worker = wmp.gateways.MajordomoWorker(address, "echo")
        client = wmp.gateways.MajordomoPipelinedClient(address)
        with worker, client:
            client.send("echo", b"a")
            request = worker.recv(timeout=LONG)
            with pytest.raises(TimeoutError):
                worker.recv([b"b"], timeout=SHORT)
            assert request == b"a"
            assert client.recv(LONG) == ("echo", b"b")
            worker.close(LONG)
        with wmp.gateways.FreelanceServer("tcp://127.0.0.1:*", handler=len) as server:
            server.drain(LONG)
            server.close(LONG)
