"""The timeline of the processes of a report."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Final

from markupsafe import Markup

from wmp.pages.svg import Drawing, TimeScale
from wmp.pages.template import amount, duration
from wmp.spark.reports.report_data import ReportData, Row, rank_of

_MAX_ROWS: Final = 48
"""Limit of the processes in a picture."""

_WIDTH: Final = 1100
_MIN: Final = 700
"""Minimum width, at which names are still readable; a narrower window scrolls."""
_LEFT: Final = 170
_ROW: Final = 22


def timeline(data: ReportData) -> tuple[Markup, int]:
    """Draw a row for each process: its life, its load, its end, and the violations seen there.

    Return the drawing, and the number of processes for which it has no space.
    """
    low, high = data.span
    lives = sorted(
        (row for row in data.tables["nodes"] if row["first"] <= high and row["last"] >= low),
        key=lambda row: (
            rank_of(row["kind"]),
            data.name_of(row["node"], row["epoch"]),
            row["first"],
        ),
    )
    nodes = lives[:_MAX_ROWS]
    if not nodes:
        return Markup(), 0
    scale = TimeScale(low, high, _LEFT, _WIDTH - 10)
    busy: dict[tuple[str, int], dict[int, Row]] = defaultdict(dict)
    for row in data.tables["utilisation"]:
        cells = busy[row["worker"], row["worker_epoch"]]
        if (row["share"] or 0) > cells.get(row["time"], {"share": 0})["share"]:
            cells[row["time"]] = row
    steps = sorted({row["time"] for row in data.tables["utilisation"]})
    step = min((b - a for a, b in pairwise(steps)), default=high - low)
    violations: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in data.tables["violations"]:
        if row["time"] is not None and low <= row["time"] <= high:
            violations[row["node"], row["epoch"]].append(row)
    sheet = Drawing(_WIDTH, _ROW * len(nodes) + 26)
    sheet.time_axis(scale, 0, _ROW * len(nodes) + 2)
    for index, node in enumerate(nodes):
        key, y = (node["node"], node["epoch"]), index * _ROW + 3
        name, height = data.name_of(*key), _ROW - 6
        sheet.text(_LEFT - 10, y + 12, name, "name", "end", f"{node['node']} {node['epoch']}")
        begin, end = scale(node["first"]), scale(node["last"])
        title = f"{name}: {amount(node['lines'])} lines in {duration(node['last'] - node['first'])}"
        look = f"life {node['kind']}"
        sheet.rect(begin, y, max(end - begin, 2), height, look, title=title, round=3)
        for cell in busy[key].values():
            left, right = max(scale(cell["time"]), begin), min(scale(cell["time"] + step), end)
            share = min(cell["share"], 1.0)
            title = f"{name}: {share:.0%} of {cell['have']} {cell['resource']} taken"
            shade = 0.08 + 0.92 * share
            sheet.rect(left, y, right - left, height, "busy", title=title, opacity=shade)
        if node["end"] in (None, "halt") and node["last"] <= high:
            how = "killed or still running" if node["end"] is None else f"halt: {node['reason']}"
            sheet.text(min(end + 3, _WIDTH - 14), y + 13, "✕", "cross", "start", f"{name}: {how}")
        for row in violations[key]:
            x, title = scale(row["time"]), f"{row['name']}: {row['detail']}"
            sheet.path([(x - 5, y - 2), (x + 5, y - 2), (x, y + 7)], "flag", title=title)
    description = f"Timeline of {len(nodes)} processes over {duration(high - low)}"
    return sheet.svg(description, minimum=_MIN), len(lives) - len(nodes)
