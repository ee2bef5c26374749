"""The kit accuses no honest peer: each habit that the rules allow passes all cases."""

from __future__ import annotations

import pytest

from tests.conformance.habits import HABITS
from tests.conformance.test_zoo import GOOD
from tests.conformance.zoo import Animal, Bent
from wmp.conformance import Nonconforming
from wmp.conformance.case import Verdict
from wmp.conformance.check import cases_for, run_all
from wmp.conformance.wire import Terms

CHOSEN = [
    pytest.param(
        peer,
        id=f"{peer.testee}: {peer.name}",
        # One window shows what the others show.
        marks=[pytest.mark.deep]
        if peer.name in ("has a window of 1", "has a window of 30")
        else [],
    )
    for peer in HABITS
]


@pytest.mark.parametrize("peer", CHOSEN)
def test_an_honest_peer_is_not_accused(peer: Animal) -> None:
    def make(terms: Terms) -> Bent:
        good = (peer.make or GOOD[peer.testee])(terms)
        return Bent(good, peer.bend(terms=terms), device=peer.testee == "device")

    for result in run_all(make, cases_for(peer.testee)):
        assert result.verdict not in (Verdict.FAILED, Verdict.NON_STRICT), Nonconforming(result)
