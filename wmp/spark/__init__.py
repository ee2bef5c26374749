"""The data pipeline: PySpark makes tables from the journals of many nodes (``specs/pipeline.md``).

``wmp.spark.session.java`` and ``wmp.spark.session.session`` start Spark. ``wmp.spark.pipeline.run``
makes the tables: tasks read lines (``wmp.spark.folds.reading``) and fold them in Python
(``wmp.spark.folds.folds``), in Spark or, for few lines, in this process
(``wmp.spark.pipeline.engines``). :func:`report` makes a page of tables, and :func:`follow` does so
again while journals grow. ``wmp.spark.journals.source`` reads journals by name. :func:`map_rows`
has workers do the rows of a DataFrame. No other package of the library imports this package, which
needs the extra ``spark``.
"""

import importlib.util
import typing

import wmp.errors
from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.spark.fleet.executor_check import ship
    from wmp.spark.fleet.fleet import Fleet
    from wmp.spark.reports.following import follow
    from wmp.spark.reports.reporting import JournalReport, report
    from wmp.spark.rows.mapped_rows import map_rows

__all__ = ["Fleet", "JournalReport", "follow", "map_rows", "report", "ship"]


def _need(*names: str) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise wmp.errors.ConfigError(
                "the pipeline needs pyspark, pandas, pyarrow, msgspec, jinja2 and plotly, and "
                f"{name} is not installed; run: pip install 'worker-manager-protocol[spark]'"
            )


_need("pyspark", "pandas", "pyarrow")

_HOMES: typing.Final = {
    "Fleet": "fleet.fleet",
    "JournalReport": "reports.reporting",
    "follow": "reports.following",
    "map_rows": "rows.mapped_rows",
    "report": "reports.reporting",
    "ship": "fleet.executor_check",
}
_PAGES: typing.Final = ("JournalReport", "follow", "report")
"""The names that make reports. Only they need the packages for reports, so executors need not."""


def _check(name: str) -> None:
    if name in _PAGES:
        _need("msgspec", "jinja2", "plotly")


# Spark's workers import this package too, so modules are imported at their first use.
__getattr__, __dir__ = _lazy_names(
    __name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()}, _check
)
