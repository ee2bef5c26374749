"""Clients and workers that are slow, broken or hostile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from tests.unit.dispatcher.http_net import FakeWorker, Net, dispatcher_on, worker_on
from wmp.dispatcher import http_client, http_guard, http_server, service
from wmp.dispatcher.http_client import BoundedClient, RequestFailed
from wmp.dispatcher.http_guard import GuardedApp
from wmp.dispatcher.http_server import HttpServer
from wmp.dispatcher.settings import DispatcherSettings

JOBS = "/dispatcher/jobs/"
WORKERS = "/dispatcher/workers/"
WORKER = {"hostname": "127.0.0.1", "port": 8082, "maxJobs": 2, "handlers": {"resize": True}}
FAST = DispatcherSettings(timer_interval=5, ping_interval=20)

Answer = Callable[[httpx.Request], httpx.Response]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def client_of(answer: Answer, timeout: float = 5.0) -> BoundedClient:
    return BoundedClient(timeout, "secret", httpx.MockTransport(answer))


class Endless(httpx.AsyncByteStream):
    """A body without an end; it remembers how much was taken."""

    def __init__(self, part: bytes) -> None:
        self.part, self.taken = part, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.taken += len(self.part)
            yield self.part
            await asyncio.sleep(0)


def test_an_endless_answer_is_read_up_to_the_limit() -> None:
    async def test() -> None:
        body = Endless(b"x" * 1000)
        client = client_of(lambda request: httpx.Response(200, stream=body))
        answer = await client.ask("GET", "http://h/", maximum=5000)
        assert (answer.whole, len(answer.body), body.taken) == (False, 5000, 6000)
        with pytest.raises(ValueError, match="more than 5000 bytes"):
            answer.json()

    run(test)


def test_an_answer_that_drips_for_ever_fails_in_time() -> None:
    async def test() -> None:
        client = client_of(lambda request: httpx.Response(200, stream=Endless(b"")), 0.01)
        with pytest.raises(RequestFailed, match="no whole answer") as caught:
            await client.ask("GET", "http://h/")
        assert caught.value.sent

    run(test)


def test_a_compressed_answer_is_not_inflated() -> None:
    async def test() -> None:
        seen = []

        def answer(request: httpx.Request) -> httpx.Response:
            seen.append(request.headers["accept-encoding"])
            return httpx.Response(
                200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"\x1f\x8b")
            )

        response = await client_of(answer).ask("GET", "http://h/")
        assert (seen, response.body) == (["identity"], b"\x1f\x8b")

    run(test)


@pytest.mark.rule("DSP-6.6")
def test_a_redirection_is_not_followed_and_gets_no_token() -> None:
    async def test() -> None:
        seen = []

        def answer(request: httpx.Request) -> httpx.Response:
            seen.append(request.url.host)
            headers = {"location": "http://thief/"}
            return httpx.Response(307, headers=headers, stream=httpx.ByteStream(b""))

        response = await client_of(answer).ask("POST", "http://h/jobs/", b"{}")
        assert (seen, response.code, response.good) == (["h"], 307, False)

    run(test)


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (httpx.ConnectError("refused"), False),
        (httpx.PoolTimeout("full"), False),
        (httpx.ReadError("reset"), True),
        (LookupError("a codec of the answer"), True),
    ],
)
def test_each_failure_states_whether_the_request_may_have_arrived(
    error: Exception, sent: bool
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    async def test() -> None:
        with pytest.raises(RequestFailed) as caught:
            await client_of(answer).ask("POST", "http://h/")
        assert caught.value.sent is sent

    run(test)


class Liar:
    """A worker whose health checks have any code, headers and body."""

    def __init__(self, code: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        self.code, self.body, self.headers = code, body, list(headers)
        self.checks = 0
        self.cancelled = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.checks += scope["method"] == "GET"
        self.cancelled += scope["method"] == "DELETE"
        await send({"type": "http.response.start", "status": self.code, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


LIARS = {
    "deep": Liar(200, b'{"jobs": ' + b"[" * 60_000),
    "no object": Liar(200, b"[]"),
    "no list": Liar(200, b'{"jobs": {"a": 1}}'),
    "odd jobs": Liar(200, b'{"jobs": [null, 1e999, {"_id": []}, {"_id": "0"}]}'),
    "no text": Liar(200, b"\xff\xfe"),
    "codec": Liar(200, b"{}", (b"content-type", b"text/html; charset=zlib_codec")),
    "encoding": Liar(200, b"\x1f\x8b", (b"content-encoding", b"gzip")),
}


@pytest.mark.rule("DSP-5.3")
@pytest.mark.parametrize("name", LIARS)
def test_a_broken_health_check_is_a_sign_of_life_and_is_repeated(name: str, tmp_path: Path) -> None:
    async def test() -> None:
        net, liar = Net(), LIARS[name]
        net.apps[8082] = liar
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", FAST),
            net.client(8081) as client,
        ):
            await client.put(WORKERS, json=WORKER)
            while liar.checks < 3:
                await asyncio.sleep(0)
            (worker,) = (await client.get(WORKERS)).json()["workers"]
            assert (worker["isDead"], worker["failedPingCount"]) == (False, 0)

    run(test)


@pytest.mark.rule("DSP-5.11")
def test_a_long_answer_to_a_health_check_is_a_failed_check(tmp_path: Path) -> None:
    async def test() -> None:
        net = Net()
        net.apps[8082] = Liar(200, b'{"jobs":[' + b"[]," * 30_000 + b"[]]}")
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", FAST),
            net.client(8081) as client,
        ):
            await client.put(WORKERS, json=WORKER)
            while True:
                (worker,) = (await client.get(WORKERS)).json()["workers"]
                if worker["failedPingCount"]:
                    break

    run(test)


@pytest.mark.rule("DSP-5.11")
def test_health_checks_are_parsed_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    parse = service._named_jobs

    def note(answer: Any) -> Any:
        threads.append(threading.current_thread())
        return parse(answer)

    monkeypatch.setattr(service, "_named_jobs", note)

    async def test() -> None:
        net = Net()
        net.apps[8082] = Liar(200, b"{}")
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", FAST),
            net.client(8081) as client,
        ):
            await client.put(WORKERS, json=WORKER)
            while not threads:
                await asyncio.sleep(0)
        assert threading.main_thread() not in threads

    run(test)


@pytest.mark.rule("DSP-5.11")
def test_slow_health_checks_delay_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_CHECKS", 2)

    async def test() -> None:
        net, honest = Net(), Liar(200, b"{}")
        hanging: set[int] = set()

        async def hang(scope: Any, receive: Any, send: Any) -> None:
            port = scope["server"][1]
            if port in hanging:
                await asyncio.Event().wait()
            hanging.add(port)
            await Liar(200, b"{}")(scope, receive, send)

        net.apps[8082] = honest
        settings = attrs.evolve(FAST, health_timeout=1000)
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", settings),
            net.client(8081) as client,
        ):
            await client.put(WORKERS, json=WORKER)
            for port in range(8100, 8108):
                net.apps[port] = hang
                await client.put(WORKERS, json={**WORKER, "port": port})
            # Each slow worker fails its second check, and has its further ones in another lane. The
            # dispatcher removes a worker that failed often, perhaps before the last worker fails.
            waiting = set(range(8100, 8108))
            while waiting:
                workers = (await client.get(WORKERS)).json()["workers"]
                waiting &= {w["port"] for w in workers if w["failedPingCount"] == 0}
            checks = honest.checks
            while honest.checks < checks + 3:
                await asyncio.sleep(0)
            (good,) = [worker for worker in workers if worker["port"] == WORKER["port"]]
            assert (good["isDead"], good["failedPingCount"]) == (False, 0)

    run(test)


def test_a_worker_that_names_many_strange_jobs_gets_few_cancellations(tmp_path: Path) -> None:
    async def test() -> None:
        net = Net()
        names = [f"{number:024x}" for number in range(1000, 3000)]
        liar = Liar(200, json.dumps({"jobs": names}).encode())
        net.apps[8082] = liar
        settings = DispatcherSettings(timer_interval=5)  # one check in the time of the test
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db", settings),
            net.client(8081) as client,
        ):
            await client.put(WORKERS, json=WORKER)
            while liar.cancelled < 100:
                await asyncio.sleep(0)
            await client.get(WORKERS)
        assert (liar.checks, liar.cancelled) == (1, 100)

    run(test)


def test_a_worker_that_hangs_takes_few_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_LANE", 3)

    async def test() -> None:
        net, other = Net(), FakeWorker()
        hung: list[int] = []

        async def hang(scope: Any, receive: Any, send: Any) -> None:
            if scope["method"] == "POST":
                hung.append(1)
                await asyncio.Event().wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        net.apps[8082], net.apps[8083] = hang, other
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db"),
            net.client(8081) as client,
        ):
            await client.put(WORKERS, json={**WORKER, "maxJobs": 50})
            for _ in range(20):
                await client.post(JOBS, json={"type": "resize"})
            second = {**WORKER, "port": 8083, "handlers": {"other": 1}}
            await client.put(WORKERS, json=second)
            await client.post(JOBS, json={"type": "other"})
            await other.given.get()
            assert len(hung) == 3

    run(test)


@pytest.mark.rule("DSP-5.9")
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"_id": 1}', b'{"_id": "w", "pingInterval": "x"}']
)
def test_an_answer_of_no_dispatcher_is_a_failed_contact(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    class Changing(Liar):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await super().__call__(scope, receive, send)
            net.apps[8081] = Liar(200, body)

    net = Net()
    net.apps[8081] = Changing(200, b'{"_id": "w", "pingInterval": 1, "maxRetries": 2}')

    async def test() -> None:
        async with worker_on(net, 8082, {"echo": str}, 1, "http://127.0.0.1:8081") as worker:
            await worker.alone.wait()

    run(test)
    assert (
        "worker: contact 2 of 2 with a dispatcher failed: http://127.0.0.1:8081 answered 200 "
        "without a worker document; check that a dispatcher serves this address"
    ) in caplog.messages


def test_a_result_with_half_a_surrogate_pair_is_reported(tmp_path: Path) -> None:
    async def test() -> None:
        net = Net()
        async with (
            dispatcher_on(net, 8081, tmp_path / "jobs.db"),
            worker_on(net, 8082, {"odd": lambda job: job["payload"]}, 1, "http://127.0.0.1:8081"),
            net.client(8081) as client,
        ):
            body = b'{"type": "odd", "payload": "\\ud800"}'
            id = (await client.post(JOBS, content=body)).json()["_id"]
            while True:
                job = (await client.get(f"{JOBS}{id}")).json()
                if job["execution"]["ended"]:
                    break
            # A WMP worker has no such text; the job fails and states so.
            assert job["status"] in "sf", job

    run(test)


@pytest.mark.parametrize(("kept", "wanted"), [(1e9, 1), (0.0, 2)])
def test_idle_connections_are_closed_before_the_server_closes_them(
    kept: float, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_KEPT", kept)
    connections = 0
    closed = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        closed.release()

    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = BoundedClient(5.0)
        for _ in range(2):
            assert (await client.ask("GET", f"http://127.0.0.1:{port}/")).good
        await client.close()
        server.close()
        for _ in range(connections):
            await closed.acquire()
        assert connections == wanted

    run(test)


# -- clients over sockets -----------------------------------------------------------------------


async def body_app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * (64 << 20)})


@pytest.mark.rule("DSP-6.3")
@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: a\r\n"])
def test_a_client_without_a_head_is_disconnected(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HEAD_TIME", 0.02)

    async def test() -> None:
        async with HttpServer(body_app, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(sent)
            assert await _end(reader) == b""
            writer.close()

    run(test)


async def _end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


@pytest.mark.rule("DSP-6.3")
def test_a_client_that_takes_nothing_of_an_answer_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "HEAD_TIME", 0.02)

    async def test() -> None:
        ended = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await body_app(scope, receive, send)
            await receive()
            ended.set()

        async with HttpServer(app, "127.0.0.1", 0) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            await ended.wait()
            writer.transport.abort()

    run(test)


@pytest.mark.rule("DSP-6.3")
def test_a_body_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_guard, "BODY_TIME", 0.02)

    async def test() -> None:
        app = GuardedApp(body_app, max_body=100, token=None, hosts=["a"])
        async with HttpServer(app, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\n{")
            line = await reader.readline()
            assert line.split()[1] == b"408"
            writer.close()

    run(test)


@pytest.mark.rule("DSP-6.7")
@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{"])
def test_idle_clients_do_not_keep_others_out(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 3)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def test() -> None:
        guarded = GuardedApp(app, max_body=100, token=None, hosts=["a"])
        async with HttpServer(guarded, "127.0.0.1", 0) as server:
            idle = []
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(sent)
                idle.append((reader, writer))
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"200"
            # Those that waited for the longest time were closed.
            for oldest, _ in idle[:3]:
                assert await _end(oldest) == b""
            for _, connection in (*idle, (reader, writer)):
                connection.close()

    run(test)


def test_a_server_leaves_half_of_the_descriptors_to_others() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, hard))
    try:
        assert http_server.max_connections() == 250
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_small_answers_are_sent_at_once() -> None:
    async def test() -> None:
        async with HttpServer(body_app, "127.0.0.1", 0) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            while not server._server.server_state.connections:
                await asyncio.sleep(0)
            (connection,) = server._server.server_state.connections
            accepted = connection.transport.get_extra_info("socket")
            # Otherwise a client waits for 40 ms between the head of an answer and the body.
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()

    run(test)


def test_half_a_body_reaches_no_application() -> None:
    reached = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    async def test() -> None:
        messages = [
            {"type": "http.request", "body": b"{}", "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            reached.append(message)

        head = [(b"host", b"localhost")]
        scope = {"type": "http", "path": "/", "headers": head, "method": "POST"}
        await GuardedApp(app, max_body=100, token=None)(scope, receive, send)
        assert (messages, reached) == ([], [])

    run(test)
