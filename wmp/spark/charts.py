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
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from wmp.pages.template import amount, duration, moment
from wmp.spark.report_data import ReportData, Row
from wmp.spark.schema import PHASES

__all__ = ["MOST_ROLES", "figures", "plotly", "script_hash", "to_json"]

MOST_ROLES: Final = 24
"""Limit of the roles in a chart; the chart of load has the most active roles."""
_CURVES: Final = (
    "queue wait", "take trip", "lane wait", "handler", "done trip", "lease", "total",
)  # fmt: skip
_COLOURS: Final = [[0.0, "rgba(37,99,235,0.06)"], [0.3, "#7dabf8"], [1.0, "#1e3a8a"]]
_BARS: Final = 4
"""Bars of a histogram between a power of two and the next."""

_NAMES: Final = {"type": "category", "autorange": "reversed"}
"""An axis of names, from top to bottom."""
_ROUND: Final = (*(10.0**power for power in range(8)), 6e7, 6e8, 3.6e9, 3.6e10, 3.6e11)
_DURATIONS: Final = {
    "tickvals": [math.log10(micros) for micros in _ROUND],
    "ticktext": [duration(micros) for micros in _ROUND],
}
"""An axis whose values are the decimal logarithms of µs."""
_NINES: Final = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)
_SHARES: Final = {
    "tickvals": [-math.log10(1 - share) for share in _NINES],
    "ticktext": [f"{share * 100:g} %" for share in _NINES],
}
"""An axis of shares of all samples."""

_Figure = dict[str, Any]
_Bars = Mapping[int, int]
"""Number of samples of each bar, by its place: bar 0 begins at 1 µs."""


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
    roles: defaultdict[str, defaultdict[str | None, Counter[int]]]
    roles = defaultdict(lambda: defaultdict(Counter))
    for row in data.tables["histogram"]:
        roles[row["phase"]][row["role"]][round(math.log2(row["low"]) * _BARS)] = row["count"]
    phases = {phase: sum(parts.values(), Counter()) for phase, parts in roles.items()}
    made = {
        "chart-load": _load(data),
        "chart-phases": _phases(phases, data.latency()),
        "chart-percentiles": _curves(
            "phases", {phase: phases[phase] for phase in _CURVES if phase in phases}
        ),
    }
    for phase in ("total", "queue wait", "handler"):
        parts = {role: bars for role, bars in roles[phase].items() if role is not None}
        if len(parts) > 1:
            busiest = sorted(parts, key=lambda role: -parts[role].total())[:8]
            name = f"chart-{phase.replace(' ', '-')}"
            made[name] = _curves(f"{phase}, by role", {role: parts[role] for role in busiest})
    return {name: figure for name, figure in made.items() if figure is not None}


