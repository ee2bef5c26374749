"""Every type of Spark SQL through workers and back (specs/rows.md, section 5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wmp
from wmp.errors import ConfigError
from wmp.spark import map_rows

HERE = Path(__file__).parent

# Each type with an expression of it. The times are near the hours that Berlin skips and repeats.
TYPES = {
    "boolean": "id % 2 = 0",
    "tinyint": "cast(id as tinyint)",
    "smallint": "cast(id as smallint)",
    "int": "cast(id as int)",
    "float": "cast(id / 3 as float)",
    "double": "id / 3",
    "decimal(38,3)": "cast(id / 7 as decimal(38,3))",
    "string": "repeat('ü', cast(id as int))",
    "string collate UTF8_LCASE": "cast(id as string) collate UTF8_LCASE",
    "char(4)": "'abcd'",
    "varchar(9)": "cast(id as string)",
    "binary": "cast(cast(id as string) as binary)",
    "date": "date_add(date'1900-01-01', cast(id as int))",
    "timestamp": "timestamp'2026-03-29 00:30:00' + make_interval(0,0,0,0,0,id * 17)",
    "timestamp_ntz": "timestamp_ntz'2026-10-25 00:30:00' + make_interval(0,0,0,0,0,id * 17)",
    "interval day to second": "make_dt_interval(id, id, id, 1.5)",
    "variant": "parse_json(concat('{\"a\":[', id, ',null]}'))",
    "array<timestamp>": "array(timestamp'2026-10-25 02:30:00', null)",
    "map<string,timestamp>": "map('x', timestamp'2026-10-25 02:30:00')",
    "struct<a:array<struct<t:timestamp,v:varchar(3)>>,d:decimal(5,2)>": (
        "named_struct('a', array(named_struct('t', timestamp'1969-12-31 23:59:59.999999', "
        "'v', 'abc')), 'd', cast(1.25 as decimal(5,2)))"
    ),
}
ROWS = 11
COLUMNS = [(f"c{number}", kind) for number, kind in enumerate(TYPES)]
SCHEMA = "id long, " + ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
PLAIN_ROW = [name for name, kind in COLUMNS if kind not in ("variant", "map<string,timestamp>")]


@pytest.fixture(scope="module")
def above():
    with wmp.Device(bind="tcp://127.0.0.1:*", bind_managers="tcp://127.0.0.1:*") as device:
        command = [sys.executable, "-m", "wmp", "worker", "served_rows:HANDLERS"]
        environment = {**os.environ, "PYTHONPATH": f"{HERE.parents[2]}{os.pathsep}{HERE}"}
        worker = subprocess.Popen([*command, "--connect", *device.endpoints], env=environment)
        yield device.manager_endpoints[0]
        worker.kill()
        worker.wait()


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/Los_Angeles"])
def zone(spark, request):
    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield request.param
    spark.conf.set(name, before)


def typed_rows(spark):
    """Return rows with every type; every third value is null."""
    values = [
        f"if(id % 3 = {number % 3}, null, {text}) as {name}"
        for number, ((name, _), text) in enumerate(zip(COLUMNS, TYPES.values(), strict=True))
    ]
    return spark.range(ROWS).selectExpr("id", *values)


def as_texts(df):
    """Return the rows as JSON by Spark's own functions, which take every type."""
    return sorted(row[0] for row in df.selectExpr("to_json(struct(*))").collect())


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
