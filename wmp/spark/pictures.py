"""The pictures of a report: who lived and worked when, load by role, and how long things took."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Final

from wmp.spark.report_data import ReportData, Row
from wmp.spark.schema import PHASES
from wmp.spark.svg import COLOURS, Drawing, LogScale, amount, clip, duration

__all__ = [
    "MOST_ROLES",
    "MOST_ROWS",
    "WIDTH",
    "activity",
    "curves",
    "name_of",
    "phases",
    "timeline",
]

WIDTH: Final = 1100
MOST_ROWS: Final = 48
"""Processes that are drawn."""
MOST_ROLES: Final = 24
"""Roles that are drawn."""

_LEFT: Final = 170
_ROW: Final = 22
_KINDS: Final = ("manager", "device", "worker")
_NINES: Final = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)
_CURVES: Final[Sequence[str]] = (
    "queue wait",
    "take trip",
    "lane wait",
    "handler",
    "done trip",
    "lease",
    "total",
)


def name_of(node: str, label: str | None = None) -> str:
    """What people call a node."""
    return clip(label or node, 22)


def _axis(sheet: Drawing, low: float, high: float, top: float, bottom: float) -> None:
    """Ticks of time below, s since the first line."""
    span = (high - low) / 1e6 or 1.0
    step = 10 ** math.floor(math.log10(span / 5))
    step = next((step * k for k in (1, 2, 5, 10) if span / (step * k) <= 8), step)
    for tick in range(int(span / step) + 1):
        x = _LEFT + tick * step / span * (WIDTH - _LEFT - 10)
        sheet.line(x, top, x, bottom, "grid")
        sheet.text(x, bottom + 14, duration(tick * step * 1e6) if tick else "0", "small", "middle")


def timeline(shown: ReportData) -> str:
    """A row a process: its life, how busy it was, how it ended, and what was found there."""
    nodes = sorted(
        (row for row in shown.tables["nodes"] if row["first"] is not None),
        key=lambda row: (_rank(row["kind"]), row["label"] or row["node"], row["first"]),
    )
    if not nodes:
        return ""
    low, high = min(r["first"] for r in nodes), max(r["last"] for r in nodes)
    scale = (WIDTH - _LEFT - 10) / max(high - low, 1)
    busy: dict[tuple[str, int], dict[int, Row]] = defaultdict(dict)
    for row in shown.tables["utilisation"]:
        cells = busy[row["worker"], row["worker_epoch"]]
        if row["share"] is not None and (
            row["time"] not in cells or cells[row["time"]]["share"] < row["share"]
        ):
            cells[row["time"]] = row
    steps = sorted({row["time"] for row in shown.tables["utilisation"]})
    step = min((b - a for a, b in pairwise(steps)), default=high - low)
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in shown.tables["violations"]:
        found[row["node"], row["epoch"]].append(row)
    drawn = nodes[:MOST_ROWS]
    sheet = Drawing(WIDTH, _ROW * len(drawn) + 26)
    _axis(sheet, low, high, 0, _ROW * len(drawn) + 2)
    for place, node in enumerate(drawn):
        key, y = (node["node"], node["epoch"]), place * _ROW + 3
        name = name_of(node["node"], node["label"])
        sheet.text(_LEFT - 10, y + 12, name, "name", "end", f"{node['node']} {node['epoch']}")
        begin, end = _LEFT + (node["first"] - low) * scale, _LEFT + (node["last"] - low) * scale
        told = f"{name}: {amount(node['lines'])} lines in {duration(node['last'] - node['first'])}"
        sheet.rect(
            begin, y, max(end - begin, 2), _ROW - 6, f"life {node['kind']}", title=told, round=3
        )
        for cell in busy[key].values():
            left = max(_LEFT + (cell["time"] - low) * scale, begin)
            right = min(_LEFT + (cell["time"] + step - low) * scale, end)
            share = min(cell["share"], 1.0)
            says = f"{name}: {share:.0%} of {cell['have']} {cell['resource']} taken"
            if share > 0:
                sheet.rect(
                    left, y, right - left, _ROW - 6, "busy", title=says, opacity=0.08 + 0.92 * share
                )
        if node["end"] in (None, "halt"):
            how = "killed, or runs still" if node["end"] is None else f"halt: {node['reason']}"
            sheet.text(min(end + 3, WIDTH - 14), y + 13, "✕", "cross", "start", f"{name}: {how}")
        for row in found[key]:
            x = _LEFT + (min(max(row["time"], low), high) - low) * scale
            sheet.path(
                [(x - 5, y - 2), (x + 5, y - 2), (x, y + 7), (x - 5, y - 2)],
                "flag",
                title=f"{row['name']}: {row['detail']}",
            )
    more = len(nodes) - len(drawn)
    note = f"<p class=note>{amount(more)} more are in the table <code>nodes</code>.</p>"
    says = f"Timeline of {len(drawn)} processes over {duration(high - low)}"
    return sheet.svg(says) + (note if more else "")


def _rank(kind: str | None) -> int:
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def activity(shown: ReportData) -> str:
    """A heat map: a row a role, a cell a stretch of time, darker where more jobs ended."""
    rows = [row for row in shown.tables["activity"] if row["time"] is not None]
    if not rows:
        return ""
    total: dict[str, int] = defaultdict(int)
    for row in rows:
        total[row["role"]] += row["ended"] + row["submitted"]
    roles = sorted(total, key=lambda role: (-total[role], role))[:MOST_ROLES]
    lives = [row for row in shown.tables["nodes"] if row["first"] is not None]
    # The same axis as that of the processes above.
    first = min(r["first"] for r in lives)
    last = max(max(r["last"] for r in lives), *(r["time"] + r["length"] for r in rows))
    most = max((r["ended"] for r in rows), default=0) or 1
    scale = (WIDTH - _LEFT - 10) / (last - first)
    height = 26
    sheet = Drawing(WIDTH, height * len(roles) + 26)
    _axis(sheet, first, last, 0, height * len(roles) + 2)
    for row in rows:
        if row["role"] not in roles:
            continue
        x = max(_LEFT + (row["time"] - first) * scale, _LEFT)
        y = roles.index(row["role"]) * height + 2
        width = row["length"] * scale
        when = datetime.fromtimestamp(row["time"] / 1e6, UTC)
        says = (
            f"{row['role']} from {when:%H:%M:%S.%f} for {duration(row['length'])}: "
            f"{amount(row['submitted'])} submitted, {amount(row['ended'])} ended, "
            f"{amount(row['failed'])} of them not ok; mean {duration(row['mean_total'])}"
        )
        share = math.sqrt(row["ended"] / most)  # what is little shall be seen too
        sheet.rect(x, y, width - 1, height - 3, "empty", title=says, round=2)
        if row["ended"]:
            sheet.rect(
                x, y, width - 1, height - 3, "heat", title=says, opacity=0.1 + 0.9 * share, round=2
            )
        if row["failed"]:
            part = row["failed"] / row["ended"]
            sheet.rect(x, y + height - 7, (width - 1) * part, 4, "bad", title=says)
        if row["submitted"]:
            sheet.line(x + 1, y, x + width - 2, y, "came")
    for place, role in enumerate(roles):
        sheet.text(_LEFT - 10, place * height + 18, clip(role, 22), "name", "end", role)
    more = len(total) - len(roles)
    note = f"<p class=note>{amount(more)} more roles are in the table <code>activity</code>.</p>"
    return sheet.svg(f"Jobs by role and time, at most {most} in a cell") + (note if more else "")


def _bars(shown: ReportData) -> dict[str, dict[str | None, dict[float, tuple[float, int]]]]:
    """Phase to role to low to (high, count)."""
    bars: dict[str, dict[str | None, dict[float, tuple[float, int]]]] = {}
    for row in shown.tables["histogram"]:
        bars.setdefault(row["phase"], {}).setdefault(row["role"], {})[row["low"]] = (
            row["high"],
            row["count"],
        )
    return bars


def _whole(
    parts: Mapping[str | None, Mapping[float, tuple[float, int]]],
) -> dict[float, list[float]]:
    """Low to [high, count], of all roles together."""
    whole: dict[float, list[float]] = {}
    for bars in parts.values():
        for low, (high, count) in bars.items():
            whole.setdefault(low, [high, 0])[1] += count
    return whole


def phases(shown: ReportData) -> str:
    """A row a phase on one axis: its histogram, the median, and the hundredth that is slowest."""
    bars = _bars(shown)
    latency = {row["phase"]: row for row in shown.tables["latency"]}
    there = [phase for phase in PHASES if phase in bars and phase in latency]
    if not there:
        return ""
    wholes = {phase: _whole(bars[phase]) for phase in there}
    high = max(h for whole in wholes.values() for h, _ in whole.values())
    scale = LogScale(1.0, 10 ** math.ceil(math.log10(max(high, 10.0))), 130, 790)
    height, top = 44, 26
    sheet = Drawing(WIDTH, top + height * len(there) + 20)
    bottom = top + height * len(there)
    for tick in scale.ticks():
        x = scale(tick)
        sheet.line(x, top - 6, x, bottom, "grid")
        sheet.text(x, bottom + 14, duration(tick), "small", "middle")
    columns = (("samples", 860), ("half", 925), ("9 of 10", 985), ("99 of 100", 1050))
    for name, x in (*columns, ("longest", WIDTH)):
        sheet.text(x, 12, name, "small", "end")
    for place, phase in enumerate(there):
        base = top + (place + 1) * height - 8
        row, whole = latency[phase], wholes[phase]
        sheet.text(120, base - 4, phase, "name", "end", PHASES[phase])
        sheet.line(130, base, 790, base, "base")
        most = max(count for _, count in whole.values())
        for low, (end, count) in sorted(whole.items()):
            x, size = scale(low), (height - 14) * math.sqrt(count / most)
            says = f"{phase}: {amount(count)} from {duration(low)} to {duration(end)}"
            sheet.rect(x, base - size, max(scale(end) - x - 0.6, 1), size, "bar", title=says)
        for name, look in (("p50", "median"), ("p99", "slow")):
            x = scale(max(row[name], 1))
            sheet.line(x, base - height + 12, x, base + 4, look)
        for (_, x), name in zip(columns, ("count", "p50", "p90", "p99"), strict=True):
            told = amount(row[name]) if name == "count" else duration(row[name])
            sheet.text(x, base - 4, told, "value", "end")
        sheet.text(WIDTH, base - 4, duration(row["most"]), "value", "end")
    return sheet.svg(f"Histograms of {len(there)} phases on a logarithmic axis of time")


def curves(shown: ReportData) -> str:
    """Percentile curves: one sheet for the phases, and one a phase with its roles."""
    bars = _bars(shown)
    sheets: list[tuple[str, Mapping[str, Mapping[float, Sequence[float]]]]] = [
        ("phases", {phase: _whole(bars[phase]) for phase in _CURVES if phase in bars})
    ]
    for phase in ("total", "queue wait", "handler"):
        parts = {role: one for role, one in bars.get(phase, {}).items() if role is not None}
        if len(parts) > 1:
            busiest = sorted(parts, key=lambda r: -sum(c for _, c in parts[r].values()))[:COLOURS]
            sheets.append((f"{phase}, by role", {r: _whole({r: parts[r]}) for r in busiest}))
    return "".join(_curve(title, lines) for title, lines in sheets if lines)


def _curve(title: str, lines: Mapping[str, Mapping[float, Sequence[float]]]) -> str:
    low = min(lo for bars in lines.values() for lo in bars)
    high = max(hi for bars in lines.values() for hi, _ in bars.values())
    low = 10 ** math.floor(math.log10(max(low, 1.0)))
    scale = LogScale(low, max(10 ** math.ceil(math.log10(high)), low * 10), 240, 14)
    count = max(sum(n for _, n in bars.values()) for bars in lines.values())
    reach = min(max(math.log10(max(count, 2)), 1.0), 4.0)
    left, right = 62, 520
    sheet = Drawing(530, 266)
    for tick in scale.ticks():
        sheet.line(left, scale(tick), right, scale(tick), "grid")
        sheet.text(left - 6, scale(tick) + 4, duration(tick), "small", "end")
    for share in _NINES:
        place = -math.log10(1 - share)
        if place <= reach + 0.01:
            x = left + place / reach * (right - left)
            sheet.line(x, 14, x, 240, "grid")
            sheet.text(x, 256, f"{share * 100:g} %", "small", "middle")
    keys = []
    for index, (name, bars) in enumerate(lines.items()):
        total, seen = sum(n for _, n in bars.values()), 0.0
        points: list[tuple[float, float]] = []
        for start, (end, number) in sorted(bars.items()):
            if not points:
                points.append((float(left), scale(start)))
            seen += number
            place = min(-math.log10(max(1 - seen / total, 1 / (2 * total))), reach)
            points.append((left + place / reach * (right - left), scale(end)))
        look = f"c{index % COLOURS}"
        sheet.path(points, f"curve {look}", title=f"{name}: {amount(total)} samples")
        keys.append((name, look))
    legend = "".join(f'<span class="key {look}">{escape(name)}</span>' for name, look in keys)
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f"{sheet.svg(f'Percentile curves: {title}')}<div class=legend>{legend}</div></figure>"
    )
