"""The timeline of the processes of a report."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Final

from attrs import frozen
from markupsafe import Markup

from wmp.pages.svg import Drawing, TimeScale
from wmp.pages.template import amount, duration
from wmp.spark.report_data import ReportData, Row, name_of, rank_of

__all__ = ["MOST_ROWS", "Picture", "timeline"]

MOST_ROWS: Final = 48
"""Limit of the processes in a picture."""

_WIDTH: Final = 1100
_LEFT: Final = 170
_ROW: Final = 22


@frozen
class Picture:
    """A drawing."""

    svg: Markup
    more: int = 0
    """Number of the rows that are left out."""


def timeline(data: ReportData) -> Picture | None:
    """Draw a row for each process: its life, its load, its end, and the violations seen there."""
    nodes = sorted(
        (row for row in data.tables["nodes"] if row["first"] is not None),
        key=lambda row: (rank_of(row["kind"]), row["label"] or row["node"], row["first"]),
    )
    if not nodes:
        return None
    low = max(min(row["first"] for row in nodes), data.window[0])
    high = max(min(max(row["last"] for row in nodes), data.window[1]), low)
    scale = TimeScale(low, high, _LEFT, _WIDTH - 10)
    busy: dict[tuple[str, int], dict[int, Row]] = defaultdict(dict)
    for row in data.tables["utilisation"]:
        cells = busy[row["worker"], row["worker_epoch"]]
        if row["share"] is not None and (
            row["time"] not in cells or cells[row["time"]]["share"] < row["share"]
        ):
            cells[row["time"]] = row
    steps = sorted({row["time"] for row in data.tables["utilisation"]})
    step = min((b - a for a, b in pairwise(steps)), default=high - low)
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in data.tables["violations"]:
        found[row["node"], row["epoch"]].append(row)
    drawn = nodes[:MOST_ROWS]
    sheet = Drawing(_WIDTH, _ROW * len(drawn) + 26)
    sheet.time_axis(scale, 0, _ROW * len(drawn) + 2, low)
    for place, node in enumerate(drawn):
        key, y = (node["node"], node["epoch"]), place * _ROW + 3
        name = name_of(node["node"], node)
        sheet.text(_LEFT - 10, y + 12, name, "name", "end", f"{node['node']} {node['epoch']}")
        begin = scale.at(min(max(node["first"], low), high))
        end = scale.at(min(max(node["last"], low), high))
        title = f"{name}: {amount(node['lines'])} lines in {duration(node['last'] - node['first'])}"
        sheet.rect(
            begin, y, max(end - begin, 2), _ROW - 6, f"life {node['kind']}", title=title, round=3
        )
        for cell in busy[key].values():
            left = max(scale.at(cell["time"]), begin)
            right = min(scale.at(cell["time"] + step), end)
            share = min(cell["share"], 1.0)
            title = f"{name}: {share:.0%} of {cell['have']} {cell['resource']} taken"
            if share > 0:
                shade = 0.08 + 0.92 * share
                sheet.rect(left, y, right - left, _ROW - 6, "busy", title=title, opacity=shade)
        if node["end"] in (None, "halt"):
            how = "killed or still running" if node["end"] is None else f"halt: {node['reason']}"
            sheet.text(min(end + 3, _WIDTH - 14), y + 13, "✕", "cross", "start", f"{name}: {how}")
        for row in found[key]:
            x = scale.at(min(max(row["time"], low), high))
            sheet.path(
                [(x - 5, y - 2), (x + 5, y - 2), (x, y + 7), (x - 5, y - 2)],
                "flag",
                title=f"{row['name']}: {row['detail']}",
            )
    description = f"Timeline of {len(drawn)} processes over {duration(high - low)}"
    return Picture(sheet.svg(description), len(nodes) - len(drawn))
