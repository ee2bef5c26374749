"""Lets Spark find the format ``wmp``: Spark searches modules with names like ``pyspark_…``."""

from wmp.spark.journals.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
