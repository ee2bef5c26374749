"""The middleware of both servers: rates and connections of a network address, and JSON bodies."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.unit.dispatcher.http_net import Net, worker_on
from tests.unit.dispatcher.test_dispatcher_api import JOBS, Client, serve
from wmp.dispatcher import http_server
from wmp.dispatcher.http_server import HttpServer
from wmp.dispatcher.peer_rates import PeerRates
from wmp.dispatcher.settings import DispatcherSettings


@pytest.mark.rule("DSP-6.14")
def test_an_address_above_its_rate_slows_no_other() -> None:
    now = 0.0
    rates = PeerRates(10, lambda: now)
    assert [rates.take("a") for _ in range(25)] == [True] * 20 + [False] * 5
    assert rates.take("b")
    now = 0.5
    assert [rates.take("a") for _ in range(6)] == [True] * 5 + [False]
    now = 100.0
    assert [rates.take("a") for _ in range(21)] == [True] * 20 + [False]


@pytest.mark.rule("DSP-6.14")
def test_requests_above_the_rate_are_refused(tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        answers = [await client.get("/nothing") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [404, 404, 429]
        assert answers[2].headers["Retry-After"] == "1"
        assert answers[2].json()["error"] == "loopback sends more than 1 requests a second"
        assert (await client.get("/healthz")).status_code == 200

    settings = DispatcherSettings(max_rate=1)
    # A slow machine would fill the bucket between two requests.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wmp.dispatcher.peer_rates.time.monotonic", lambda: 0.0)
        patch.setattr(PeerRates.__init__, "__defaults__", (lambda: 0.0,))
        serve(tmp_path, test, settings)


BODIES = [b"{", b"NaN", b"[" * 200 + b"]" * 200, b'{"a": 1e999}', b"\xff", b'{"type": "a"} x']


@pytest.mark.rule("DSP-6.15")
@pytest.mark.parametrize("body", BODIES)
def test_both_servers_refuse_a_body_that_is_not_json(body: bytes, tmp_path: Path) -> None:
    async def test(net: Net, client: Client) -> None:
        async with (
            worker_on(net, 8082, {"echo": str}, 1, "http://127.0.0.1:8081", start=False),
            net.client(8082) as worker,
        ):
            for server, path in ((client, JOBS), (worker, "/jobs/"), (client, "/nothing")):
                answer = await server.post(path, content=body)
                assert answer.status_code == 400
                assert answer.json()["error"].startswith("the body is not JSON: ")

    serve(tmp_path, test)


@pytest.mark.rule("DSP-6.7")
def test_the_connections_of_one_address_keep_no_other_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "max_connections", lambda: 5)
    # All addresses of loopback are one, unless a test needs two.
    monkeypatch.setattr(http_server, "network_address", lambda client: client)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    async def test() -> None:
        async with HttpServer(app, "127.0.0.1", 0) as server:

            async def opened(source: str) -> Any:
                streams = await asyncio.open_connection(
                    "127.0.0.1", server.port, local_addr=(source, 0)
                )
                # The server has seen this connection when it has answered.
                streams[1].write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
                await streams[0].readuntil(b"here")
                return streams

            honest = await opened("127.0.0.2")
            crowd = []
            for _ in range(12):
                crowd.append(await opened("127.0.0.3"))
            honest[1].write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert b"here" in await honest[0].readuntil(b"here")
            for _, writer in (honest, *crowd):
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

    asyncio.run(test())
