"""The interactive charts of a report, drawn by Plotly in the browser: load, phases, percentiles.

This module makes Plotly's figures as plain data, and the page's script gives them their look. The
page has Plotly's script inside, so it needs no network.
"""

from __future__ import annotations

import html
import importlib.util
import json
import math
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from wmp.pages.template import amount, duration, moment
from wmp.spark.journals.schema import PHASES
from wmp.spark.reports.report_data import GROUPED, ReportData, Row

MAX_ROLES: Final = 24
"""Limit of the roles in a chart; the chart of load has the most active roles."""
_MAX_CURVES: Final = 8
"""Limit of the roles in a chart of percentiles; it has the roles with the most samples."""
_CURVES: Final = (
    "queue wait", "take trip", "lane wait", "handler", "done trip", "lease", "total",
)  # fmt: skip
_COLOURS: Final = [
    [share, f"rgba(59,130,246,{opacity})"] for share, opacity in ((0.0, 0.07), (0.3, 0.5), (1.0, 1))
]
"""One blue, whose opacity grows: so more stands out on a light and on a dark page."""
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
    roles: defaultdict[str, defaultdict[str, Counter[int]]]
    roles = defaultdict(lambda: defaultdict(Counter))
    phases: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for row in data.tables["histogram"]:
        bar = round(math.log2(row["low"]) * _BARS)
        phases[row["phase"]][bar] += row["count"]
        if row["role"] is not None:
            roles[row["phase"]][row["role"]][bar] = row["count"]
    charts = {
        "chart-load": _load(data),
        "chart-phases": _phases(phases, data.latency()),
        "chart-percentiles": _curves(
            "phases", {phase: phases[phase] for phase in _CURVES if phase in phases}
        ),
    }
    for phase in GROUPED:
        if len(parts := roles[phase]) > 1:
            busiest = sorted(parts, key=lambda role: -parts[role].total())[:_MAX_CURVES]
            figure = _curves(f"{phase}, by role", {role: parts[role] for role in busiest})
            charts[f"chart-{phase.replace(' ', '-')}"] = figure
    return {name: figure for name, figure in charts.items() if figure}


def _load(data: ReportData) -> _Figure:
    """Draw a row for each role, and a cell for each stretch; more jobs make it stronger."""
    rows = data.tables["activity"]
    if not rows:
        return {}
    total: Counter[str] = Counter()
    for row in rows:
        total[row["role"]] += row["ended"] + row["submitted"]
    roles = sorted(total, key=lambda role: (-total[role], role or ""))[:MAX_ROLES]
    length = rows[0]["length"]
    begin = min(data.span[0] // length * length, *(row["time"] for row in rows))
    times = range(begin, max(row["time"] for row in rows) + 1, length)
    cells = {(row["role"], row["time"]): row for row in rows}
    table = [[cells.get((role, time)) for time in times] for role in roles]
    heat = {
        **_heat("jobs ended", [moment(time + length / 2) for time in times], map(_text, roles)),
        "z": [[row and row["ended"] for row in line] for line in table],
        "hovertext": [[_load_text(row) if row else "" for row in line] for line in table],
        "text": [["✖" if row and row["failed"] else "" for row in line] for line in table],
        "texttemplate": "%{text}", "textfont": {"color": "#dc2626", "size": 13},
        "xgap": 1, "ygap": 2,
    }  # fmt: skip
    layout = {"height": 150 + 26 * len(roles), "xaxis": {"type": "date"}, "yaxis": _NAMES}
    return {"data": [heat], "layout": layout}


def _load_text(row: Row) -> str:
    return (
        f"{_text(row['role'])} from {moment(row['time'])} for {duration(row['length'])}<br>"
        f"{amount(row['submitted'])} submitted, {amount(row['ended'])} ended, "
        f"{amount(row['failed'])} of them not ok; mean {duration(row['mean_total'])}"
    )


def _phases(phases: Mapping[str, _Bars], latency: Mapping[str, Row]) -> _Figure:
    """Draw a row for each phase on one logarithmic axis: its samples, its p50 and its p99."""
    there = [phase for phase in PHASES if phase in phases and phase in latency]
    if not there:
        return {}
    used = [bar for phase in there for bar in phases[phase]]
    bars = range(min(used), max(used) + 1)
    numbers = [[phases[phase].get(bar, 0) for bar in bars] for phase in there]
    ends = [f"from {duration(_low(bar))} to {duration(_low(bar + 1))}" for bar in bars]
    heat = {
        **_heat("samples", [_log(_low(bar + 0.5)) for bar in bars], there, format=".0%"),
        "z": [[number / sum(line) or None for number in line] for line in numbers],
        "hovertext": [
            [f"{phase}: {amount(number)} {end}" for number, end in zip(line, ends, strict=True)]
            for phase, line in zip(there, numbers, strict=True)
        ],
        "ygap": 6,
    }  # fmt: skip
    marks = [
        {
            "type": "scatter", "mode": "markers", "name": name, "y": there,
            "x": [_log(latency[phase][name]) for phase in there],
            "text": [f"{name} of {phase}: {duration(latency[phase][name])}" for phase in there],
            "marker": {"symbol": "line-ns-open", "size": 18, "color": colour, "line": {"width": 3}},
        }
        for name, colour in (("p50", "#0d9488"), ("p99", "#dc2626"))
    ]  # fmt: skip
    layout = {"height": 80 + 34 * len(there), "xaxis": _DURATIONS, "yaxis": _NAMES}
    return {"data": [heat, *marks], "layout": layout}


def _curves(title: str, lines: Mapping[str, _Bars]) -> _Figure:
    """Draw percentile curves: the time within which a share of the samples ends."""
    if not lines:
        return {}
    count = max(sum(bars.values()) for bars in lines.values())
    reach = min(max(math.log10(max(count, 2)), 1.0), 4.0)
    drawn = []
    for name, bars in lines.items():
        order, total = sorted(bars), sum(bars.values())
        values = [_low(order[0]), *(_low(bar + 1) for bar in order)]
        seen = accumulate(bars[bar] for bar in order)
        left = [1.0, *(max(1 - number / total, 1 / (2 * total)) for number in seen)]
        shares = [min(abs(math.log10(share)), reach) for share in left]
        drawn.append({
            "type": "scatter", "mode": "lines", "name": _text(name), "x": shares,
            "y": [_log(value) for value in values], "line": {"shape": "hv"},
            "text": [
                f"{_text(name)}: {100 * (1 - 10**-share):.4g} % within {duration(value)}"
                for share, value in zip(shares, values, strict=True)
            ],
        })  # fmt: skip
    layout = {"height": 340, "xaxis": _SHARES, "yaxis": _DURATIONS, "title": {"text": title}}
    return {"data": drawn, "layout": {**layout, "showlegend": True}}


def _heat(title: str, x: Sequence[Any], y: Iterable[str], format: str = "") -> _Figure:
    """Make a table of cells in shades of blue, with a colour scale."""
    return {
        "type": "heatmap", "name": title, "x": x, "y": list(y), "colorscale": _COLOURS,
        "colorbar": {"title": {"text": title}, "tickformat": format},
    }  # fmt: skip


def _low(bar: float) -> float:
    """Return the low end of a bar in µs."""
    return float(2 ** (bar / _BARS))


def _log(micros: float) -> float:
    return math.log10(max(micros, 1))


def _text(words: str | None) -> str:
    """Return text that Plotly shows as it is: otherwise Plotly reads some tags."""
    return html.escape(words or "", quote=False)
