"""Requests that a web page of another server causes, and those to a wrong host, without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.dispatcher.http_net import Net, dispatcher_on, worker_on
from wmp.dispatcher import http_guard
from wmp.dispatcher.api import make_api
from wmp.dispatcher.http_guard import GuardedApp, HostCheck, check_host_name
from wmp.errors import ConfigError

Head = Sequence[tuple[str, str]]

HOST = ("Host", "127.0.0.1:8081")
JSON = ("Content-Type", "application/json")
TEXT = ("Content-Type", "text/plain;charset=UTF-8")
FOREIGN = ("Origin", "http://evil.example")
BODY = b'{"type":"resize"}'


class Reached:
    """An application that counts the requests that reach it."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.count += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


def ask(
    method: str,
    head: Head,
    body: bytes = b"",
    *,
    path: str = "/dispatcher/jobs/",
    hosts: Collection[str] = (),
    server: tuple[str, int] = ("127.0.0.1", 8081),
    token: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """Send a request to a guarded application; return the code and the value of the answer.

    No client adds headers to those of ``head``, except the length of the body.
    """
    reached = Reached()
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in head]
    if body and not any(name == b"transfer-encoding" for name, _ in headers):
        headers.append((b"content-length", str(len(body)).encode()))
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": headers,
        "server": server,
    }
    asyncio.run(GuardedApp(reached, max_body=100, token=token, hosts=hosts)(scope, receive, send))
    code = sent[0]["status"]
    assert reached.count == (code == 200)
    # No page of another server may read an answer.
    assert not any(name.startswith(b"access-control") for name, _ in sent[0]["headers"])
    return code, json.loads(sent[1]["body"])


# -- Host ---------------------------------------------------------------------------------------


@pytest.mark.rule("DSP-6.10")
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8081",
        "127.8.9.10",
        "[::1]:8081",
        "[0:0::1]",
        "localhost",
        "LocalHost.:8081",
        "jobs.example.com:8081",
        "Jobs.Example.com",
        "[2001:db8::1]:8081",
        "10.1.2.3:8081",  # the address at which the connection has arrived
    ],
)
def test_a_name_or_address_of_the_server_is_served(host: str) -> None:
    own = ["jobs.example.com", "2001:DB8:0::1"]
    code, _ = ask("GET", [("Host", host)], hosts=own, server=("10.1.2.3", 8081))
    assert code == 200


@pytest.mark.rule("DSP-6.10")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8081",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "jobs.example.com.evil.example",
        "127.0.0.1@evil.example",
        "127.0.0.1:8081:8081",
        "[::1]evil.example",
        "::1",
        "10.1.2.3",
        "",
        "a b",
    ],
)
def test_another_name_is_refused(host: str) -> None:
    code, answer = ask("GET", [("Host", host)], hosts=["jobs.example.com"])
    assert (code, answer["field"]) == (403, "Host")
    assert repr(host) in answer["error"]
    assert "--allow-host" in answer["error"]


@pytest.mark.rule("DSP-6.10")
def test_the_answer_names_the_host_and_the_flag() -> None:
    _, answer = ask("GET", [("Host", "evil.example:8081")])
    assert answer["error"] == (
        "the header Host is 'evil.example:8081'; expected a name or an address of this server; if "
        "this name is right, start the server with --allow-host evil.example"
    )


@pytest.mark.rule("DSP-6.10")
@pytest.mark.parametrize("head", [[], [HOST, ("Host", "evil.example")]])
def test_a_request_has_one_host(head: Head) -> None:
    assert ask("GET", head)[0] == 403


@pytest.mark.rule("DSP-6.10")
def test_a_health_check_needs_no_host() -> None:
    probe = [("Host", "evil.example")]
    assert ask("GET", probe, path="/healthz", token="secret")[0] == 200
    assert ask("GET", probe, path="/healthz/")[0] == 403


