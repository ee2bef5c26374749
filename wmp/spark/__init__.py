"""The data pipeline: PySpark makes tables from the journals of many nodes (``specs/pipeline.md``).

``wmp.spark.session.java`` and ``wmp.spark.session.session`` start Spark. ``wmp.spark.pipeline.run``
makes the tables: tasks read lines (``wmp.spark.folds.reading``) and fold them in Python
(``wmp.spark.folds.folds``), in Spark or, for few lines, in this process
(``wmp.spark.pipeline.engines``). :func:`report` makes a page of tables, and :func:`follow` does so
again while journals grow. ``wmp.spark.journals.source`` reads journals by name. :func:`map_rows`
has workers do the rows of a DataFrame. No other package of the library imports this package, which
needs the extra ``spark``; a report without Spark needs the extra ``report`` alone.
"""

import typing

from wmp.lazy import lazy_names as _lazy_names
from wmp.spark.extras import need_extra as _need_extra

if typing.TYPE_CHECKING:
    from wmp.spark.fleet.executor_check import ship
    from wmp.spark.fleet.fleet import Fleet
    from wmp.spark.numbers.numbers_report import NumbersReport, report_numbers
    from wmp.spark.reports.following import follow
    from wmp.spark.reports.reporting import JournalReport, report
    from wmp.spark.rows.mapped_rows import map_rows

__all__ = [
    "Fleet",
    "JournalReport",
    "NumbersReport",
    "follow",
    "map_rows",
    "report",
    "report_numbers",
    "ship",
]


_HOMES: typing.Final = {
    "Fleet": "fleet.fleet",
    "JournalReport": "reports.reporting",
    "NumbersReport": "numbers.numbers_report",
    "follow": "reports.following",
    "map_rows": "rows.mapped_rows",
    "report": "reports.reporting",
    "report_numbers": "numbers.numbers_report",
    "ship": "fleet.executor_check",
}
_REPORTS: typing.Final = ("JournalReport", "NumbersReport", "follow", "report", "report_numbers")
"""The names that make reports. Only they need the packages for reports, so executors need not."""


def _check(name: str) -> None:
    if name in _REPORTS:
        _need_extra("report", "a report")
    else:
        _need_extra("spark", f"wmp.spark.{name}")


# Spark's workers import this package too, so modules are imported at their first use.
__getattr__, __dir__ = _lazy_names(
    __name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()}, _check
)
