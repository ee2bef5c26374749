"""Drawings in SVG: shapes, axes, text. The template escapes all text and all attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from attrs import define, field, frozen
from markupsafe import Markup

from wmp.pages.template import render

_TIP: Final = 8.0
"""Length of the tip of an arrow."""
_TICKS: Final = 8
"""Limit of the ticks of an axis of time."""
_HALF_A_LABEL: Final = 40
"""Half of the width of a tick's label."""
_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_STEPS: Final = (
    *(k * 10**power for power in range(6) for k in (1, 2, 5)),
    *(unit * k * _SECOND for unit in (1, 60) for k in (1, 2, 5, 10, 15, 30)),
    *(3600 * k * _SECOND for k in (1, 2, 3, 6, 12)),
    *(k * 10**power * _DAY for power in range(6) for k in (1, 2, 5)),
)
"""µs between two ticks of an axis of time."""


def clip(text: str, maximum: int) -> str:
    """Cut text to a number of characters; its last character is then an ellipsis."""
    return text if len(text) <= maximum else f"{text[: maximum - 1]}…"


@frozen
class Shape:
    """An element of a drawing."""

    tag: str
    attributes: Mapping[str, str | None]
    """Values of the attributes; None omits the attribute."""
    text: str = ""
    title: str = ""
    """The tooltip."""


@define(eq=False)
class Drawing:
    """Shapes on a sheet; the page's style sheet has the colours and fonts of their classes."""

    width: float
    height: float
    shapes: list[Shape] = field(factory=list)

    def text(
        self, x: float, y: float, text: str, look: str = "", anchor: str = "start", title: str = ""
    ) -> None:
        """Add text on a base line."""
        attributes = {
            "x": _number(x),
            "y": _number(y),
            "class": look or None,
            "text-anchor": anchor,
        }
        self.shapes.append(Shape("text", attributes, text, title))

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        look: str = "",
        *,
        title: str = "",
        opacity: float = 1.0,
        round: float = 0,
    ) -> None:
        """Add a rectangle."""
        attributes = {
            "x": _number(x),
            "y": _number(y),
            "width": _number(max(width, 0)),
            "height": _number(max(height, 0)),
            "class": look or None,
            "rx": f"{round:g}" if round else None,
            "fill-opacity": f"{opacity:.3f}" if opacity < 1 else None,
        }
        self.shapes.append(Shape("rect", attributes, title=title))

    def line(self, x1: float, y1: float, x2: float, y2: float, look: str = "") -> None:
        """Add a straight line."""
        ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        attributes = {name: _number(value) for name, value in ends.items()}
        self.shapes.append(Shape("line", {**attributes, "class": look or None}))

    def arrow(self, x1: float, y1: float, x2: float, y2: float, look: str = "") -> None:
        """Add a straight line with a tip at its second end."""
        length = math.hypot(x2 - x1, y2 - y1) or 1.0
        along, across = (x2 - x1) / length * _TIP, (y2 - y1) / length * _TIP
        self.line(x1, y1, x2 - along / 2, y2 - across / 2, f"arrow {look}".rstrip())
        left = (x2 - along - across / 2, y2 - across + along / 2)
        right = (x2 - along + across / 2, y2 - across - along / 2)
        self.path([(x2, y2), left, right, (x2, y2)], f"tip {look}".rstrip())

    def path(self, points: Sequence[tuple[float, float]], look: str, *, title: str = "") -> None:
        """Add a line through points."""
        way = " ".join(
            f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points)
        )
        self.shapes.append(Shape("path", {"d": way, "class": look or None}, title=title))

    def circle(self, x: float, y: float, radius: float, look: str, *, title: str = "") -> None:
        """Add a circle."""
        attributes = {"cx": _number(x), "cy": _number(y), "r": f"{radius:g}", "class": look or None}
        self.shapes.append(Shape("circle", attributes, title=title))

    def time_axis(self, scale: TimeScale, top: float, bottom: float) -> None:
        """Add an axis in UTC along the lower edge, with a vertical line at each tick.

        Args:
            scale: The scale.
            top: Upper end of the lines.
            bottom: Lower end of the lines.
        """
        step, ticks = scale.ticks()
        if scale.high - scale.low >= _DAY:
            pattern = "%m-%d %H:%M" if step < _DAY else "%Y-%m-%d"
        else:
            pattern = "%H:%M:%S.%f" if step < _SECOND else "%H:%M:%S"
        for tick in ticks:
            text = datetime.fromtimestamp(tick / 1e6, UTC).strftime(pattern)
            x = scale(tick)
            self.line(x, top, x, bottom, "grid")
            text = text[:-3] if 1000 <= step < _SECOND else text
            anchor = "middle" if x < self.width - _HALF_A_LABEL else "end"
            self.text(x, bottom + 14, text, "small", anchor)

    def svg(self, description: str, look: str = "", minimum: float = 0) -> Markup:
        """Render the drawing.

        Args:
            description: One sentence for readers who cannot see the drawing.
            look: Classes of the whole.
            minimum: Minimum width of the drawing; in a narrower window the drawing scrolls.
        """
        return render(
            "drawing.svg", drawing=self, description=description, look=look, minimum=minimum
        )


def _number(value: float) -> str:
    return f"{value:.1f}"


@frozen
class TimeScale:
    """A linear scale from µs since 1970 to positions."""

    low: int
    """The time at ``begin``."""
    high: int
    begin: float
    end: float

    def __call__(self, micros: float) -> float:
        """Return the position of a time; a time outside of the scale is at its nearer end."""
        inside = min(max(micros, self.low), self.high) - self.low
        return self.begin + inside * (self.end - self.begin) / max(self.high - self.low, 1)

    def ticks(self) -> tuple[int, range]:
        """Return a round step in µs, and its few multiples from low to high."""
        step = next(step for step in _STEPS if self.high - self.low <= step * _TICKS)
        return step, range(-(-self.low // step) * step, self.high + 1, step)
