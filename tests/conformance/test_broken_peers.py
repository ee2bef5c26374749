"""The kit accuses each broken peer of the rules that it breaks, and of no other rule.

A fault may break several rules: a manager that forgets a lost lease also forgets the lease of a
worker that left. ``broken_rules.py`` lists these rules for each peer. Only an ERROR
shows a refusal. So a peer that drops a wrong message in silence also breaks that message's rule.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance import (  # noqa: F401 - they register the broken peers
    broken_devices,
    broken_dialing,
    broken_liveness,
    broken_managers,
    broken_readings,
    broken_successors,
    broken_workers,
)
from tests.conformance.broken_peers import BROKEN_PEERS, Bent, BentPeer
from tests.conformance.broken_rules import ALSO
from wmp.conformance.engine.check import cases_for, run_all
from wmp.conformance.script.case import Case, Verdict
from wmp.conformance.script.rules import RULES
from wmp.conformance.testees.library_testees import LibraryDevice, LibraryManager, LibraryWorker
from wmp.conformance.wire.wire import Terms

GOOD: dict[str, Any] = {
    "manager": LibraryManager.of,
    "worker": LibraryWorker.of,
    "device": LibraryDevice.of,
}
# The modules of broken peers may have been imported in any order. All processes of pytest-xdist
# must collect the tests in one order.
PEERS = sorted(BROKEN_PEERS, key=lambda peer: (peer.testee, peer.rule, peer.name))
KEYS = [(peer.testee, peer.rule, peer.name) for peer in PEERS]
_THIRD = os.environ.get("WMP_THIRD_OF_PEERS")
DEEP = PEERS if _THIRD is None else PEERS[int(_THIRD) % 3 :: 3]
"""The peers that play all cases. A lane of ``.ci/run`` plays with a third of them, by the day."""


def name_of(peer: BentPeer) -> str:
    return f"{peer.testee}: {peer.name} ({peer.rule})"


def accused(peer: BentPeer, cases: Sequence[Case]) -> dict[str, str]:
    """Return the rules of which a peer is accused in some cases, each with case and text."""

    def make(terms: Terms) -> Bent:
        good = (peer.make or GOOD[peer.testee])(terms)
        return Bent(good, peer.bend(terms=terms), device=peer.testee == "device")

    accused_rules: dict[str, str] = {}
    for result in run_all(make, cases):
        if result.verdict in (Verdict.FAILED, Verdict.NON_STRICT):
            (rule,) = result.breaks
            accused_rules.setdefault(rule, f"{result.case.id}: {result.text}")
    return accused_rules


def broken(peer: BentPeer) -> set[str]:
    """Return the rules that a peer breaks."""
    also = ALSO.get((peer.testee, peer.rule, peer.name), "")
    return {peer.rule, *(f"WMP-{number}" for number in also.split())}


@pytest.mark.parametrize("peer", PEERS, ids=name_of)
def test_a_broken_peer_is_accused_of_its_rule(
    peer: BentPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if peer.switch is not None:
        peer.switch(monkeypatch)
    accusations = accused(peer, cases_for(peer.testee, rules=[peer.rule]))

    assert peer.rule in accusations, accusations
    assert set(accusations) <= broken(peer), accusations


@pytest.mark.deep
@pytest.mark.parametrize("peer", DEEP, ids=name_of)
def test_a_broken_peer_is_accused_of_no_rule_that_it_keeps(
    peer: BentPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if peer.switch is not None:
        peer.switch(monkeypatch)
    accusations = accused(peer, cases_for(peer.testee, peer.profiles))

    assert peer.rule in accusations
    assert set(accusations) <= broken(peer), accusations


def test_the_list_of_further_rules_names_broken_peers() -> None:
    assert set(ALSO) <= set(KEYS)
    assert len(set(KEYS)) == len(KEYS), "each peer has a name of its own"


def test_a_rule_with_a_broken_peer_binds() -> None:
    # A MAY that is added to a rule without MUST makes the rule optional, and the kit then accuses
    # no peer of a breach.
    optional = {peer.rule for peer in BROKEN_PEERS if RULES[peer.rule].level == "may"}
    assert not optional
