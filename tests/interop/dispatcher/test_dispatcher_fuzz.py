"""Requests that schemathesis makes from the description of the API, for ten minutes.

``python -m pytest -n 0 -m deep tests/interop/dispatcher/test_dispatcher_fuzz.py`` after
``pip install -e '.[fuzz,test]'``; ``tox -e fuzz`` does both.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests.interop.programs.programs import ENVIRON, wmp

pytestmark = pytest.mark.interop

SECONDS: Final = 600
CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
SETTINGS: Final = ("workers.ping_interval=1000", "jobs.result_ttl=20000")


def fuzz(folder: Path, *more: str) -> None:
    """Run a dispatcher, a worker, and schemathesis; the API answers no request by 5xx."""
    (folder / "work.py").write_text("handlers = {'a': str}\n", encoding="utf-8")
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    argv = ("dispatcher", "--store", "jobs.db", "--http", "127.0.0.1:0", *settings)
    with wmp(*argv, cwd=folder) as program:
        url = program.wait_for_line("serves http").split(" serves ")[1].split()[0]
        worker = ("worker", "work:handlers", "--dispatcher", url, "--http", "127.0.0.1:0")
        with wmp(*worker, cwd=folder) as second:
            second.wait_for_line("registered as")
            begin = (
                "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"
            )
            run = (sys.executable, "-c", begin, "run", f"{url}/openapi.json")
            done = subprocess.run(
                (*run, "--checks", ",".join(CHECKS), "--continue-on-failure", *more),
                cwd=folder,
                env=ENVIRON,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
        assert done.returncode == 0, done.stdout.decode()[-20_000:]
        program.signal(signal.SIGTERM)
        assert program.ends() == 0
        assert "Traceback" not in program.stderr


@pytest.mark.deep
@pytest.mark.rule("DSP-6.2")
@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.skipif(find_spec("schemathesis") is None, reason="the extra `fuzz` is not installed")
def test_ten_minutes_of_requests_lead_to_no_code_of_500(tmp_path: Path) -> None:
    fuzz(tmp_path, "--max-time", str(SECONDS))
