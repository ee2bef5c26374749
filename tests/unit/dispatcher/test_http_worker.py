"""The HTTP worker, without sockets of HTTP."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.unit.dispatcher.http_net import Net, dispatcher_on, worker_on
from wmp.dispatcher.settings import DispatcherSettings

ID = "0" * 23 + "5"
URL = "http://127.0.0.1:8081"


def given(attempt: int = 1, type: str = "echo", id: str = ID) -> dict[str, Any]:
    return {"_id": id, "type": type, "payload": 1, "execution": {"attempt": attempt}}


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def until(seen: Callable[[], Any]) -> None:
    while not seen():
        await asyncio.sleep(0.001)


class FakeDispatcher:
    """Answers completions with codes that a test sets."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.bodies: list[Any] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        """Further fields of the documents of jobs; every job runs at the worker that asks."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        import json

        body = json.loads((await receive()).get("body") or b"null")
        code, answer = 200, {"_id": "w"}
        id = scope["path"].rpartition("/")[2]
        if scope["method"] == "GET":
            answer = {**given(id=id), "status": "r", "execution": {}, **self.jobs.get(id, {})}
        if scope["path"].endswith("/completion"):
            self.bodies.append(body)
            code = self.codes.pop(0) if self.codes else 200
        await send({"type": "http.response.start", "status": code, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


def test_jobs_pass_from_the_api_to_a_handler_and_back(tmp_path: Path) -> None:
    def echo(document: Any) -> Any:
        if document["payload"] == "fail":
            raise ValueError("no")
        return [document["workflow"], document["run"], document["payload"]]

    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db"),
            worker_on(net, 8082, {"echo": echo}, 2, URL),
            net.client(8081) as client,
        ):
            jobs = []
            for payload in (1, "fail"):
                job = {"type": "echo", "payload": payload, "workflow": "w", "run": 3}
                jobs.append((await client.post("/dispatcher/jobs/", json=job)).json()["_id"])
            documents: list[Any] = []
            while not all(answer["status"] in "sf" for answer in documents) or not documents:
                documents = [(await client.get(f"/dispatcher/jobs/{id}")).json() for id in jobs]
            assert documents[0]["result"] == ["w", 3, 1]
            assert documents[1]["result"] == {"error": "ValueError", "message": "no"}

    run(test)


@pytest.mark.rule("DSP-5.7", "DSP-5.3")
def test_a_worker_refuses_what_is_late_or_too_much() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(document: Any) -> None:
        begun.set()
        go_on.wait()

    async def test() -> None:
        net = Net()
        dispatcher = FakeDispatcher()
        net.apps[8081] = dispatcher
        async with (
            worker_on(net, 8082, {"echo": wait}, 1, URL, start=False),
            net.client(8082) as client,
        ):

            async def post(**fields: Any) -> int:
                return (await client.post("/jobs/", json=given(**fields))).status_code

            assert await post(type="other") == 400
            # No dispatcher would take the completion, and the place would be lost.
            assert await post(attempt=1 << 62) == 400
            assert await post(attempt=3) == 202
            assert await post(attempt=3) == 202
            assert await post(attempt=2) == 409
            assert await post(attempt=4) == 503
            assert await post(id="0" * 23 + "6") == 503
            health = (await client.get("/health_check/")).json()
            assert health["jobs"] == [{"_id": ID, "attempt": 3}]
            go_on.set()
            await until(lambda: dispatcher.bodies)
            await until(lambda: net.seen.count("POST 8081/dispatcher/jobs/" + ID + "/completion"))
            while (await client.get("/health_check/")).json()["jobs"]:
                pass
            assert await post(attempt=3) == 409
            assert await post(attempt=4) == 202
            await until(lambda: len(dispatcher.bodies) == 2)

    run(test)


@pytest.mark.rule("DSP-5.12")
def test_a_job_of_a_stranger_is_refused_and_poisons_no_id(tmp_path: Path) -> None:
    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db"),
            worker_on(net, 8082, {"echo": lambda document: document["payload"]}, 2, URL),
            net.client(8081) as client,
            net.client(8082) as stranger,
        ):
            while not (await client.get("/dispatcher/workers/")).json()["workers"]:
                pass
            for number in range(1, 60):
                id = f"{number:024x}"
                for attempt in (1, 1 << 61):
                    answer = await stranger.post("/jobs/", json=given(attempt, id=id))
                    assert answer.status_code == 409, answer.text
            assert (await stranger.get("/health_check/")).json()["free"] == 2
            jobs = []
            for number in range(5):
                job = {"type": "echo", "payload": number}
                jobs.append((await client.post("/dispatcher/jobs/", json=job)).json()["_id"])
            assert {int(id, 16) for id in jobs} <= set(range(1, 60))
            documents: list[Any] = [{}]
            while any(document.get("status") != "s" for document in documents):
                documents = [(await client.get(f"/dispatcher/jobs/{id}")).json() for id in jobs]
            assert [document["result"] for document in documents] == list(range(5))

    run(test)


