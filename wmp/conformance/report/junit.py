"""A report as JUnit XML, which CI systems show: a test case for each case."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from wmp.conformance.report.report import ConformanceReport, ReportEntry
from wmp.conformance.script.case import Verdict
from wmp.conformance.script.transcript import conversation

_SKIPPED: Final = (Verdict.UNIMPLEMENTED, Verdict.VOID)
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(reports: Sequence[ConformanceReport]) -> str:
    """Write reports as JUnit XML.

    Args:
        reports: One suite each.
    """
    root = ElementTree.Element("testsuites")
    for report in reports:
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_clean(f"{report.name} ({report.testee})"),
            tests=str(len(report.entries)),
            failures=str(len(report.bad)),
            errors="0",
            skipped=str(sum(report.count(verdict) for verdict in _SKIPPED)),
            time=f"{report.seconds:.3f}",
            timestamp=report.began,
        )
        for entry in report.entries:
            _add(suite, report, entry)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ElementTree.Element, report: ConformanceReport, entry: ReportEntry) -> None:
    kind, _, name = entry.case.partition("/")
    test = ElementTree.SubElement(
        suite, "testcase", classname=f"wmp.{kind}", name=name, time=f"{entry.seconds:.3f}"
    )
    rules = ", ".join(entry.breaks or entry.rules)
    summary = _clean(f"{entry.verdict.value} {rules}: {entry.text or entry.about}")
    if entry in report.bad:
        failure = ElementTree.SubElement(
            test, "failure", type=entry.verdict.value, message=_clean(f"{rules}: {entry.text}")
        )
        failure.text = _clean(
            f"{entry.about}\n\n{conversation(entry.lines, report.testee)}\n\n"
            f"play it again: {report.replay(entry)}\n"
        )
    elif entry.verdict in _SKIPPED:
        ElementTree.SubElement(test, "skipped", message=_clean(entry.text))
    elif entry.verdict is not Verdict.OK:
        ElementTree.SubElement(test, "system-out").text = summary
    if entry.stderr:
        ElementTree.SubElement(test, "system-err").text = _clean(entry.stderr)


def _clean(text: str) -> str:
    """Remove the characters that XML does not allow."""
    return _NOT_XML.sub("\ufffd", text)
