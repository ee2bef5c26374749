"""A fleet on a standalone cluster: every job ends, whatever process is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.clusters import GPUS


@pytest.mark.deep
@pytest.mark.rule("FLEET-1.3", "FLEET-3.4")
def test_every_job_ends_while_processes_are_killed(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.fleet_on_a_cluster", tmp_path],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=850,
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["killed"] == ["python", "executor", "device", "manager"]
    assert (found["missing"], found["wrong"], found["twice"]) == ([], [], 0)
    assert set(found["gpus"]) <= {str(number) for number in range(GPUS)}
    assert found["gpus"]
