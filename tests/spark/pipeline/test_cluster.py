"""Two executors, one of which is killed during the run, make the same tables as one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.testing import assertDataFrameEqual

from tests.ablation.test_worlds import WORLDS
from tests.spark.folds.worlds import build, play, write
from wmp.spark.journals.schema import TABLES
from wmp.spark.journals.tables import Tables


@pytest.mark.deep
def test_a_killed_executor_changes_nothing(spark, tmp_path):
    worlds = [play(seed, tmp_path / "worlds") for seed in (0, 3, 7)]
    # One world lacks a safeguard, so that violations are compared, too.
    switches, _, seeds = WORLDS[0]
    switches = switches if isinstance(switches, tuple) else (switches,)
    played = (play(seed, tmp_path / "worlds", *switches, name=f"x{seed}") for seed in seeds)
    worlds.append(next(broken for broken in played if broken.violation))
    journal = write(worlds, tmp_path / "journal", segments=4)
    here = build(spark, [journal], tmp_path / "here")

    ran = subprocess.run(
        [sys.executable, Path(__file__).with_name("on_a_cluster.py"), journal, tmp_path / "there"],
        env={
            **os.environ,
            "SPARK_WORKER_DIR": str(tmp_path / "work"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=800,
    )

    assert ran.stdout.startswith("killed 1, left "), ran.stdout + ran.stderr[-3000:]
    assert here.violations >= 1
    there = Tables(lambda: spark, str(tmp_path / "there"))
    for name in TABLES:
        assertDataFrameEqual(there.read(name), here.tables.read(name))
