"""One Spark session for all tests here. Without the extra they are skipped, or fail in CI."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

REQUIRED = os.environ.get("WMP_REQUIRE_SPARK", "") not in ("", "0")
MISSING = [n for n in ("pyspark", "pandas", "pyarrow") if importlib.util.find_spec(n) is None]
HERE = Path(__file__).parent

CONFS = {
    # With the compiler C1 alone the start takes half of the time. No test runs long enough to gain
    # from C2.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:ReservedCodeCacheSize=160m",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


class Absent(pytest.Module):
    """Tests that cannot run, with the reason."""

    def collect(self):
        reason = f"{' and '.join(MISSING)} not installed; run: pip install -e '.[test,spark]'"
        if REQUIRED:
            raise self.CollectError(f"WMP_REQUIRE_SPARK is set, and {reason}")
        pytest.skip(reason, allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    return Absent.from_parent(parent, path=module_path) if MISSING else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/spark/"):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(900))  # a fixture may run a whole pipeline


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: object) -> Iterator[None]:
    """Turn a skip into a failure where Spark is required."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if (
        REQUIRED
        and report.skipped
        and HERE in item.path.parents
        and not hasattr(report, "wasxfail")
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped, which WMP_REQUIRE_SPARK forbids: {report.longrepr}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from wmp.spark.session.session import start_session

    where = tmp_path_factory.mktemp("spark")
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(name, None)
    confs = {
        **CONFS,
        "spark.sql.warehouse.dir": str(where / "warehouse"),
        "spark.local.dir": str(where),
    }
    session = start_session("local[4]", confs=confs, name="tests")
    yield session
    session.stop()
