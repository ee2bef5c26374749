"""Rows with every type of Spark SQL that may be a result, for classic sessions and for Connect."""

from __future__ import annotations

from typing import Any

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
    "interval hour to minute": "cast(make_dt_interval(0, id, id, 0) as interval hour to minute)",
    "void": "null",
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
"""The columns that a dictionary of one row may hold."""
ZONES = ("UTC", "Europe/Berlin", "America/Los_Angeles")


def typed_rows(spark: Any) -> Any:
    """Return rows with every type; every third value is null."""
    values = [
        f"if(id % 3 = {number % 3}, null, {text}) as {name}"
        for number, ((name, _), text) in enumerate(zip(COLUMNS, TYPES.values(), strict=True))
    ]
    return spark.range(ROWS).selectExpr("id", *values)


def as_texts(df: Any) -> list[str]:
    """Return the rows as JSON by Spark's own functions, which take every type."""
    return sorted(row[0] for row in df.selectExpr("to_json(struct(*))").collect())
