"""The kit accuses each broken peer of the rules that it breaks, and of no other rule.

A fault may break several rules: a manager that forgets a lost lease also forgets the lease of a
worker that left. ``zoo_also.py`` lists these rules for each animal. Only an ERROR
shows a refusal. So a peer that drops a wrong message in silence also breaks that message's rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance import (  # noqa: F401 - they fill it
    zoo_devices,
    zoo_dialing,
    zoo_liveness,
    zoo_managers,
    zoo_successors,
    zoo_workers,
)
from tests.conformance.zoo import ZOO, Animal, Bent
from tests.conformance.zoo_also import ALSO
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
# The modules of the zoo may have been imported in any order. All processes of pytest-xdist must
# collect the tests in one order.
ANIMALS = sorted(ZOO, key=lambda animal: (animal.testee, animal.rule, animal.name))
KEYS = [(animal.testee, animal.rule, animal.name) for animal in ANIMALS]


def name_of(animal: Animal) -> str:
    return f"{animal.testee}: {animal.name} ({animal.rule})"


def accused(animal: Animal, cases: Sequence[Case]) -> dict[str, str]:
    """Return the rules of which an animal is accused in some cases, each with case and text."""

    def make(terms: Terms) -> Bent:
        good = (animal.make or GOOD[animal.testee])(terms)
        return Bent(good, animal.bend(terms=terms), device=animal.testee == "device")

    found: dict[str, str] = {}
    for result in run_all(make, cases):
        if result.verdict in (Verdict.FAILED, Verdict.NON_STRICT):
            (rule,) = result.breaks
            found.setdefault(rule, f"{result.case.id}: {result.text}")
    return found


def broken(animal: Animal) -> set[str]:
    """Return the rules that an animal breaks."""
    also = ALSO.get((animal.testee, animal.rule, animal.name), "")
    return {animal.rule, *(f"WMP-{number}" for number in also.split())}


@pytest.mark.parametrize("animal", ANIMALS, ids=name_of)
def test_a_broken_peer_is_accused_of_its_rule(
    animal: Animal, monkeypatch: pytest.MonkeyPatch
) -> None:
    if animal.switch is not None:
        animal.switch(monkeypatch)
    found = accused(animal, cases_for(animal.testee, rules=[animal.rule]))

    assert animal.rule in found, found
    assert set(found) <= broken(animal), found


@pytest.mark.deep
@pytest.mark.parametrize("animal", ANIMALS, ids=name_of)
def test_a_broken_peer_is_accused_of_no_rule_that_it_keeps(
    animal: Animal, monkeypatch: pytest.MonkeyPatch
) -> None:
    if animal.switch is not None:
        animal.switch(monkeypatch)
    found = accused(animal, cases_for(animal.testee, animal.profiles))

    assert animal.rule in found
    assert set(found) <= broken(animal), found


def test_the_list_of_further_rules_names_animals_of_the_zoo() -> None:
    assert set(ALSO) <= set(KEYS)
    assert len(set(KEYS)) == len(KEYS), "each animal has a name of its own"


def test_a_rule_with_a_broken_peer_binds() -> None:
    # A MAY that is added to a rule without MUST makes the rule optional, and the kit then accuses
    # no peer of a breach.
    optional = {animal.rule for animal in ZOO if RULES[animal.rule].level == "may"}
    assert not optional
