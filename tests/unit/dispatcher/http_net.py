"""HTTP without sockets: requests go by the port of their URL to applications of the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import zmq

from wmp import aio
from wmp.dispatcher.api import make_api
from wmp.dispatcher.http_worker import HttpWorker
from wmp.dispatcher.service import Dispatcher
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.targets import Targets
from wmp.store.sqlite.sqlite_store import SqliteStore


async def resolve_by_table(hostname: str) -> Sequence[str]:
    """Return addresses of loopback: no test asks a resolver of the system."""
    if hostname == "localhost":
        return ["::1", "127.0.0.1"]
    raise OSError(f"{hostname} is not in the table of the tests")


class Net(httpx.AsyncBaseTransport):
    """Routes requests; a port without an application refuses connections."""

    def __init__(self) -> None:
        self.apps: dict[int, Any] = {}
        self.seen: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)  # an application may answer without a pause
        self.seen.append(f"{request.method} {request.url.port}{request.url.path}")
        app = self.apps.get(request.url.port or 80)
        if app is None:
            raise httpx.ConnectError("refused", request=request)
        return await httpx.ASGITransport(app, raise_app_exceptions=False).handle_async_request(
            request
        )

    def client(self, port: int, **headers: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=self, base_url=f"http://127.0.0.1:{port}", headers=headers
        )


class FakeWorker:
    """An HTTP worker that a test drives; an ASGI application."""

    def __init__(self) -> None:
        self.code = 202
        self.jobs: list[Any] = []
        self.given: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.cancelled: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        import json

        body = (await receive()).get("body", b"")
        code, answer = 200, {"jobs": self.jobs}
        if scope["method"] == "POST":
            code = self.code
            self.given.put_nowait(json.loads(body))
        elif scope["method"] == "DELETE":
            code = 202
            self.cancelled.put_nowait(scope["path"])
        await send({"type": "http.response.start", "status": code, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


@contextlib.asynccontextmanager
async def dispatcher_on(
    net: Net, port: int, store: Path, settings: DispatcherSettings | None = None, **more: Any
) -> AsyncIterator[Dispatcher]:
    """Serve a dispatcher at a port of the net."""
    dispatcher = Dispatcher(
        lambda: SqliteStore(store, durability="process"),
        settings,
        address=f"http://127.0.0.1:{port}",
        transport=net,
        **{"targets": Targets(resolve=resolve_by_table), **more},
    )
    async with dispatcher:
        net.apps[port] = make_api(dispatcher)
        yield dispatcher
        del net.apps[port]


@contextlib.asynccontextmanager
async def worker_on(
    net: Net, port: int, handlers: Any, slots: int = 1, *dispatchers: str, start: bool = True
) -> AsyncIterator[HttpWorker]:
    """Serve an HTTP worker at a port of the net."""
    context: Any = zmq.Context()
    try:
        local = f"inproc://worker-{port}"
        async with (
            aio.Manager(local, codec="json", max_worker_losses=0, context=context) as manager,
            aio.Worker(local, handlers=handlers, slots=slots, context=context),
        ):
            http_worker = HttpWorker(manager, dispatchers, list(handlers), slots, transport=net)
            net.apps[port] = http_worker.app
            if start:
                http_worker.start("127.0.0.1", port)
            try:
                yield http_worker
            finally:
                await http_worker.close(0.0)
                await manager.close(0.0)
    finally:
        context.destroy(linger=0)
