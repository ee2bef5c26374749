"""The journals of a dispatcher and of Titanic are read as those of managers with a store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark.folds.plain import fold, table
from tests.unit.dispatcher.http_net import FakeWorker, Net, dispatcher_on, worker_on
from tests.waiting import WAIT, wait_until
from wmp import aio
from wmp.dispatcher.settings import DispatcherSettings
from wmp.gateways import Gateway, MajordomoClient, MajordomoDoor, MajordomoWorker, Titanic
from wmp.spark.numbers.numbers_report import report_numbers

JOBS = "/dispatcher/jobs/"
ANY = "tcp://127.0.0.1:*"


def lines_of(folder: Path) -> list[str]:
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def jobs_of(folder: Path, owner: str | None = None) -> dict[int, Any]:
    """Fold a journal, in which no rule is broken; return its jobs, of one owner, by number."""
    sink = fold(lines_of(folder))
    assert table(sink, "violations") == []
    rows = table(sink, "jobs")
    return {row["job"]: row for row in rows if owner in (None, row["owner"])}


async def ended(client: Any, id: str) -> str:
    """Wait until a job has ended; return its status."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        status = (await client.get(f"{JOBS}{id}")).json()["status"]
        if status in "sfx":
            return str(status)
        await asyncio.sleep(0.01)
    raise AssertionError(f"job {id} has not ended")


async def created(client: Any, kind: str, *, key: str | None = None) -> str:
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = await client.post(JOBS, json={"type": kind, "payload": 1}, headers=headers)
    return str(answer.json()["_id"])


def fails(job: Any) -> None:
    raise ValueError("no")


def test_a_dispatcher_writes_the_jobs_of_its_clients_and_the_leases_of_its_workers(tmp_path):
    journal, store = tmp_path / "journal", tmp_path / "jobs.db"

    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, store, journal=journal) as dispatcher,
            net.client(8081) as client,
        ):
            cancelled = await created(client, "nobody")
            await client.delete(f"{JOBS}{cancelled}")
            async with worker_on(
                net, 8082, {"echo": dict, "fails": fails}, 2, "http://127.0.0.1:8081"
            ):
                ids = [await created(client, "echo", key="one") for _ in range(2)]
                ids.append(await created(client, "fails"))
                assert [await ended(client, id) for id in ids] == ["s", "s", "f"]
            await created(client, "nobody")
            assert dispatcher.away is None

    asyncio.run(test())

    jobs = jobs_of(journal)
    shown = {number: (row["role"], row["end"], row["attempts"]) for number, row in jobs.items()}
    assert sorted(shown.values(), key=repr) == [
        ("echo", "ok", 1), ("fails", "error", 1), ("nobody", "cancelled", 0), ("nobody", None, 0),
    ]  # fmt: skip
    done = next(row for row in jobs.values() if row["end"] == "ok")
    assert done["worker"] == "127.0.0.1:8082"
    assert 0 <= done["queue_wait"] <= done["total"]
    attempts = table(fold(lines_of(journal)), "attempts")
    assert sorted(row["outcome"] for row in attempts) == ["error", "ok"]
    summary = report_numbers(journal, tmp_path / "numbers").summary
    assert (summary["jobs"], summary["jobs open"], summary["jobs partly known"]) == (4, 1, 0)
    assert (summary["jobs ok"], summary["jobs error"], summary["jobs cancelled"]) == (1, 1, 1)


def test_a_dispatcher_writes_the_ends_of_jobs_that_wmp_workers_did(tmp_path):
    journal, store = tmp_path / "journal", tmp_path / "jobs.db"

    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, store, journal=journal),
            net.client(8081) as client,
            aio.Manager(ANY, store=str(store), journal=journal) as manager,
            aio.Worker(*manager.endpoints, handlers={"echo": dict}, journal=journal),
        ):
            id = await created(client, "echo")
            assert await ended(client, id) == "s"
            while not any('"resolve"' in line for line in lines_of(journal)):
                await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(test(), WAIT))

    (job,) = jobs_of(journal).values()
    assert (job["role"], job["end"], job["attempts"]) == ("echo", "ok", 1)
    assert job["total"] >= job["queue_wait"] >= 0


def test_a_lease_that_a_worker_refuses_has_its_cause(tmp_path):
    journal = tmp_path / "journal"

    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", journal=journal),
            net.client(8081) as client,
        ):
            worker = FakeWorker()
            worker.code = 503
            net.apps[8082] = worker
            await client.put(
                "/dispatcher/workers/",
                json={"hostname": "127.0.0.1", "port": 8082, "maxJobs": 1, "handlers": {"echo": 1}},
            )
            await created(client, "echo")
            await asyncio.wait_for(worker.given.get(), WAIT)
            while not any('"note"' in line for line in lines_of(journal)):
                await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(test(), WAIT))

    causes = {row["cause"] for row in table(fold(lines_of(journal)), "attempts")}
    assert "the worker refused the job" in causes
    jobs_of(journal)


def test_a_job_that_was_refused_too_often_ends_with_an_error(tmp_path):
    journal = tmp_path / "journal"

    async def test() -> None:
        net = Net()
        settings = DispatcherSettings(max_refusals=0)
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", settings, journal=journal),
            net.client(8081) as client,
        ):
            net.apps[8082] = worker = FakeWorker()
            worker.code = 500
            await client.put(
                "/dispatcher/workers/",
                json={"hostname": "127.0.0.1", "port": 8082, "maxJobs": 1, "handlers": {"echo": 1}},
            )
            assert await ended(client, await created(client, "echo")) == "f"

    asyncio.run(asyncio.wait_for(test(), WAIT))

    (job,) = jobs_of(journal).values()
    assert (job["role"], job["end"], job["attempts"]) == ("echo", "error", 1)


@pytest.mark.interop
def test_titanic_writes_its_requests(tmp_path):
    journal = tmp_path / "journal"
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Gateway(MajordomoDoor(ANY), journal=journal))
        address = broker.doors[0][0]
        stack.enter_context(
            Titanic(address, store=tmp_path / "store", heartbeat=0.2, journal=journal)
        )
        client = stack.enter_context(MajordomoClient(address, timeout=WAIT))
        _, first = client.request("titanic.request", [b"shout", b"a"])
        _, second = client.request("titanic.request", [b"shout", b"b"])
        assert client.request("titanic.close", second) == b"200"
        stack.enter_context(MajordomoWorker(address, "shout", bytes.upper, heartbeat=0.2))
        wait_until(lambda: client.request("titanic.reply", first) != b"300", "the reply")

    lines = list(map(json.loads, lines_of(journal)))
    (titanic,) = {line["node"] for line in lines if line.get("label", "").startswith("titanic ")}
    own = [line for line in lines if line["node"] == titanic]
    assert [line["what"] for line in own if line["what"] in ("submitted", "resolve")] == [
        "submitted", "submitted", "resolve", "resolve",
    ]  # fmt: skip
    (store,) = {line["owner"] for line in own if line["what"] == "instancebegun"}
    jobs = jobs_of(journal, store).values()
    shown = sorted((row["role"], row["end"], row["attempts"]) for row in jobs)
    assert shown == [("shout", "cancelled", 0), ("shout", "ok", 1)]
    assert all("since_call" in line for line in own if line["what"] == "submitted")