@pytest.mark.rule("DSP-6.10")
@pytest.mark.parametrize("host", ["", "*", "http://a", "a:8081", "a b", "[::1]:80", "-a", "a/b"])
def test_a_wrong_allowed_host_is_an_error(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^--allow-host is .*without scheme and port"):
        check_host_name(host, "--allow-host")


@pytest.mark.rule("DSP-6.10")
@pytest.mark.parametrize("host", ["a", "jobs.example.com", "10.0.0.1", "::1", "[::1]", "my_host"])
def test_an_allowed_host_is_a_name_or_an_address(host: str) -> None:
    assert check_host_name(host, "--allow-host") == host


# -- Origin and Fetch-Metadata ------------------------------------------------------------------


@pytest.mark.rule("DSP-6.11")
@pytest.mark.parametrize(
    "mark",
    [
        FOREIGN,
        ("Origin", "null"),
        ("Origin", ""),
        ("Origin", "127.0.0.1:8081"),
        ("Origin", "http://127.0.0.1"),
        ("Origin", "http://127.0.0.1:3000"),  # a page of another server of the same host
        ("Origin", "http://127.0.0.1:8081.evil.example"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Sec-Fetch-Site", "Cross-Site"),
        ("Sec-Fetch-Site", "something-new"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_a_request_of_a_page_of_another_server_is_refused(
    method: str, mark: tuple[str, str]
) -> None:
    body = BODY if method in ("POST", "PUT") else b""
    code, answer = ask(method, [HOST, JSON, mark], body)
    assert (code, answer["field"]) == (403, mark[0])
    assert "a web page of" in answer["error"]


@pytest.mark.rule("DSP-6.11")
@pytest.mark.parametrize(
    "head",
    [
        [HOST],
        [HOST, ("Origin", "http://127.0.0.1:8081"), ("Sec-Fetch-Site", "same-origin")],
        [HOST, ("Sec-Fetch-Site", "none")],  # the address was typed
        [HOST, ("Sec-Fetch-Mode", "cors")],  # Node.js sends this one alone
        [("Host", "LOCALHOST"), ("Origin", "https://localhost")],  # behind a proxy with TLS
        [("Host", "localhost:443"), ("Origin", "https://localhost")],
        [("Host", "localhost:80"), ("Origin", "http://localhost")],
    ],
)
def test_programs_and_pages_of_the_server_are_served(head: Head) -> None:
    assert ask("POST", [*head, JSON], BODY)[0] == 200
    assert ask("GET", head)[0] == 200


# -- Content-Type -------------------------------------------------------------------------------


@pytest.mark.rule("DSP-6.12")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "GET"])
@pytest.mark.parametrize(
    "kinds",
    [
        [TEXT],
        [("Content-Type", "application/x-www-form-urlencoded")],
        [("Content-Type", "multipart/form-data; boundary=a")],
        [("Content-Type", "")],
        [("Content-Type", "application/jsonp")],
        [("Content-Type", "text/plain; application/json")],
        [JSON, TEXT],
        [TEXT, JSON],
    ],
)
def test_a_body_that_is_not_declared_as_json_is_refused(method: str, kinds: Head) -> None:
    for framing in ([], [("Transfer-Encoding", "chunked")]):
        code, answer = ask(method, [HOST, *kinds, *framing], BODY)
        assert (code, answer["field"]) == (415, "Content-Type")
        assert repr(kinds[0][1]) in answer["error"]
        assert "expected application/json" in answer["error"]


@pytest.mark.rule("DSP-6.12")
@pytest.mark.parametrize("kind", ["application/json", "Application/JSON ; charset=utf-8"])
def test_json_is_served(kind: str) -> None:
    assert ask("POST", [HOST, ("Content-Type", kind)], BODY)[0] == 200


@pytest.mark.rule("DSP-6.12")
@pytest.mark.parametrize(
    "mark", [("Origin", "http://127.0.0.1:8081"), ("Sec-Fetch-Site", "same-origin")]
)
def test_a_body_without_a_type_is_served_only_to_programs(mark: tuple[str, str]) -> None:
    assert ask("POST", [HOST], BODY)[0] == 200
    assert ask("PUT", [HOST, ("Transfer-Encoding", "chunked")], BODY)[0] == 200
    code, answer = ask("POST", [HOST, mark], BODY)  # the body of a page is a Blob without a type
    assert (code, answer["field"]) == (415, "Content-Type")
    assert "Content-Type is missing" in answer["error"]


@pytest.mark.rule("DSP-6.12")
def test_a_request_without_a_body_may_name_any_type() -> None:
    assert ask("DELETE", [HOST, TEXT])[0] == 200
    assert ask("DELETE", [HOST, TEXT, ("Content-Length", "0")])[0] == 200


# -- both servers, and each check off -----------------------------------------------------------

ATTACKS: dict[str, tuple[Head, str]] = {
    "HostCheck": ([("Host", "evil.example"), JSON], "rebinding"),
    "check_site": ([HOST, JSON, FOREIGN], "a page that may send JSON"),
    "check_content_type": ([HOST, TEXT], "an old browser that sends no Origin"),
}


def _pass(*arguments: Any) -> Any:
    return None


@pytest.mark.rule("DSP-6.10", "DSP-6.11", "DSP-6.12")
@pytest.mark.parametrize("name", ATTACKS)
def test_each_check_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head, why = ATTACKS[name]
    assert ask("POST", head, BODY)[0] in (403, 415), why
    if name == "HostCheck":
        monkeypatch.setattr(HostCheck, "__call__", _pass)
    else:
        monkeypatch.setattr(http_guard, name, _pass)
    assert ask("POST", head, BODY)[0] == 200, why


@pytest.mark.rule("DSP-6.10", "DSP-6.11", "DSP-6.12")
def test_a_page_creates_and_ends_no_job(tmp_path: Path) -> None:
    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db") as served,
            worker_on(net, 8082, {"resize": len}, start=False),
            net.client(8081) as client,
            net.client(8082) as worker,
        ):
            assert (await client.post("/dispatcher/jobs/", content=BODY)).status_code == 201
            id = "0" * 23 + "1"
            ended = b'{"attempt":1,"status":"s","result":"forged"}'
            job = f'{{"_id":"{id}","type":"resize"}}'.encode()
            requests = (
                (client, "/dispatcher/jobs/", BODY),
                (client, f"/dispatcher/jobs/{id}/completion", ended),
                (worker, "/jobs/", job),
            )
            for server, path, body in requests:
                answer = await server.post(path, content=body, headers=[FOREIGN, TEXT])
                assert answer.status_code == 403
                answer = await server.post(path, content=body, headers=[TEXT])
                assert answer.status_code == 415
                answer = await server.post(path, content=body, headers=[("Host", "evil.example")])
                assert answer.status_code == 403
            jobs = (await client.get("/dispatcher/jobs/")).json()["jobs"]
            assert [(document["_id"], document["result"]) for document in jobs] == [(id, None)]
            assert (await worker.get("/health_check/")).json()["jobs"] == []
            net.apps[8083] = make_api(served, ["evil.example"])
            allowed = await client.get(
                "http://127.0.0.1:8083/dispatcher/jobs/", headers={"Host": "evil.example"}
            )
            assert allowed.status_code == 200

    asyncio.run(test())
