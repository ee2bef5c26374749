"""A conversation as a sequence diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from wmp.conformance.script.transcript import ReportedLine
from wmp.message import counted
from wmp.pages.sequence import Lifeline, SequenceDiagram

_SPACING: Final = 330
_WIDTH: Final = 660
"""The least distance between the first and the last lifeline."""
_MARGIN: Final = 130
_MAX: Final = 200
"""Maximum number of lines in a diagram. The middle of a longer conversation is left out."""


def sequence_diagram(lines: Sequence[ReportedLine], testee: str, *, broken: str = "") -> Markup:
    """Draw a conversation.

    Args:
        lines: The lines of the conversation.
        testee: Name of the testee; its lifeline is the first.
        broken: The breach at the end; empty for none.
    """
    # Each message goes to the testee or comes from it. A message may belong to several peers that
    # share a connection, or to no known peer.
    names = list(dict.fromkeys(peer for line in lines if line.way in "<>" for peer in _peers(line)))
    places = {name: index for index, name in enumerate(names, start=1)}
    diagram = SequenceDiagram(
        [Lifeline(testee), *(Lifeline(name) for name in names or [""])],
        spacing=max(_SPACING, _WIDTH // max(1, len(names))),
        margin=_MARGIN,
    )
    shown, left_out = _cut(lines)
    row = 0
    for index, line in enumerate(shown):
        if left_out and index == _MAX // 2:
            missing = counted(left_out, "line is", "lines are")
            diagram.band(row, f"… {missing} not shown …", "remark")
            row += 1
        diagram.time(row, f"{line.at:.2f}")
        if line.way == "#":
            diagram.band(row, line.text, "remark")
        elif line.way == "<":
            ends = [(places[peer], row) for peer in _peers(line)]
            diagram.message(row, 0, ends, line.text, "from")
        else:
            (peer,) = _peers(line)
            diagram.message(row, places[peer], [(0, row)], line.text, "to")
        row += 1
    if broken:
        diagram.band(row, f"✗ {broken}", "broken")
    return diagram.svg(f"conversation of {counted(len(shown), 'line')}")


def _peers(line: ReportedLine) -> list[str]:
    """Return the peers at the other end of a message."""
    return (line.who.split() if line.way == "<" else [line.who]) or ["?"]


def _cut(lines: Sequence[ReportedLine]) -> tuple[Sequence[ReportedLine], int]:
    """Return the lines to draw, and the number of lines left out in the middle."""
    if len(lines) <= _MAX:
        return lines, 0
    half = _MAX // 2
    return [*lines[:half], *lines[-half:]], len(lines) - _MAX
