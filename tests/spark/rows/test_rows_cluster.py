"""Rows on a standalone cluster: each is in the output once, whatever process is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.rows.rows_on_a_cluster import EACH, ROWS


@pytest.mark.deep
@pytest.mark.rule("FLEET-3.4", "ROWS-2.5", "ROWS-4.1", "ROWS-5.1")
@pytest.mark.parametrize("stored", [False, True])
def test_each_row_is_written_once_while_processes_are_killed(tmp_path, stored):
    store = [tmp_path / "jobs.db"] if stored else []
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.rows.rows_on_a_cluster", tmp_path, *store],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=850,
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["killed"] == ["python", "executor", "device", "manager"]
    assert result["ended"]
    assert (result["rows"], result["equal"]) == (ROWS, True)
    # The kill of the manager ended a task. Without a store all its rows were done again, and
    # otherwise only the jobs of the killed workers.
    assert result["failed"] >= 1
    again = result["calls"] - ROWS // EACH
    assert again < ROWS // EACH // 10 if stored else again > 0
