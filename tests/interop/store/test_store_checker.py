"""A small run of the checker of stores, which has submitters and logs of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.interop.programs.programs import ENVIRON, ROOT
from tests.postgres.server import why_no_server

pytestmark = [pytest.mark.interop, pytest.mark.deep, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_nothing_is_lost_twice_wrong_or_stuck(store: str) -> None:
    pytest.importorskip("fastapi")
    if store == "postgres" and (reason := why_no_server()):
        pytest.skip(reason)
    command = (sys.executable, "-m", "tests.store_checker", "--store", store)
    done = subprocess.run(
        (*command, "--acks", "4000", "--faults", "30"),
        cwd=ROOT,
        env=ENVIRON,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["acknowledged"] >= 4000
    assert report["faults"] >= 30
    kinds = {"restore", "5 kills in first starts", "kill all in the first start"}
    kinds |= {"40 power cuts", "clock"} if store == "sqlite" else {"kill server"}
    assert kinds <= report["by kind"].keys()
