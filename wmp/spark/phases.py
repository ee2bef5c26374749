"""The time of each phase: samples, percentiles, bars."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from wmp.spark.schema import TABLES

__all__ = ["histogram", "latency", "phases", "split_percentiles", "spread"]

_WHO: Final = ("manager", "manager_epoch", "worker", "worker_epoch", "device")
_SHARES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
_NAMES: Final = ("p50", "p90", "p95", "p99", "p999")


def phases(jobs: DataFrame, attempts: DataFrame, conversations: DataFrame) -> DataFrame:
    """Make the table ``phases`` from the tables ``jobs``, ``attempts`` and ``conversations``."""
    lease = attempts.select(
        "role",
        F.col("owner").alias("manager"),
        F.col("owner_epoch").alias("manager_epoch"),
        "worker",
        "worker_epoch",
        F.element_at("via", -1).alias("device"),
        _samples(
            ("take trip", "received", F.col("take_trip")),
            ("lane wait", "started", F.col("lane_wait")),
            ("handler", "finished", F.col("handler")),
            ("done wait", "done", F.col("done_wait")),
            ("done trip", "accepted", F.col("done_trip")),
            ("lease", "accepted", F.col("lease")),
            ("take to done", "done", _between("received", "done")),
        ).alias("sample"),
    )
    job = jobs.select(
        "role",
        F.col("owner").alias("manager"),
        F.col("owner_epoch").alias("manager_epoch"),
        "worker",
        "worker_epoch",
        F.lit(None).cast("string").alias("device"),
        _samples(
            ("queue wait", "submitted", F.col("queue_wait")),
            ("total", "ended", F.col("total")),
        ).alias("sample"),
    )
    taken, refused = F.col("answer") == "TAKE", F.col("answer") == "NO"
    handshake = conversations.select(
        F.lit(None).cast("string").alias("role"),
        *_WHO,
        _samples(
            ("ready to wake", "woken", _between("ready", "woken")),
            ("wake to give", "given", _between("woken", "given")),
            ("give to take", "answered", F.when(taken, _between("given", "answered"))),
            ("give to no", "answered", F.when(refused, _between("given", "answered"))),
        ).alias("sample"),
    )
    return (
        lease.unionByName(job)
        .unionByName(handshake)
        .select("*", F.explode("sample").alias("one"))
        .where(F.col("one.took").isNotNull())
        .select("one.phase", "role", *_WHO, "one.time", "one.took")
    )


def _between(first: str, last: str) -> Column:
    return F.unix_micros(last) - F.unix_micros(first)


def _samples(*parts: tuple[str, str, Column]) -> Column:
    """Return an array of (phase, time, took); ``took`` is null if one of its ends is unknown."""
    return F.array(
        *(
            F.struct(F.lit(phase).alias("phase"), F.col(time).alias("time"), took.alias("took"))
            for phase, time, took in parts
        )
    )


def _rounded(took: Column) -> Column:
    """Round µs to three digits.

    Percentiles are then exact to a hundredth, and there are few different values.
    """
    unit = F.pow(
        F.lit(10.0), F.greatest(F.floor(F.log10(F.greatest(took, F.lit(1)))) - 2, F.lit(0))
    )
    return (F.floor(took / unit) * unit).cast("bigint")


def spread(value: str, weight: str) -> list[Column]:
    """Return aggregates of counted values: ``count``, ``mean``, percentiles and ``most``.

    The frame must have the columns ``total`` (sum) and ``top`` (greatest) and the two named
    columns.
    """
    shares = ", ".join(map(str, _SHARES))
    percentiles = F.expr(f"percentile({value}, array({shares}), {weight})")
    return [
        F.sum(weight).alias("count"),
        (F.sum("total") / F.sum(weight)).alias("mean"),
        percentiles.alias("percentiles"),
        F.max("top").alias("most"),
    ]


def split_percentiles(frame: DataFrame) -> DataFrame:
    """Replace the column ``percentiles`` by a column for each percentile."""
    for place, name in enumerate(_NAMES):
        frame = frame.withColumn(name, F.col("percentiles")[place].cast("bigint"))
    return frame.drop("percentiles")


def latency(phases: DataFrame) -> DataFrame:
    """Make the table ``latency``."""
    counted = (
        phases.withColumn("hour", F.date_format("time", "yyyy-MM-dd HH:00"))
        .withColumn("value", _rounded(F.col("took")))
        .groupBy("phase", "role", "manager", "worker", "device", "hour", "value")
        .agg(
            F.count("*").alias("samples"),
            F.sum("took").alias("total"),
            F.max("took").alias("top"),
        )
    )
    by = F.array(
        F.struct(F.lit("all").alias("by"), F.lit("").alias("key")),
        *(
            F.struct(F.lit(name).alias("by"), F.col(name).alias("key"))
            for name in ("role", "manager", "worker", "device", "hour")
        ),
    )
    parts = (
        counted.select("phase", "value", "samples", "total", "top", F.explode(by).alias("part"))
        .where(F.col("part.key").isNotNull())
        .groupBy("phase", F.col("part.by").alias("by"), F.col("part.key").alias("key"))
        .agg(*spread("value", "samples"))
    )
    names = [column.name for column in TABLES["latency"].columns]
    return split_percentiles(parts).select(*names)


def histogram(phases: DataFrame) -> DataFrame:
    """Make the table ``histogram``: four bars between a power of two and the next."""
    took = F.greatest(F.col("took"), F.lit(1)).cast("double")
    bar = F.floor(F.log2(took) * 4)
    counted = phases.groupBy("phase", "role", bar.alias("bar")).agg(F.count("*").alias("count"))
    return counted.select(
        "phase",
        "role",
        F.pow(F.lit(2.0), F.col("bar") / 4).alias("low"),
        F.pow(F.lit(2.0), (F.col("bar") + 1) / 4).alias("high"),
        "count",
    )
