"""Rows through Spark Connect, also in the tables of a declarative pipeline."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.rows.typed_rows import ZONES

ROOT = Path(__file__).parents[3]


@pytest.mark.rule("ROWS-5.1", "ROWS-5.4")
@pytest.mark.skipif(not importlib.util.find_spec("grpc"), reason="needs pyspark[connect]")
def test_every_type_and_every_table_of_a_pipeline_has_its_rows_by_connect(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.rows.rows_through_connect", tmp_path],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=850,
    )

    assert ran.returncode == 0, ran.stderr[-4000:]
    results = json.loads(ran.stdout.splitlines()[-1])
    assert not results["classic"]
    assert results["types"] == {name: True for zone in ZONES for name in (zone, f"{zone}, by row")}
    # A view, and a table that a stream fills: each row once.
    assert results["sizes"] == results["sizes_of_stream"] == [300, True]
    assert results["tried"] == [300, 3]
