"""The benchmarks of the pipeline and of rows run, and count right. No time is asserted."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pyarrow.dataset
import pytest

from benchmarks import following
from benchmarks.pipeline import WORK, work_of
from benchmarks.rows import cases
from tests.interop.programs.programs import ROOT
from wmp.spark.pipeline.run import STEPS


def test_stages_that_were_run_are_counted_and_those_skipped_are_not(spark):
    context = spark.sparkContext
    parted = context.parallelize(range(10), 3).groupBy(lambda number: number % 2, 2)

    for group in ("first", "again"):
        context.setJobGroup(group, group)
        assert parted.count() == 2
    context.setJobGroup("none", "none")
    context._jsc.sc().listenerBus().waitUntilEmpty()

    first = work_of(spark, "first")
    assert first.pop("shuffled") > 0
    assert first == {"spark_jobs": 1, "stages": 2, "tasks": 3 + 2}
    assert work_of(spark, "again") == {"spark_jobs": 1, "stages": 1, "tasks": 2, "shuffled": 0}
    assert work_of(spark, "none") == {"spark_jobs": 0, "stages": 0, "tasks": 0, "shuffled": 0}


@pytest.mark.deep
def test_every_step_is_measured_with_its_stages(tmp_path):
    path = tmp_path / "figures.json"

    ran = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.pipeline"),
            *("--lines", "2000", "--cores", "2", "--json", str(path)),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert ran.returncode == 0, ran.stderr
    result = json.loads(path.read_text(encoding="utf-8"))
    (figure,) = result["runs"]
    assert figure["lines"] == result["lines"]
    assert figure["violations"] == 0
    assert list(figure["steps"]) == list(STEPS)
    for name in ("events", "jobs"):
        step = figure["steps"][name]
        assert 1 <= step["stages"] <= step["tasks"], name
        assert f"{step['stages']} stages" in ran.stdout
    for what in WORK:
        assert figure[what] == sum(step[what] for step in figure["steps"].values())
    assert f"{figure['stages']} stages, {figure['tasks']} tasks" in ran.stdout


@pytest.mark.deep
def test_rows_in_workers_are_measured_beside_rows_in_tasks(tmp_path):
    path = tmp_path / "figures.json"
    picture = tmp_path / "rates.png"
    draws = importlib.util.find_spec("matplotlib") is not None  # of the extra `bench`

    ran = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.rows", "--part", "0.02", "--repeats", "1"),
            *("--json", str(path), *(("--plot", str(picture)) if draws else ())),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert ran.returncode == 0, ran.stderr
    result = json.loads(path.read_text(encoding="utf-8"))
    assert [figure["case"] for figure in result["figures"]] == [case.name for case in cases(0.02)]
    for figure in result["figures"]:
        assert figure["ratio_minimum"] <= figure["ratio"] <= figure["ratio_maximum"]
        assert f"| {figure['what']} | {figure['rows']} |" in ran.stdout
    assert not draws or picture.read_bytes().startswith(b"\x89PNG")


def test_lines_that_are_added_are_followed(tmp_path):
    first, took = following.measure(tmp_path, 3000, times=2)

    assert 3000 <= first < 3000 + following.LEFT
    assert len(took) == 2
    events = pyarrow.dataset.dataset(tmp_path / "out" / "events", format="parquet")
    assert events.count_rows() == first + 2 * 2 * following.ADDED
