"""The interactive charts of a report, drawn by Plotly in the browser: load, phases, percentiles.

This module makes Plotly's figures as plain data. The page has Plotly's script inside, so it needs
no network.
"""

from __future__ import annotations

import html
import importlib.util
import json
import math
from base64 import b64encode
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from wmp.pages.template import amount, duration
from wmp.spark.report_data import ReportData
from wmp.spark.schema import PHASES

__all__ = ["MOST_ROLES", "figures", "plotly", "script_hash", "to_json"]

MOST_ROLES: Final = 24
"""Limit of the roles in a chart; the chart of load has the most active roles."""
_CURVES: Final = (
    "queue wait", "take trip", "lane wait", "handler", "done trip", "lease", "total",
)  # fmt: skip
_NINES: Final = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)
_COLOURS: Final = [[0.0, "rgba(37,99,235,0.06)"], [0.3, "#7dabf8"], [1.0, "#1e3a8a"]]
_GRID: Final = "rgba(128,128,128,0.25)"
_BARS: Final = 4
"""Bars of a histogram between a power of two and the next."""

_Figure = dict[str, Any]
_Bars = Mapping[float, int]
"""Number of samples by the low end of their bar."""


@cache
def plotly() -> str:
    """Return Plotly's script, without an import of its Python part, which takes a second."""
    spec = importlib.util.find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("package_data").joinpath("plotly.min.js").read_text("utf-8")


def script_hash(script: str) -> str:
    """Return the source of a script for the page's Content-Security-Policy."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def to_json(value: object) -> str:
    """Return JSON that stays data inside of a ``script`` element, whatever its text is."""
    text = json.dumps(value, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def figures(data: ReportData) -> dict[str, _Figure]:
    """Return the figures by the id of their element; a figure without data is left out."""
    made = {"chart-load": _load(data), "chart-phases": _phases(data)}
    bars = _bars(data)
    made["chart-percentiles"] = _curves(
        "phases", {name: _whole(bars[name].values()) for name in _CURVES if name in bars}
    )
    for phase in ("total", "queue wait", "handler"):
        parts = {role: one for role, one in bars.get(phase, {}).items() if role is not None}
        if len(parts) > 1:
            busiest = sorted(parts, key=lambda r: -sum(parts[r].values()))[:8]
            name = f"chart-{phase.replace(' ', '-')}"
            made[name] = _curves(f"{phase}, by role", {r: parts[r] for r in busiest})
    return {name: figure for name, figure in made.items() if figure is not None}


def _text(words: str | None) -> str:
    """Return text that Plotly shows as it is: otherwise Plotly reads some tags."""
    return html.escape(words or "", quote=False)


def _layout(height: int, **more: Any) -> _Figure:
    axis = {"gridcolor": _GRID, "zeroline": False, "automargin": True}
    axes = {name: {**axis, **more.pop(name, {})} for name in ("xaxis", "yaxis")}
    return {
        "height": height, "margin": {"l": 10, "r": 10, "t": 30, "b": 30},
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
        "modebar": {"bgcolor": "rgba(0,0,0,0)"}, "hovermode": "closest",
        "legend": {"orientation": "h"}, **axes, **more,
    }  # fmt: skip


def _time(micros: float) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _load(data: ReportData) -> _Figure | None:
    """Draw a row for each role, and a cell for each stretch; more jobs make it darker."""
    rows = [row for row in data.tables["activity"] if row["time"] is not None]
    if not rows:
        return None
    total: defaultdict[str, int] = defaultdict(int)
    cells = {}
    for row in rows:
        total[row["role"]] += row["ended"] + row["submitted"]
        cells[row["role"], row["time"]] = row
    roles = sorted(total, key=lambda role: (-total[role], role or ""))[:MOST_ROLES]
    length = rows[0]["length"]
    lives = [row for row in data.tables["nodes"] if row["first"] is not None]
    first = max(min((row["first"] for row in lives), default=0), data.window[0])
    begin = min(first // length * length, *(row["time"] for row in rows))
    times = list(range(begin, max(row["time"] for row in rows) + 1, length))
    names = [_text(role) for role in roles]
    ended, words, failed = [], [], []
    for role, name in zip(roles, names, strict=True):
        some = [cells.get((role, time)) for time in times]
        ended.append([None if row is None else row["ended"] for row in some])
        words.append(["" if row is None else _cell(name, row) for row in some])
        failed += [(row["time"] + length / 2, name) for row in some if row and row["failed"]]
    heat = {
        "type": "heatmap", "x": [_time(time + length / 2) for time in times], "y": names,
        "z": ended, "text": words, "hoverinfo": "text", "colorscale": _COLOURS, "xgap": 1,
        "ygap": 2, "zmin": 0, "colorbar": {"title": {"text": "jobs ended"}, "thickness": 12},
        "name": "jobs ended",
    }  # fmt: skip
    bad = {
        "type": "scatter", "mode": "markers", "x": [_time(time) for time, _ in failed],
        "y": [name for _, name in failed], "hoverinfo": "skip", "name": "some did not end ok",
        "marker": {"color": "#dc2626", "size": 7, "symbol": "x"},
    }  # fmt: skip
    axis = {"type": "category", "autorange": "reversed"}
    layout = _layout(150 + 26 * len(roles), xaxis={"type": "date"}, yaxis=axis)
    return {"data": [heat, *([bad] if failed else [])], "layout": layout}


def _cell(name: str, row: Mapping[str, Any]) -> str:
    return (
        f"{name} from {_time(row['time'])} for {duration(row['length'])}<br>"
        f"{amount(row['submitted'])} submitted, {amount(row['ended'])} ended, "
        f"{amount(row['failed'])} of them not ok; mean {duration(row['mean_total'])}"
    )


def _bars(data: ReportData) -> dict[str, dict[str | None, dict[float, int]]]:
    """Return the bars by phase and role."""
    bars: defaultdict[str, dict[str | None, dict[float, int]]] = defaultdict(dict)
    for row in data.tables["histogram"]:
        bars[row["phase"]].setdefault(row["role"], {})[row["low"]] = row["count"]
    return bars


def _whole(parts: Any) -> dict[float, int]:
    """Add up the bars of all roles."""
    whole: defaultdict[float, int] = defaultdict(int)
    for bars in parts:
        for low, count in bars.items():
            whole[low] += count
    return whole


def _ticks(low: float, high: float) -> _Figure:
    """Return an axis of durations from ``low`` to ``high`` µs, whose values are logarithms."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return {"tickvals": list(powers), "ticktext": [duration(10.0**power) for power in powers]}


