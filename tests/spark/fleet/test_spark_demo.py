"""``wmp demo --spark``: processes are killed, and every row is compared."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from pyspark.sql import Row

from tests.waiting import wait_until
from wmp.cli.demo.node import count
from wmp.cli.demo.processes import DemoProcesses
from wmp.spark.fleet.demo import SparkDemo


def demo(*options):
    return subprocess.run(
        [sys.executable, "-m", "wmp", "demo", *options],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=800,
    )


@pytest.mark.deep
@pytest.mark.rule("FLEET-3.4")
def test_every_file_is_counted_once_while_processes_are_killed():
    ran = demo("--spark", "--workers", "2", "--files", "200")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    for what in (r"worker \d of the fleet, process \d+,", "the device", r"a manager, process \d+ "):
        assert re.search(rf"^ *\d+%  {what}.*was killed \(SIGKILL\)$", ran.stdout, re.MULTILINE)
    assert "3 processes were killed (SIGKILL); Spark ran " in ran.stdout
    assert "200 of 200 results are correct; lost: 0, duplicates: 0" in ran.stdout


@pytest.mark.deep
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_no_process(number, code):
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "wmp", "demo", "--spark", "--workers", "2", "--files", "600"]
    with subprocess.Popen(
        command,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as ran:
        try:
            next(line for line in ran.stdout if "files for a fleet of" in line)
            assert len(marked(mark)) > 4  # the demo, Java, the device, and workers
            ran.send_signal(number)
            _, stderr = ran.communicate(timeout=200)
        finally:
            ran.kill()

    assert ran.returncode == code, stderr
    assert "nothing is left running" in stderr
    wait_until(lambda: not marked(mark), "all processes have ended")


def marked(mark):
    """Return the processes that have a mark in their environment."""
    rows = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                rows.append(int(entry.name))
        except OSError:
            continue
    return rows


def test_flags_that_exclude_each_other():
    ran = demo("--spark", "--chaos")

    assert ran.returncode == 2
    assert "--spark excludes --chaos" in ran.stderr


def test_wrong_second_and_missing_rows_are_found(tmp_path):
    names = [str(tmp_path / name) for name in "abcd"]
    for name in names:
        Path(name).write_text(f"the file {name}")

    def row(name, words=None):
        right, digest = count(Path(name).read_bytes())
        return Row(file=name, words=words or right, digest=digest, process=1)

    with DemoProcesses() as children:
        show = SparkDemo(children, names, 1, False, None)
    show._compare([row(names[0]), row(names[1]), row(names[1]), row(names[2], words=99)])

    assert [text.partition(": ")[2][:17] for text in show.wrong[:2]] == [
        "a second row came",
        "the result is [99",
    ]
    assert show.wrong[2:] == ["1 row is missing"]
    assert list(show.verdict())[-1] == "2 of 4 results are correct; lost: 1, duplicates: 1"
