"""A violation drawn: a line down for each process, arrows for messages, dots for what it did."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from wmp.spark.pictures import name_of
from wmp.spark.report_data import Row
from wmp.spark.svg import Drawing, clip, duration

__all__ = ["sequence"]

_ROW: Final = 24
_TOP: Final = 40
_LEFT: Final = 84
_SPACE: Final = 250
_MOST: Final = 6
"""Lines down; what others did is told by those who talked with them."""
_KINDS: Final = ("manager", "device", "worker")
_JOINED: Final = re.compile(r"\b(?:number|session|ready|lock)=\S+")


def sequence(violation: Row, story: Sequence[Row], nodes: Mapping[tuple[str, int], Row]) -> str:
    """Draw the story of a violation.

    Args:
        violation: A row of ``violations``.
        story: Its rows of ``violation_events``, in order.
        nodes: The rows of ``nodes`` by (node, epoch).
    """
    talked: dict[tuple[str, int], int] = {}
    for row in story:
        talked[row["node"], row["epoch"]] = talked.get((row["node"], row["epoch"]), 0) + 1
    lanes = sorted(
        sorted(talked, key=lambda one: -talked[one])[:_MOST], key=lambda n: _rank(n, nodes)
    )
    if not lanes:
        return ""
    at = {lane: _LEFT + 30 + place * _SPACE for place, lane in enumerate(lanes)}
    lines = [row for row in story if (row["node"], row["epoch"]) in at]
    sheet = Drawing(max(_LEFT + len(lanes) * _SPACE, 700), _TOP + _ROW * len(lines) + 14)
    labels = {one: name_of(one[0], (nodes.get(one) or {}).get("label")) for one in lanes}
    for lane, x in at.items():
        name = labels[lane]
        if sum(one == name for one in labels.values()) > 1:
            name = f"{name} {lane[1]}"  # the same again, after it was started again
        sheet.line(x, _TOP - 12, x, _TOP + _ROW * len(lines) + 8, "life-line")
        sheet.text(x, _TOP - 20, name, "head", "middle", f"{lane[0]} {lane[1]}")
    arrivals = _pairs(lines)
    landed = set(arrivals.values())
    first = next((row["time"] for row in lines if row["time"] is not None), 0)
    for place, row in enumerate(lines):
        lane = (row["node"], row["epoch"])
        x, y = at[lane], _TOP + place * _ROW + 8
        broke = row["time"] == violation["time"] and lane == (violation["node"], violation["epoch"])
        if broke:
            sheet.rect(0, y - _ROW / 2, sheet.width, _ROW, "broke", round=4)
        sheet.text(
            _LEFT - 12, y + 4, f"+{duration((row['time'] or first) - first)}", "small", "end"
        )
        words, told = _words(row), row["text"] or ""
        look = "said broken" if broke else "said"
        if place in arrivals:
            there = arrivals[place]
            end = at[lines[there]["node"], lines[there]["epoch"]]
            sheet.line(x, y, end - (7 if end > x else -7), _TOP + there * _ROW + 8, "arrow")
            side = 1 if end > x else -1
            sheet.text(x + 10 * side, y - 4, words, look, "start" if side > 0 else "end", told)
        elif row["what"] == "send" and row["command"]:
            side = -1 if lane == lanes[-1] and len(lanes) > 1 else 1
            sheet.line(x, y, x + 34 * side, y, "arrow faint")
            sheet.text(x + 42 * side, y + 4, words, look, "start" if side > 0 else "end", told)
        elif place in landed:
            said = re.search(r"[^ =]+$", told) if row["what"] == "received" else None
            ignored = f"  ignored: {clip(told, 40)}" if said and "reason=" in told else ""
            sheet.circle(x, y, 3, "dot", title=f"{words} {told}")
            if ignored:
                sheet.text(x + 10, y + 4, ignored, look, "start", told)
        else:
            if row["what"] == "received":
                sheet.line(x + 34, y, x + 7, y, "arrow faint")
                words = f"{words} from {name_of(row['source'])}" if row["source"] else words
            sheet.circle(x, y, 4, "dot", title=f"{words} {told}")
            beside = 42 if row["what"] == "received" else 10
            sheet.text(x + beside, y + 4, clip(f"{words} {told}".strip(), 42), look, "start", told)
    return sheet.svg(f"What happened around {violation['name']}: {violation['detail']}")


def _rank(lane: tuple[str, int], nodes: Mapping[tuple[str, int], Row]) -> tuple[int, str, int]:
    row = nodes.get(lane)
    kind = row["kind"] if row else None
    return (_KINDS.index(kind) if kind in _KINDS else 1, *lane)


def _words(row: Row) -> str:
    what = row["command"] if row["what"] in ("send", "received") else row["what"]
    parts = [what or row["what"]]
    if row["ids"]:
        ids = row["ids"]
        parts.append(f"[{' '.join(map(str, ids[:4]))}{' …' if len(ids) > 4 else ''}]")
    if row["attempts"]:
        parts.append(f"attempt {row['attempts'][0]}")
    return " ".join(parts)


def _pairs(lines: Sequence[Row]) -> dict[int, int]:
    """Places of what was sent, to places where it arrived."""
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
