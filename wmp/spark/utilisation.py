"""Utilisation, fairness, load by role, causes of lost leases, and the cost of devices."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from wmp.message import SENT_BY_MANAGERS, SENT_BY_WORKERS
from wmp.spark.phases import split_percentiles, spread
from wmp.spark.schema import TABLES

__all__ = ["activity", "device_hops", "fairness", "requeues", "stretch", "utilisation"]

_STRETCHES: Final = (0.05, 0.1, 0.25, 1, 5, 15, 60, 300, 900, 3600)
_MOST: Final = 120
_UP: Final = sorted(command.name for command in SENT_BY_WORKERS - SENT_BY_MANAGERS)
"""Commands that only workers send, so that their direction is up."""


def stretch(seconds: float) -> int:
    """Return the length of a stretch in µs, which bounds the number of stretches."""
    fits = (length for length in _STRETCHES if seconds <= length * _MOST)
    return int(next(fits, _STRETCHES[-1]) * 1_000_000)


def _stretch_of(micros: Column, length: int) -> Column:
    return F.timestamp_micros(F.floor(micros / length) * length)


def utilisation(spans: DataFrame, nodes: DataFrame, length: int) -> DataFrame:
    """Make the table ``utilisation`` in stretches of ``length`` µs from the lanes of
    :func:`wmp.spark.checks.lane_spans`.

    A lane without an end counts until its worker's last line.
    """
    known = nodes.where(F.col("kind") == "worker").select(
        "node", "epoch", "clock", "resources",
        F.unix_micros("first").alias("first"), F.unix_micros("last").alias("last"),
    )  # fmt: skip
    lanes = spans.join(F.broadcast(known), ["node", "epoch"])
    begin, end = F.col("at") + F.col("clock"), F.col("last_at") + F.col("clock")
    busy = lanes.select(
        "node", "epoch", begin.alias("begin"), F.coalesce(end, "last").alias("end"),
        F.explode("needs").alias("resource", "amount"),
    )  # fmt: skip
    parts = _cut(busy, length).groupBy("node", "epoch", "resource", "part")
    taken = parts.agg(F.sum(F.col("amount") * F.col("overlap")).alias("busy"))
    lives = _cut(
        known.select(
            "node", "epoch", F.col("first").alias("begin"), F.col("last").alias("end"),
            F.explode("resources").alias("resource", "have"),
        ),
        length,
    )  # fmt: skip
    joined = lives.join(taken, ["node", "epoch", "resource", "part"], "left").withColumn(
        "busy", F.coalesce("busy", F.lit(0).cast("bigint"))
    )
    available = F.col("overlap") * F.col("have")
    return joined.select(
        F.col("node").alias("worker"),
        F.col("epoch").alias("worker_epoch"),
        "resource",
        F.timestamp_micros(F.col("part") * length).alias("time"),
        F.col("overlap").alias("length"),
        "have",
        "busy",
        F.when(available > 0, F.col("busy") / available).alias("share"),
    )


def _cut(spans: DataFrame, length: int) -> DataFrame:
    """Cut spans with ``begin`` and ``end`` in µs at the borders of stretches.

    ``part`` is the number of the stretch, and ``overlap`` the µs that the span has in it.
    """
    first, last = F.floor(F.col("begin") / length), F.floor(F.col("end") / length)
    cut = spans.where(F.col("end") >= F.col("begin")).withColumn(
        "part", F.explode(F.sequence(first, last))
    )
    low = F.greatest(F.col("begin"), F.col("part") * length)
    high = F.least(F.col("end"), (F.col("part") + 1) * length)
    return cut.withColumn("overlap", high - low).drop("begin", "end")


def fairness(events: DataFrame, attempts: DataFrame) -> DataFrame:
    """Make the table ``fairness``.

    Each worker that sent READY or GIVE to a manager takes part, even if it got no job.
    """
    got = attempts.where(F.col("outcome").isin("ok", "error")).groupBy(
        F.col("owner").alias("manager"), F.col("owner_epoch").alias("manager_epoch"), "worker",
        "worker_epoch",
    )  # fmt: skip
    measured = got.agg(F.count("*").alias("jobs"), F.sum("handler").alias("handler"))
    managers = events.where((F.col("what") == "start") & (F.col("kind") == "manager"))
    there = (
        events.where((F.col("what") == "received") & F.col("command").isin("READY", "GIVE"))
        .select(
            F.col("node").alias("manager"), F.col("epoch").alias("manager_epoch"),
            F.col("source").alias("worker"), F.col("source_epoch").alias("worker_epoch"),
        )
        .distinct()
        .join(
            F.broadcast(
                managers.select(
                    F.col("node").alias("manager"), F.col("epoch").alias("manager_epoch")
                ).distinct()
            ),
            ["manager", "manager_epoch"],
            "left_semi",
        )
    )  # fmt: skip
    pair = ["manager", "manager_epoch", "worker", "worker_epoch"]
    none = F.lit(0).cast("bigint")
    shares = there.join(measured, pair, "full_outer").select(
        *pair,
        F.explode(
            F.array(
                F.struct(F.lit("jobs").alias("measure"), F.coalesce("jobs", none).alias("x")),
                F.struct(F.lit("handler").alias("measure"), F.coalesce("handler", none).alias("x")),
            )
        ).alias("share"),
    )
    sides = [
        ("workers of a manager", "manager", "manager_epoch"),
        ("managers of a worker", "worker", "worker_epoch"),
    ]
    tables = []
    for by, node, epoch in sides:
        x = F.col("share.x")
        groups = shares.groupBy(
            F.lit(by).alias("by"), F.col(node).alias("node"), F.col(epoch).alias("epoch"),
            F.col("share.measure").alias("measure"),
        )  # fmt: skip
        square = F.sum(x.cast("double") * x)
        jain = F.when(square > 0, F.sum(x).cast("double") ** 2 / (F.count("*") * square))
        tables.append(
            groups.agg(
                F.count("*").alias("parties"),
                F.min(x).alias("least"),
                F.max(x).alias("most"),
                F.when(F.min(x) > 0, F.max(x) / F.min(x)).alias("max_min"),
                jain.alias("jain"),
            )
        )
    return tables[0].unionByName(tables[1])


def activity(jobs: DataFrame, length: int) -> DataFrame:
    """Make the table ``activity`` in stretches of ``length`` µs."""
    submitted, ended = F.unix_micros("submitted"), F.unix_micros("ended")
    begins = jobs.groupBy("role", _stretch_of(submitted, length).alias("time")).agg(
        F.count("*").alias("submitted")
    )
    over = jobs.where(F.col("ended").isNotNull())
    ends = over.groupBy("role", _stretch_of(ended, length).alias("time")).agg(
        F.count("*").alias("ended"),
        F.count(F.when(F.col("end") != "ok", 1)).alias("failed"),
        F.avg("total").alias("mean_total"),
    )
    none = F.lit(0).cast("bigint")
    counts = [F.coalesce(name, none).alias(name) for name in ("submitted", "ended", "failed")]
    return begins.join(ends, ["role", "time"], "full_outer").select(
        "role", "time", F.lit(length).cast("bigint").alias("length"), *counts, "mean_total"
    )


def requeues(attempts: DataFrame) -> DataFrame:
    """Make the table ``requeues``."""
    over = attempts.where(F.col("cause").isNotNull())
    return over.groupBy("cause", "role", "worker", "worker_epoch").agg(F.count("*").alias("leases"))


def device_hops(links: DataFrame) -> DataFrame:
    """Make the table ``device_hops``: the time from one neighbour of a device to the other."""
    key = ["command", "source", "source_epoch", "target", "target_epoch", "session", "number"]
    into = links.select(
        *key, "hops", F.col("receiver").alias("device"), F.col("receiver_epoch").alias("epoch"),
        "sent",
    )  # fmt: skip
    out = links.where(F.col("hops") > 0).select(
        *key, (F.col("hops") - 1).alias("hops"), F.col("sender").alias("device"),
        F.col("sender_epoch").alias("epoch"), "received",
    )  # fmt: skip
    same = [into[name].eqNullSafe(out[name]) for name in (*key, "hops", "device", "epoch")]
    up = into["command"].isin(*_UP)
    through = into.join(out, same).select(
        into["device"],
        F.when(up, "up").otherwise("down").alias("direction"),
        (F.unix_micros("received") - F.unix_micros("sent")).alias("took"),
    )
    counted = through.groupBy("device", "direction", F.col("took").alias("value")).agg(
        F.count("*").alias("samples"), F.sum("took").alias("total"), F.max("took").alias("top")
    )
    spreads = split_percentiles(
        counted.groupBy("device", "direction").agg(*spread("value", "samples"))
    )
    direct = links.where(F.col("via").isNull()).agg(
        F.percentile_approx("trip", 0.5).cast("bigint").alias("direct")
    )
    names = [column.name for column in TABLES["device_hops"].columns]
    return spreads.crossJoin(F.broadcast(direct)).select(*names)
