"""A conversation as a sequence diagram, in SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import Final

from wmp.conformance.report import Said

__all__ = ["sequence_diagram"]

_TIME: Final = 70
_LANE: Final = 330
"""How far two lines are apart at least."""
_WIDTH: Final = 660
"""How far all together are apart at least."""
_ROW: Final = 30
_HEAD: Final = 46
_LETTER: Final = 7.5
"""Width of a letter. What of a message is too long for its arrow is in its tooltip, and in the
table of frames."""
_MOST: Final = 200
"""Lines drawn; the middle of a longer conversation is left out."""


def sequence_diagram(lines: Sequence[Said], testee: str, *, broken: str = "") -> str:
    """Draw a conversation.

    Args:
        lines: What was said.
        testee: Name of the testee, whose line is the first.
        broken: What was wrong at its end, empty for nothing.
    """
    lines, left_out = _cut(lines)
    lanes = _lanes(lines, testee)
    width = max(lanes.values()) + 130
    lane = (max(lanes.values()) - min(lanes.values())) // max(1, len(lanes) - 1)
    rows: list[str] = []
    y = _HEAD + _ROW
    for index, line in enumerate(lines):
        if left_out and index == _MOST // 2:
            rows.append(_remark(f"… {left_out} lines are left out here …", y, width))
            y += _ROW
        rows.append(f'<text class="at" x="{_TIME - 20}" y="{y + 4}">{line.at:.2f}</text>')
        if line.way == "#":
            rows.append(_remark(line.text, y, width))
        else:
            rows.append(_arrows(line, y, lanes, lane))
        y += _ROW
    if broken:
        told = textwrap.wrap(broken, int((width - _TIME - 40) / _LETTER))
        rows.append(_broken(told, y, width))
        y += _ROW + 16 * (len(told) - 1)
    heads = "".join(
        f'<line class="life" x1="{x}" y1="{_HEAD - 12}" x2="{x}" y2="{y}"/>'
        f'<text class="head{" testee" if name == testee else ""}" x="{x}" y="{_HEAD - 20}">'
        f"{escape(name)}</text>"
        for name, x in lanes.items()
    )
    return (
        f'<svg class="talk" xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y + 12}" '
        f'viewBox="0 0 {width} {y + 12}" role="img" '
        f'aria-label="conversation of {len(lines)} lines">{heads}{"".join(rows)}</svg>'
    )


def _cut(lines: Sequence[Said]) -> tuple[Sequence[Said], int]:
    if len(lines) <= _MOST:
        return lines, 0
    half = _MOST // 2
    return [*lines[:half], *lines[-half:]], len(lines) - _MOST


def _lanes(lines: Sequence[Said], testee: str) -> dict[str, int]:
    """Names to places, from left to right: the testee, then whoever speaks first."""
    names = dict.fromkeys(
        name
        for line in lines
        if line.way in "<>"
        for name in (line.who.split() if line.way == "<" else [line.who]) or ["?"]
    )
    lane = max(_LANE, _WIDTH // max(1, len(names)))
    return {name: _TIME + 60 + lane * at for at, name in enumerate([testee, *(names or [""])])}


def _arrows(line: Said, y: int, lanes: dict[str, int], lane: int) -> str:
    """One message; it has several ends when several peers share a connection."""
    names = (line.who.split() if line.way == "<" else [line.who]) or ["?"]
    start = next(iter(lanes.values()))
    drawn = []
    for name in names:
        end = lanes[name]
        x1, x2 = (start, end) if line.way == "<" else (end, start)
        tip = 7 if x1 < x2 else -7
        drawn.append(
            f'<line x1="{x1}" y1="{y}" x2="{x2 - tip}" y2="{y}"/>'
            f'<path d="M{x2},{y} l{-tip},-4 v8 z"/>'
        )
    most = int((lane - 20) / _LETTER)
    label = line.text if len(line.text) <= most else line.text[: most - 1] + "…"
    # Over the stretch next to its peer, where no arrow of another's passes.
    middle = lanes[names[0]] - lane // 2
    kind = "from" if line.way == "<" else "to"
    return (
        f'<g class="{kind}"><title>{escape(line.text)}</title>{"".join(drawn)}'
        f'<text x="{middle}" y="{y - 5}">{escape(label)}</text></g>'
    )


def _remark(text: str, y: int, width: int) -> str:
    return (
        f'<g class="remark"><rect x="{_TIME}" y="{y - 12}" width="{width - _TIME - 10}" '
        f'height="20" rx="4"/><text x="{_TIME + 10}" y="{y + 3}">{escape(text)}</text></g>'
    )


def _broken(told: Sequence[str], y: int, width: int) -> str:
    x = _TIME + 10
    texts = "".join(
        f'<text x="{x}" y="{y + 3 + 16 * at}">{"" if at else "✗ "}{escape(line)}</text>'
        for at, line in enumerate(told)
    )
    return (
        f'<g class="broken"><rect x="{_TIME}" y="{y - 12}" width="{width - _TIME - 10}" '
        f'height="{6 + 16 * len(told)}" rx="4"/>{texts}</g>'
    )
