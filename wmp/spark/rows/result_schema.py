"""The result schema of rows as Arrow and Spark name its types (ROWS-5.1)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow
from pyspark.errors import PySparkTypeError
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from wmp.errors import ConfigError

_ZONE = "UTC"
"""The zone of timestamps in results. Spark reads the instants, whatever the zone of its session."""


def result_schema(
    given: str | StructType, session: SparkSession
) -> tuple[StructType, pyarrow.Schema]:
    """Return the result schema for Spark and for Arrow.

    Args:
        given: Text of columns, or a StructType. ``char`` and ``varchar`` become ``string``, as in
            every DataFrame.
        session: The session of the rows.

    Raises:
        ConfigError: Arrow has no type for a column, as for ``interval year to month``.
    """
    schema = _parsed(given, session) if isinstance(given, str) else given
    wanted = StructType([_without_lengths(column) for column in schema.fields])
    for column in wanted.fields:
        try:
            to_arrow_schema(StructType([column]), timezone=_ZONE)
        except PySparkTypeError:
            raise ConfigError(
                f"column {column.name!r} of the result schema has the type "
                f"{column.dataType.simpleString()!r}, for which Spark has no Arrow type; name "
                "another type, for example 'int' for a number of months"
            ) from None
    return wanted, to_arrow_schema(wanted, timezone=_ZONE)


def _parsed(columns: str, session: SparkSession) -> StructType:
    """Parse a text of columns.

    In Spark Connect the server parses the text. Spark refuses this on the thread that defines a
    table of a declarative pipeline, as if the text were a query.
    """
    if hasattr(session, "_jsparkSession"):
        return StructType.fromDDL(columns)
    with ThreadPoolExecutor(1) as other_thread:
        return other_thread.submit(StructType.fromDDL, columns).result()


def _without_lengths(column: StructField) -> StructField:
    return StructField(column.name, _plain(column.dataType), column.nullable, column.metadata)


def _plain(kind: DataType) -> DataType:
    """Return a type with ``string`` in the place of ``char`` and ``varchar``."""
    match kind:
        case CharType() | VarcharType():
            return StringType()
        case ArrayType():
            return ArrayType(_plain(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(_plain(kind.keyType), _plain(kind.valueType), kind.valueContainsNull)
        case StructType():
            return StructType([_without_lengths(column) for column in kind.fields])
    return kind
