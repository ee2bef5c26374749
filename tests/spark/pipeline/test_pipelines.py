"""The declared pipeline of examples/pipelines: Spark's own program runs it twice."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset
import pyspark
import pytest

from wmp.journal.reader import whole
from wmp.spark.session.java import ensure_java
from wmp.spark.session.session import CONFS as SESSION
from wmp.testing.simulator.journals import Journals
from wmp.testing.worlds.world import World

ROOT = Path(__file__).parents[3]
HOME = Path(pyspark.__file__).parent
LACKING = [name for name in ("grpc", "yaml") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(
        bool(LACKING),
        reason=f"{' and '.join(LACKING)} not installed; run: pip install 'pyspark[pipelines]'",
    ),
]


def run(project: Path) -> None:
    ensure_java()
    confs = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": SESSION["spark.driver.memory"],
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    words = [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]
    process = subprocess.run(
        ["bash", str(HOME / "bin" / "spark-pipelines"), *words, "run"],
        cwd=project,
        env={
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout[-5000:]
    assert "Run is COMPLETED" in process.stdout


def rows(project: Path, table: str) -> list[dict[str, object]]:
    where = project / "spark-warehouse" / table
    return pyarrow.dataset.dataset(where, format="parquet").to_table().to_pylist()


def test_a_second_run_reads_the_new_lines(tmp_path):
    world, journal = tmp_path / "world", tmp_path / "journal"
    World(seed=8, journals=Journals(world)).play()
    contents = {path.name.removeprefix("."): path.read_bytes() for path in world.iterdir()}
    journal.mkdir()
    for name, text in contents.items():
        (journal / f".{name}").write_bytes(text[: len(text) // 2])
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "pipelines", project)
    declared = project / "spark-pipeline.yml"
    text = declared.read_text()
    for path, ours in (("wmp-pipeline", tmp_path / "state"), ("wmp-journal", journal)):
        assert f"/tmp/{path}" in text
        text = text.replace(f"/tmp/{path}", str(ours))
    declared.write_text(text)

    run(project)
    first = len(rows(project, "archive"))
    fewer = sum(row["leases"] for row in rows(project, "workers"))
    for name, content in contents.items():
        (journal / f".{name}").unlink()
        (journal / name).write_bytes(content)
    run(project)

    every = Counter(
        (line["node"], line["epoch"], line["n"], line["what"])
        for content in contents.values()
        for line in map(json.loads, content.splitlines())
    )
    assert 0 < first < every.total()
    seen = rows(project, "archive")
    assert Counter((r["node"], r["epoch"], r["n"], r["what"]) for r in seen) == every
    workers = rows(project, "workers")
    leases = {
        (line["owner"], line["owner_epoch"], job, attempt)
        for content in contents.values()
        for line in map(json.loads, content.splitlines())
        if line.get("command") == "TAKE" and line["what"] == "send"
        for line in [whole(line)]
        for job, attempt in zip(line["ids"], _each(line["attempts"], line["ids"]), strict=True)
    }
    assert fewer < sum(row["leases"] for row in workers)
    assert sum(row["leases"] for row in workers) == len(leases)


def _each(values: list[int], ids: list[int]) -> list[int]:
    return values if len(values) > 1 else values * len(ids)
