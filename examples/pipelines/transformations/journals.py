"""Tables of journals, declared: Spark finds out in which order, and what is new.

The transforms are those of ``wmp report``. Times in these tables are on the clocks of their nodes.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from wmp.spark import shares
from wmp.spark.attempts import attempts as attempts_of
from wmp.spark.events import events as events_of
from wmp.spark.events import parse
from wmp.spark.executions import executions as executions_of
from wmp.spark.processes import drops as drops_of

spark = SparkSession.active()


@dp.table(comment="each line of the journals, once; a run reads what came since the one before")
def lines() -> DataFrame:
    """A stream."""
    stream = spark.readStream.format("wmp").option("lines", "true")
    return stream.load(spark.conf.get("wmp.journal"))


@dp.materialized_view(comment="lines, by their columns")
def events() -> DataFrame:
    """Of lines."""
    return events_of(parse(spark.read.table("lines")))


@dp.materialized_view(comment="a job in a lane of a worker")
def executions() -> DataFrame:
    """Of events."""
    return executions_of(spark.read.table("events"))


@dp.materialized_view(comment="a lease of a job")
def attempts() -> DataFrame:
    """Of events and executions."""
    return attempts_of(spark.read.table("events"), spark.read.table("executions"))


@dp.materialized_view(comment="who got how much of whom")
def fairness() -> DataFrame:
    """Of events and attempts."""
    return shares.fairness(spark.read.table("events"), spark.read.table("attempts"))


@dp.materialized_view(comment="why leases were over without a result")
def requeues() -> DataFrame:
    """Of attempts."""
    return shares.requeues(spark.read.table("attempts"))


@dp.materialized_view(comment="messages that were ignored, and why")
def drops() -> DataFrame:
    """Of events."""
    return drops_of(spark.read.table("events"))
