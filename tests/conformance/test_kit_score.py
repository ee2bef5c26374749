"""The mutation score of the kit is above its bar, and falls when a check of the kit is missing."""

from __future__ import annotations

import pytest

from tests.conformance.broken_peers import BROKEN_PEERS
from tests.kit_score import BAR, KitScore, measure
from wmp.conformance.peers.played_peer import PlayedPeer


def test_the_kit_names_the_mutants_by_their_own_rules() -> None:
    score = measure()

    assert score.good_enough, "\n".join(score.lines())


def test_the_score_falls_when_a_check_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    rule_key = "manager", "WMP-7.1"
    mutants = [peer for peer in BROKEN_PEERS if (peer.testee, peer.rule) == rule_key]
    assert measure(mutants).score == 1.0

    monkeypatch.setattr(PlayedPeer, "_check_stream", lambda self, received: None)

    assert measure(mutants).missed == {rule_key: ["numbers everything one"]}


def test_a_rule_without_a_mutant_and_a_missed_one_are_reported() -> None:
    rules = {(peer.testee, peer.rule): 1 for peer in BROKEN_PEERS}
    del rules["worker", "WMP-3.8"]
    missed = {rule_key: ["somebody"] for rule_key in list(rules)[: int(len(rules) * (1 - BAR)) + 2]}

    whole, bad = KitScore(rules), KitScore(rules, missed)

    assert not whole.good_enough, "a rule has no mutant"
    assert "rules without a mutant: worker WMP-3.8" in "\n".join(whole.lines())
    assert bad.score < BAR
    assert sum(line.startswith("missed: ") for line in bad.lines()) == len(missed)
