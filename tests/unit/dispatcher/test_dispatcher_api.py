"""The HTTP API of dispatchers, without sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.dispatcher.http_net import FakeWorker, Net, dispatcher_on
from wmp.dispatcher.descriptions import SCHEMAS
from wmp.dispatcher.http_parts import check_open
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps import overview
from wmp.errors import ConfigError
from wmp.message import Kind
from wmp.store.job_terms import StoredTerms
from wmp.store.sqlite.sqlite_store import SqliteStore
from wmp.store.stored_job import StoredJobInput
from wmp.store.write_batch import JobChanges, NewJobs, Reservation, WriteBatch

JOBS = "/dispatcher/jobs/"
WORKERS = "/dispatcher/workers/"
WORKER = {"hostname": "127.0.0.1", "port": 8082, "maxJobs": 2, "handlers": {"resize": True}}

Client = httpx.AsyncClient


def serve(
    path: Path,
    test: Callable[[Net, Client], Coroutine[Any, Any, None]],
    settings: DispatcherSettings | None = None,
    **more: Any,
) -> None:
    """Run a test with one dispatcher at port 8081."""

    async def run() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, path / "jobs.db", settings, **more),
            net.client(8081) as client,
        ):
            await test(net, client)

    asyncio.run(run())


async def ended(client: Client, id: str) -> dict[str, Any]:
    """Return the document of a job that has ended."""
    while True:
        document: dict[str, Any] = (await client.get(f"{JOBS}{id}")).json()
        if document["execution"]["ended"] is not None:
            return document
        await asyncio.sleep(0)


@pytest.mark.rule("DSP-6.1", "DSP-1.4", "DSP-5.1")
def test_the_literal_documents_of_the_schema_work(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        worker = FakeWorker()
        net.apps[8082] = worker
        answer = await client.put(
            WORKERS,
            json={
                **WORKER,
                "jobs": [],
                "lastPinged": "2013-05-01T00:00:00.000Z",
                "failedPingCount": 0,
                "lastError": None,
                "isResigned": False,
                "isDead": False,
            },
        )
        assert answer.status_code == 200
        fields = ("hostname", "port", "maxJobs", "handlers")
        assert {name: answer.json()[name] for name in fields} == WORKER
        created = await client.post(
            JOBS,
            json={
                "workflow": "nightly",
                "run": 12,
                "created": "2013-05-01T00:00:00.000Z",
                "priority": 0,
                "status": "f",
                "result": {},
                "updated": "2013-05-01T00:00:00.000Z",
                "dispatcher": {"id": 7, "expiry": None, "date": None},
                "execution": {"worker_id": "x", "started": None, "timeout": 3600000},
                "type": "resize",
                "payload": {"path": "a.png"},
                "callback": None,
            },
        )
        assert created.status_code == 201
        document = created.json()
        assert document["status"] == "q"
        assert document["execution"]["worker_id"] is None
        given = await worker.given.get()
        assert (given["_id"], given["run"]) == (document["_id"], 12)
        assert given["payload"] == {"path": "a.png"}
        done = await client.post(
            f"{JOBS}{given['_id']}/completion",
            json={"attempt": 1, "status": "s", "result": {"width": 3}},
            headers={"Wmp-Worker-Secret": answer.json()["secret"]},
        )
        assert done.json() == {"accepted": True}
        document = await ended(client, given["_id"])
        assert (document["status"], document["result"]) == ("s", {"width": 3})
        assert document["dispatched_by"] == document["dispatcher"]["id"] == given["dispatched_by"]
        assert document["execution"]["worker_id"] == answer.json()["_id"]

    serve(tmp_path, test)


KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
}

HEADERS = "callback.headers"
WRONG_JOBS = [
    (b"{}", "type"),
    (b'{"type": 1}', "type"),
    (b'{"type": "a\\u0000"}', "type"),
    (b'{"type": "\\ud800"}', "type"),
    (b'{"type": "wmp.x"}', "type"),
    (b'{"type": "a", "priority": 1.5}', "priority"),
    (b'{"type": "a", "execution": {"timeout": 0}}', "execution.timeout"),
    (b'{"type": "a", "dispatcher": {"expiry": "soon"}}', "dispatcher.expiry"),
    (b'{"type": "a", "callback": {"hostname": "a/b"}}', "callback.hostname"),
    (b'{"type": "a", "callback": {"hostname": "a", "headers": {"Content-Length": "5"}}}', HEADERS),
    (b'{"type": "a", "callback": {"hostname": "a", "headers": {"TE": "trailers"}}}', HEADERS),
    (b'{"type": "a", "run": "one"}', "run"),
    (b'{"type": "a", "payload": NaN}', None),
    (b'{"type": "a", "payload": 1e999}', None),
    (b'{"type": "a", "payload": ' + b"[" * 200 + b"]" * 200 + b"}", None),
    (b'{"type": "a", "run": 1' + b"0" * 400 + b"}", "run"),
    (b"[" * 100_000, None),
    (b"[1]", "body"),
    (b"", "body"),
    (b"\xff", None),
]


@pytest.mark.rule("DSP-6.2", "DSP-7.3")
def test_a_wrong_job_is_refused_with_the_name_of_the_field(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        for body, field in WRONG_JOBS:
            answer = await client.post(JOBS, content=body)
            assert (answer.status_code, answer.json()["field"]) == (400, field)
            assert answer.json()["error"]

    serve(tmp_path, test)


@pytest.mark.rule("DSP-6.2")
def test_wrong_requests_have_codes_of_their_own(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        missing = "0" * 23 + "9"
        for method, path, code in (
            ("GET", f"{JOBS}{missing}", 404),
            ("DELETE", f"{JOBS}{missing}", 404),
            ("GET", f"{JOBS}{missing}/history", 404),
            ("GET", f"{JOBS}{'f' * 24}", 404),
            ("GET", f"{JOBS}nothing", 400),
            ("GET", f"{WORKERS}{missing}", 404),
            ("DELETE", f"{WORKERS}{missing}", 404),
            ("GET", f"{JOBS}?limit=0", 400),
            ("GET", f"{JOBS}?status=z", 400),
            ("PATCH", JOBS, 405),
            ("GET", "/nothing", 404),
        ):
            answer = await client.request(method, path)
            assert (answer.status_code, path) == (code, path)
            assert set(answer.json()) == {"error", "field"}
        answer = await client.post(JOBS.removesuffix("/"), json={"type": "a"})
        assert answer.json()["error"] == f"there is no path {JOBS[:-1]}; expected {JOBS}"
        answer = await client.get("/nothing")
        assert answer.json()["error"] == "there is no path /nothing"
        answer = await client.patch(WORKERS)
        text = f"{WORKERS} has no method PATCH; expected DELETE or GET or PUT"
        assert answer.json()["error"] == text
        answer = await client.post(JOBS, json={"type": "a", "run": "one"})
        assert answer.json()["error"] == "run: expected a number"
        done = {"attempt": 1, "status": "s", "result": 1}
        answer = await client.post(f"{JOBS}{missing}/completion", json=done)
        assert answer.status_code == 404
        answer = await client.put(WORKERS, json={**WORKER, "port": 0})
        assert (answer.status_code, answer.json()["field"]) == (400, "port")

    serve(tmp_path, test)


@pytest.mark.rule("DSP-6.3")
def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        async def chunks() -> Any:
            for _ in range(3):
                yield b"x" * 100

        for content in (b"x" * 201, chunks()):
            answer = await client.post(JOBS, content=content)
            assert answer.status_code == 413

    serve(tmp_path, test, DispatcherSettings(max_body=200))


@pytest.mark.rule("DSP-6.4")
def test_a_key_creates_one_job_and_refuses_another_body(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        key = {"Idempotency-Key": "a"}
        answers = [
            await client.post(JOBS, json={"type": "a", "payload": n}, headers=key)
            for n in (1, 1, 2)
        ]
        assert [response.status_code for response in answers] == [201, 200, 409]
        assert answers[0].json()["_id"] == answers[1].json()["_id"]
        assert answers[2].json()["field"] == "Idempotency-Key"
        callback = {"hostname": "127.0.0.1", "port": 9000}
        for name, value in (
            ("run", 2),
            ("workflow", "w"),
            ("priority", 7),
            ("execution", {"timeout": 5}),
            ("callback", callback),
        ):
            body = {"type": "a", "payload": 1, name: value}
            assert (await client.post(JOBS, json=body, headers=key)).status_code == 409, name
        # A key belongs to a type.
        other = await client.post(JOBS, json={"type": "b", "payload": 1}, headers=key)
        assert other.status_code == 201
        # The callback of a kept job is compared, and not whether it was sent.
        body = {"type": "a", "callback": callback}
        for code in (201, 200):
            answer = await client.post(JOBS, json=body, headers={"Idempotency-Key": "b"})
            assert answer.status_code == code

    serve(tmp_path, test)


@pytest.mark.rule("DSP-6.2")
def test_half_a_surrogate_pair_is_kept_and_written_again(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        body = b'{"type": "a", "payload": {"\\ud800": "\\udfff"}}'
        created = await client.post(JOBS, content=body)
        assert created.status_code == 201
        (job,) = (await client.get(JOBS)).json()["jobs"]
        assert job["payload"] == {"\ud800": "\udfff"}
        worker = {**WORKER, "handlers": {"resize": "\ud800"}}
        answer = await client.put(WORKERS, content=json.dumps(worker))
        assert answer.json()["handlers"] == worker["handlers"]

    serve(tmp_path, test)


@pytest.mark.rule("DSP-6.2")
def test_jobs_that_other_programs_stored_can_be_read(tmp_path: Path) -> None:
    texts = [b"NaN", b"1e999", b"[" * 5000, b"9" * 5000, b"\xff"]

    async def test(net: Net, client: Client) -> None:
        with contextlib.closing(SqliteStore(tmp_path / "jobs.db", durability="process")) as store:
            me = store.begin(b"m", "manager")
            ids = list(me.block)[: len(texts)]
            kind = Kind("other", codec="json")
            adds = [NewJobs(kind, StoredTerms(), ids, texts)]
            store.apply(me, 1, WriteBatch(adds=adds))
            batch_answer = store.apply(
                me, 2, WriteBatch(reservations=[Reservation(kind, 9, 1 << 20)])
            )
            (taken,) = batch_answer.reserved
            ends = JobChanges(StoredJobInput.SUCCEED, taken.ids, taken.attempts, taken.payloads)
            store.apply(me, 3, WriteBatch(changes=[ends]))
            store.end(me)
        answer = await client.get(JOBS)
        assert answer.status_code == 200
        results = {job["result"] for job in answer.json()["jobs"]}
        assert results == {job.decode("utf-8", "replace") for job in texts}

    serve(tmp_path, test)


@pytest.mark.rule("DSP-6.5")
def test_a_list_has_pages_and_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(net: Net, client: Client) -> None:
        ids = [(await client.post(JOBS, json={"type": name})).json()["_id"] for name in "ababa"]
        listed, after = [], ""
        for _ in range(3):
            page = (await client.get(f"{JOBS}?limit=2{after}")).json()
            listed += [job["_id"] for job in page["jobs"]]
            after = f"&after={page['next']}"
        assert listed == ids
        assert page["next"] is None
        monkeypatch.setattr(overview, "_PAGE", 1)
        page = (await client.get(f"{JOBS}?limit=1000")).json()
        assert ([job["_id"] for job in page["jobs"]], page["next"]) == (ids[:1], ids[0])
        page = (await client.get(f"{JOBS}?type=b&status=q&limit=1")).json()
        page["jobs"] += (await client.get(f"{JOBS}?type=b&after={page['next']}")).json()["jobs"]
        assert [job["_id"] for job in page["jobs"]] == [ids[1], ids[3]]
        await client.delete(f"{JOBS}{ids[0]}")
        page = (await client.get(f"{JOBS}?status=x")).json()
        assert [job["_id"] for job in page["jobs"]] == ids[:1]

    serve(tmp_path, test)


@pytest.mark.rule("DSP-6.6")
def test_requests_need_the_token(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        assert (await client.get(JOBS)).status_code == 401
        wrong = {"Authorization": "Bearer other"}
        assert (await client.get(JOBS, headers=wrong)).status_code == 401
        right = {"Authorization": "Bearer secret"}
        assert (await client.get(JOBS, headers=right)).status_code == 200
        assert (await client.get("/healthz")).json() == {"status": "ok"}

    serve(tmp_path, test, token="secret")


@pytest.mark.rule("DSP-6.6")
def test_a_server_beyond_loopback_needs_a_token() -> None:
    check_open("127.0.0.1", None, "--http")
    check_open("::1", None, "--http")
    check_open("0.0.0.0", "secret", "--http")
    for host in ("0.0.0.0", "::", "example.org", "10.0.0.1"):
        with pytest.raises(ConfigError, match="token"):
            check_open(host, None, "--http")


def test_capacity_counts_places_and_queued_jobs(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        net.apps[8082] = FakeWorker()
        await client.put(WORKERS, json=WORKER)
        await client.post(JOBS, json={"type": "other"})
        while not (await client.get("/dispatcher/capacity")).json()["free"]:
            pass  # the worker gets jobs when it has answered its first health check
        assert (await client.get("/dispatcher/capacity")).json() == {
            "workers": 1,
            "maxJobs": 2,
            "free": 2,
            "kinds": {
                "http": {"workers": 1, "maxJobs": 2, "free": 2},
                "wmp": {"workers": 0, "maxJobs": 0, "free": 0},
            },
            "types": {
                "resize": {"maxJobs": 2, "free": 2, "queued": 0},
                "other": {"maxJobs": 0, "free": 0, "queued": 1},
            },
        }

    serve(tmp_path, test)


def test_the_description_names_all_routes(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        description = (await client.get("/openapi.json")).json()
        assert set(description["paths"]) >= {JOBS, WORKERS, "/dispatcher/capacity", "/healthz"}
        assert "422" not in json.dumps(description)
        names = {
            endpoint["operationId"]: endpoint
            for path in description["paths"].values()
            for endpoint in path.values()
        }
        created = names["create_job"]["responses"]["201"]
        assert created["links"]["get_job"]["parameters"] == {"id": "$response.body#/_id"}
        for operation in names.values():
            for code, answer in operation["responses"].items():
                assert answer["content"]["application/json"]["schema"], code
                assert set(answer.get("links", ())) <= set(names)

    serve(tmp_path, test)


@pytest.mark.rule("DSP-1.1")
def test_answers_have_the_fields_that_the_description_names(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        net.apps[8082] = FakeWorker()
        callback = {"hostname": "127.0.0.1", "port": 9000}
        job = await client.post(JOBS, json={"type": "resize", "callback": callback})
        id = job.json()["_id"]
        answers = {
            "JobDocument": job,
            "WorkerDocument": await client.put(WORKERS, json=WORKER),
            "JobList": await client.get(JOBS),
            "WorkerList": await client.get(WORKERS),
            "JobHistory": await client.get(f"{JOBS}{id}/history"),
            "Capacity": await client.get("/dispatcher/capacity"),
            "Health": await client.get("/healthz"),
            "Refusal": await client.get("/nothing"),
        }
        for name, answer in answers.items():
            check_fields(answer.json(), SCHEMAS[name], name)
        assert set(answers) == set(SCHEMAS) - {"Accepted"}

    serve(tmp_path, test)


def check_fields(value: Any, schema: Any, name: str) -> None:
    """Check that objects have the described fields and no others, and values the types."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    kinds = schema.get("type", KINDS)
    kinds = [kinds] if isinstance(kinds, str) else kinds
    assert any(isinstance(value, KINDS[kind]) for kind in kinds), (name, value)
    if isinstance(value, list):
        for inner in value:
            check_fields(inner, schema["items"], name)
    elif isinstance(value, dict) and "properties" in schema:
        assert set(schema["required"]) <= set(value) <= set(schema["properties"]), name
        for field, inner in value.items():
            check_fields(inner, schema["properties"][field], f"{name}.{field}")


