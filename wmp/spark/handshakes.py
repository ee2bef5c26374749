"""Handshakes: the WAKE that a GIVE answers, the jobs that followed, and the time of each part."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["conversations", "turns", "wakes"]

_PAIR = ("worker", "worker_epoch", "manager", "manager_epoch")


def turns(events: DataFrame) -> DataFrame:
    """Cut the WAKE, GIVE and READY lines of each pair into turns; a turn ends with a GIVE.

    The turn of a line is the number of GIVEs before the line. ``ready`` is the time of the worker's
    last READY before the line, to any manager.
    """
    what, command = F.col("what"), F.col("command")
    own = (F.col("source") == F.col("node")) & (F.col("source_epoch") == F.col("epoch"))
    give = (what == "send") & (command == "GIVE") & (F.col("want") > 0) & own
    ready = (what == "send") & (command == "READY") & own
    wake = (what == "received") & (command == "WAKE") & (F.col("target") == F.col("node"))
    lines = events.where(give | ready | wake).select(
        F.col("node").alias("worker"),
        F.col("epoch").alias("worker_epoch"),
        F.when(wake, F.col("source")).otherwise(F.col("target")).alias("manager"),
        F.when(wake, F.col("source_epoch")).otherwise(F.col("target_epoch")).alias("manager_epoch"),
        "n", "at", "command", "role", "count", "lock",
        F.col("via")[0].alias("device"),
    )  # fmt: skip
    process = Window.partitionBy("worker", "worker_epoch").orderBy("n")
    last_ready = F.last(F.when(F.col("command") == "READY", F.col("at")), ignorenulls=True)
    timed = lines.withColumn("ready", last_ready.over(process)).where(F.col("manager").isNotNull())
    before = Window.partitionBy(*_PAIR).orderBy("n").rowsBetween(Window.unboundedPreceding, -1)
    gives = F.count(F.when(F.col("command") == "GIVE", 1))
    return timed.withColumn("turn", gives.over(before))


def wakes(turns: DataFrame, locks: DataFrame) -> DataFrame:
    """Make the table ``wakes`` with times of the worker's clock.

    A GIVE answers the last WAKE of its turn.
    """
    turn = Window.partitionBy(*_PAIR, "turn")
    wake = F.col("command") == "WAKE"
    following = F.lead("command").over(Window.partitionBy(*_PAIR).orderBy("n"))
    jobs = locks.select("worker", "worker_epoch", "lock", "jobs")
    answers = (
        turns.withColumn("last_wake", F.max(F.when(wake, F.col("n"))).over(turn))
        .withColumn("given", F.max(F.when(F.col("command") == "GIVE", F.col("lock"))).over(turn))
        .withColumn("following", following)
        .where(wake)
        .withColumn("lock", F.when(F.col("n") == F.col("last_wake"), F.col("given")))
        .join(jobs, ["worker", "worker_epoch", "lock"], "left")
    )
    return answers.select(
        *_PAIR,
        "role",
        "count",
        F.col("at").alias("received"),
        F.when(F.col("lock").isNotNull(), "GIVE")
        .when(F.col("following") == "READY", "READY")
        .alias("answer"),
        "lock",
        F.coalesce("jobs", F.lit(0).cast("bigint")).alias("jobs"),
        (F.coalesce("jobs", F.lit(0)) == 0).alias("wasted"),
    )


def conversations(turns: DataFrame, locks: DataFrame, attempts: DataFrame) -> DataFrame:
    """Make the table ``conversations``, with times of the worker's clock."""
    so_far = Window.partitionBy(*_PAIR, "turn").orderBy("n")
    woken = F.last(F.when(F.col("command") == "WAKE", F.struct("at", "ready")), ignorenulls=True)
    gives = turns.withColumn("woken", woken.over(so_far)).where(F.col("command") == "GIVE")
    begun = gives.select("worker", "worker_epoch", "lock", "woken.at", "woken.ready", "device")
    done = attempts.where(F.col("lock").isNotNull()).groupBy("worker", "worker_epoch", "lock")
    ends = done.agg(F.max("done").alias("done"))
    key = ["worker", "worker_epoch", "lock"]
    return (
        locks.join(begun, key, "left")
        .join(ends, key, "left")
        .select(
            *_PAIR,
            "lock",
            "ready",
            F.col("at").alias("woken"),
            "given",
            "answered",
            "done",
            "answer",
            "jobs",
            "device",
        )
    )
