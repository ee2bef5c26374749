"""Declared tables of journals: Spark finds their order and runs independent ones at once.

The transforms are those of ``wmp report``. Times in these tables are on the clocks of their nodes.
Tables of all lines read views of the journals, and not the growing table: Spark lists the files of
a table once a run, before that run has written to it.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from wmp.spark import utilisation
from wmp.spark.attempts import attempts as attempts_of
from wmp.spark.executions import executions as executions_of
from wmp.spark.processes import drops as drops_of

spark = SparkSession.active()


@dp.table(comment="every line, once; a run adds the lines since the run before")
def archive() -> DataFrame:
    """Make the stream of all lines."""
    return spark.readStream.format("wmp").load(spark.conf.get("wmp.journal"))


@dp.temporary_view(comment="the lines that are there now")
def events() -> DataFrame:
    """Make events from journals."""
    return spark.read.format("wmp").load(spark.conf.get("wmp.journal"))


@dp.temporary_view(comment="a job in a lane of a worker")
def executions() -> DataFrame:
    """Make executions from events."""
    return executions_of(spark.read.table("events"))


@dp.temporary_view(comment="a lease of a job")
def attempts() -> DataFrame:
    """Make attempts from events and executions."""
    return attempts_of(spark.read.table("events"), spark.read.table("executions"))


@dp.materialized_view(comment="the shares of workers and managers in jobs")
def fairness() -> DataFrame:
    """Make fairness from events and attempts."""
    return utilisation.fairness(spark.read.table("events"), spark.read.table("attempts"))


@dp.materialized_view(comment="causes of leases that ended without a result")
def requeues() -> DataFrame:
    """Make requeues from attempts."""
    return utilisation.requeues(spark.read.table("attempts"))


@dp.materialized_view(comment="ignored messages, with the reason")
def drops() -> DataFrame:
    """Make drops from events."""
    return drops_of(spark.read.table("events"))
