"""The kit accuses no honest peer: each habit that the rules allow passes all cases.

The default run plays a third of the cases with each habit, the deep tests play all of them.
"""

from __future__ import annotations

import pytest

from tests.conformance.broken_peers import Bend, Bent, BentPeer, columned
from tests.conformance.habits import HABITS
from tests.conformance.test_broken_peers import GOOD
from wmp.conformance import Nonconforming
from wmp.conformance.engine.check import cases_for, run_all
from wmp.conformance.script.case import Verdict
from wmp.conformance.wire.wire import Terms
from wmp.message import Command, Message, Outcome

CHOSEN = [
    pytest.param(peer, slice(at % 3, None, 3), id=f"{peer.testee}: {peer.name}")
    for at, peer in enumerate(HABITS)
    # One window shows what the others show.
    if peer.name not in ("has a window of 1", "has a window of 30")
]
WHOLE = [
    pytest.param(peer, slice(None), id=f"{peer.testee}: {peer.name}, all", marks=pytest.mark.deep)
    for peer in HABITS
]


@pytest.mark.parametrize(("peer", "part"), CHOSEN + WHOLE)
def test_an_honest_peer_is_not_accused(peer: BentPeer, part: slice) -> None:
    def make(terms: Terms) -> Bent:
        good = (peer.make or GOOD[peer.testee])(terms)
        return Bent(good, peer.bend(terms=terms), device=peer.testee == "device")

    for result in run_all(make, cases_for(peer.testee)[part]):
        assert result.verdict not in (Verdict.FAILED, Verdict.NON_STRICT), Nonconforming(result)


class BeginsNothing(Bend):
    """Answers every job by DONE cancelled."""

    def says(self, link: int | bytes, message: Message) -> Message:
        if message.command is not Command.DONE or message.columns is None:
            return message
        count = len(message.columns.ids)
        return columned(message, outcomes=[Outcome.CANCELLED] * count, payloads=[b""] * count)


HANDS_BACK = next(peer for peer in HABITS if peer.rule == "WMP-6.18")


@pytest.mark.parametrize("case", ["worker/plain-handshake", "worker/late-take-with-capacity"])
def test_a_worker_that_hands_every_job_back_is_accused(case: str) -> None:
    def make(terms: Terms) -> Bent:
        assert HANDS_BACK.make is not None
        return Bent(HANDS_BACK.make(terms), BeginsNothing(terms=terms))

    (result,) = run_all(
        make, [known_case for known_case in cases_for("worker") if known_case.id == case]
    )

    assert result.verdict is Verdict.FAILED, result.text


def test_a_job_that_is_handed_back_is_granted_again() -> None:
    assert HANDS_BACK.make is not None
    chosen = [case for case in cases_for("worker") if case.id == "worker/held-jobs"]
    (result,) = run_all(HANDS_BACK.make, chosen)

    assert any("was handed back, and is granted again" in line.text for line in result.lines)
