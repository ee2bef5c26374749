"""Check a sans-I/O implementation against the specification, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator

from wmp.conformance import cases
from wmp.conformance.engine.draw import SPEAKS, draw
from wmp.conformance.engine.play import play, terms_of
from wmp.conformance.script.case import CASES, Case, CaseResult, Verdict
from wmp.conformance.script.rules import PROFILES
from wmp.conformance.script.transcript import conversation
from wmp.conformance.wire.virtual import Testee, VirtualWire
from wmp.conformance.wire.wire import Terms

Factory = Callable[[Terms], Testee]
"""Makes a testee that has just been started."""


class Nonconforming(AssertionError):
    """A testee broke a rule; the text holds the whole conversation.

    Attributes:
        result: The result of the case.
    """

    def __init__(self, result: CaseResult) -> None:
        case = result.case
        super().__init__(
            f"{result.rule}: {result.text}\n"
            f"in {case.id} ({', '.join(case.rules)}): {case.about}\n"
            f"{conversation(result.lines, case.testee)}"
            + (f"\nseed {result.seed}, moves: {json.dumps(result.script)}" if result.script else "")
        )
        self.result = result


def cases_for(
    testee: str, profiles: Collection[str] = PROFILES, rules: Collection[str] = ()
) -> list[Case]:
    """Return the cases for a kind of testee, sorted by rule; ``rules`` selects some of them."""
    cases.load()
    chosen = [
        case
        for case in CASES.values()
        if case.testee == testee
        and case.profile in profiles
        and (not rules or not set(rules).isdisjoint(case.rules))
    ]
    return sorted(chosen, key=lambda case: case.rule.order)


def run_all(factory: Factory, cases: Iterable[Case]) -> Iterator[CaseResult]:
    """Play cases, each with a testee of its own, in virtual time."""
    for case in cases:
        yield play(case, _virtual(factory, case))


def _check(
    testee: str, factory: Factory, profiles: Collection[str], strict: bool, examples: int, seed: int
) -> None:
    bad = (Verdict.FAILED, Verdict.UNCLEAN, *((Verdict.NON_STRICT,) if strict else ()))
    for result in run_all(factory, cases_for(testee, profiles)):
        if result.verdict in bad:
            raise Nonconforming(result)
    if examples and (testee == "device" or set(profiles) >= SPEAKS):
        result = draw(testee, lambda case: _virtual(factory, case), examples=examples, number=seed)
        if result.verdict in bad:
            raise Nonconforming(result)


def _virtual(factory: Factory, case: Case) -> VirtualWire:
    return VirtualWire(factory(terms_of(case)))


def check_manager(
    factory: Factory,
    profiles: Collection[str] = PROFILES,
    *,
    strict: bool = False,
    examples: int = 100,
    seed: int = 0,
) -> None:
    """Check a manager against every case, and against drawn conversations.

    Args:
        factory: Makes a manager (:class:`~wmp.conformance.wire.virtual.ManagerTestee`) that has
            just been started.
        profiles: The profiles of the manager; cases of other profiles are left out.
        strict: Whether a SHOULD counts as a MUST.
        examples: The number of drawn conversations, if the manager has the profiles for them.
        seed: Equal seeds draw equal conversations.

    Raises:
        Nonconforming: The manager breaks a rule; the text is the shortest such conversation.
    """
    _check("manager", factory, profiles, strict, examples, seed)


def check_worker(
    factory: Factory,
    profiles: Collection[str] = PROFILES,
    *,
    strict: bool = False,
    examples: int = 100,
    seed: int = 0,
) -> None:
    """Check a worker against every case and drawn conversations; see :func:`check_manager`.

    Raises:
        Nonconforming: The worker breaks a rule.
    """
    _check("worker", factory, profiles, strict, examples, seed)


def check_device(
    factory: Factory,
    profiles: Collection[str] = PROFILES,
    *,
    strict: bool = False,
    examples: int = 100,
    seed: int = 0,
) -> None:
    """Check a device against every case and drawn conversations; see :func:`check_manager`.

    Raises:
        Nonconforming: The device breaks a rule.
    """
    _check("device", factory, profiles, strict, examples, seed)
