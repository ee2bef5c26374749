"""A store on a small file system that is full: a mount of its own, not a limit of SQLite."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.house import ROOT
from tests.waiting import RUN

PROGRAM = ROOT / "tests/interop/store/full_disk.py"


def in_namespace(folder: Path, *arguments: object) -> dict[str, Any]:
    """Run the program in a mount namespace of its own; skip where the system forbids one."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no program `unshare`, which makes a mount namespace")
    trial = [*unshare, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    if (tried := subprocess.run(trial, capture_output=True, text=True)).returncode:
        pytest.skip(f"no mount is allowed here: {tried.stderr.strip()}")
    command = [*unshare, sys.executable, PROGRAM, folder, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.rule("STORE-8.4")
@pytest.mark.parametrize("payload", [300, 8000])
def test_a_full_disk_takes_ends_cancellations_and_purges(tmp_path: Path, payload: int) -> None:
    result = in_namespace(tmp_path, 24, payload, 8 << 20)
    assert result["acknowledged"] > 100
    assert "full" in result["error"] or "no space" in result["error"]
    assert result["ended"] == result["acknowledged"]
    assert result["purged"].endswith("removed")
    assert int(result["purged"].split()[0]) == result["acknowledged"]
    assert "is whole" in result["check"]
    assert result["after"] > result["acknowledged"] // 2


@pytest.mark.rule("STORE-8.4")
def test_jobs_end_on_a_disk_that_another_program_has_filled(tmp_path: Path) -> None:
    assert in_namespace(tmp_path, 24, 0, 8 << 20) == {"ended": 200}


def test_without_a_reserve_jobs_do_not_end_on_such_a_disk(tmp_path: Path) -> None:
    assert in_namespace(tmp_path, 24, 0, 0)["ended"] < 200
