"""All behaviours of a Binary Star within bounds."""

from __future__ import annotations

from itertools import takewhile

import pytest

from tests.interop.programs.programs import ROOT
from wmp.gateways.binary_star import machine as star
from wmp.gateways.binary_star.election import TRANSITIONS, StarInput, StarState
from wmp.gateways.binary_star.machine import StarMachine
from wmp.testing.search import star_search
from wmp.testing.search.star_search import StarFault, StarSearch, served_again

pytestmark = pytest.mark.timeout(900)


def searched(*faults, ends=2):
    search = StarSearch(frozenset(faults), ends=ends)
    search.run()
    return search


def dual(search):
    return [state for state in search.came_from if state.both_active]


@pytest.mark.rule("STAR-2.5", "STAR-2.2")
def test_without_loss_and_pauses_two_nodes_never_accept_requests_at_once():
    search = searched(StarFault.END, ends=4)
    assert len(search.came_from) > 600
    assert dual(search) == []


def test_two_nodes_are_never_passive_at_once():
    search = searched(*StarFault)
    assert len(search.came_from) > 10_000
    assert not any(
        all(node.state is StarState.PASSIVE for node in state.nodes) for state in search.came_from
    )


@pytest.mark.parametrize("fault", [StarFault.LOSS, StarFault.PARTITION, StarFault.PAUSE])
def test_two_nodes_accept_requests_at_once_only_after_two_seconds_without_states(fault):
    search = searched(fault, ends=0)
    states = dual(search)
    for state in states:
        steps = search.trace(state)
        if fault is StarFault.PAUSE:
            assert any(step.endswith("is stopped") for step in steps), steps
        else:
            assert steps.count("a second passes") >= 2, steps
        assert any(step.startswith("a request at") for step in steps), steps
    # The cases of the page are real, and the page has the shortest way to each.
    assert states
    page = (ROOT / "specs" / "binary-star.md").read_text(encoding="utf-8")
    assert f"*{fault.value}*: {', '.join(search.shortest)}" in page


def ends_of_both(search):
    """Return the steps to each pair of which both nodes have ended with an error."""
    return [
        search.trace(state)
        for state in search.came_from
        if all(node.state is StarState.HALTED for node in state.nodes)
    ]


@pytest.mark.rule("STAR-1.4")
def test_a_node_that_took_over_from_a_stopped_node_stays(monkeypatch):
    def both_end(make):
        """Return ways to the end of both nodes: one took over while the other one was stopped."""
        monkeypatch.setattr(star_search, "StarMachine", make)
        pause = StarSearch(frozenset({StarFault.PAUSE}), ends=0, pauses=1)
        pause.run()
        ways = ends_of_both(pause)
        assert ways  # the states may cross if the takeover is later
        before = [list(takewhile(lambda step: not step.endswith("goes on"), way)) for way in ways]
        return [way for way in before if "a request at backup" in way]

    class Hasty(StarMachine):
        """A node that reports its state at once when it goes on."""

        def handle(self, event, now):
            if self._publish_at is not None:
                self._publish_at = max(self._publish_at, now)
            return super().handle(event, now)

    assert both_end(StarMachine) == []
    assert both_end(Hasty)


@pytest.mark.rule("STAR-2.3")
def test_a_passive_node_does_not_take_over_because_it_was_stopped_once():
    pause = StarSearch(frozenset({StarFault.PAUSE}), ends=0, pauses=1)
    pause.run()
    assert dual(pause)
    assert all("primary is stopped" in pause.trace(state) for state in dual(pause))


@pytest.mark.parametrize(
    "faults",
    [
        (StarFault.END,),
        (StarFault.LOSS,),
        (StarFault.PARTITION,),
        pytest.param((StarFault.END, StarFault.PARTITION), marks=pytest.mark.deep),
        pytest.param((StarFault.END, StarFault.LOSS), marks=pytest.mark.deep),
        pytest.param((StarFault.END, StarFault.LOSS, StarFault.PAUSE), marks=pytest.mark.deep),
    ],
)
def test_a_pair_serves_again_by_one_node_when_faults_stop(faults):
    search = searched(*faults, ends=1)
    stuck = [state for state in search.came_from if not served_again(state)]
    assert stuck == [], search.trace(stuck[0])


@pytest.mark.parametrize(
    ("pair", "target"),
    [
        ((StarState.PASSIVE, StarInput.REQUEST), StarState.ACTIVE),
        ((StarState.PRIMARY, StarInput.PEER_ACTIVE), StarState.ACTIVE),
    ],
)
def test_the_search_finds_two_active_nodes_in_a_wrong_table(monkeypatch, pair, target):
    monkeypatch.setattr(star, "TRANSITIONS", {**TRANSITIONS, pair: target})
    assert dual(searched(StarFault.END))


def test_without_the_end_of_a_conflict_a_pair_does_not_serve_again(monkeypatch):
    # With the safeguard both nodes end, and units start them again.
    pair = (StarState.ACTIVE, StarInput.PEER_ACTIVE)
    monkeypatch.setattr(star, "TRANSITIONS", {**TRANSITIONS, pair: StarState.ACTIVE})
    search = searched(StarFault.LOSS)
    assert not all(served_again(step) for step in search.came_from)
