"""Lets Spark find the format ``wmp``: it looks into the modules whose names begin so."""

from wmp.spark.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
