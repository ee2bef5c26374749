"""The data of a report: the small tables completely, and the worst rows of the large tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet
from attrs import frozen

from wmp.pages.svg import clip
from wmp.spark.facts import ALWAYS, Window
from wmp.spark.tables import Tables

__all__ = [
    "MOST_JOBS",
    "MOST_LINES",
    "MOST_VIOLATIONS",
    "ReportData",
    "Row",
    "name_of",
    "rank_of",
    "read_report_data",
]

Row = Mapping[str, Any]
"""A row: values by column; times are µs since 1970."""

_KINDS: Final = ("manager", "device", "worker")

MOST_VIOLATIONS: Final = 40
"""Largest number of violations that are drawn."""
MOST_LINES: Final = 80
"""Number of the last lines of a story that are drawn."""

_WHOLE: Final = (
    "activity", "bad_lines", "device_hops", "drops", "fairness", "findings", "histogram",
    "missing_nodes", "nodes", "requeues", "utilisation",
)  # fmt: skip
MOST_JOBS: Final = 15
"""Largest number of the slowest, failed and requeued jobs that are listed."""
_GROUPS: Final = ("role", "worker", "hour")
_GROUPED: Final = ("total", "queue wait", "handler")
_ORDERS: Final = {"slowest": "total", "failed": "total", "requeued": "over"}
"""The column by which the worst jobs of each list come first."""
_OF_A_JOB: Final = (
    "owner", "owner_epoch", "job", "role", "submitted", "end", "attempts", "over", "worker",
    "queue_wait", "total",
)  # fmt: skip


@frozen
class ReportData:
    """The content of a page."""

    sources: Sequence[str]
    """Names of the journals, as the user gave them."""
    tables: Mapping[str, Sequence[Row]]
    """Rows by name of table."""
    numbers: Mapping[str, float]
    """The table ``summary``."""
    names: Mapping[tuple[str, str, bool], int]
    """Number of violations by name, meaning and certainty."""
    stories: Mapping[str, Sequence[Row]]
    """The last lines of the story of each violation in ``tables``, by the violation's key."""
    before: ReportData | None = None
    """Another report, with which this report is compared."""
    window: Window = ALWAYS
    """The time that the report covers."""

    def number(self, name: str) -> float:
        """Return a number of the table ``summary``; 0 if the table does not have it."""
        return self.numbers.get(name, 0.0)


def name_of(node: str, label: str | None = None) -> str:
    """Return the name of a node for people: its label, or else its identity."""
    return clip(label or node, 22)


def rank_of(kind: str | None) -> int:
    """Return the position of a kind of node in lists and drawings."""
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def read_report_data(
    where: Tables, sources: Iterable[str] = (), before: Tables | None = None
) -> ReportData:
    """Read the data of a report from its tables.

    Args:
        where: The tables.
        sources: Names of the journals.
        before: The tables of another report, with which this report is compared.
    """
    tables = {name: _rows(_table(where, name)) for name in _WHOLE}
    by = pc.field("by")
    tables["latency"] = _rows(_table(where, "latency", by == "all"))
    grouped = by.isin(_GROUPS) & pc.field("phase").isin(_GROUPED)
    tables["grouped"] = _rows(_table(where, "latency", grouped))
    tables |= _jobs(where)
    names = {
        (row["name"], row["text"], row["certain"]): row["violations"] for row in tables["findings"]
    }
    order = [("certain", "descending"), ("time", "ascending"), ("violation", "ascending")]
    found = _table(where, "violations").drop_columns(["events"])
    worst = _rows(found.sort_by(order).slice(0, MOST_VIOLATIONS))
    tables["violations"] = worst
    keys = pyarrow.array([row["violation"] for row in worst], pyarrow.string())
    story = _table(where, "violation_events", pc.field("violation").isin(keys))
    stories: dict[str, list[Row]] = {}
    for row in _rows(story.sort_by([("violation", "ascending"), ("place", "ascending")])):
        stories.setdefault(row["violation"], []).append(row)
    return ReportData(
        tuple(sources),
        tables,
        {row["name"]: row["value"] for row in _rows(_table(where, "summary"))},
        dict(sorted(names.items(), key=lambda one: (not one[0][2], -one[1], one[0]))),
        {key: lines[-MOST_LINES:] for key, lines in stories.items()},
        None if before is None else read_report_data(before),
    )


def _jobs(where: Tables) -> dict[str, list[Row]]:
    """Return the slowest jobs, the jobs that failed, and the jobs that were queued again."""
    if where.far:
        return _worst(where.dataset("jobs", _OF_A_JOB).to_table())
    found = [_worst_of_file(str(path)) for path in where.files("jobs")]
    return {
        name: sorted(
            chain.from_iterable(one[name] for one in found),
            key=lambda row: (-(row[order] or 0), row["owner"], row["job"]),
        )[:MOST_JOBS]
        for name, order in _ORDERS.items()
    }


@lru_cache(4096)
def _worst_of_file(path: str) -> dict[str, list[Row]]:
    """Return the worst jobs of a file, which never changes."""
    return _worst(pyarrow.parquet.read_table(path, columns=list(_OF_A_JOB)))


def _worst(jobs: pyarrow.Table) -> dict[str, list[Row]]:
    wanted = {
        "slowest": pc.field("total").is_valid(),
        "failed": pc.field("end").isin(["error", "lost", "timeout"]),
        "requeued": pc.field("over") > 0,
    }
    found = {}
    for name, rows in wanted.items():
        some = jobs.filter(rows)
        keys = [(_ORDERS[name], "descending"), ("owner", "ascending"), ("job", "ascending")]
        found[name] = _rows(some.take(pc.select_k_unstable(some, MOST_JOBS, keys)))
    return found


def _table(
    where: Tables, name: str, wanted: pyarrow.compute.Expression | None = None
) -> pyarrow.Table:
    return where.dataset(name).to_table(filter=wanted)


def _rows(table: pyarrow.Table) -> list[Row]:
    for place, column in enumerate(table.schema):
        if pyarrow.types.is_timestamp(column.type):
            micros = table.column(place).cast(pyarrow.timestamp("us"), safe=False)
            table = table.set_column(place, column.name, micros.cast(pyarrow.int64()))
    return list(table.to_pylist())
