"""Jobs in the lanes of workers: from ``run`` to ``finished``, with the begin of each job."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from wmp.message import Outcome
from wmp.spark.events import of_jobs

__all__ = ["executions", "outcome_name"]

_LANE = ("node", "epoch", "lane")


def outcome_name(number: Column) -> Column:
    """Return an outcome as the word of the specification, in lower case."""
    names = F.array(*(F.lit(outcome.name.lower()) for outcome in Outcome))
    return F.get(names, number.cast("int"))


def executions(events: DataFrame) -> DataFrame:
    """Make the table ``executions``, with monotonic times: ``handed``, ``began``, ``ended`` in µs.

    A lane does one job after the other, and may report several ends at once. The jobs that a lane
    reports together share the time since its last report evenly.
    """
    lines = events.where(F.col("what").isin("run", "finished", "recalled")).select(
        *_LANE, "n", "at", "what", "ids", "attempts", "owner", "owner_epoch", "role", "needs",
        "outcomes",
    )  # fmt: skip
    run = F.col("what") == "run"
    # The time of a line, unless the line recalls jobs: such jobs never began. ``since`` is the last
    # such time of the lane before the line.
    word = F.when(F.col("what") != "recalled", F.col("at"))
    before = Window.partitionBy(*_LANE).orderBy("n").rowsBetween(Window.unboundedPreceding, -1)
    known = lines.withColumn("since", F.last(word, ignorenulls=True).over(before)).withColumn(
        "size", F.size("ids")
    )
    rows = of_jobs(known, "attempts", "outcomes")
    share = (F.col("at") - F.col("since")) / F.col("size")
    ended = F.when(F.col("what") == "recalled", F.lit("recalled")).otherwise(
        outcome_name(F.col("outcomes"))
    )
    rows = rows.select(
        *_LANE, "job", "n",
        *(F.when(run, F.col(name)).alias(name) for name in
          ("owner", "owner_epoch", "attempts", "role", "needs")),
        F.when(run, F.col("at")).alias("handed"),
        F.when(F.col("what") == "finished", F.floor(F.col("since") + share * F.col("place")))
        .alias("began"),
        F.when(~run, F.col("at")).alias("ended"),
        F.when(F.col("what") == "finished", share).alias("handler"),
        F.when(~run, ended).alias("outcome"),
    )  # fmt: skip
    columns = ("owner", "owner_epoch", "attempts", "role", "needs")
    start = F.min_by(F.struct(*columns, "handed"), F.when(F.col("handed").isNotNull(), F.col("n")))
    stop = F.min_by(
        F.struct("began", "ended", "handler", "outcome"),
        F.when(F.col("ended").isNotNull(), F.col("n")),
    )
    # Spark sorts by this key, so numbers come first.
    groups = rows.groupBy("job", "lane", "node", "epoch")
    found = groups.agg(start.alias("start"), stop.alias("stop"))
    return found.where(F.col("start.owner").isNotNull()).select(
        F.col("node").alias("worker"),
        F.col("epoch").alias("worker_epoch"),
        "lane",
        "start.owner",
        "start.owner_epoch",
        "job",
        F.col("start.attempts").alias("attempt"),
        "start.role",
        "start.needs",
        "start.handed",
        F.coalesce("stop.began", F.when(F.col("stop.ended").isNull(), F.col("start.handed")))
        .alias("began"),
        F.when(F.coalesce("stop.outcome", F.lit("")) != "recalled", F.col("stop.ended"))
        .alias("ended"),
        "stop.outcome",
        F.floor("stop.handler").alias("handler"),
    )  # fmt: skip
