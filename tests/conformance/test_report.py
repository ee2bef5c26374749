"""Reports of a run: JSON, JUnit XML, a page, a diagram and a badge."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import build_rules
import pytest
from attrs import evolve

from tests.conformance import broken_workers  # noqa: F401 - it registers broken workers
from tests.conformance.broken_peers import BROKEN_PEERS, Bent
from tests.markup import HARMLESS, HOSTILE, SHOWN, Tags
from wmp.conformance.engine.check import cases_for, run_all
from wmp.conformance.report.diagram import sequence_diagram
from wmp.conformance.report.junit import junit
from wmp.conformance.report.page import badge, page
from wmp.conformance.report.report import ConformanceReport, ReportEntry, entry_of, read
from wmp.conformance.script.case import Verdict
from wmp.conformance.script.rules import RULES
from wmp.conformance.script.transcript import ReportedFrame, ReportedLine
from wmp.conformance.testees.library_testees import LibraryWorker
from wmp.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
TALK = (
    ReportedLine(0.0, "", "#", "first <b>"),
    ReportedLine(0.5, "m1", ">", "WAKE role='<i>'", (ReportedFrame(3, "850102"),)),
    ReportedLine(
        1.0,
        "m1 m2",
        "<",
        "READY " + "x" * 200,
        (ReportedFrame(600, "00" * 512), ReportedFrame(0, "")),
    ),
    ReportedLine(1.5, "", "<", "to nobody", (ReportedFrame(1, "01"),)),
)


def entry(rule: str = "WMP-4.10", verdict: Verdict = Verdict.OK, **changes: Any) -> ReportEntry:
    bad = verdict in (Verdict.FAILED, Verdict.NON_STRICT)
    breaks = (rule,) if bad else ()
    name = f"worker/{rule.lower()}-{verdict.value.lower()}"
    report_entry = ReportEntry(
        name, "It is about `this`.", (rule, "WMP-4.9"), "core", verdict, breaks
    )
    return evolve(report_entry, **{"text": "what was seen" if bad else "", **changes})


def report(*entries: ReportEntry, **changes: Any) -> ConformanceReport:
    return evolve(
        ConformanceReport("worker", "mine", "./mine {endpoint}", entries=entries), **changes
    )


FAILED = entry(verdict=Verdict.FAILED, lines=TALK, stderr="oh \x1b[1m & <no>")


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    drawn = entry(verdict=Verdict.FAILED, case="worker/drawn", seed=3, moves=(("wake", 1, 2, 3),))
    written = report(FAILED, entry(), drawn, strict=True, profiles=("core",), whole=False)
    file = tmp_path / "report.json"
    file.write_text(written.dumps(), encoding="utf-8")

    assert read(file) == written


@pytest.mark.parametrize("change", ["entries", "name", "rules"])
def test_half_a_report_is_refused(change: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    text = report(FAILED).dumps()
    half = {
        "entries": text.replace('"cases"', '"cases of"'),
        "name": text.replace('"name"', '"names"'),
        "rules": text.replace('"verdict": "FAILED"', '"verdict": "BROKEN"'),
    }
    file.write_text(half[change], encoding="utf-8")

    with pytest.raises(ConfigError, match="incomplete report"):
        read(file)


def test_the_documented_fields_are_those_that_are_written() -> None:
    text = (ROOT / "specs" / "conformance.md").read_text()
    written = report(FAILED, entry(verdict=Verdict.FAILED, seed=1, moves=(("no", 1),))).dumps()
    names = set(re.findall(r'^ +"([a-z]+)":', written, re.MULTILINE))

    assert not [name for name in names if f"`{name}`" not in text]


def test_the_worst_verdict_counts_for_a_rule() -> None:
    text = report(
        entry(verdict=Verdict.UNIMPLEMENTED),
        entry(),
        entry(verdict=Verdict.FAILED),
        entry(verdict=Verdict.NON_STRICT),
    ).rules()

    assert text["WMP-4.10"][0] is Verdict.FAILED
    # A case that failed for another rule gives no verdict on this rule.
    assert text["WMP-4.9"][0] is Verdict.OK
    assert text["WMP-3.1"] == (None, "not looked at")
    assert "WMP-9.2" not in text  # this rule binds a manager
    assert text["WMP-1.7"][0] is None
    assert "options of the peer's own sockets" in text["WMP-1.7"][1]


def test_unclean_and_informational_are_of_the_first_rule_alone() -> None:
    for verdict in (Verdict.UNCLEAN, Verdict.INFORMATIONAL):
        rules = report(entry(verdict=verdict)).rules()
        assert (rules["WMP-4.10"][0], rules["WMP-4.9"][0]) == (verdict, Verdict.OK)


def test_which_verdicts_conform() -> None:
    assert report(entry(), entry(verdict=Verdict.UNIMPLEMENTED)).conforms
    assert not report(entry(verdict=Verdict.FAILED)).conforms
    assert not report(entry(verdict=Verdict.UNCLEAN)).conforms
    assert report(entry(verdict=Verdict.NON_STRICT)).conforms
    assert not report(entry(verdict=Verdict.NON_STRICT), strict=True).conforms


def test_the_command_that_plays_it_again() -> None:
    mine = report(FAILED, unit=200, seed=7, examples=9)
    written = evolve(mine, file="my o.json")
    drawn = entry(verdict=Verdict.FAILED, case="worker/drawn", moves=(("wake", 1, 2, 3),))
    informed = entry(verdict=Verdict.INFORMATIONAL, case="worker/window", lines=TALK)
    begins = entry(verdict=Verdict.FAILED, case="worker/begins")
    again = "wmp-conformance worker --command './mine {endpoint}' --unit 200"

    assert mine.replay(FAILED) == (
        "wmp-conformance worker --command './mine {endpoint}' --unit 200 "
        "--case worker/wmp-4.10-failed"
    )
    assert mine.replay(drawn).endswith("--case worker/drawn --seed 7 --examples 9")
    assert written.replay(drawn) == (
        "wmp-conformance worker --replay 'my o.json' --case worker/drawn"
    )
    assert written.replay(informed) == f"{again} --case worker/window", "nothing failed in it"
    assert written.replay(evolve(drawn, moves=())).startswith(again), "nothing to make again"
    assert written.replay(begins) == mine.replay(begins) == again, "every run begins with it"


def test_junit_has_a_case_for_each_and_nothing_that_is_no_xml() -> None:
    text = junit([report(FAILED, entry(), entry(verdict=Verdict.UNIMPLEMENTED, text="not it"))])
    (suite,) = ElementTree.fromstring(text)

    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    failed, passed, skipped = suite
    (failure, stderr) = failed
    assert failure.get("message") == "WMP-4.10: what was seen"
    assert "m1 → worker" in str(failure.text)
    assert "play it again: wmp-conformance worker" in str(failure.text)
    assert stderr.text == "oh \ufffd[1m & <no>"
    assert len(passed) == 0
    assert skipped[0].tag == "skipped"


def test_a_badge_shows_the_outcome_in_two_words() -> None:
    assert report(entry()).outcome == "conforms"
    assert report(entry(), whole=False).outcome == "conforms in part"
    assert report(FAILED).outcome == "1 rule broken"
    assert report(entry(verdict=Verdict.UNIMPLEMENTED)).outcome == "nothing tested"
    assert report(entry(verdict=Verdict.UNCLEAN)).outcome == "1 rule broken"
    drawn = ElementTree.fromstring(badge(report(FAILED, name="<mine>")))
    assert drawn.get("aria-label") == "WMP/1 worker: 1 rule broken"


def test_a_badge_takes_no_text_for_markup() -> None:
    drawn = ElementTree.fromstring(badge(report(name=HOSTILE)))

    assert drawn.findtext("{*}title") == f"{SHOWN}, WMP/1 worker: nothing tested"
    assert Tags(badge(report(name=HOSTILE))).structure == Tags(badge(report())).structure


def report_of(text: str) -> ConformanceReport:
    """Make a report that has the same text in every field that takes text from outside."""
    talk = (
        ReportedLine(0.0, "", "#", text),
        ReportedLine(0.5, text, ">", text, (ReportedFrame(1, text),)),
        ReportedLine(0.5, text, "<", text, (ReportedFrame(1, text),)),
    )
    bad = entry(verdict=Verdict.FAILED, about=text, text=text, lines=talk, stderr=text)
    good = entry("WMP-4.2", case=text)
    return report(
        evolve(bad, case=text),
        good,
        name=text,
        command=text,
        kit=text,
        began=text,
        profiles=(text,),
        file=text,
    )


def test_a_page_takes_no_text_for_markup() -> None:
    text = page([report_of(HOSTILE), report_of(HOSTILE)])
    tags = Tags(text)

    assert tags.structure == Tags(page([report_of(HARMLESS), report_of(HARMLESS)])).structure
    assert SHOWN in tags.words
    assert [given["title"] for _, given in tags.seen if "title" in given].count(f"OK: {SHOWN}")
    assert text.encode()  # no character is left that has no encoding


def test_a_diagram_has_a_line_for_each_peer_and_an_arrow_for_each_message() -> None:
    text = sequence_diagram(TALK, "worker", broken="and so <on>")
    drawn = ElementTree.fromstring(text)
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]

    assert [t for t in texts if t in ("worker", "m1", "m2", "?")] == ["worker", "m1", "m2", "?"]
    assert text.count("<path ") == 4  # one message has two receivers
    assert "✗ and so <on>" in texts
    assert len(max((str(t) for t in texts), key=len)) < 100
    assert ElementTree.fromstring(sequence_diagram((), "worker", broken="at once")) is not None


def test_the_middle_of_a_long_conversation_is_left_out() -> None:
    text = sequence_diagram([TALK[1]] * 1000, "worker")

    assert text.count("<path ") == 200
    assert "800 lines are not shown" in text


def test_a_page_needs_nothing_and_shows_all() -> None:
    other = report(entry(), name="yours & theirs", testee="manager", command=None)
    text = page([report(FAILED, file="found.json"), other])

    assert "default-src 'none'" in text
    assert not re.findall(r'(?:src|href)="(?!#)', text)
    assert "<b>no</b>" not in text
    assert "yours &amp; theirs" in text
    assert "<no>" not in text
    for rule in RULES.values():
        shown = f'<tr class="rule" id="{rule.id}">' in text
        assert shown == (rule.binds("worker") or rule.binds("manager")), rule.id
    assert "wmp-conformance worker --replay found.json --case worker/wmp-4.10-failed" in text
    assert "<code>850102</code>" in text
    assert "… 600 bytes" in text


def test_sections_have_the_titles_of_the_specification() -> None:
    spec = build_rules.whole_spec()
    everyone = [ConformanceReport(kind, kind) for kind in ("manager", "worker", "device")]
    shown = re.findall(r'scope="colgroup">(\d+)\. ([^<]+)<', page(everyone))

    assert len(shown) > 10
    assert [f"{n}. {name}" for n, name in shown if f"\n## {n}. {name}\n" not in spec] == []


def test_an_entry_keeps_verdict_and_lines_of_a_result() -> None:
    peer = next(a for a in BROKEN_PEERS if a.testee == "worker" and a.rule == "WMP-4.9")

    def make(terms: Any) -> Bent:
        return Bent(LibraryWorker.of(terms), peer.bend(terms=terms))

    results = list(run_all(make, cases_for("worker", rules=["WMP-4.9"])))
    entries = [entry_of(result, 1.0) for result in results]

    assert any(entry.verdict is Verdict.FAILED and entry.lines for entry in entries)
    assert all(entry.detailed == bool(entry.lines) for entry in entries)
    kept = [frame for entry in entries for line in entry.lines for frame in line.frames]
    assert all(len(frame.hex) <= 2 * min(frame.size, 512) for frame in kept)
