"""Modules that are shipped reach the executors of a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.deep
def test_executors_of_a_cluster_fetch_what_was_shipped(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.fleet.shipped_on_a_cluster", tmp_path],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=600,
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    assert len(result["where"]) == 6
    assert all(".zip/" in path for path in result["where"]), result
    assert result["doubled"] == [2, 4, 6]
