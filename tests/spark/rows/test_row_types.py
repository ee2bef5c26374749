"""Every type of Spark SQL through workers and back (specs/rows.md, section 5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wmp
from tests.spark.rows.typed_rows import COLUMNS, PLAIN_ROW, SCHEMA, ZONES, as_texts, typed_rows
from wmp.errors import ConfigError
from wmp.spark import map_rows

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def above():
    with wmp.Device(bind="tcp://127.0.0.1:*", bind_managers="tcp://127.0.0.1:*") as device:
        command = [sys.executable, "-m", "wmp", "worker", "served_rows:HANDLERS"]
        environment = {**os.environ, "PYTHONPATH": f"{HERE.parents[2]}{os.pathsep}{HERE}"}
        worker = subprocess.Popen([*command, "--connect", *device.endpoints], env=environment)
        yield device.manager_endpoints[0]
        worker.kill()
        worker.wait()


@pytest.fixture(params=ZONES)
def zone(spark, request):
    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield request.param
    spark.conf.set(name, before)


@pytest.mark.rule("ROWS-5.1")
def test_every_type_returns_with_its_values(spark, above, zone):
    rows = typed_rows(spark)

    mapped = map_rows(rows, role="same batch", schema=SCHEMA, through=above, rows_per_job=4)

    assert as_texts(mapped) == as_texts(rows)


@pytest.mark.rule("ROWS-5.1")
def test_every_type_that_a_dictionary_may_hold_returns(spark, above, zone):
    rows = typed_rows(spark).select("id", *PLAIN_ROW)
    kinds = dict(COLUMNS)
    schema = "id long, " + ", ".join(f"{name} {kinds[name]}" for name in PLAIN_ROW)

    mapped = map_rows(rows, role="same row", schema=schema, through=above, rows_per_job=4)

    assert as_texts(mapped) == as_texts(rows)


@pytest.mark.rule("ROWS-5.1")
@pytest.mark.parametrize("kind", ["interval year to month", "array<interval year to month>"])
def test_a_type_without_a_type_of_arrow_is_named(spark, kind):
    with pytest.raises(ConfigError, match=r"column 'm' .*interval year to month.*another type"):
        map_rows(spark.range(1), role="x", schema=f"id long, m {kind}", through="tcp://127.0.0.1:9")
