"""Reports as one self-contained page of HTML, and one report as a badge."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from attrs import frozen
from markupsafe import Markup

from wmp.conformance.report.diagram import sequence_diagram
from wmp.conformance.report.report import ConformanceReport, ReportEntry
from wmp.conformance.script.case import Verdict
from wmp.conformance.script.rules import RULES, Rule
from wmp.pages.template import render

_SECTIONS: Final = {
    1: "Peers and sockets",
    2: "Messages",
    3: "READY and WAKE",
    4: "GIVE, TAKE, NO: locks",
    5: "Held GIVE",
    6: "Jobs and leases",
    7: "Numbered streams",
    8: "Devices",
    9: "Liveness, epochs, goodbye",
    10: "Errors",
    11: "Timers",
    12: "Security",
    15: "The holder of an identity",
}
_MARKS: Final = {
    Verdict.OK: "✓",
    Verdict.NON_STRICT: "~",
    Verdict.UNIMPLEMENTED: "–",
    Verdict.INFORMATIONAL: "i",
    Verdict.FAILED: "✗",
    Verdict.UNCLEAN: "!",
    Verdict.VOID: "?",
}
_MEANINGS: Final = {
    Verdict.OK: "the rule holds",
    Verdict.FAILED: "the rule is broken",
    Verdict.UNCLEAN: "the case passed, but the testee did not exit cleanly",
    Verdict.NON_STRICT: "a SHOULD does not hold",
    Verdict.INFORMATIONAL: "the rule allows several ways; the text names the observed way",
    Verdict.UNIMPLEMENTED: "the testee does not implement what the case needs",
    Verdict.VOID: "the case failed, but the machine was too busy for the kit; play the case again",
}
_MARKED: Final = re.compile(r"`([^`]+)`|\b(MUST(?: NOT)?|SHOULD(?: NOT)?|MAY)\b")
_LETTER: Final = 6.6
"""Mean width of a letter of a badge; ``textLength`` stretches the text to this width."""


@frozen
class _ShownConversation:
    """A conversation that the page shows."""

    number: int
    at: int
    """The index of its report."""
    report: ConformanceReport
    entry: ReportEntry


def page(reports: Sequence[ConformanceReport]) -> str:
    """Write the page.

    Args:
        reports: One column each; reports on several kinds of testee may stand side by side.
    """
    shown = [
        (at, report, entry)
        for at, report in enumerate(reports)
        for entry in report.entries
        if entry.detailed
    ]
    talks = [_ShownConversation(number, *row) for number, row in enumerate(shown)]
    return render(
        "conformance.html",
        reports=reports,
        sections=_sections(reports),
        talks=talks,
        numbers={(talk.at, talk.entry.case): talk.number for talk in talks},
        marks=_MARKS,
        meanings=_MEANINGS,
        rules=RULES,
        badge=badge,
        diagram=_diagram,
        prose=_prose,
    )


_Cells = list[tuple[Verdict | None, str] | None]
"""For each report: (verdict on a rule, case or reason), or None if the rule does not bind."""


def _sections(reports: Sequence[ConformanceReport]) -> dict[str, list[tuple[Rule, _Cells]]]:
    """Return the rules that bind at least one testee, by section of the specification."""
    columns = [report.rules() for report in reports]
    sections: dict[str, list[tuple[Rule, _Cells]]] = {}
    for rule in RULES.values():
        if any(rule.id in column for column in columns):
            number = rule.order[0]
            rows = sections.setdefault(f"{number}. {_SECTIONS.get(number, '')}", [])
            rows.append((rule, [column.get(rule.id) for column in columns]))
    return sections


def _diagram(talk: _ShownConversation) -> Markup:
    entry = talk.entry
    broken = entry.text if entry.unwell else ""
    return sequence_diagram(entry.lines, talk.report.testee, broken=broken)


def _prose(text: str) -> list[tuple[str, str]]:
    """Split a rule into (element, text): code, words of obligation, and the text between them."""
    parts = _MARKED.split(text)
    between, code, words = parts[::3], [*parts[1::3], None], [*parts[2::3], None]
    pieces: list[tuple[str, str]] = []
    for plain, literal, word in zip(between, code, words, strict=True):
        pieces += [("", plain), ("code", literal or ""), ("b", word or "")]
    return [(element, part) for element, part in pieces if part]


def badge(report: ConformanceReport, number: int = 0) -> Markup:
    """Draw a badge, as SVG: the kind of testee on the left, the outcome on the right.

    Args:
        report: The report to summarise.
        number: A number that no other badge of the page has.
    """
    left, right = f"WMP/1 {report.testee}", report.outcome
    return render(
        "badge.svg",
        name=report.name,
        conforms=report.conforms,
        number=number,
        left=left,
        right=right,
        left_width=round(len(left) * _LETTER) + 14,
        right_width=round(len(right) * _LETTER) + 14,
    )
