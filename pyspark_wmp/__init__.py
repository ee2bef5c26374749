"""Lets Spark find the format ``wmp``: Spark searches modules with names like ``pyspark_…``."""

from wmp.spark.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
