"""The report of the pipeline: one page that needs no other file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from markupsafe import Markup

from wmp.pages.svg import clip
from wmp.pages.template import render
from wmp.spark.folds.facts import ALWAYS
from wmp.spark.journals.schema import PHASES, TABLES
from wmp.spark.reports.charts import MAX_ROLES, figures, plotly, script_hash, to_json
from wmp.spark.reports.pictures import timeline
from wmp.spark.reports.report_data import GROUPED, ReportData, Row
from wmp.spark.reports.violation_diagram import violation_diagram

_LIBRARY: Final = "<!-- plotly -->"
"""Stands for Plotly's script until the page is rendered; no text of a journal has this markup."""
_STARTER: Final = files("wmp.pages").joinpath("templates", "report.js").read_text("utf-8").strip()
_MAX: Final = 200
"""Maximum number of rows of a list."""


def page(data: ReportData) -> str:
    """Render the page, as HTML."""
    charts = figures(data)
    text = render(
        "report.html",
        data=data,
        always=ALWAYS,
        lists=_lists(data),
        phases=PHASES,
        grouped=GROUPED,
        clip=clip,
        label=data.name_of,
        quoted=lambda text: re.sub("`(.*?)`", r"“\1”", text),
        unfolded={row["name"]: row for row in reversed(data.tables["violations"])},
        diagram=lambda row: violation_diagram(row, data),
        timeline=timeline(data),
        max_rows=_MAX,
        tables=TABLES,
        charts=charts,
        figures=Markup(to_json(charts)),
        library=Markup(_LIBRARY),
        starter=Markup(_STARTER),
        scripts=Markup(f"{script_hash(plotly())} {script_hash(_STARTER)}") if charts else "'none'",
        roles_left_out=max(len({row["role"] for row in data.tables["activity"]}) - MAX_ROLES, 0),
    )
    # Plotly has five megabytes, so it passes through no template.
    return str(text).replace(_LIBRARY, plotly(), 1) if charts else str(text)


def _sums(rows: Iterable[Row], by: Sequence[str], *columns: str) -> list[Row]:
    """Add up columns of the rows with the same values in ``by``, and count these rows.

    The other columns are those of the last of these rows.
    """
    sums: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in by)
        old = sums.get(key, {})
        totals = {name: old.get(name, 0) + row[name] for name in columns}
        sums[key] = {**row, **totals, "rows": old.get("rows", 0) + 1}
    return sorted(sums.values(), key=lambda row: -row[columns[0]])


def _lists(data: ReportData) -> Mapping[str, Sequence[Row]]:
    """Return the rows of the lists in their order; a row may stand for several rows of a table."""
    tables, latency = data.tables, data.latency()
    old, before = data.before, {} if data.before is None else data.before.latency()
    return {
        "bad lines": _sums(tables["bad_lines"], ["reason"], "lines"),
        "missing nodes": sorted(tables["missing_nodes"], key=lambda row: -row["messages"]),
        "missing lines": [row for row in tables["nodes"] if row["missing"] or row["kind"] is None],
        "findings": sorted(
            tables["findings"],
            key=lambda row: (not row["certain"], -row["violations"], row["name"]),
        ),
        "compared": [] if old is None else _compared(old, data),
        "compared phases": [
            {"phase": phase, "before": before[phase], "now": latency.get(phase)}
            for phase in PHASES
            if phase in before
        ],
        "phases": [latency[phase] for phase in PHASES if phase in latency],
        **{f"by {by}": _grouped(data, by) for by in ("role", "worker", "hour")},
        "workers": _workers(data),
        "requeues": _sums(tables["requeues"], ["cause", "role"], "leases"),
        "drops": _sums(tables["drops"], ["reason"], "lines"),
        "fairness": sorted(
            (row for row in tables["fairness"] if row["parties"] > 1 and row["node"]),
            key=lambda row: (row["by"], row["measure"] != "jobs", row["node"]),
        ),
        "hops": _hops(data),
        "nodes": sorted(
            tables["nodes"],
            key=lambda row: (
                row["kind"] or "",
                data.name_of(row["node"], row["epoch"]),
                row["epoch"],
            ),
        ),
    }


def _hops(data: ReportData) -> list[Row]:
    """Return the times of devices, with the names of the devices for readers."""
    rows = [{**row, "name": data.name_of(row["device"])} for row in data.tables["device_hops"]]
    return sorted(rows, key=lambda row: (row["name"], row["device"], row["direction"]))


def _compared(old: ReportData, data: ReportData) -> list[Row]:
    """Return the numbers of two reports; ends that no job of either had are left out."""
    ends = [f"jobs {end}" for end in ("error", "cancelled", "timeout", "lost")]
    names = (
        "jobs", "jobs ok", *(name for name in ends if old.number(name) or data.number(name)),
        "jobs per second", "leases lost", "violations", "seconds",
    )  # fmt: skip
    return [{"name": name, "before": old.number(name), "now": data.number(name)} for name in names]


def _grouped(data: ReportData, by: str) -> list[Row]:
    """Return the latency of each role, worker or hour: the slowest first, or the first hour."""
    epochs = dict(data.nodes.keys())
    rows: dict[str, dict[str, Any]] = {}
    for latency in data.tables["latency"]:
        if latency["by"] == by and latency["phase"] in GROUPED:
            key = latency["key"]
            row = rows.setdefault(key, {"key": key, "epoch": epochs.get(key), "phases": {}})
            row["phases"][latency["phase"]] = latency
    if by == "hour":
        return sorted(rows.values(), key=lambda row: row["key"])
    return sorted(
        rows.values(), key=lambda row: (-row["phases"].get("total", {"p99": 0})["p99"], row["key"])
    )


def _workers(data: ReportData) -> list[Row]:
    """Add up the use of each resource of each worker."""
    rows = ({**row, "had": row["length"] * row["have"]} for row in data.tables["utilisation"])
    by = ("worker", "worker_epoch", "resource")
    return sorted(
        _sums(rows, by, "busy", "had"),
        key=lambda row: (data.name_of(row["worker"], row["worker_epoch"]), *map(row.get, by)),
    )