def _load(data: ReportData) -> _Figure | None:
    """Draw a row for each role, and a cell for each stretch; more jobs make it darker."""
    rows = data.tables["activity"]
    if not rows:
        return None
    total: Counter[str] = Counter()
    for row in rows:
        total[row["role"]] += row["ended"] + row["submitted"]
    roles = sorted(total, key=lambda role: (-total[role], role or ""))[:MOST_ROLES]
    length = rows[0]["length"]
    begin = min(data.span[0] // length * length, *(row["time"] for row in rows))
    times = range(begin, max(row["time"] for row in rows) + 1, length)
    middles = [moment(time + length / 2) for time in times]
    cells = {(row["role"], row["time"]): row for row in rows}
    table = [[cells.get((role, time)) for time in times] for role in roles]
    names = [_text(role) for role in roles]
    heat = _heat(
        "jobs ended", middles, names,
        [[(row["ended"], _load_text(row)) if row else (None, "") for row in line]
         for line in table],
        xgap=1, ygap=2,
    )  # fmt: skip
    failed = [
        (middle, name)
        for name, line in zip(names, table, strict=True)
        for middle, row in zip(middles, line, strict=True)
        if row and row["failed"]
    ]
    bad = _marks("some did not end ok", failed, symbol="x", size=7, color="#dc2626")
    layout = _layout(150 + 26 * len(roles), xaxis={"type": "date"}, yaxis=_NAMES)
    return {"data": [heat, *([bad] if failed else [])], "layout": layout}


def _load_text(row: Row) -> str:
    return (
        f"{_text(row['role'])} from {moment(row['time'])} for {duration(row['length'])}<br>"
        f"{amount(row['submitted'])} submitted, {amount(row['ended'])} ended, "
        f"{amount(row['failed'])} of them not ok; mean {duration(row['mean_total'])}"
    )


def _phases(phases: Mapping[str, _Bars], latency: Mapping[str, Row]) -> _Figure | None:
    """Draw a row for each phase on one logarithmic axis: its samples, its p50 and its p99."""
    there = [phase for phase in PHASES if phase in phases and phase in latency]
    if not there:
        return None
    used = [bar for phase in there for bar in phases[phase]]
    bars = range(min(used), max(used) + 1)

    def cell(phase: str, bar: int) -> tuple[float | None, str]:
        count = phases[phase].get(bar, 0)
        ends = f"from {duration(_low(bar))} to {duration(_low(bar + 1))}"
        return count / sum(phases[phase].values()) or None, f"{phase}: {amount(count)} {ends}"

    heat = _heat(
        "samples", [_log(_low(bar + 0.5)) for bar in bars], there,
        [[cell(phase, bar) for bar in bars] for phase in there],
        ygap=6, format=".0%",
    )  # fmt: skip
    marks = []
    for name, colour in (("p50", "#0f766e"), ("p99", "#dc2626")):
        times = {phase: latency[phase][name] for phase in there}
        places = [(_log(time), phase) for phase, time in times.items()]
        words = [f"{name} of {phase}: {duration(time)}" for phase, time in times.items()]
        one = _marks(name, places, symbol="line-ns-open", size=18, color=colour, line={"width": 3})
        marks.append({**one, "hoverinfo": "text", "text": words})
    layout = _layout(80 + 34 * len(there), xaxis=_DURATIONS, yaxis=_NAMES)
    return {"data": [heat, *marks], "layout": layout}


def _curves(title: str, lines: Mapping[str, _Bars]) -> _Figure | None:
    """Draw percentile curves: the time within which a share of the samples ends."""
    if not lines:
        return None
    count = max(sum(bars.values()) for bars in lines.values())
    reach = min(max(math.log10(max(count, 2)), 1.0), 4.0)
    drawn = []
    for name, bars in lines.items():
        order, total = sorted(bars), sum(bars.values())
        values = [_low(order[0]), *(_low(bar + 1) for bar in order)]
        seen = accumulate(bars[bar] for bar in order)
        left = [1.0, *(max(1 - one / total, 1 / (2 * total)) for one in seen)]
        shares = [min(abs(math.log10(one)), reach) for one in left]
        drawn.append({
            "type": "scatter", "mode": "lines", "name": _text(name), "x": shares,
            "y": [_log(value) for value in values], "line": {"shape": "hv"}, "hoverinfo": "text",
            "text": [
                f"{_text(name)}: {100 * (1 - 10**-share):.4g} % within {duration(value)}"
                for share, value in zip(shares, values, strict=True)
            ],
        })  # fmt: skip
    title_and_key = {"title": {"text": title}, "showlegend": True}
    return {
        "data": drawn, "layout": _layout(340, xaxis=_SHARES, yaxis=_DURATIONS, **title_and_key)
    }  # fmt: skip


def _heat(
    title: str, x: Sequence[Any], y: Sequence[str],
    cells: Sequence[Sequence[tuple[float | None, str]]], *, format: str = "", **gaps: int,
) -> _Figure:  # fmt: skip
    """Draw rows of cells (number, tooltip) in shades of blue, with a colour scale."""
    return {
        "type": "heatmap", "name": title, "x": x, "y": y, "zmin": 0, "colorscale": _COLOURS,
        "z": [[number for number, _ in row] for row in cells],
        "text": [[words for _, words in row] for row in cells], "hoverinfo": "text",
        "colorbar": {"title": {"text": title}, "thickness": 12, "tickformat": format}, **gaps,
    }  # fmt: skip


def _marks(name: str, places: Sequence[tuple[Any, str]], **marker: Any) -> _Figure:
    x, y = zip(*places, strict=True) if places else ((), ())
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": x, "y": y, "marker": marker,
        "hoverinfo": "skip",
    }  # fmt: skip


def _layout(height: int, *, xaxis: _Figure, yaxis: _Figure, **more: Any) -> _Figure:
    axis = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "automargin": True}
    return {
        "height": height, "margin": {"l": 10, "r": 10, "t": 30, "b": 30},
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
        "modebar": {"bgcolor": "rgba(0,0,0,0)"}, "hovermode": "closest",
        "legend": {"orientation": "h"}, "xaxis": axis | xaxis, "yaxis": axis | yaxis, **more,
    }  # fmt: skip


def _low(bar: float) -> float:
    """Return the low end of a bar in µs."""
    return float(2 ** (bar / _BARS))


def _log(micros: float) -> float:
    return math.log10(max(micros, 1))


def _text(words: str | None) -> str:
    """Return text that Plotly shows as it is: otherwise Plotly reads some tags."""
    return html.escape(words or "", quote=False)
