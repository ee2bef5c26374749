"""The browser of these tests runs scripts, shows pages, and reaches nothing."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import Browser

PAGE = """<!doctype html><html><head><title>A page</title></head><body style="background: #a00">
<p id="said"></p>
<script>document.getElementById("said").textContent = "said by " + "a script"</script>
<img src="{elsewhere}/picture.svg"></body></html>
"""


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server and the list of requests that it received."""
    requests: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_error(404)

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()
        thread.join()


def test_a_page_is_rendered_and_its_scripts_run(
    browser: Browser, tmp_path: Path, elsewhere: tuple[str, list[str]]
) -> None:
    address, requests = elsewhere
    page = tmp_path / "page.html"
    page.write_text(PAGE.format(elsewhere=address))

    assert "said by a script" in browser.dom(page)
    assert browser.ask(page, "[document.title, document.images.length]") == ["A page", 1]
    png = browser.picture(page, tmp_path / "page.png", 320, 200)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert requests == []


def test_a_failing_question_to_a_page_raises_its_javascript_error(
    browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><p>nothing</p>")

    with pytest.raises(AssertionError, match="ReferenceError"):
        browser.ask(page, "nobody")
