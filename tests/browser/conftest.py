"""A browser for tests: headless Chromium opens a page and returns its content."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import subprocess
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from tests.waiting import WAIT

REQUIRED = os.environ.get("WMP_REQUIRE_BROWSER", "") not in ("", "0")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HERE = Path(__file__).parent
FLAGS = (
    "--headless",
    "--no-sandbox",  # the browser opens only pages of this project, and root has no sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--hide-scrollbars",
    "--proxy-server=127.0.0.1:9",
)
# No access to any network: the page must bring along everything that it needs.
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND"
LOOPBACK = f"{NO_NETWORK}, EXCLUDE 127.0.0.1"
_ANSWER = re.compile(r'<html[^>]* data-answer="([^"]*)"')


@frozen
class Browser:
    """Opens pages; each time in a new process of the browser."""

    program: str
    folder: Path
    """Folder of the browser's files."""

    def dom(self, page: Path) -> str:
        """Return the HTML of the page after its scripts have run."""
        return self._run("--dump-dom", page.resolve().as_uri())

    def dom_of(self, url: str) -> str:
        """Return the HTML of a page of a server at 127.0.0.1, which can reach other ports there."""
        return self._run("--dump-dom", url, network=LOOPBACK)

    def ask(self, page: Path, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the loaded page.

        JSON must be able to hold the value. A block of statements is written as a function and its
        call: ``(() => { … })()``.
        """
        words = (
            "(() => { let answer;"
            f" try {{ answer = {{value: {expression}}} }}"
            " catch (error) { answer = {error: String(error)} }"
            " document.documentElement.dataset.answer = JSON.stringify(answer) })()"
        )
        script = f"<script>{words}</script>"
        copy = self.folder / "asked.html"
        text = page.read_text(encoding="utf-8")
        # A page that lists the scripts that may run must list this script, too.
        digest = b64encode(sha256(words.encode()).digest()).decode()
        text = text.replace("script-src 'sha256-", f"script-src 'sha256-{digest}' 'sha256-", 1)
        before, body, after = text.rpartition("</body>")
        copy.write_text(before + script + body + after if body else text + script, encoding="utf-8")
        match = _ANSWER.search(self.dom(copy))
        assert match, f"the page let no script run: {expression}"
        answer = json.loads(html.unescape(match[1]))
        assert "error" not in answer, answer
        return answer.get("value")

    def picture(self, page: Path, png: Path, width: int = 1200, height: int = 900) -> Path:
        """Take a screenshot of the page; return ``png``."""
        png.unlink(missing_ok=True)
        self._run(f"--window-size={width},{height}", f"--screenshot={png}", page.resolve().as_uri())
        assert png.is_file(), f"{self.program} made no picture of {page}"
        return png

    def _run(self, *words: str, network: str = NO_NETWORK) -> str:
        profile = self.folder / "profile"
        process = subprocess.Popen(
            [self.program, *FLAGS, network, f"--user-data-dir={profile}", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "HOME": str(self.folder)},
            start_new_session=True,  # the browser's child processes end with it
        )
        try:
            seen, errors = process.communicate(timeout=WAIT)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        assert process.returncode == 0, errors.decode(errors="replace")[-2000:]
        return seen.decode()


def find() -> str | None:
    """Return the path of the program, or None; ``WMP_BROWSER`` names another."""
    named = os.environ.get("WMP_BROWSER")
    for name in (named,) if named else NAMES:
        if program := shutil.which(name):
            return program
    return None


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    program = find()
    if program is None:
        reason = f"no browser: none of {', '.join(NAMES)} is on PATH; WMP_BROWSER names another"
        if REQUIRED:
            pytest.fail(f"WMP_REQUIRE_BROWSER is set, and there is {reason}")
        pytest.skip(reason)
    folder = tmp_path / "browser"
    folder.mkdir()
    return Browser(program, folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/browser/"):
            item.add_marker(pytest.mark.interop)
