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


@pytest.mark.parametrize("peer", HABITS, ids=lambda peer: f"{peer.testee}: {peer.name}")
def test_an_honest_peer_is_not_accused(peer: Animal) -> None:
    def make(terms: Terms) -> Bent:
        good = (peer.make or GOOD[peer.testee])(terms)
        return Bent(good, peer.bend(terms=terms), device=peer.testee == "device")

    for result in run_all(make, cases_for(peer.testee)):
        assert result.verdict not in (Verdict.FAILED, Verdict.NON_STRICT), Nonconforming(result)