@pytest.mark.rule("DSP-5.12")
def test_a_forged_payload_of_a_real_job_is_not_used() -> None:
    async def test() -> None:
        net = Net()
        net.apps[8081] = dispatcher = FakeDispatcher()
        net.apps[9999] = thief = FakeDispatcher()
        dispatcher.jobs[ID] = {"payload": "real"}
        async with (
            worker_on(
                net, 8082, {"echo": lambda document: document["payload"]}, 1, URL, start=False
            ),
            net.client(8082, **{"Wmp-Dispatcher": "http://127.0.0.1:9999"}) as stranger,
        ):
            forged = {**given(), "payload": "forged"}
            assert (await stranger.post("/jobs/", json=forged)).status_code == 202
            await until(lambda: dispatcher.bodies)
            assert dispatcher.bodies == [{"attempt": 1, "status": "s", "result": "real"}]
            assert thief.bodies == []
            for wrong in (
                {"status": "q"},
                {"execution": {"attempt": 8}},
                {"_id": "0" * 24},
                {"type": 5},
            ):
                dispatcher.jobs[ID] = wrong
                while (await stranger.get("/health_check/")).json()["jobs"]:
                    pass
                assert (await stranger.post("/jobs/", json=given(7))).status_code == 409
            dispatcher.jobs.clear()
            del net.apps[8081]
            assert (await stranger.post("/jobs/", json=given(7))).status_code == 503

    run(test)


@pytest.mark.rule("DSP-5.12")
def test_a_worker_asks_about_few_jobs_at_the_same_time() -> None:
    async def test() -> None:
        net, requests = Net(), 0
        go_on = asyncio.Event()

        async def hang(scope: Any, receive: Any, send: Any) -> None:
            nonlocal requests
            requests += 1
            await go_on.wait()
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        net.apps[8081] = hang
        async with (
            worker_on(net, 8082, {"echo": str}, 1, URL, start=False),
            net.client(8082) as stranger,
        ):
            posts = [
                asyncio.ensure_future(stranger.post("/jobs/", json=given(id=f"{number:024x}")))
                for number in range(40)
            ]
            codes = [(await post).status_code for post in posts[16:]]
            assert (codes, requests) == ([503] * 24, 16)
            go_on.set()
            assert {(await post).status_code for post in posts[:16]} == {409}

    run(test)


@pytest.mark.rule("DSP-5.12")
def test_a_stranger_ends_no_job() -> None:
    begun = threading.Event()

    def wait(document: Any, job: Any) -> None:
        begun.set()
        while not job.cancelled:
            time.sleep(0.001)

    async def test() -> None:
        net = Net()
        net.apps[8081] = dispatcher = FakeDispatcher()
        async with (
            worker_on(net, 8082, {"echo": wait}, 1, URL, start=False),
            net.client(8082) as stranger,
        ):
            await stranger.post("/jobs/", json=given())
            await until(begun.is_set)
            assert (await stranger.delete(f"/jobs/{ID}")).status_code == 409
            assert (await stranger.get("/health_check/")).json()["jobs"]
            dispatcher.jobs[ID] = {"status": "k"}
            assert (await stranger.delete(f"/jobs/{ID}")).status_code == 202

    run(test)


@pytest.mark.rule("DSP-5.8")
def test_a_completion_is_sent_until_a_dispatcher_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wmp.dispatcher.http_worker._PAUSE", 0.0)

    async def test() -> None:
        net = Net()
        net.apps[8081] = dispatcher = FakeDispatcher(503, 500, 409)
        async with (
            worker_on(net, 8082, {"echo": lambda document: 7}, 1, URL, start=False),
            net.client(8082) as client,
        ):
            await client.post("/jobs/", json=given())
            while (await client.get("/health_check/")).json()["jobs"]:
                pass
            assert dispatcher.bodies == [{"attempt": 1, "status": "s", "result": 7}] * 3

    run(test)


