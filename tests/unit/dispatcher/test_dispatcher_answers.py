"""The answers of a dispatcher to requests with mistakes, and the causes that they name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.dispatcher.http_net import FakeWorker, Net
from tests.unit.dispatcher.test_dispatcher_api import (
    JOBS,
    WORKER,
    WORKERS,
    Client,
    check_fields,
    serve,
)
from wmp.dispatcher.descriptions import SCHEMAS


@pytest.mark.rule("DSP-1.6")
def test_fields_that_the_schema_does_not_have_are_ignored_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(net: Net, client: Client) -> None:
        job = {
            "type": "resize",
            "prority": 5,
            "execution": {"timout": 1},
            "callback": {"hostname": "127.0.0.1", "didCallbackSuccessfully": False, "pat": "/"},
        }
        created = [await client.post(JOBS, json=job) for _ in range(2)]
        for answer in created:
            assert answer.status_code == 201
            assert answer.json()["ignored"] == ["prority", "execution.timout", "callback.pat"]
            check_fields(answer.json(), SCHEMAS["JobDocument"], "JobDocument")
        # A whole document of an answer has no field that is unknown.
        document = (await client.get(f"{JOBS}{created[0].json()['_id']}")).json()
        assert "ignored" not in (await client.post(JOBS, json=document)).json()

        worker = {**WORKER, "handler": {}}
        assert (await client.put(WORKERS, json=worker)).json()["ignored"] == ["handler"]
        many = {"type": "resize", **{f"x{n}": n for n in range(20)}, "y" * 500: 1}
        assert len((await client.post(JOBS, json=many)).json()["ignored"]) == 8

    serve(tmp_path, test)
    lines = [message for message in caplog.messages if "is ignored" in message]
    assert lines[0] == (
        "dispatcher: POST /dispatcher/jobs/: the field prority is ignored; known fields are "
        "'callback', 'dispatcher', 'execution', 'payload', 'priority', 'run', 'type', 'workflow'; "
        "did you mean 'priority'?"
    )
    assert len(lines) == len(set(lines)) == 3 + 1 + 8


@pytest.mark.rule("DSP-1.6")
def test_an_ignored_field_of_a_completion_is_named(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        net.apps[8082] = worker = FakeWorker()
        secret = (await client.put(WORKERS, json=WORKER)).json()["secret"]
        await client.post(JOBS, json={"type": "resize"})
        given = await worker.given.get()
        done = {"attempt": 1, "status": "s", "results": 1}
        head = {"Wmp-Worker-Secret": secret}
        path = f"{JOBS}{given['_id']}/completion"
        answer = await client.post(path, json=done, headers=head)
        assert answer.json() == {"accepted": True, "ignored": ["results"]}
        check_fields(answer.json(), SCHEMAS["Accepted"], "Accepted")

    serve(tmp_path, test)


@pytest.mark.rule("DSP-6.8")
@pytest.mark.parametrize(
    ("request_", "field", "text"),
    [
        (
            f"GET {JOBS}?stat=f",
            "stat",
            (
                "stat: GET /dispatcher/jobs/ has no such parameter; expected 'after', 'limit', "
                "'status', 'type'; did you mean 'status'?"
            ),
        ),
        (
            f"GET {WORKERS}?limit=1",
            "limit",
            "limit: GET /dispatcher/workers/ has no such parameter; expected none",
        ),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_known_ones(
    request_: str, field: str, text: str, tmp_path: Path
) -> None:
    async def test(net: Net, client: Client) -> None:
        answer = await client.request(*request_.split())
        assert (answer.status_code, answer.json()) == (400, {"error": text, "field": field})

    serve(tmp_path, test)


@pytest.mark.rule("DSP-6.2")
@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            f"GET {JOBS}17",
            (
                "id: is '17'; expected the `_id` of a document: 24 hexadecimal digits in lower "
                "case, for example 00000000000000000000002a"
            ),
        ),
        (f"GET {JOBS}?after=17", "after: is '17'; expected the `_id` of a document: 24 hexadecim"),
        (f"DELETE {JOBS}{'A' * 24}", f"id: is '{'A' * 24}'; expected the `_id` of a document: 24"),
        (f"GET {WORKERS}{'1' * 50}", f"id: is '{'1' * 40}…'; expected the `_id` of a document: 24"),
        (f"GET {JOBS}?status=failed", "status: is 'failed'; expected one letter: q, d, r, k, s, f"),
        (f"GET {JOBS}?limit=0", "limit: Input should be greater than or equal to 1; found "),
    ],
)
def test_a_wrong_value_is_described_in_words(request_: str, text: str, tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        answer = await client.request(*request_.split())
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(text)
        assert "pattern" not in answer.json()["error"]

    serve(tmp_path, test)


@pytest.mark.rule("DSP-6.2")
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"type": ["a"]}, "type: Input should be a valid string; found a list"),
        ({"type": {}}, "type: Input should be a valid string; found an object"),
        (
            {"type": "a" * 300},
            f'type: String should have at most 200 characters; found "{"a" * 49}…',
        ),
        ({}, "type: Field required"),
        (
            {"type": "a", "callback": {"hostname": "h", "headers": {"a b": "c"}}},
            (
                "callback.headers.a b: is not a header name; expected 1 to 100 letters, digits "
                "or signs without spaces"
            ),
        ),
    ],
)
def test_a_wrong_field_is_described_in_words(
    body: dict[str, Any], text: str, tmp_path: Path
) -> None:
    async def test(net: Net, client: Client) -> None:
        answer = await client.post(JOBS, json=body)
        assert (answer.status_code, answer.json()["error"]) == (400, text)

    serve(tmp_path, test)


@pytest.mark.rule("DSP-3.12", "DSP-6.9")
def test_a_job_of_an_unknown_type_is_logged_and_its_document_states_why_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wmp.dispatcher.machine._LOOK", 0.001)
    cause = "no worker knows the type 'render'; the workers know 'resize'"

    async def test(net: Net, client: Client) -> None:
        net.apps[8082] = FakeWorker()
        await client.put(WORKERS, json=WORKER)
        job = (await client.post(JOBS, json={"type": "render"})).json()
        assert "waits" not in job
        document = (await client.get(f"{JOBS}{job['_id']}")).json()
        assert document == {**job, "waits": cause}
        check_fields(document, SCHEMAS["JobDocument"], "JobDocument")
        while f"dispatcher: jobs of type 'render' wait (1 job): {cause}" not in caplog.messages:
            await asyncio.sleep(0)
        given = (await client.post(JOBS, json={"type": "resize"})).json()
        while (current := (await client.get(f"{JOBS}{given['_id']}")).json())["status"] != "r":
            await asyncio.sleep(0)
        assert current["waits"] is None

    serve(tmp_path, test)
    assert sum("jobs of type 'render'" in message for message in caplog.messages) == 1


@pytest.mark.rule("DSP-3.12", "DSP-6.9")
def test_a_type_that_a_connected_worker_of_wmp_knows_does_not_wait(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        job = (await client.post(JOBS, json={"type": "render"})).json()
        assert (await client.get(f"{JOBS}{job['_id']}")).json()["waits"] is None

    serve(tmp_path, test, offers=lambda: {"render"})
