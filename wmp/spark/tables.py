"""Writing tables and reading them again: the one place where the pipeline keeps what it made."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from attrs import frozen
from pyspark.sql import DataFrame, SparkSession

from wmp.spark.schema import TABLES

__all__ = ["Tables"]

_DISTINCT: Final = ("n", "step", "at", "wall", "sent_n", "sent_at", "received_n", "received_at")
"""Columns in which nearly every value is another: a dictionary of them only costs."""


@frozen
class Tables:
    """Parquet tables in a directory, or below a URL that Spark knows.

    Names that begin with ``_`` are of steps in between; they have no promised columns.
    """

    spark: SparkSession
    where: str

    def path(self, name: str) -> str:
        """Where a table is."""
        return f"{self.where.rstrip('/')}/{name}"

    def write(self, name: str, frame: DataFrame) -> DataFrame:
        """Write a table, in place of an older one, and read it back.

        A table with promised columns gets just those, in their order.

        Args:
            name: Of the table.
            frame: What is in it.

        Returns:
            The table as it is on disk: what comes after is not computed from the beginning.
        """
        if not name.startswith("_"):
            columns = TABLES[name].columns
            frame = frame.select(*(frame[c.name].cast(c.type).alias(c.name) for c in columns))
        writer = frame.write.mode("overwrite")
        for column in _DISTINCT:
            writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
        writer.parquet(self.path(name))
        # Its schema is known: nobody has to open a file to see it.
        return self.spark.read.schema(frame.schema).parquet(self.path(name))

    def read(self, name: str) -> DataFrame:
        """A table that was written.

        Raises:
            AnalysisException: It is not there.
        """
        return self.spark.read.parquet(self.path(name))

    def local(self) -> Path | None:
        """The directory, when it is one of this machine."""
        return None if "://" in self.where else Path(self.where)
