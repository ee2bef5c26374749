"""Leases of jobs: granted by a manager, taken, run and answered by a worker."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from wmp.actions import End
from wmp.core.protocol.outbound import Arrival
from wmp.message import ERROR_CODES, ErrorCode, Outcome
from wmp.spark.events import of_jobs
from wmp.spark.executions import outcome_name

__all__ = ["attempts"]

_MARKS = ("granted", "received", "done", "accepted", "lost", "timed")
_LEASE = ("owner", "owner_epoch", "job", "attempt")
_KEY = ("job", "attempt", "owner", "owner_epoch")
"""The key of leases; groups and joins use the same columns.

Spark may sort by the key, so the numbers come first: they differ most.
"""
_NOT_ACCEPTED = (
    "after goodbye",
    "other session",
    *(arrival.value for arrival in Arrival),
    # A manager that refuses one unknown job of a message accepts the other jobs.
    *(code for code in ERROR_CODES if code != ErrorCode.UNKNOWN),
)
"""Reasons for which a manager ignores a whole DONE."""


def attempts(events: DataFrame, executions: DataFrame) -> DataFrame:
    """Make the table ``attempts`` with monotonic times in µs.

    The times ``granted``, ``accepted`` and ``lost`` are of the manager's clock, the others of the
    worker's clock.
    """
    command, what = F.col("command"), F.col("what")
    mine = (F.col("node") == F.col("owner")) & (F.col("epoch") == F.col("owner_epoch"))
    take, done = command == "TAKE", command == "DONE"
    sent, received = what == "send", what == "received"
    heeded = F.coalesce(~F.col("reason").isin(*_NOT_ACCEPTED), F.lit(True))
    # A deadline may end a job while a worker has it. Every other end comes with a message.
    timed = (what == "resolve") & F.array_contains("ends", End.TIMEOUT.value)
    about = (take | done) & (sent | received) | (what == "note") | timed
    lines = (
        events.where(F.col("ids").isNotNull() & about)
        .withColumn("owner_epoch", F.coalesce("owner_epoch", F.col("epoch")))
        .withColumn("owner", F.coalesce("owner", F.col("node")))
    )
    rows = of_jobs(
        lines.select(
            "owner", "owner_epoch", "ids", "attempts", "outcomes", "ends", "n", "at", "role",
            "lock", "via", "reason",
            F.when(take, F.col("target")).otherwise(F.col("source")).alias("worker"),
            F.when(take, F.col("target_epoch")).otherwise(F.col("source_epoch"))
            .alias("worker_epoch"),
            F.when(what == "note", F.when(mine, F.lit("lost")))
            .when(what == "resolve", F.lit("timed"))
            .when(take & sent & mine, F.lit("granted"))
            .when(take & received, F.lit("received"))
            .when(done & sent, F.lit("done"))
            .when(done & received & mine & heeded, F.lit("accepted"))
            .alias("mark"),
        ).where(F.col("mark").isNotNull()),
        "attempts",
        "outcomes",
        "ends",
    ).withColumnRenamed("attempts", "attempt")  # fmt: skip
    # In the end of a job that timed out before its first lease, the attempt is 0.
    timeout = (F.col("ends") == End.TIMEOUT.value) & (F.col("attempt") > 0)
    rows = rows.where((F.col("mark") != "timed") | timeout)

    def first(mark: str, value: Column) -> Column:
        return F.min(F.when(F.col("mark") == mark, value))

    granted = F.struct("n", "worker", "worker_epoch", "role", "lock", "via")
    leases = rows.groupBy(*_KEY).agg(
        first("granted", granted).alias("grant"),
        *(first(mark, F.col("at")).alias(mark) for mark in _MARKS),
        F.coalesce(*(F.min_by("outcomes", F.when(F.col("mark") == mark, F.col("n")))
                     for mark in ("accepted", "done"))).alias("outcome"),
        first("lost", F.col("reason")).alias("noted"),
        F.min("worker").alias("worker"),
        F.min("worker_epoch").alias("worker_epoch"),
    )  # fmt: skip
    runs = executions.groupBy(*_KEY).agg(
        F.min("handed").alias("started"),
        F.min("ended").alias("finished"),
        F.min("lane").alias("lane"),
        F.min("handler").alias("handler"),
        F.min("role").alias("run_role"),
    )
    given_back = {
        Outcome.REFUSED: "refused",
        Outcome.CANCELLED: "handed back",
        Outcome.LOST: "lost at the worker",
    }
    reported = reduce(
        lambda column, pair: column.when(F.col("outcome") == int(pair[0]), F.lit(pair[1])),
        given_back.items(),
        F.when(F.lit(False), F.lit("")),
    )
    over = F.col("accepted").isNotNull() & (F.col("outcome") > int(Outcome.ERROR))
    in_time = F.coalesce(F.col("accepted") <= F.col("timed"), F.lit(True))
    return leases.join(runs, list(_KEY), "left").select(
        *_LEASE,
        F.coalesce("grant.worker", "worker").alias("worker"),
        F.coalesce("grant.worker_epoch", "worker_epoch").alias("worker_epoch"),
        F.coalesce("grant.role", "run_role").alias("role"),
        "grant.lock",
        "grant.via",
        "granted",
        "received",
        "started",
        "finished",
        "done",
        "accepted",
        "lost",
        "lane",
        outcome_name(F.col("outcome")).alias("outcome"),
        F.when(F.col("noted").isNotNull(), F.col("noted"))
        .when(over & in_time, reported)
        .when(F.col("timed").isNotNull(), End.TIMEOUT.value)
        .alias("cause"),
        "handler",
    )
