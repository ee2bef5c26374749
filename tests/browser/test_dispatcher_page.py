"""A web page of another port against a dispatcher, in a browser."""

from __future__ import annotations

import asyncio
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from tests.browser.conftest import Browser
from wmp.dispatcher import http_guard
from wmp.dispatcher.api import make_api
from wmp.dispatcher.http_server import HttpServer
from wmp.dispatcher.job_document import NewJobDocument
from wmp.dispatcher.service import Dispatcher
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.job_steps import Create
from wmp.dispatcher.steps.overview import list_jobs
from wmp.dispatcher.steps.worker_steps import Register
from wmp.store.sqlite.sqlite_store import SqliteStore

# The requests block the script, so that they have ended when the browser prints the page.
PAGE = """<!doctype html><html><body><script>
const base = 'http://127.0.0.1:PORT/dispatcher/', seen = [];
const create = '{"type":"render","payload":"forged"}';
const end = '{"attempt":1,"status":"s","result":"forged"}';
for (const [method, path, body] of [
  ['POST', 'jobs/', create],
  ['POST', 'jobs/', new Blob([create])],
  ['POST', 'jobs/', new Blob([create], {type: 'application/x-www-form-urlencoded'})],
  ['POST', 'jobs/JOB/completion', end],
  ['POST', 'jobs/JOB/completion', new Blob([end])],
  ['DELETE', 'jobs/JOB', null],
  ['GET', 'jobs/', null],
]) {
  const request = new XMLHttpRequest();
  try {
    request.open(method, base + path, false);
    request.send(body);
    seen.push(request.responseText);
  } catch (error) {
    seen.push(error.name);
  }
}
document.documentElement.dataset.seen = JSON.stringify(seen);
</script></body></html>"""


def attack(browser: Browser, folder: Path) -> tuple[list[str], int, list[dict[str, Any]]]:
    """Open the page; return what its requests read, how many arrived, and the jobs afterwards."""
    arrived = 0

    async def run() -> tuple[list[str], int, list[dict[str, Any]]]:
        settings = DispatcherSettings()
        dispatcher = Dispatcher(
            lambda: SqliteStore(folder / "jobs.db", durability="process"),
            settings,
            open_registration=True,  # the page must not fail for want of a secret
        )
        app = make_api(dispatcher)

        async def counted(scope: Any, receive: Any, send: Any) -> None:
            nonlocal arrived
            arrived += 1
            await app(scope, receive, send)

        page = b""

        async def site(scope: Any, receive: Any, send: Any) -> None:
            await _answer(send, 200, page, [(b"content-type", b"text/html")])

        async with (
            dispatcher,
            HttpServer(counted, "127.0.0.1", 0) as server,
            HttpServer(site, "127.0.0.1", 0) as other,
            HttpServer(_worker, "127.0.0.1", 0) as worker,
        ):
            await dispatcher.run(Register(settings, "127.0.0.1", worker.port, 1, {"resize": True}))
            new = NewJobDocument("resize", "honest")
            created = await dispatcher.run(Create(settings, await dispatcher.take_id(), new))
            while (await _jobs(dispatcher))[0]["status"] != "r":
                await asyncio.sleep(0.01)
            script = PAGE.replace("PORT", str(server.port))
            page = script.replace("JOB", created.document["_id"]).encode()
            text = await asyncio.to_thread(browser.dom_of, f"{other.url}/")
            match = re.search(r'data-seen="([^"]*)"', text)
            assert match, text[:2000]
            return json.loads(html.unescape(match[1])), arrived, await _jobs(dispatcher)

    return asyncio.run(run())


async def _answer(send: Any, code: int, body: bytes, head: Any = ()) -> None:
    await send({"type": "http.response.start", "status": code, "headers": [*head]})
    await send({"type": "http.response.body", "body": body})


async def _worker(scope: Any, receive: Any, send: Any) -> None:
    """Take each job, and never end it."""
    await _answer(send, 202 if scope["method"] == "POST" else 200, b"{}")


async def _jobs(dispatcher: Dispatcher) -> list[dict[str, Any]]:
    jobs, _ = await dispatcher.read(lambda store: list_jobs(store, None, None, 0, 100))
    listed: list[dict[str, Any]] = jobs
    return listed


@pytest.mark.rule("DSP-6.11", "DSP-6.12")
def test_a_page_of_another_port_creates_and_ends_no_job(browser: Browser, tmp_path: Path) -> None:
    seen, arrived, jobs = attack(browser, tmp_path)

    assert seen == ["NetworkError"] * 7  # the browser lets the page read no answer
    assert arrived >= 6  # the requests went out, and the dispatcher refused them
    assert [(job["type"], job["status"], job["result"]) for job in jobs] == [("resize", "r", None)]


@pytest.mark.rule("DSP-6.11", "DSP-6.12")
def test_the_page_succeeds_at_a_dispatcher_without_these_checks(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_guard, "check_site", lambda request: None)
    monkeypatch.setattr(http_guard, "check_content_type", lambda request: None)
    _, _, jobs = attack(browser, tmp_path)

    assert (jobs[0]["status"], jobs[0]["result"]) == ("s", "forged")
    assert [job["type"] for job in jobs[1:]] == ["render"] * 3
