"""The table ``summary``: numbers about all journals together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wmp.spark.schema import TABLES

__all__ = ["NUMBERS", "summary"]

_SPAN: Final = "(max(unix_micros({last})) - min(unix_micros({first}))) / 1e6"

NUMBERS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "nodes": {
        "nodes": ("count(*)", "processes that wrote a journal"),
        "managers": ("count_if(kind = 'manager')", "processes that are managers"),
        "workers": ("count_if(kind = 'worker')", "processes that are workers"),
        "devices": ("count_if(kind = 'device')", "processes that are devices"),
        "lines": ("sum(lines)", "lines read"),
        "lines missing": ("sum(missing)", "numbered lines that are missing or could not be read"),
        "without an end": ("count_if(end is null)", "processes that were killed or still run"),
        "seconds": (
            _SPAN.format(first="first", last="last"),
            "seconds from the first line to the last",
        ),
        "clock error": ("max(clock_error)", "µs by which the common clock may be wrong"),
    },
    "missing_nodes": {
        "nodes missing": ("count(*)", "processes without a journal that other journals name"),
    },
    "bad_lines": {"bad lines": ("sum(lines)", "lines that could not be read")},
    "jobs": {
        "jobs": ("count(*)", "jobs submitted"),
        **{
            f"jobs {end}": (f"count_if(end = '{end}')", f"jobs that ended {end}")
            for end in ("ok", "error", "cancelled", "timeout", "lost")
        },
        "jobs open": ("count_if(end is null)", "jobs without a known end"),
        "jobs tried again": ("count_if(attempts > 1)", "jobs with more than one lease"),
        "jobs per second": (
            f"count(ended) / nullif({_SPAN.format(first='submitted', last='ended')}, 0)",
            "jobs that ended in a second, from the first submission to the last end",
        ),
    },
    "attempts": {
        "leases": ("count(granted)", "leases granted"),
        "leases over": ("count(cause)", "leases that ended without a result"),
        "leases handed back": (
            "count_if(cause = 'handed back')",
            "leases that workers handed back before the job began",
        ),
    },
    "wakes": {
        "wakes": ("count(*)", "WAKEs received by workers"),
        "wakes wasted": ("count_if(wasted)", "WAKEs that brought no job"),
    },
    "locks": {
        "locks": ("count(*)", "GIVEs sent"),
        "locks taken": ("count_if(answer = 'TAKE')", "GIVEs answered by TAKE"),
        "locks refused": ("count_if(answer = 'NO')", "GIVEs answered by NO"),
        "locks timed out": ("count_if(answer = 'timeout')", "GIVEs never answered"),
        "jobs late": ("sum(late)", "jobs that came after their lock was closed"),
    },
    "violations": {
        "violations": ("count_if(certain)", "certain violations"),
        "uncertain violations": (
            "count_if(not certain)",
            "possible violations, which may be due to gaps in the journals",
        ),
    },
    "drops": {"drops": ("sum(lines)", "messages ignored, whole or in part")},
}
"""The numbers of each table: the aggregate in SQL and the meaning, by name."""


def summary(tables: Mapping[str, DataFrame]) -> DataFrame:
    """Make the table ``summary`` from the other tables; a number without rows is 0."""
    rows = []
    for table, numbers in NUMBERS.items():
        values = [F.expr(value).cast("double").alias(name) for name, (value, _) in numbers.items()]
        each = [
            F.struct(
                F.lit(name).alias("name"),
                F.coalesce(F.col(f"`{name}`"), F.lit(0.0)).alias("value"),
                F.lit(doc).alias("doc"),
            )
            for name, (_, doc) in numbers.items()
        ]
        one = tables[table].agg(*values)
        rows.append(one.select(F.explode(F.array(*each)).alias("row")).select("row.*"))
    whole = rows[0]
    for part in rows[1:]:
        whole = whole.unionByName(part)
    return whole.select(*(column.name for column in TABLES["summary"].columns))