def _phases(data: ReportData) -> _Figure | None:
    """Draw a row for each phase on one logarithmic axis: its samples, its p50 and its p99."""
    bars, latency = _bars(data), {row["phase"]: row for row in data.tables["latency"]}
    there = [phase for phase in PHASES if phase in bars and phase in latency]
    if not there:
        return None
    wholes = [_whole(bars[phase].values()) for phase in there]
    places = [round(math.log2(low) * _BARS) for whole in wholes for low in whole]
    steps = range(min(places), max(places) + 1)
    lows = [2.0 ** (step / _BARS) for step in steps]
    width = math.log10(2.0) / _BARS
    heat = {
        "type": "heatmap", "y": there, "x": [math.log10(low) + width / 2 for low in lows],
        "z": [[_share(whole, step) for step in steps] for whole in wholes],
        "text": [
            [
                f"{phase}: {amount(_at(whole, step))} from {duration(low)} to "
                f"{duration(low * 2 ** (1 / _BARS))}"
                for step, low in zip(steps, lows, strict=True)
            ]
            for phase, whole in zip(there, wholes, strict=True)
        ],
        "hoverinfo": "text", "colorscale": _COLOURS, "ygap": 6, "zmin": 0,
        "colorbar": {"title": {"text": "samples"}, "thickness": 12, "tickformat": ".0%"},
    }  # fmt: skip
    marks = [
        {
            "type": "scatter", "mode": "markers", "name": name, "y": there,
            "x": [math.log10(max(latency[phase][name], 1)) for phase in there],
            "text": [f"{name} of {phase}: {duration(latency[phase][name])}" for phase in there],
            "hoverinfo": "text",
            "marker": {"symbol": "line-ns-open", "size": 18, "color": colour, "line": {"width": 3}},
        }
        for name, colour in (("p50", "#0f766e"), ("p99", "#dc2626"))
    ]  # fmt: skip
    axis = {"type": "category", "autorange": "reversed"}
    layout = _layout(80 + 34 * len(there), xaxis=_ticks(lows[0], lows[-1] * 2), yaxis=axis)
    return {"data": [heat, *marks], "layout": layout}


def _at(whole: _Bars, step: int) -> int:
    return whole.get(2.0 ** (step / _BARS), 0)


def _share(whole: _Bars, step: int) -> float | None:
    return _at(whole, step) / sum(whole.values()) or None


def _curves(title: str, lines: Mapping[str, _Bars]) -> _Figure | None:
    """Draw percentile curves: the time within which a share of the samples ends."""
    if not lines:
        return None
    count = max(sum(bars.values()) for bars in lines.values())
    reach = min(max(math.log10(max(count, 2)), 1.0), 4.0)
    drawn = []
    for name, bars in lines.items():
        total, seen = sum(bars.values()), 0
        shares: list[float] = [0.0]
        values = [min(bars)]
        for low, number in sorted(bars.items()):
            seen += number
            shares.append(min(-math.log10(max(1 - seen / total, 1 / (2 * total))), reach))
            values.append(low * 2 ** (1 / _BARS))
        drawn.append({
            "type": "scatter", "mode": "lines", "name": _text(name), "x": shares,
            "y": [math.log10(max(value, 1)) for value in values], "line": {"shape": "hv"},
            "text": [
                f"{_text(name)}: {100 * (1 - 10**-share):.4g} % within {duration(value)}"
                for share, value in zip(shares, values, strict=True)
            ],
            "hoverinfo": "text",
        })  # fmt: skip
    nines = [share for share in _NINES if -math.log10(1 - share) <= reach + 0.01]
    low = min(min(bars) for bars in lines.values())
    high = max(max(bars) for bars in lines.values()) * 2
    xaxis = {
        "tickvals": [-math.log10(1 - share) for share in nines],
        "ticktext": [f"{share * 100:g} %" for share in nines],
    }
    layout = _layout(340, title={"text": title}, xaxis=xaxis, yaxis=_ticks(max(low, 1), high))
    return {"data": drawn, "layout": {**layout, "showlegend": True}}
