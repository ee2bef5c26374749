"""Find a conversation in which a testee breaks a rule, and make it short."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from attrs import evolve
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from wmp.conformance.case import Case, Result, Verdict
from wmp.conformance.moves import MOVES, Move, drawn_case
from wmp.conformance.play import play
from wmp.conformance.wire import Wire

__all__ = ["draw", "moves", "play_moves"]

_EXAMPLES = 100
_BAD = (Verdict.FAILED, Verdict.NON_STRICT, Verdict.UNCLEAN)


def moves(testee: str, most: int = 30) -> st.SearchStrategy[list[list[Any]]]:
    """Draw what is said to a kind of testee."""
    number = st.integers(0, 9)
    move = st.tuples(st.sampled_from(MOVES[testee]), number, number, number).map(list)
    # Lists of lists, for lists alone are mostly of five; each level is made shorter on its own.
    parts = st.lists(st.lists(move, max_size=most), max_size=most)
    return parts.map(lambda some: [one for part in some for one in part][:most])


def play_moves(testee: str, script: Sequence[Move], wire: Callable[[Case], Wire]) -> Result:
    """Play one conversation that was drawn before."""
    case = drawn_case(testee, script)
    return evolve(play(case, wire(case)), script=[list(move) for move in script])


def draw(
    testee: str,
    wire: Callable[[Case], Wire],
    *,
    examples: int = _EXAMPLES,
    most: int = 30,
    number: int = 0,
    shrinking: float = inf,
    sure: Callable[[Case], Wire] | None = None,
) -> Result:
    """Draw conversations until one breaks a rule, then the shortest that does.

    Args:
        testee: manager, worker or device.
        wire: Starts a testee for a case.
        examples: How many are drawn.
        most: How many moves each has at most.
        number: The seed: the same one draws the same conversations.
        sure: Starts a testee at a pace at which an answer cannot be late because the machine is
            busy; what fails is played again so, and counts when it fails there.
        shrinking: Seconds after which a failure is no longer made shorter.

    Returns:
        The failure with its ``script``; else the last conversation.
    """
    results: list[Result] = []

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    @seed(number)
    @given(moves(testee, most))
    def search(script: list[list[Any]]) -> None:
        if time.monotonic() > until[0]:
            return  # so that nothing shorter is found
        result = play_moves(testee, script, wire)
        if result.verdict in _BAD and sure is not None:
            result = play_moves(testee, script, sure)
        if result.verdict in _BAD:
            if not failures:
                until[0] = time.monotonic() + shrinking
            failures.append(result)
            raise _Found(result.rule)
        results[:] = [result]

    failures: list[Result] = []
    until = [inf]
    try:
        search()
    except (_Found, Flaky, ExceptionGroup):
        # Hypothesis plays the shortest one last; one that does not fail again is still a failure.
        return evolve(failures[-1], seed=number)
    return evolve(results[-1], seed=number)


class _Found(AssertionError):
    """A rule was broken."""
