"""The draft for the ZeroMQ RFC project has the rules of the specification, and its own licence."""

from __future__ import annotations

import re

import build_rfc
import build_rules
import pytest


@pytest.fixture(scope="module")
def draft():
    return build_rfc.DRAFT.read_text(encoding="utf-8")


def test_the_draft_is_up_to_date(draft):
    assert build_rfc.draft() == draft, "run python specs/build_rfc.py"


def test_the_draft_and_the_specification_have_the_same_rules(draft):
    text = build_rules.whole_spec()
    theirs = build_rules.parse_rules(draft)

    assert [(r.id, r.who, r.text) for r in theirs] == [
        (r.id, r.who, r.text) for r in build_rules.parse_rules(text)
    ]
    assert len(theirs) > 90


def test_the_draft_has_every_point_that_was_open(draft):
    points = re.findall(r"^- \*\*(\d+a?)\. .*\*Rules:\* (.*)\.$", draft, re.MULTILINE)
    known = {rule.id for rule in build_rules.parse_rules(draft)}

    assert [number for number, _ in points if number.isdigit()] == [str(n) for n in range(1, 41)]
    for number, rules in points:
        cited = re.findall(r"WMP-\d+\.\d+", rules)
        assert cited, f"point {number} names no rule"
        assert known.issuperset(cited), f"point {number} names {rules}"


def test_the_draft_needs_no_file_beside_it(draft):
    links = re.findall(r"\]\(([^)]+)\)", draft)

    assert [link for link in links if not link.startswith("http")] == []
    assert "<!--" not in draft


def test_the_draft_has_the_form_of_the_rfc_project(draft):
    front = draft.split("---\n")[1]
    headings = re.findall(r"^## (.*)$", draft, re.MULTILINE)

    assert re.findall(r"^(\w+):", front, re.MULTILINE) == ["title", "name", "status", "editor"]
    assert headings[:4] == ["License", "Change Process", "Language", "Goals"]
    assert "GNU General Public License" in draft
    assert "Apache" not in draft


def test_a_stale_draft_is_noticed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build_rfc, "DRAFT", tmp_path / "rfc" / "README.md")

    assert build_rfc.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err
    assert build_rfc.main([]) == 0
    assert build_rfc.main(["--check"]) == 0


def test_a_sentence_that_is_left_out_must_be_there(monkeypatch):
    monkeypatch.setattr(build_rfc, "WITHOUT", ("no such sentence",))

    with pytest.raises(ValueError, match="no such sentence"):
        build_rfc.draft()