@pytest.mark.rule("DSP-5.9")
def test_a_worker_that_reaches_no_dispatcher_stops_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def wait(document: Any, job: Any) -> None:
        begun.set()
        while not job.cancelled:
            stopped.wait(0.001)
        stopped.set()

    async def test() -> None:
        net = Net()
        settings = DispatcherSettings(ping_interval=20)
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", settings),
            worker_on(net, 8082, {"echo": wait}, 1, URL) as worker,
            net.client(8081) as client,
        ):
            await client.post("/dispatcher/jobs/", json={"type": "echo"})
            await until(begun.is_set)
            api = net.apps[8081]
            del net.apps[8081]
            await worker.alone.wait()
            await until(stopped.is_set)
            async with net.client(8082) as direct:
                answer = await direct.post("/jobs/", json=given())
                assert answer.status_code == 503
            net.apps[8081] = api

    run(test)


@pytest.mark.rule("DSP-5.10")
def test_a_worker_that_starts_before_its_dispatcher_waits_and_logs_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wmp.dispatcher.http_worker._FIRST", 0.001)
    monkeypatch.setattr("wmp.dispatcher.http_worker._SLOWEST", 0.003)

    def waits() -> list[str]:
        return [message for message in caplog.messages if "registered this worker yet" in message]

    async def test() -> None:
        net = Net()
        async with worker_on(net, 8082, {"echo": str}, 1, URL, "http://127.0.0.1:8083") as worker:
            # More contacts fail than a registered worker survives.
            await until(lambda: len(waits()) >= 5)
            assert not worker.alone.is_set()
            async with (
                dispatcher_on(net, 8083, tmp_path / "jobs.db"),
                net.client(8083) as client,
            ):
                await client.post("/dispatcher/jobs/", json={"type": "echo"})
                await until(lambda: "POST 8082/jobs/" in net.seen)

    run(test)
    refused = "ConnectError: refused"
    line = (
        f"worker: no dispatcher has registered this worker yet: {URL}: {refused}; "
        f"http://127.0.0.1:8083: {refused}; check that a dispatcher serves this address; the next "
        "contact follows in {} s"
    )
    assert waits()[:5] == [line.format(s) for s in (0.001, 0.002, 0.003, 0.003, 0.003)]


@pytest.mark.rule("DSP-5.10")
def test_a_worker_without_the_token_logs_the_answer_of_the_dispatcher(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", token="secret"),
            worker_on(net, 8082, {"echo": str}, 1, URL),
        ):
            await until(lambda: f"{URL} answered 401: " in caplog.text)

    run(test)


@pytest.mark.rule("DSP-5.9")
@pytest.mark.parametrize("hanging", [1, 2])
def test_a_contact_without_an_answer_ends(hanging: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wmp.dispatcher.http_worker._MIN", 0.01)
    monkeypatch.setattr("wmp.dispatcher.http_worker._TIMEOUT", 1e6)
    paths = set()

    async def hang(scope: Any, receive: Any, send: Any) -> None:
        paths.add(scope["server"][1])
        await asyncio.Event().wait()

    class Registering(FakeDispatcher):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            body = b'{"_id": "w", "pingInterval": 1, "maxRetries": 3}'
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
            for index in range(hanging):
                net.apps[8081 + index] = hang

    net = Net()
    net.apps[8081] = Registering()
    urls = [f"http://127.0.0.1:{8081 + index}" for index in range(hanging)]

    async def test() -> None:
        async with worker_on(net, 8090, {"echo": str}, 1, *urls) as worker:
            await worker.alone.wait()
        # Each dispatcher has a part of the time.
        assert len(paths) == hanging

    run(test)


def test_a_cancelled_job_is_interrupted_and_not_reported() -> None:
    begun, ended = threading.Event(), threading.Event()

    def wait(document: Any, job: Any) -> None:
        begun.set()
        while not job.cancelled:
            ended.wait(0.001)
        ended.set()

    async def test() -> None:
        net = Net()
        net.apps[8081] = dispatcher = FakeDispatcher()
        async with (
            worker_on(net, 8082, {"echo": wait}, 1, URL, start=False),
            net.client(8082) as client,
        ):
            await client.post("/jobs/", json=given())
            await until(begun.is_set)
            dispatcher.jobs[ID] = {"status": "k"}
            assert (await client.delete(f"/jobs/{ID}?attempt=2")).status_code == 404
            assert (await client.delete(f"/jobs/{ID}?attempt=1")).status_code == 202
            await until(ended.is_set)
            while (await client.get("/health_check/")).json()["jobs"]:
                pass
            assert dispatcher.bodies == []

    run(test)
