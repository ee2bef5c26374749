"""A fleet and rows through Spark Connect, which has no ``sparkContext`` and no RDD."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.deep
@pytest.mark.rule("FLEET-1.1", "FLEET-3.3", "FLEET-5.3", "ROWS-5.1", "ROWS-5.3")
@pytest.mark.skipif(not importlib.util.find_spec("grpc"), reason="needs pyspark[connect]")
def test_a_client_of_spark_connect_has_fleets_and_rows(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.fleet.fleet_through_connect", tmp_path],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=850,
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    assert not result["classic"]
    assert result["right"]
    assert result["after the kill"]
    assert result["after the scale"]
    assert (result["running"], result["ended"], result["slots"]) == (1, True, 8)
    assert "need 5 task slots, and Spark has 4" in result["refused"]
    assert "did not end" not in ran.stderr  # the job that could not drain was cancelled by its tag
    assert result["rows"] == {
        "table": True,
        "observed": {"rows": 500},
        "stream": True,
        "written": ["5"] * 4,
    }
