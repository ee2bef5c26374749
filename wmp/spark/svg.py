"""Drawing by hand: shapes, axes of time, and words for amounts. Text is never taken for markup."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Final

from attrs import define, field

__all__ = ["COLOURS", "Drawing", "LogScale", "amount", "clip", "duration"]

COLOURS: Final = 8
"""Colours of lines, the classes ``c0`` to ``c7``."""

_UNITS: Final = ((3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"))


def duration(micros: float | None) -> str:
    """µs in words: ``850 µs``, ``1.2 ms``, ``3 s``."""
    if micros is None:
        return "–"
    for unit, name in _UNITS:
        if abs(micros) >= unit:
            value = micros / unit
            return f"{value:.3g} {name}" if value < 1000 else f"{value:.0f} {name}"
    return f"{micros:.0f} µs"


def amount(value: float | None) -> str:
    """A number in words: ``12 345``, ``0.42``."""
    if value is None:
        return "–"
    if value == int(value):
        return f"{int(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{value:.3g}" if abs(value) < 1000 else amount(round(value))


def clip(text: str, most: int) -> str:
    """As many signs as there is room for."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@define(eq=False)
class Drawing:
    """Shapes on a sheet; colours and fonts are classes of the page's style."""

    width: float
    height: float
    _parts: list[str] = field(factory=list)

    def text(
        self, x: float, y: float, text: str, look: str = "", anchor: str = "start", title: str = ""
    ) -> None:
        """Words, on a base line."""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{look}" text-anchor="{anchor}">'
            f"{_title(title)}{escape(text)}</text>"
        )

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
        """A box."""
        corner = f' rx="{round:g}"' if round else ""
        faint = f' fill-opacity="{opacity:.3f}"' if opacity < 1 else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
            f'height="{max(height, 0):.1f}" class="{look}"{corner}{faint}>{_title(title)}</rect>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, look: str = "") -> None:
        """A straight line; of the look ``arrow`` it has a head."""
        head = ' marker-end="url(#head)"' if "arrow" in look else ""
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{look}"{head}/>'
        )

    def path(self, points: list[tuple[float, float]], look: str, *, title: str = "") -> None:
        """A line through points."""
        way = " ".join(f"{'L' if place else 'M'}{x:.1f} {y:.1f}" for place, (x, y) in _each(points))
        self._parts.append(f'<path d="{way}" class="{look}">{_title(title)}</path>')

    def circle(self, x: float, y: float, radius: float, look: str, *, title: str = "") -> None:
        """A dot."""
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{look}">'
            f"{_title(title)}</circle>"
        )

    def svg(self, says: str) -> str:
        """The sheet, with what it shows in a sentence for who does not see it."""
        return (
            f'<svg viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img" '
            f'style="max-width:{self.width:.0f}px" aria-label="{escape(says)}">'
            + "".join(self._parts)
            + "</svg>"
        )


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _each(points: list[tuple[float, float]]) -> Iterator[tuple[int, tuple[float, float]]]:
    return enumerate(points)


@define
class LogScale:
    """µs to places, where ten times as long is as far everywhere."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, micros: float) -> float:
        """Where it is."""
        span = math.log10(self.high / self.low) or 1.0
        part = math.log10(min(max(micros, self.low), self.high) / self.low) / span
        return self.begin + part * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """The powers of ten within."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1)]
