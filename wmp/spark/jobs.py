"""Jobs: submitted, leased any number of times, ended."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wmp.spark.events import of_jobs

__all__ = ["jobs"]

_JOB = ("owner", "owner_epoch", "job")
_KEY = ("job", "owner", "owner_epoch")
"""The key of jobs; groups and joins use the same columns.

Spark may sort by the key, so the number comes first: it differs most.
"""


def jobs(
    events: DataFrame, attempts: DataFrame, executions: DataFrame, states: DataFrame
) -> DataFrame:
    """Make the table ``jobs`` with times in µs of the manager's monotonic clock.

    Args:
        events: The table ``events``.
        attempts: Leases, from :func:`wmp.spark.attempts.attempts`.
        executions: From :func:`wmp.spark.executions.executions`.
        states: The last state of each job in the table of jobs, from
        :func:`wmp.spark.histories.histories`.
    """
    what = F.col("what")
    lines = events.where(what.isin("submitted", "cancelled", "resolve")).select(
        F.col("node").alias("owner"), F.col("epoch").alias("owner_epoch"), "n", "at", "what",
        "ids", "ends", "role", "needs", "priority", "retries",
    )  # fmt: skip
    rows = of_jobs(lines, "ends")
    columns = ("role", "needs", "priority", "retries", "at")
    end = F.struct("at", "ends")
    known = rows.groupBy(*_KEY).agg(
        F.min_by(F.struct(*columns), F.when(what == "submitted", F.col("n"))).alias("begin"),
        F.min(F.when(what == "cancelled", F.col("at"))).alias("asked"),
        F.min_by(end, F.when(what == "resolve", F.col("n"))).alias("last"),
    )
    leases = attempts.where(F.col("granted").isNotNull()).groupBy(*_KEY).agg(
        F.count("*").alias("attempts"),
        F.count("cause").alias("over"),
        F.min("granted").alias("granted"),
        F.max_by(F.struct("worker", "worker_epoch"), "attempt").alias("holder"),
    )  # fmt: skip
    runs = executions.groupBy(*_KEY).agg(F.count("*").alias("executions"))
    joined = (
        known.where(F.col("begin").isNotNull())
        .join(leases, list(_KEY), "left")
        .join(runs, list(_KEY), "left")
        .join(states, list(_KEY), "left")
    )
    none = F.lit(0).cast("bigint")
    submitted, ended = F.col("begin.at"), F.col("last.at")
    return joined.select(
        *_JOB,
        *(f"begin.{name}" for name in columns[:-1]),
        submitted.alias("submitted"),
        F.when(F.col("asked") <= F.coalesce(ended, "asked"), F.col("asked")).alias("asked"),
        ended.alias("ended"),
        F.col("last.ends").alias("end"),
        "state",
        F.coalesce("attempts", none).alias("attempts"),
        F.coalesce("over", none).alias("over"),
        F.coalesce("executions", none).alias("executions"),
        "holder.worker",
        "holder.worker_epoch",
        (F.col("granted") - submitted).alias("queue_wait"),
        (ended - submitted).alias("total"),
    )
