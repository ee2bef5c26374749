"""The data pipeline: PySpark makes tables from the journals of many nodes (``specs/pipeline.md``).

Most functions here take DataFrames and return DataFrames. ``wmp.spark.java`` and
``wmp.spark.session`` start Spark. ``wmp.spark.journals``, ``wmp.spark.source`` and
``wmp.spark.run`` read and write. :func:`report` makes a page of tables, and :func:`follow` does so
again while journals grow. No other package of the library imports this package, which needs the
extra ``spark``.
"""

import importlib
import importlib.util
import typing

import wmp.errors

if typing.TYPE_CHECKING:
    from wmp.spark.following import follow
    from wmp.spark.reporting import JournalReport, report

__all__ = ["JournalReport", "follow", "report"]

for _name in ("pyspark", "pandas", "pyarrow", "jinja2", "plotly"):
    if importlib.util.find_spec(_name) is None:
        raise wmp.errors.ConfigError(
            f"the pipeline needs pyspark, pandas, pyarrow, jinja2 and plotly, and {_name} is not "
            "installed; run: pip install 'worker-manager-protocol[spark]'"
        )


def __getattr__(name: str) -> typing.Any:
    """Import the modules of reports at their first use: Spark's workers import this package too."""
    module = {"JournalReport": "reporting", "report": "reporting", "follow": "following"}.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"wmp.spark.{module}"), name)
