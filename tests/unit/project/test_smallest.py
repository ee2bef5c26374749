"""The pages about the smallest peers: their generated parts, and what they leave out."""

from __future__ import annotations

import re
from pathlib import Path

import build_smallest
import pytest
from build_rules import parse_rules, whole_spec

TESTEES = ("worker", "manager")


@pytest.mark.parametrize("testee", TESTEES)
def test_a_page_is_up_to_date(testee: str) -> None:
    text = build_smallest.PAGES[testee].read_text("utf-8")

    assert build_smallest.page(testee) == text, "run python specs/build_smallest.py"


@pytest.mark.parametrize("testee", TESTEES)
def test_a_page_has_each_core_rule_of_its_peer_word_for_word(testee: str) -> None:
    spec = whole_spec()
    text = build_smallest.PAGES[testee].read_text("utf-8")
    core = [
        rule
        for rule in parse_rules(spec)
        if rule.profile == "core" and rule.who in (testee, "end", "all")
    ]
    texts = build_smallest.bodies(spec)

    assert core
    for rule in core:
        assert texts[rule.id] in text
    others = {rule.id for rule in parse_rules(spec)} - {rule.id for rule in core}
    generated = text.partition("## The rules")[2]
    assert not others & set(re.findall(r"^- \*\*(WMP-[\d.]+)\*\*", generated, re.MULTILINE))


def test_a_stale_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = build_smallest.PAGES["worker"].read_text("utf-8")
    stale = tmp_path / "worker.md"
    stale.write_text(page.replace("- **WMP-1.3**", "- **WMP-1.33**"), "utf-8")
    monkeypatch.setattr(build_smallest, "PAGES", {"worker": stale})

    assert build_smallest.main(["--check"]) == 1
    assert build_smallest.main([]) == 0
    assert build_smallest.main(["--check"]) == 0
    assert stale.read_text("utf-8") == page
