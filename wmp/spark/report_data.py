"""The data of a report: the small tables completely, and the worst rows of the large tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyarrow.compute as pc
import pyarrow.dataset
from attrs import frozen

from wmp.pages.svg import clip

__all__ = [
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
    "activity", "bad_lines", "device_hops", "drops", "fairness", "histogram", "missing_nodes",
    "nodes", "requeues", "utilisation",
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

    def number(self, name: str) -> float:
        """Return a number of the table ``summary``; 0 if the table does not have it."""
        return self.numbers.get(name, 0.0)


def name_of(node: str, label: str | None = None) -> str:
    """Return the name of a node for people: its label, or else its identity."""
    return clip(label or node, 22)


def rank_of(kind: str | None) -> int:
    """Return the position of a kind of node in lists and drawings."""
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def read_report_data(where: Path, sources: Iterable[str] = ()) -> ReportData:
    """Read the data of a report from the tables in a directory."""
    tables = {name: _rows(_table(where, name)) for name in _WHOLE}
    tables["latency"] = _rows(_table(where, "latency", pc.field("by") == "all"))
    found = _table(where, "violations").drop_columns(["events"])
    names = {
        (row["name"], row["text"], row["certain"]): row["name_count"]
        for row in found.group_by(["name", "text", "certain"])
        .aggregate([("name", "count")])
        .to_pylist()
    }
    order = [("certain", "descending"), ("time", "ascending"), ("violation", "ascending")]
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
    )


def _table(
    where: Path, name: str, wanted: pyarrow.compute.Expression | None = None
) -> pyarrow.Table:
    return pyarrow.dataset.dataset(where / name, format="parquet").to_table(filter=wanted)


def _rows(table: pyarrow.Table) -> list[Row]:
    for place, column in enumerate(table.schema):
        if pyarrow.types.is_timestamp(column.type):
            micros = table.column(place).cast(pyarrow.timestamp("us"), safe=False)
            table = table.set_column(place, column.name, micros.cast(pyarrow.int64()))
    return list(table.to_pylist())
