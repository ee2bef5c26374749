"""The table of violations, and the story of each violation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from wmp.spark.schema import TABLES
from wmp.testing.invariants import INVARIANTS

__all__ = ["FINDINGS", "violation_events", "violations"]

FINDINGS: Final[Mapping[str, str]] = {
    **{
        name: INVARIANTS[name]
        for name in (
            "every job ends",
            "one end for each job",
            "executions",
            "leases are lost for a cause",
            "no stale result",
            "cancelled stays cancelled",
            "retries are kept",
            "ends have a cause",
            "no double booking",
            "one process for each identity",
        )
    },
    "WMP-3.2": "every READY with new content has a greater number than the one before",
    "WMP-3.4": "a WAKE asks for no more jobs than the remembered credit",
    "WMP-4.1": "a lock number is greater than every earlier one of its epoch",
    "WMP-4.6": "a TAKE has a role of the GIVE and no more jobs than the GIVE still wants",
    "WMP-4.13": "a TAKE or NO names a lock for which a GIVE was sent",
    "WMP-6.1": "every step of a job is in the manager's table of jobs",
    "WMP-6.6": "each job of a TAKE is answered by exactly one entry of DONE",
    "WMP-7.1": "the numbers of a stream start at 1 in a session and grow by 1",
}
"""Text of the invariant or rule, by the name of the finding."""


def violations(found: DataFrame, nodes: DataFrame) -> DataFrame:
    """Make the table ``violations``.

    Args:
        found: The rows of :mod:`histories <wmp.spark.histories>`, :mod:`locks <wmp.spark.locks>`
        and :mod:`checks <wmp.spark.checks>`.
        nodes: The table ``nodes``.
    """
    broken = found.where(F.col("kind") == "violation")
    process = F.explode(
        F.array_distinct(
            F.concat(
                F.transform("lines", lambda line: F.struct(line["node"], line["epoch"])),
                F.array(
                    F.struct(F.col("owner").alias("node"), F.col("owner_epoch").alias("epoch")),
                    F.struct(F.col("worker").alias("node"), F.col("worker_epoch").alias("epoch")),
                ),
            )
        )
    )
    key = F.sha2(
        F.concat_ws(
            "|", "name", "node", F.col("epoch").cast("string"), F.col("n").cast("string"),
            "owner", F.col("owner_epoch").cast("string"), F.col("job").cast("string"), "detail",
        ),
        256,
    ).substr(1, 12)  # fmt: skip
    keyed = broken.withColumn("violation", key).dropDuplicates(["violation"])
    # A `start` has no number and is not counted as missing. Without it the kind of the node is
    # unknown.
    has_all = (F.col("missing") == 0) & F.col("kind").isNotNull()
    whole = nodes.select("node", "epoch", has_all.alias("whole"))
    concerned = (
        keyed.select("violation", process.alias("process"))
        .where(F.col("process.node").isNotNull())
        .select("violation", "process.node", "process.epoch")
        .join(F.broadcast(whole), ["node", "epoch"], "left")
        .groupBy("violation")
        .agg(F.min(F.coalesce("whole", F.lit(False))).alias("certain"))
    )
    texts = F.create_map(*(F.lit(part) for pair in FINDINGS.items() for part in pair))
    clock = nodes.select("node", "epoch", "clock")
    return (
        keyed.join(F.broadcast(clock), ["node", "epoch"], "left")
        .join(concerned, "violation", "left")
        .withColumn("text", texts[F.col("name")])
        .withColumn("certain", F.coalesce("certain", F.lit(True)))
        .withColumn("time", F.timestamp_micros(F.col("at") + F.col("clock")))
        .withColumnRenamed("lines", "events")
        .select(*(column.name for column in TABLES["violations"].columns))
    )


def violation_events(violations: DataFrame, events: DataFrame, nodes: DataFrame) -> DataFrame:
    """Make the table ``violation_events``: the lines of each violation in the order of time.

    Lines of one node keep their order even if the clocks disagree.
    """
    wanted = violations.select("violation", F.explode("events").alias("line")).select(
        "violation", "line.node", "line.epoch", "line.n"
    )
    clock = nodes.select("node", "epoch", "clock")
    shown = ("number", "session", "ready", "lock", "want", "count", "ends", "outcomes", "reason")
    rest = F.concat_ws(
        " ",
        *(
            F.when(F.col(name).isNotNull(), F.concat(F.lit(f"{name}="), F.col(name).cast("string")))
            for name in shown
        ),
        "text",
    )
    order = Window.partitionBy("violation").orderBy("time", "node", "epoch", "n")
    return (
        events.join(F.broadcast(wanted), ["node", "epoch", "n"])
        .join(F.broadcast(clock), ["node", "epoch"])
        .withColumn("time", F.timestamp_micros(F.col("at") + F.col("clock")))
        .withColumn("text", rest)
        .withColumn("place", F.row_number().over(order).cast("bigint"))
        .select(*(column.name for column in TABLES["violation_events"].columns))
    )
