"""Declared tables of journals: Spark finds their order and runs independent ones at once.

The transforms are those of ``wmp report``. Times in these tables are on the clocks of their nodes.
Tables that need all lines read the journals through views, and not the growing table. Spark lists
the files of a table once in each run, before the run writes to the table.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from wmp.spark import utilisation
from wmp.spark.attempts import attempts as attempts_of
from wmp.spark.executions import executions as executions_of
from wmp.spark.processes import drops as drops_of

spark = SparkSession.active()


@dp.table(
    comment="each line of the journals once; each run adds the lines written since the last run"
)
def archive() -> DataFrame:
    """Make the stream of all lines."""
    return spark.readStream.format("wmp").load(spark.conf.get("wmp.journal"))


@dp.temporary_view(comment="all lines that the journals have when a run begins")
def events() -> DataFrame:
    """Make events from journals."""
    return spark.read.format("wmp").load(spark.conf.get("wmp.journal"))


@dp.temporary_view(comment="each row is one job in one lane of a worker")
def executions() -> DataFrame:
    """Make executions from events."""
    return executions_of(spark.read.table("events"))


@dp.temporary_view(comment="each row is one lease of a job")
def attempts() -> DataFrame:
    """Make attempts from events and executions."""
    return attempts_of(spark.read.table("events"), spark.read.table("executions"))


@dp.materialized_view(comment="how evenly jobs are shared among workers and among managers")
def fairness() -> DataFrame:
    """Make fairness from events and attempts."""
    return utilisation.fairness(spark.read.table("events"), spark.read.table("attempts"))


@dp.materialized_view(comment="number of leases that ended without a result, by cause")
def requeues() -> DataFrame:
    """Make requeues from attempts."""
    return utilisation.requeues(spark.read.table("attempts"))


@dp.materialized_view(comment="number of ignored messages, by node and reason")
def drops() -> DataFrame:
    """Make drops from events."""
    return drops_of(spark.read.table("events"))
