"""The processes that wrote journals, the processes without a journal, and the missing lines."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wmp.spark.clocks import Clock

__all__ = ["drops", "missing_nodes", "nodes", "processes"]


def processes(events: DataFrame) -> DataFrame:
    """Make the table ``nodes`` without the common clock.

    ``first`` and ``last`` are values of ``at``; ``wall`` is the wall clock minus ``at``.
    """
    start = F.col("what") == "start"
    counted = events.groupBy("node", "epoch").agg(
        F.count(F.when(start, 1)).alias("segments"),
        F.count("*").alias("lines"),
        (F.max("n") - F.count(F.when(F.col("n") > 0, 1))).alias("missing"),
        F.min("at").alias("first"),
        F.max("at").alias("last"),
        # A wall clock may be set at any time, so the median of the lines counts.
        F.expr("percentile_approx(wall - at, 0.5, 100)").alias("wall"),
        F.count(F.when(F.col("what") == "stop", 1)).alias("stops"),
        F.count(F.when(F.col("what") == "closed", 1)).alias("closes"),
        F.count(F.when(F.col("what") == "halt", 1)).alias("halts"),
        F.max(F.when(F.col("what") == "halt", F.col("reason"))).alias("reason"),
    )
    columns = ("kind", "label", "host", "pid", "release", "roles", "resources", "settings")
    first = events.where(start).groupBy("node", "epoch")
    begun = first.agg(F.min_by(F.struct(*columns), "segment").alias("start"))
    end = (
        F.when((F.col("halts") > 0) & F.col("reason").isNotNull(), "halt")
        .when(F.col("closes") > 0, "close")
        .when((F.col("stops") > 0) | (F.col("halts") > 0), "stop")
    )
    return counted.join(begun, ["node", "epoch"], "left").select(
        "node",
        "epoch",
        *(f"start.{name}" for name in columns),
        "segments",
        "lines",
        "missing",
        "first",
        "last",
        "wall",
        end.alias("end"),
        "reason",
    )


def nodes(
    spark: SparkSession, processes: DataFrame, clocks: Mapping[tuple[str, int], Clock]
) -> DataFrame:
    """Make the table ``nodes``."""
    rows = [(node, epoch, c.clock, c.error) for (node, epoch), c in clocks.items()]
    known = spark.createDataFrame(
        rows, "node string, epoch bigint, clock bigint, clock_error bigint"
    )
    joined = processes.join(F.broadcast(known), ["node", "epoch"])
    for name in ("first", "last"):
        joined = joined.withColumn(name, F.timestamp_micros(F.col(name) + F.col("clock")))
    return joined.drop("wall")


def missing_nodes(events: DataFrame, processes: DataFrame) -> DataFrame:
    """Make the table ``missing_nodes``."""
    end = F.explode(
        F.array(
            F.struct(F.col("source").alias("node"), F.col("source_epoch").alias("epoch")),
            F.struct(F.col("target").alias("node"), F.col("target_epoch").alias("epoch")),
        )
    )
    return (
        events.where(F.col("command").isNotNull())
        .select(end.alias("end"))
        .select("end.node", "end.epoch")
        .where(F.col("node").isNotNull() & F.col("epoch").isNotNull())
        .groupBy("node", "epoch")
        .agg(F.count("*").alias("messages"))
        .join(F.broadcast(processes.select("node", "epoch")), ["node", "epoch"], "left_anti")
    )


def drops(events: DataFrame) -> DataFrame:
    """Make the table ``drops``."""
    received = F.col("what").isin("received", "undelivered", "garbled", "drop")
    return (
        events.where(received & F.col("reason").isNotNull())
        .groupBy("node", "epoch", "reason")
        .agg(F.count("*").alias("lines"))
    )
