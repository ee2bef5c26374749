"""A badge that says whether a peer conforms, as SVG."""

from __future__ import annotations

from html import escape
from typing import Final

from wmp.conformance.case import Verdict
from wmp.conformance.report import ConformanceReport

__all__ = ["badge", "verdict_in_words"]

_GOOD: Final = "#2e7d32"
_BAD: Final = "#b3261e"
_LETTER: Final = 6.6
"""Width of a letter of 11 pixels, about; ``textLength`` makes it so."""


def verdict_in_words(report: ConformanceReport) -> str:
    """``conforms``, or how many rules are broken."""
    if not report.conforms:
        broken = {rule for entry in report.bad for rule in entry.breaks or entry.rules[:1]}
        return f"{len(broken)} rule{'s' * (len(broken) != 1)} broken"
    if not any(report.count(seen) for seen in (Verdict.OK, Verdict.INFORMATIONAL)):
        return "nothing seen"
    return "conforms" if report.whole else "conforms in part"


def badge(report: ConformanceReport) -> str:
    """Draw it: who on the left, what on the right."""
    left, right = f"WMP/1 {report.testee}", verdict_in_words(report)
    colour = _GOOD if report.conforms else _BAD
    first, second = (round(len(text) * _LETTER) + 14 for text in (left, right))
    width = first + second

    def words(text: str, x: int, room: int) -> str:
        return f'<text x="{x}" y="14" textLength="{room - 14}">{escape(text)}</text>'

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" '
        f'aria-label="{escape(left)}: {escape(right)}">'
        f"<title>{escape(report.name)}, {escape(left)}: {escape(right)}</title>"
        f'<clipPath id="r"><rect width="{width}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{first}" height="20" fill="#444"/>'
        f'<rect x="{first}" width="{second}" height="20" fill="{colour}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{words(left, 7, first)}{words(right, first + 7, second)}</g></svg>\n"
    )
