"""The declared pipeline of examples/pipelines, run by Spark's own program, and again for more."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset
import pyspark
import pytest

from wmp.spark.java import ensure_java
from wmp.spark.session import CONFS as SESSION
from wmp.testing.journals import Journals
from wmp.testing.world import World

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
LACKING = [name for name in ("grpc", "yaml") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.slow,
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
    said = subprocess.run(
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
    assert said.returncode == 0, said.stdout[-5000:]
    assert "Run is COMPLETED" in said.stdout


def rows(project: Path, table: str) -> list[dict[str, object]]:
    where = project / "spark-warehouse" / table
    return pyarrow.dataset.dataset(where, format="parquet").to_table().to_pylist()


def test_a_second_run_takes_in_what_came_since(tmp_path):
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
    first = len(rows(project, "lines"))
    for name, content in contents.items():
        (journal / f".{name}").unlink()
        (journal / name).write_bytes(content)
    run(project)

    every = sorted(line for content in contents.values() for line in content.decode().splitlines())
    assert 0 < first < len(every)
    assert sorted(row["value"] for row in rows(project, "lines")) == every
    assert len(rows(project, "events")) == len(every)
    leases = rows(project, "attempts")
    assert leases
    at_workers = {(row["worker"], row["worker_epoch"]) for row in leases}
    assert {(row["worker"], row["worker_epoch"]) for row in rows(project, "workers")} == at_workers
    assert sum(row["leases"] for row in rows(project, "workers")) == len(leases)
