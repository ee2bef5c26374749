"""Journals as a named source of Spark: read at once, or as a stream while they grow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from pyspark.testing import assertDataFrameEqual

from tests.spark.folds.worlds import build
from wmp.spark.journals.source import JournalSource
from wmp.testing.simulator.journals import Journals
from wmp.testing.worlds.world import World

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", autouse=True)
def registered(spark):
    """Register the source, because Spark finds a source by name only in an installed package."""
    spark.dataSource.register(JournalSource)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world") / "journal"
    World(seed=5, journals=Journals(folder)).play()
    return folder


@pytest.fixture
def journal(world, tmp_path):
    return Path(shutil.copytree(world, tmp_path / "journal"))


def lines_of(folder):
    return Counter(
        line for path in folder.iterdir() for line in path.read_text().splitlines() if line
    )


def test_the_source_reads_the_table_events(spark, journal, tmp_path):
    torn = sorted(journal.iterdir())[0]
    with torn.open("a") as file:
        file.write('garbage\n{"v":1}\n{"v":1,"node":"torn')

    read = spark.read.format("wmp").load(str(journal))

    tables = build(spark, [journal], tmp_path / "out")
    assertDataFrameEqual(read, tables.tables.read("events"))
    assert read.count() > 100


def test_a_node_and_lines_as_they_are(spark, journal):
    node = json.loads(next(journal.iterdir()).read_text().splitlines()[0])["node"]

    rows = spark.read.format("wmp").option("node", node).load(str(journal))
    lines = spark.read.format("wmp").option("lines", True).load([str(journal)])

    assert {row.node for row in rows.select("node").distinct().collect()} == {node}
    assert Counter(row.value for row in lines.collect()) == lines_of(journal)


def test_an_empty_folder_is_an_empty_table(spark, tmp_path):
    read = spark.read.format("wmp").load(str(tmp_path))

    assert read.collect() == []
    assert "node" in read.columns


def test_a_version_that_is_not_known_is_an_error(spark, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"v":99,"node":"a"}\n')

    with pytest.raises(Exception, match="the journal has an unknown version: 99 in a"):
        spark.read.format("wmp").load(str(tmp_path)).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": "a"}, "no option 'nodes'"),
        ({"lines": "perhaps"}, "lines is 'perhaps'; expected true or false"),
        ({"maxBytes": "-1"}, "maxBytes is '-1'; expected a number of bytes"),
        ({"node": "a", "lines": "true"}, "node and lines exclude each other"),
    ],
)
def test_wrong_options_are_reported(spark, tmp_path, options, message):
    with pytest.raises(Exception, match=message):
        spark.read.format("wmp").options(**options).load(str(tmp_path)).collect()


def test_a_number_of_more_than_64_bits_costs_its_line_alone(spark, tmp_path):
    line = '{{"v":1,"node":"a","epoch":1,"n":{n},"step":1,"at":1,"wall":1,"what":"ticked"}}\n'
    numbers = [1, 2, 2**70, 4]
    (tmp_path / "a.jsonl").write_text("".join(line.format(n=n) for n in numbers))

    rows = spark.read.format("wmp").load(str(tmp_path)).collect()

    assert sorted(row.n for row in rows) == [1, 2, 4]


def test_a_stream_continues_at_its_checkpoint(spark, world, tmp_path):
    """The stream has small batches and restarts, while segments grow and get their names."""
    journal = tmp_path / "journal"
    journal.mkdir()
    contents = [(path.name.removeprefix("."), path.read_bytes()) for path in world.iterdir()]
    halves = len(contents) // 2
    for name, text in contents[:halves]:
        # The text ends in the middle of a line.
        (journal / f".{name}").write_bytes(text[: len(text) // 2])

    def run():
        stream = (
            spark.readStream.format("wmp")
            .option("lines", "true")
            .option("maxBytes", "3000")
            .load(str(journal))
        )
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "seen"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(300)
            return sum(p.numInputRows for p in query.recentProgress)
        finally:
            query.stop()

    first = run()
    assert first > 0
    assert run() == 0  # the stream has no new line
    for name, text in contents[:halves]:
        with (journal / f".{name}").open("ab") as file:
            file.write(text[len(text) // 2 :])
        (journal / f".{name}").rename(journal / name)
    for name, text in contents[halves:]:
        (journal / name).write_bytes(text)
    second = run()

    seen = spark.read.parquet(str(tmp_path / "seen")).collect()
    assert Counter(row.value for row in seen) == lines_of(journal)
    assert first + second == len(seen)
    assert {row.file for row in seen} == {name for name, _ in contents}


@pytest.mark.deep
def test_an_installed_package_is_found_by_name(world, tmp_path):
    """A wheel is installed, and another Spark process finds the source without registration."""
    tree = tmp_path / "tree"  # the build writes into this folder
    tree.mkdir()
    for name in ("wmp", "pyspark_wmp"):
        shutil.copytree(ROOT / name, tree / name)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "wmp_programs.py"):
        shutil.copy(ROOT / name, tree)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    command = [*pip, "--no-deps", "--target", str(tmp_path / "site"), str(tree)]
    subprocess.run(command, check=True, timeout=300)
    script = f"""
        import pyspark_wmp
        assert pyspark_wmp.__file__.startswith({str(tmp_path)!r}), pyspark_wmp.__file__
        from wmp.spark.session.session import start_session
        spark = start_session("local[1]", confs={{"spark.driver.memory": "1g"}})
        print("rows", spark.read.format("wmp").load({str(world)!r}).count())
        spark.sql("create temporary view journal using wmp options (path {str(world)!r})")
        print("by SQL", spark.sql("select count(*) from journal").collect()[0][0])
        spark.stop()
    """
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    total = sum(lines_of(world).values())
    assert process.stdout == f"rows {total}\nby SQL {total}\n", process.stderr[-3000:]
