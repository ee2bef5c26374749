"""The story of a violation as a sequence diagram."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from wmp.pages.sequence import Lifeline, SequenceDiagram
from wmp.pages.svg import clip
from wmp.pages.template import duration
from wmp.spark.report_data import Row, name_of, rank_of

__all__ = ["violation_diagram"]

_SPACING: Final = 250
_MARGIN: Final = 300
"""Space for text beside the last lifeline."""
_MOST: Final = 6
"""Largest number of lifelines. Other processes appear only in the lines of their peers."""
_JOINED: Final = re.compile(r"\b(?:number|session|ready|lock)=\S+")


def violation_diagram(
    violation: Row, story: Sequence[Row], nodes: Mapping[tuple[str, int], Row]
) -> Markup:
    """Draw the story of a violation.

    Args:
        violation: A row of ``violations``.
        story: Its rows of ``violation_events``, in order.
        nodes: The rows of ``nodes`` by (node, epoch).
    """
    talked = Counter((row["node"], row["epoch"]) for row in story)
    lanes = sorted(
        (lane for lane, _ in talked.most_common(_MOST)),
        key=lambda lane: (rank_of(nodes[lane]["kind"] if lane in nodes else None), *lane),
    )
    if not lanes:
        return Markup()
    at = {lane: place for place, lane in enumerate(lanes)}
    diagram = SequenceDiagram(_lifelines(lanes, nodes), spacing=_SPACING, margin=_MARGIN)
    lines = [row for row in story if (row["node"], row["epoch"]) in at]
    arrivals = _arrivals(lines)
    arrived = set(arrivals.values())
    first = next((row["time"] for row in lines if row["time"] is not None), 0)
    for place, row in enumerate(lines):
        lane = (row["node"], row["epoch"])
        broken = row["time"] == violation["time"] and lane == (
            violation["node"],
            violation["epoch"],
        )
        if broken:
            diagram.highlight(place)
        look = "marked" if broken else ""
        diagram.time(place, f"+{duration((row['time'] or first) - first)}")
        words, detail = _words(row), row["text"] or ""
        whole = f"{words} {detail}".strip()
        if place in arrivals:
            arrival = arrivals[place]
            end = at[lines[arrival]["node"], lines[arrival]["epoch"]]
            diagram.message(place, at[lane], [(end, arrival)], words, look, whole)
        elif row["what"] == "send" and row["command"]:
            diagram.sent(place, at[lane], words, look, whole)
        elif place in arrived:
            ignored = f"ignored: {clip(detail, 40)}" if "reason=" in detail else ""
            diagram.event(place, at[lane], ignored, look, whole)
        elif row["what"] == "received":
            source = f" from {name_of(row['source'])}" if row["source"] else ""
            diagram.received(place, at[lane], f"{words}{source} {detail}".strip(), look)
        else:
            diagram.event(place, at[lane], whole, look)
    return diagram.svg(f"What happened around {violation['name']}: {violation['detail']}")


def _lifelines(
    lanes: Sequence[tuple[str, int]], nodes: Mapping[tuple[str, int], Row]
) -> list[Lifeline]:
    """Return the lifelines; the epoch distinguishes processes of the same name."""
    names = {lane: name_of(lane[0], nodes.get(lane)) for lane in lanes}
    same = Counter(names.values())
    return [
        Lifeline(f"{name} {lane[1]}" if same[name] > 1 else name, f"{lane[0]} {lane[1]}")
        for lane, name in names.items()
    ]


def _words(row: Row) -> str:
    what = row["command"] if row["what"] in ("send", "received") else row["what"]
    parts = [what or row["what"]]
    if row["ids"]:
        ids = row["ids"]
        parts.append(f"[{' '.join(map(str, ids[:4]))}{' …' if len(ids) > 4 else ''}]")
    if row["attempts"]:
        parts.append(f"attempt {row['attempts'][0]}")
    return " ".join(parts)


def _arrivals(lines: Sequence[Row]) -> dict[int, int]:
    """Map the places of sent messages to the places of their arrivals."""
    waiting: dict[tuple[object, ...], list[int]] = {}
    found: dict[int, int] = {}
    for place, row in enumerate(lines):
        if not row["command"]:
            continue
        key = (row["command"], row["source"], row["target"], *_JOINED.findall(row["text"] or ""))
        if row["what"] == "send":
            waiting.setdefault(key, []).append(place)
        elif row["what"] == "received":
            sent = waiting.get(key, [])
            for one in sent:
                if lines[one]["node"] != row["node"]:
                    found[one] = place
                    sent.remove(one)
                    break
    return found
