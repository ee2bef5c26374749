"""The data pipeline: journals of many nodes become tables, by PySpark (``specs/pipeline.md``).

Everything here is a function from DataFrames to DataFrames, except ``wmp.spark.java`` and
``wmp.spark.session``, which start Spark, ``wmp.spark.journals``, ``wmp.spark.source`` and
``wmp.spark.run``, which read and write, and what makes a page of tables: :func:`report`, and
:func:`follow` while journals grow. Nothing of the library imports it; it needs the extra ``spark``.
"""

import importlib
import importlib.util
import typing

import wmp.errors

if typing.TYPE_CHECKING:
    from wmp.spark.following import follow
    from wmp.spark.reporting import JournalReport, report

__all__ = ["JournalReport", "follow", "report"]

for _name in ("pyspark", "pandas", "pyarrow", "jinja2"):
    if importlib.util.find_spec(_name) is None:
        raise wmp.errors.ConfigError(
            f"the pipeline needs pyspark, pandas, pyarrow and jinja2, and {_name} is not "
            "installed; run: pip install 'worker-manager-protocol[spark]'"
        )


def __getattr__(name: str) -> typing.Any:
    """Load what makes reports when it is asked for: Spark's workers import this as well."""
    module = {"JournalReport": "reporting", "report": "reporting", "follow": "following"}.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"wmp.spark.{module}"), name)
