"""Find a conversation in which a testee breaks a rule, and shorten it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from attrs import evolve
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from wmp.conformance.engine.play import play
from wmp.conformance.moves.moves import MOVES, Move, drawn_case
from wmp.conformance.script.case import Case, CaseResult, Verdict
from wmp.conformance.wire.wire import Wire

SPEAKS: Final = frozenset({"core", "columns", "liveness", "reliable", "status-cancel"})
"""The profiles that a manager or worker needs for drawn conversations."""

_EXAMPLES = 100
_BAD = (Verdict.FAILED, Verdict.NON_STRICT, Verdict.UNCLEAN)


def moves(testee: str, maximum: int = 30) -> st.SearchStrategy[list[list[Any]]]:
    """Draw the moves of a conversation with a kind of testee."""
    number = st.integers(0, 9)
    move = st.tuples(st.sampled_from(MOVES[testee]), number, number, number).map(list)
    # Lists of lists, because Hypothesis mostly draws lists of about five items. It shortens each
    # level separately.
    parts = st.lists(st.lists(move, max_size=maximum), max_size=maximum)
    return parts.map(lambda groups: [item for group in groups for item in group][:maximum])


def play_moves(testee: str, script: Sequence[Move], wire: Callable[[Case], Wire]) -> CaseResult:
    """Play a conversation that was drawn before."""
    case = drawn_case(testee, script)
    return evolve(play(case, wire(case)), script=[list(move) for move in script])


def draw(
    testee: str,
    wire: Callable[[Case], Wire],
    *,
    examples: int = _EXAMPLES,
    maximum: int = 30,
    number: int = 0,
    shrinking: float = inf,
    sure: Callable[[Case], Wire] | None = None,
) -> CaseResult:
    """Draw conversations until one of them breaks a rule; shorten it to the fewest moves that still
    break a rule.

    Args:
        testee: manager, worker or device.
        wire: Starts a testee for a case.
        examples: The number of conversations.
        maximum: Number of moves at most in one conversation.
        number: The seed: equal seeds draw equal conversations.
        sure: Starts a testee with a larger unit, at which a busy machine cannot cause a late
            answer. A failure is played again with this unit, and counts if it fails again.
        shrinking: Seconds for shortening a failure. Infinity, for a testee in this process, leaves
            the shortening to Hypothesis.

    Returns:
        The failure with its ``script``; without a failure the last conversation.
    """
    results: list[CaseResult] = []

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrinking == inf else (Phase.generate,),
        report_multiple_bugs=False,
    )
    @seed(number)
    @given(moves(testee, maximum))
    def search(script: list[list[Any]]) -> None:
        result = play_moves(testee, script, wire)
        if result.verdict in (*_BAD, Verdict.VOID) and sure is not None:
            result = play_moves(testee, script, sure)
        if result.verdict in _BAD:
            failures.append(result)
            raise _BrokenConversation(result.rule)
        if result.verdict is not Verdict.VOID or not results:
            results[:] = [result]  # one conversation that is not void is enough for the verdict

    failures: list[CaseResult] = []
    try:
        search()
    except (_BrokenConversation, Flaky, ExceptionGroup):
        # Hypothesis plays the shortest failure last. A failure that does not repeat still counts.
        failure = failures[-1]
        if shrinking < inf:
            failure = _shorten(failure, testee, wire, time.monotonic() + shrinking)
        return evolve(failure, seed=number)
    return evolve(results[-1], seed=number)


def _shorten(
    failure: CaseResult, testee: str, wire: Callable[[Case], Wire], until: float
) -> CaseResult:
    """Leave out moves, large groups first: with a live testee there is time for a few tries."""
    played = sum(line.way == "#" for line in failure.lines)  # the later moves were not played
    script, size = list(failure.script[:played]), max(1, played // 2)
    while size:
        at = 0
        while at < len(script):
            if time.monotonic() > until:
                return failure
            shorter = script[:at] + script[at + size :]
            result = play_moves(testee, shorter, wire)
            if result.verdict == failure.verdict and result.rule == failure.rule:
                script, failure = shorter, result
            else:
                at += size
        size //= 2
    return failure


class _BrokenConversation(AssertionError):
    """A rule was broken."""
