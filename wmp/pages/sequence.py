"""A sequence diagram: a line down for each process, a row for each moment, arrows for messages."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from attrs import frozen
from markupsafe import Markup

from wmp.pages.svg import Drawing, clip

_TOP: Final = 54
"""Vertical position of the first row."""
_ROW: Final = 26
_LINE: Final = 16
"""Height of each further line of text in a row."""
_TIME: Final = 76
"""Right edge of the column of times."""
_FIRST: Final = 130
"""Horizontal position of the first lifeline."""
_LETTER: Final = 6.8
"""Mean width of a letter."""
_STUB: Final = 34
"""Length of an arrow whose other end is unknown."""
_GAP: Final = 4
"""Distance between the tip of an arrow and the middle of a dot."""
_MIN: Final = 0.75
"""The smallest part of its width to which a diagram is scaled down: text stays readable."""


@frozen
class Lifeline:
    """A process."""

    name: str
    title: str = ""
    """The tooltip."""


class SequenceDiagram:
    """Rows of messages and events between lifelines.

    Rows and lifelines are counted from 0. A text that is too long is cut; its tooltip has the whole
    text.
    """

    def __init__(self, lifelines: Sequence[Lifeline], *, spacing: float, margin: float) -> None:
        """Begin a diagram.

        Args:
            lifelines: From left to right, at least one.
            spacing: Distance between two lifelines.
            margin: Space to the right of the last lifeline.
        """
        self._lifelines = lifelines
        self._spacing = spacing
        self._width = self._x(len(lifelines) - 1) + margin
        self._body = Drawing(self._width, 0)
        self._bottom = float(_TOP)
        self._letters = int((spacing - 24) / _LETTER)

    def time(self, row: int, text: str) -> None:
        """Write the time of a row."""
        self._body.text(_TIME, self._y(row) + 4, text, "small", "end")

    def highlight(self, row: int) -> None:
        """Mark a row; call this before anything else is drawn in the row."""
        self._body.rect(0, self._y(row) - _ROW / 2, self._width, _ROW, "highlight", round=4)

    def message(
        self,
        row: int,
        sender: int,
        ends: Sequence[tuple[int, int]],
        text: str,
        look: str = "",
        title: str = "",
    ) -> None:
        """Draw a message.

        Args:
            row: The row of the sending.
            sender: The sender's lifeline.
            ends: (lifeline, row) of each arrival, at least one.
            text: The label above the arrow.
            look: Classes of arrow and text.
            title: The tooltip; by default the text.
        """
        x, y = self._x(sender), self._y(row)
        for lifeline, arrival in ends:
            # If a message arrives in another row, that row has a dot.
            gap = 0 if arrival == row else _GAP if lifeline > sender else -_GAP
            self._body.arrow(x, y, self._x(lifeline) - gap, self._y(arrival), look)
        lifeline, arrival = ends[0]
        if lifeline < sender:
            self._label(x, y - 5, -10, text, look, title)
        else:
            # A level arrow may cross other lifelines: its text stands between the last two.
            beside = self._x(lifeline - 1) if arrival == row else x
            self._label(beside, y - 5, 10, text, look, title)

    def sent(self, row: int, sender: int, text: str, look: str = "", title: str = "") -> None:
        """Draw a message without a known arrival."""
        side = -1 if sender and sender == len(self._lifelines) - 1 else 1
        x, y = self._x(sender), self._y(row)
        self._body.arrow(x, y, x + _STUB * side, y, f"faint {look}".rstrip())
        self._label(x, y + 4, (_STUB + 8) * side, text, look, title)

    def received(self, row: int, receiver: int, text: str, look: str = "", title: str = "") -> None:
        """Draw a message without a known sender."""
        x, y = self._x(receiver), self._y(row)
        self._body.arrow(x + _STUB, y, x + 4, y, f"faint {look}".rstrip())
        self._body.circle(x, y, 4, "dot", title=title or text)
        self._label(x, y + 4, _STUB + 8, text, look, title)

    def event(self, row: int, lifeline: int, text: str, look: str = "", title: str = "") -> None:
        """Draw a process's own event, or the fate of a message: a dot, and text."""
        x, y = self._x(lifeline), self._y(row)
        self._body.circle(x, y, 4, "dot", title=title or text)
        if text:
            self._label(x, y + 4, 10, text, look, title)

    def band(self, row: int, text: str, look: str) -> None:
        """Write text across all lifelines; a text of several lines must be the last row."""
        x, y = _TIME + 10, self._y(row)
        lines = textwrap.wrap(text, int((self._width - x - 30) / _LETTER)) or [""]
        height = _ROW - 6 + _LINE * (len(lines) - 1)
        self._body.rect(x, y - 12, self._width - x - 10, height, look, round=4)
        for index, line in enumerate(lines):
            self._body.text(x + 10, y + 3 + _LINE * index, line, look)
        self._bottom = max(self._bottom, y - 12 + height)

    def svg(self, description: str) -> Markup:
        """Render the diagram, with one sentence for readers who cannot see it."""
        sheet = Drawing(self._width, self._bottom + 16)
        for index, lifeline in enumerate(self._lifelines):
            x = self._x(index)
            sheet.line(x, 34, x, self._bottom + 10, "life-line")
            sheet.text(x, 22, clip(lifeline.name, self._letters), "head", "middle", lifeline.title)
        sheet.shapes += self._body.shapes
        return sheet.svg(description, "sequence", self._width * _MIN)

    def _label(
        self, x: float, y: float, beside: float, text: str, look: str, title: str = ""
    ) -> None:
        anchor = "start" if beside > 0 else "end"
        words = clip(text, self._letters)
        self._body.text(x + beside, y, words, f"text {look}".rstrip(), anchor, title or text)

    def _x(self, lifeline: int) -> float:
        return _FIRST + lifeline * self._spacing

    def _y(self, row: int) -> float:
        y = _TOP + row * _ROW
        self._bottom = max(self._bottom, y)
        return y
