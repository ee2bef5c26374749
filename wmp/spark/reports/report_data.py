"""The data of a report: the small tables completely, and the worst rows of the large tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, Final

import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet
from attrs import field, frozen

from wmp.pages.svg import clip
from wmp.spark.folds.facts import ALWAYS, Window
from wmp.spark.journals.tables import Tables

Row = Mapping[str, Any]
"""A row: values by column; times are µs since 1970."""

_MAX_VIOLATIONS: Final = 40
"""Maximum number of violations that are drawn."""
_MAX_LINES: Final = 80
"""Number of the last lines of a story that are drawn."""
_MAX_JOBS: Final = 15
"""Maximum number of the slowest, failed and requeued jobs that are listed."""

_NAME: Final = 22
"""Maximum number of characters of the name of a node."""
_TAIL: Final = 4
"""Characters of an identity that show which of several nodes with one label is meant; more if
two identities end alike.
"""
_MAX_TAIL: Final = 12
_KINDS: Final = ("manager", "device", "worker")
_WHOLE: Final = (
    "activity", "bad_lines", "device_hops", "drops", "fairness", "findings", "histogram",
    "missing_nodes", "nodes", "requeues", "utilisation",
)  # fmt: skip
GROUPED: Final = ("total", "queue wait", "handler")
"""The phases that are shown by role, worker and hour."""
_OF_A_JOB: Final = (
    "owner", "owner_epoch", "job", "role", "submitted", "end", "attempts", "over", "worker",
    "worker_epoch", "queue_wait", "total",
)  # fmt: skip
_WORST: Final = {
    "slowest": ("total", pc.field("total").is_valid()),
    "failed": ("total", pc.field("end").isin(["error", "lost", "timeout"])),
    "requeued": ("over", pc.field("attempts") > 1),
}
"""The column by which the worst jobs of a list come first, and the condition of the list."""


@frozen
class ReportData:
    """The content of a page."""

    sources: Sequence[str]
    """Names of the journals, as the user gave them."""
    tables: Mapping[str, Sequence[Row]]
    """Rows by name of table."""
    numbers: Mapping[str, float]
    """The table ``summary``."""
    stories: Mapping[str, Sequence[Row]]
    """The last lines of the story of each violation in ``tables``, by the violation's key."""
    before: ReportData | None = None
    """Another report, with which this report is compared."""
    window: Window = ALWAYS
    """The time that the report covers."""
    nodes: Mapping[tuple[str, int], Row] = field(init=False)
    """The rows of ``nodes`` by (node, epoch)."""
    _names: Mapping[tuple[str, int | None], str] = field(init=False)

    @nodes.default
    def _nodes(self) -> Mapping[tuple[str, int], Row]:
        return {(row["node"], row["epoch"]): row for row in self.tables["nodes"]}

    @_names.default
    def _names_of_nodes(self) -> Mapping[tuple[str, int | None], str]:
        return _distinct_names(self.tables["nodes"])

    def name_of(self, node: str, epoch: int | None = None) -> str:
        """Return the name of a node for people: its label, or else its identity.

        Args:
            node: The identity.
            epoch: The process; None for any process of the node.
        """
        return self._names.get((node, epoch)) or clip(node, _NAME)

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last time that the page shows, in µs since 1970."""
        first = min((row["first"] for row in self.tables["nodes"]), default=0)
        last = max((row["last"] for row in self.tables["nodes"]), default=0)
        begin = max(first, self.window[0])
        return begin, max(min(last, self.window[1]), begin)

    def number(self, name: str) -> float:
        """Return a number of the table ``summary``, or ``leases lost``; 0 if it is absent."""
        if name == "leases lost":
            kept = self.number("leases handed back") + self.number("leases refused")
            return self.number("leases over") - kept
        return self.numbers.get(name, 0.0)

    def latency(self) -> Mapping[str, Row]:
        """Return the rows of ``latency`` for all jobs, by phase."""
        return {row["phase"]: row for row in self.tables["latency"] if row["by"] == "all"}


def _distinct_names(rows: Iterable[Row]) -> dict[tuple[str, int | None], str]:
    """Return the names of processes for people, by (node, epoch) and by (node, None).

    Without a label of their own all nodes of a process have one label. The end of its identity
    follows the label of a node which another node has too.
    """
    labels = {(row["node"], row["epoch"]): row["label"] or row["node"] for row in rows}
    bearers: defaultdict[str, set[str]] = defaultdict(set)
    for (node, _), label in labels.items():
        bearers[clip(label, _NAME)].add(node)
    alike = {node for nodes in bearers.values() if len(nodes) > 1 for node in nodes}
    size = _TAIL
    while size < _MAX_TAIL and len({node[-size:] for node in alike}) < len(alike):
        size += 1
    names: dict[tuple[str, int | None], str] = {}
    for (node, epoch), label in labels.items():
        name = clip(label, _NAME)
        if node in alike:
            tail = node[-size:]
            name = f"{clip(label, _NAME - 1 - len(tail))} {tail}"
        names[node, epoch] = names[node, None] = name
    return names


def rank_of(kind: str | None) -> int:
    """Return the position of a kind of node in lists and drawings."""
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def read_report_data(
    where: Tables, sources: Sequence[str] = (), before: Tables | None = None,
    window: Window = ALWAYS,
) -> ReportData:  # fmt: skip
    """Read the data of a report from its tables.

    Args:
        where: The tables.
        sources: Names of the journals.
        before: The tables of another report, with which this report is compared.
        window: The time that the report covers.
    """
    tables = {name: _rows(where.dataset(name).to_table()) for name in _WHOLE} | _jobs(where)
    shown = (pc.field("by") == "all") | pc.field("phase").isin(GROUPED)
    tables["latency"] = _rows(where.dataset("latency").to_table(filter=shown))
    order = [("certain", "descending"), ("time", "ascending"), ("violation", "ascending")]
    violations = where.dataset("violations").to_table().drop_columns(["events"])
    worst = tables["violations"] = _rows(violations.sort_by(order).slice(0, _MAX_VIOLATIONS))
    keys = pyarrow.array([row["violation"] for row in worst], pyarrow.string())
    lines = where.dataset("violation_events").to_table(filter=pc.field("violation").isin(keys))
    story = _rows(lines.sort_by([("violation", "ascending"), ("place", "ascending")]))
    return ReportData(
        sources,
        tables,
        {row["name"]: row["value"] for row in _rows(where.dataset("summary").to_table())},
        {key: list(some)[-_MAX_LINES:] for key, some in groupby(story, lambda r: r["violation"])},
        None if before is None else read_report_data(before, (before.where,)),
        window,
    )


def _jobs(where: Tables) -> dict[str, list[Row]]:
    """Return the slowest jobs, the jobs that failed, and the jobs that were queued again."""
    if where.far:
        worst = [_worst(where.dataset("jobs", _OF_A_JOB).to_table())]
    else:
        worst = [_worst_of_file(str(path)) for path in where.files("jobs")]
    return {
        name: sorted(
            chain.from_iterable(rows[name] for rows in worst),
            key=lambda row: (-(row[order] or 0), row["owner"], row["job"]),
        )[:_MAX_JOBS]
        for name, (order, _) in _WORST.items()
    }


@lru_cache(4096)
def _worst_of_file(path: str) -> dict[str, list[Row]]:
    """Return the worst jobs of a file, which never changes."""
    return _worst(pyarrow.parquet.read_table(path, columns=list(_OF_A_JOB)))


def _worst(jobs: pyarrow.Table) -> dict[str, list[Row]]:
    worst = {}
    for name, (order, wanted) in _WORST.items():
        some = jobs.filter(wanted)
        keys = [(order, "descending"), ("owner", "ascending"), ("job", "ascending")]
        worst[name] = _rows(some.take(pc.select_k_unstable(some, _MAX_JOBS, keys)))
    return worst


def _rows(table: pyarrow.Table) -> list[Row]:
    """Return the rows of a table; times become µs since 1970."""
    times = pyarrow.types.is_timestamp
    kinds = [
        (column.name, pyarrow.int64() if times(column.type) else column.type)
        for column in table.schema
    ]
    return list(table.cast(pyarrow.schema(kinds)).to_pylist())
