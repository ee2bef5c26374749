"""The story of a violation as a sequence diagram."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from wmp.pages.sequence import Lifeline, SequenceDiagram
from wmp.pages.template import duration
from wmp.spark.reports.report_data import ReportData, Row, rank_of

_WIDTH: Final = 1000
"""Width that few lifelines share, so that their texts have much space."""
_SPACING: Final = 250
"""Minimum distance between two lifelines."""
_MARGIN: Final = 50
"""Further space beside the last lifeline."""
_MAX: Final = 6
"""Maximum number of lifelines. Other processes appear only in the lines of their peers."""
_JOINED: Final = re.compile(r"\b(?:number|session|ready|lock)=\S+")


def violation_diagram(violation: Row, data: ReportData) -> Markup:
    """Draw the story of a violation, which is a row of ``violations``."""
    known, lines_of_it = data.nodes, data.stories.get(violation["violation"], ())
    story = [((row["node"], row["epoch"]), row) for row in lines_of_it]
    if not story:
        return Markup()
    lanes = sorted(
        (lane for lane, _ in Counter(lane for lane, _ in story).most_common(_MAX)),
        key=lambda lane: (rank_of(known[lane]["kind"] if lane in known else None), *lane),
    )
    names = [data.name_of(*lane) for lane in lanes]
    lifelines = [
        # The epoch distinguishes processes of the same name.
        Lifeline(f"{name} {epoch}" if names.count(name) > 1 else name, f"{node} {epoch}")
        for name, (node, epoch) in zip(names, lanes, strict=True)
    ]
    spacing = max(_SPACING, _WIDTH / len(lanes))
    diagram = SequenceDiagram(lifelines, spacing=spacing, margin=spacing + _MARGIN)
    lines = [(lanes.index(lane), row) for lane, row in story if lane in lanes]
    arrivals = _arrivals([row for _, row in lines])
    arrived = set(arrivals.values())
    times = [row["time"] for _, row in lines]
    where = (violation["time"], violation["node"], violation["epoch"])
    for index, (lane, row) in enumerate(lines):
        look = ""
        if (row["time"], row["node"], row["epoch"]) == where:
            diagram.highlight(index)
            look = "marked"
        diagram.time(index, f"+{duration(times[index] - times[0])}")
        words, detail = _words(row), row["text"] or ""
        whole = f"{words} {detail}".strip()
        if index in arrivals:
            arrival = arrivals[index]
            diagram.message(index, lane, [(lines[arrival][0], arrival)], words, look, whole)
        elif row["what"] == "send" and row["command"]:
            diagram.sent(index, lane, words, look, whole)
        elif index in arrived:
            reason = detail.partition("reason=")[2]
            diagram.event(index, lane, f"ignored: {reason}" if reason else "", look, whole)
        elif row["what"] == "received":
            source = f" from {data.name_of(row['source'])}" if row["source"] else ""
            diagram.received(index, lane, f"{words}{source} {detail}".strip(), look)
        else:
            diagram.event(index, lane, whole, look)
    return diagram.svg(f"What happened around {violation['name']}: {violation['detail']}")


def _words(row: Row) -> str:
    command = row["command"] if row["what"] in ("send", "received") else None
    parts = [command or row["what"]]
    if ids := row["ids"]:
        parts.append(f"[{' '.join(map(str, ids[:4]))}{' …' if len(ids) > 4 else ''}]")
    if row["attempts"]:
        parts.append(f"attempt {row['attempts'][0]}")
    return " ".join(parts)


def _arrivals(lines: Sequence[Row]) -> dict[int, int]:
    """Map the places of sent messages to the places of their arrivals."""
    waiting: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    arrivals: dict[int, int] = {}
    for index, row in enumerate(lines):
        if row["command"]:
            key = (row["command"], row["source"], row["target"])
            sent = waiting[*key, *_JOINED.findall(row["text"] or "")]
            if row["what"] == "send":
                sent.append(index)
            elif row["what"] == "received":
                origin = next(
                    (origin for origin in sent if lines[origin]["node"] != row["node"]), None
                )
                if origin is not None:
                    arrivals[origin] = index
                    sent.remove(origin)
    return arrivals