@pytest.mark.rule("DSP-3.9")
def test_a_worker_that_refuses_loses_the_job_to_another(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        full, other = FakeWorker(), FakeWorker()
        full.code = 503
        net.apps[8082], net.apps[8083] = full, other
        await client.put(WORKERS, json={**WORKER, "maxJobs": 9})
        await client.put(WORKERS, json={**WORKER, "port": 8083})
        await client.post(JOBS, json={"type": "resize"})
        assert (await full.given.get())["execution"]["attempt"] == 1
        assert (await other.given.get())["execution"]["attempt"] == 2

    serve(tmp_path, test)


@pytest.mark.rule("DSP-4.7")
def test_a_cancellation_reaches_the_worker(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        worker = FakeWorker()
        net.apps[8082] = worker
        await client.put(WORKERS, json=WORKER)
        created = await client.post(JOBS, json={"type": "resize"})
        given = await worker.given.get()
        answer = await client.delete(f"{JOBS}{given['_id']}")
        assert (answer.status_code, answer.json()["status"]) == (202, "k")
        assert await worker.cancelled.get() == f"/jobs/{given['_id']}"
        assert (await ended(client, created.json()["_id"]))["status"] == "x"

    serve(tmp_path, test)


@pytest.mark.rule("DSP-5.6")
def test_a_worker_that_resigns_loses_its_jobs(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        first, second = FakeWorker(), FakeWorker()
        net.apps[8082], net.apps[8083] = first, second
        worker = (await client.put(WORKERS, json=WORKER)).json()
        await client.post(JOBS, json={"type": "resize"})
        given = await first.given.get()
        await client.put(WORKERS, json={**WORKER, "port": 8083})
        secret = {"Wmp-Worker-Secret": worker["secret"]}
        answer = await client.delete(f"{WORKERS}{worker['_id']}", headers=secret)
        assert answer.json()["isResigned"] is True
        assert (await second.given.get())["_id"] == given["_id"]

    serve(tmp_path, test)


@pytest.mark.rule("DSP-5.3")
def test_health_checks_name_jobs_in_two_forms(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        worker = FakeWorker()
        worker.jobs = [{"_id": "0" * 23 + "7", "attempt": 3}, "0" * 23 + "8", 5, "x"]
        net.apps[8082] = worker
        await client.put(WORKERS, json=WORKER)
        stale = {await worker.cancelled.get(), await worker.cancelled.get()}
        assert stale == {f"/jobs/{'0' * 23}7", f"/jobs/{'0' * 23}8"}

    serve(tmp_path, test, DispatcherSettings(timer_interval=5))


@pytest.mark.rule("DSP-7.2")
def test_a_callback_has_the_document_and_the_headers(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        worker, called = FakeWorker(), FakeWorker()
        net.apps[8082], net.apps[9000] = worker, called
        secret = (await client.put(WORKERS, json=WORKER)).json()["secret"]
        callback = {"hostname": "127.0.0.1", "port": 9000, "path": "/done"}
        job = await client.post(JOBS, json={"type": "resize", "callback": callback})
        await worker.given.get()
        await client.post(
            f"{JOBS}{job.json()['_id']}/completion",
            json={"attempt": 1, "status": "f", "result": {"error": "E", "message": "m"}},
            headers={"Wmp-Worker-Secret": secret},
        )
        document = await called.given.get()
        assert (document["status"], document["result"]["error"]) == ("f", "E")
        while True:
            sent = (await client.get(f"{JOBS}{document['_id']}")).json()["callback"]
            if sent["didCallbackSuccessfully"]:
                break
        assert "POST 9000/done" in net.seen

    serve(tmp_path, test, DispatcherSettings(timer_interval=5))
