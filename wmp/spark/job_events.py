"""The events of jobs, one row for each job and event, from the lines of managers and workers."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from wmp.core.protocol.outbound import REFUSALS, Arrival
from wmp.message import ERROR_CODES, Command
from wmp.spark.events import of_jobs

__all__ = ["COLUMNS", "JOB_EVENTS", "REPLACED", "UNHEEDED", "job_events"]

JOB_EVENTS: Final = (
    "owner string, owner_epoch bigint, job bigint, side int, node string, epoch bigint, n bigint, "
    "at bigint, event string, attempt bigint, peer string, peer_epoch bigint, value bigint, "
    "session bigint, number bigint, word string"
)
"""Columns of the events of jobs. ``side`` is 0 for lines of the manager and 1 for lines of workers.

========= ==== ===================== ===================== ==================== ===================
event     side peer                  value                 word                 number
========= ==== ===================== ===================== ==================== ===================
accepted  0                          retries                                    deadline, µs
asked     0
granted   0    the worker                                                       of its TAKE
lost      0    the worker            1: counts; 2: once for
                                     each worker
resolved  0    whose DONE it was                           the end
taken     1    the manager                                                      of its TAKE
run       1    the manager           the lane
finished  1                          the outcome
recalled  1
cancel    1    the manager           1: only unstarted                          of its CANCEL
answered  1    the manager           the outcome           ``REPLACED``, or     of its DONE
                                                           nothing
forgotten 1    the manager
========= ==== ===================== ===================== ==================== ===================

:mod:`wmp.spark.leases` makes ``granted`` and ``lost``, this module the others.
"""
COLUMNS: Final = tuple(column.split()[0] for column in JOB_EVENTS.split(", "))
"""The names of the columns."""

REPLACED: Final = "replaced"
"""The word of an answer that the manager refused later: other DONEs replace its DONE (WMP-7.11)."""

UNHEEDED: Final = (
    *("claimed", "old session", "unknown session"),
    *(a.value for a in Arrival),
    *ERROR_CODES,
)
"""Reasons for which a worker ignores a whole message of a manager."""


def job_events(events: DataFrame, executions: DataFrame) -> DataFrame:
    """Make all events of jobs except those of leases.

    Args:
        events: The table ``events``.
        executions: From :func:`wmp.spark.executions.executions`; it has the owners of the jobs that
        lanes ended.
    """
    what, command = F.col("what"), F.col("command")
    own = what.isin("submitted", "cancelled", "resolve")
    heeded = F.coalesce(~F.col("reason").isin(*UNHEEDED), F.lit(True))
    mine = (F.col("node") == F.col("owner")) & (F.col("epoch") == F.col("owner_epoch"))
    event = (
        F.when(what == "submitted", "accepted")
        .when(what == "cancelled", "asked")
        .when(what == "resolve", "resolved")
        .when((what == "received") & (command == "TAKE") & heeded, "taken")
        .when((what == "received") & (command == "CANCEL") & heeded, "cancel")
        .when((what == "send") & (command == "DONE"), "answered")
        .when((what == "note") & F.col("owner").isNotNull(), "forgotten")
        .when(what == "run", "run")
    )
    lines = events.where(F.col("ids").isNotNull() & ~F.coalesce(mine, F.lit(False))).select(
        F.when(own, F.col("node")).otherwise(F.col("owner")).alias("owner"),
        F.when(own, F.col("epoch")).otherwise(F.col("owner_epoch")).alias("owner_epoch"),
        F.when(own, 0).otherwise(1).alias("side"),
        "node", "epoch", "n", "at",
        event.alias("event"),
        F.coalesce(
            F.when(command.isin("TAKE", "CANCEL") | (what == "resolve"), F.col("source")),
            F.when(command == "DONE", F.col("target")),
            F.col("about_peer"),
        ).alias("peer"),
        F.coalesce(
            F.when(command.isin("TAKE", "CANCEL") | (what == "resolve"), F.col("source_epoch")),
            F.when(command == "DONE", F.col("target_epoch")),
            F.col("about_epoch"),
        ).alias("peer_epoch"),
        F.coalesce("retries", "lane", F.col("unstarted").cast("bigint")).alias("value"),
        "session",
        F.coalesce("number", F.col("at") + _earliest_timeout()).alias("number"),
        "ids", "attempts", "outcomes", "ends",
    ).where(F.col("event").isNotNull())  # fmt: skip
    rows = of_jobs(_replaced(lines, events), "attempts", "outcomes", "ends")
    from_lines = rows.select(
        *COLUMNS[:9],
        F.col("attempts").alias("attempt"),
        "peer",
        "peer_epoch",
        F.coalesce("outcomes", "value").alias("value"),
        "session",
        "number",
        F.coalesce("ends", "replaced").alias("word"),
    )
    return from_lines.unionByName(_ends(events, executions))


def _replaced(lines: DataFrame, events: DataFrame) -> DataFrame:
    """Add a column ``replaced``: ``REPLACED`` for a DONE before the last ERROR that refused it.

    The ERROR names the session and the number of the DONE. A device names the manager as well.
    """
    key = ["event", "node", "epoch", "peer", "peer_epoch", "session", "number"]
    refusals = (
        events.where((F.col("what") == "received") & (F.col("command") == Command.ERROR.name))
        .where(F.col("code").isin(*sorted(REFUSALS)) & (F.col("about") == Command.DONE.name))
        .select(
            F.lit("answered").alias("event"),
            "node",
            "epoch",
            F.coalesce("about_peer", "source").alias("peer"),
            F.coalesce("about_epoch", "source_epoch").alias("peer_epoch"),
            "session",
            F.col("about_number").alias("number"),
            "n",
        )
        .groupBy(*key)
        .agg(F.max("n").alias("refused"))
    )
    replaced = F.when(F.col("n") < F.col("refused"), REPLACED)
    joined = lines.join(F.broadcast(refusals), key, "left")
    return joined.withColumn("replaced", replaced).drop("refused")


def _earliest_timeout() -> Column:
    """Return the µs after which submitted jobs may time out.

    Times count from the start time. An attempt that exceeds a run limit may end a job at any time.
    """
    begin = F.coalesce("delay", F.lit(0))
    bound = F.least("timeout", "expires_in")
    return begin + F.when(F.col("run_limit").isNotNull(), 0).otherwise(bound)


def _ends(events: DataFrame, executions: DataFrame) -> DataFrame:
    """Return the ends of jobs in lanes.

    The lines about ends do not name the owner of the jobs. The line ``run`` of the lane names it.
    """
    key = ["node", "epoch", "lane", "job"]
    lines = events.where(F.col("what").isin("finished", "recalled")).select(
        "node", "epoch", "lane", "n", "at", F.col("what").alias("event"), "ids", "outcomes"
    )
    run = executions.select(
        F.col("worker").alias("node"), F.col("worker_epoch").alias("epoch"), "lane", "job",
        "owner", "owner_epoch", "attempt",
    )  # fmt: skip
    nothing = F.lit(None)
    return of_jobs(lines, "outcomes").join(run, key).select(
        "owner", "owner_epoch", "job", F.lit(1).alias("side"), "node", "epoch", "n", "at", "event",
        "attempt", nothing.cast("string").alias("peer"), nothing.cast("bigint").alias("peer_epoch"),
        F.col("outcomes").alias("value"), nothing.cast("bigint").alias("session"),
        nothing.cast("bigint").alias("number"), nothing.cast("string").alias("word"),
    )  # fmt: skip
