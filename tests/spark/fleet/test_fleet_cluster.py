"""A fleet on a standalone cluster, whose processes are killed, or whose executors come and go."""

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
        [sys.executable, "-m", "tests.spark.fleet.fleet_on_a_cluster", tmp_path],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=850,
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["killed"] == ["python", "executor", "device", "manager"]
    assert (result["missing"], result["wrong"], result["twice"]) == ([], [], 0)
    assert set(result["gpus"]) <= {str(number) for number in range(GPUS)}
    assert result["gpus"]


@pytest.mark.deep
@pytest.mark.rule("FLEET-3.1", "FLEET-3.2")
def test_executors_are_started_for_a_fleet_and_given_back(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.fleet.fleet_on_demand", tmp_path],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=850,
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["executors"] == [1, 2, 1, 2]
    assert all(result["right"])
    # No worker was lost as the executors were removed: each began once.
    assert set(result["lives"]) == {1}
