"""The pages about the smallest peers: their generated parts, and what they leave out."""

from __future__ import annotations

import re
from pathlib import Path

import build_smallest
import pytest
from build_rules import parse_rules, whole_spec

from wmp.conformance.script.rules import PROFILES

TESTEES = ("worker", "manager")
WORDS = 2300
"""The maximum number of words of a page."""


def page(testee: str) -> str:
    return build_smallest.PAGES[testee].read_text("utf-8")


def rules_of(text: str) -> dict[str, list[str]]:
    """Return the sentences of each rule in the generated part of a page."""
    generated = text.partition("<!-- begin: rules -->")[2]
    bodies = re.split(r"^(?=- \*\*|### |<!-- )", generated, flags=re.MULTILINE)
    rules = (body for body in bodies if body.startswith("- **"))
    return {
        re.sub(r"^- \*\*(.+?)\*\*.*", r"\1", body, flags=re.DOTALL): [
            sentence
            for part in build_smallest.paragraphs(re.sub(r"(?<=\*\*) ", " (all) ", body, count=1))
            for sentence in part
        ]
        for body in rules
    }


@pytest.mark.parametrize("testee", TESTEES)
def test_a_page_is_up_to_date(testee: str) -> None:
    assert build_smallest.page(testee) == page(testee), "run python specs/build_smallest.py"


@pytest.mark.parametrize("testee", TESTEES)
def test_a_page_has_each_core_rule_of_its_peer_but_what_is_left_out(testee: str) -> None:
    spec = whole_spec()
    texts = build_smallest.bodies(spec)
    shown = rules_of(page(testee))
    core = {rule.id for rule in build_smallest.core(testee, spec)}

    assert core
    assert core - shown.keys() == {id for id in core if "" in build_smallest.LEFT_OUT.get(id, {})}
    assert shown.keys() <= core
    for id, sentences in shown.items():
        left_out = [
            start for start, why in build_smallest.LEFT_OUT.get(id, {}).items() if why != testee
        ]
        whole = [sentence for part in build_smallest.paragraphs(texts[id]) for sentence in part]
        assert sentences == [text for text in whole if not text.startswith(tuple(left_out))]


def test_what_is_left_out_has_a_reason() -> None:
    core = {rule.id for rule in parse_rules(whole_spec()) if rule.profile == "core"}
    reasons = {why for starts in build_smallest.LEFT_OUT.values() for why in starts.values()}

    assert build_smallest.LEFT_OUT.keys() <= core
    assert reasons <= {*PROFILES, "optional", *TESTEES}


def test_a_sentence_that_is_not_in_its_rule_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_smallest, "LEFT_OUT", {"WMP-1.5": {"Nobody wrote this": "secure"}})

    with pytest.raises(ValueError, match=r"WMP-1\.5 has not one sentence that begins with"):
        build_smallest.page("worker")


@pytest.mark.parametrize("testee", TESTEES)
def test_a_page_is_short(testee: str) -> None:
    assert len(page(testee).split()) <= WORDS


def test_a_stale_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "worker.md"
    text = page("worker")
    stale.write_text(text.replace("- **WMP-1.3**", "- **WMP-1.33**"), "utf-8")
    monkeypatch.setattr(build_smallest, "PAGES", {"worker": stale})

    assert build_smallest.main(["--check"]) == 1
    assert build_smallest.main([]) == 0
    assert build_smallest.main(["--check"]) == 0
    assert stale.read_text("utf-8") == text
