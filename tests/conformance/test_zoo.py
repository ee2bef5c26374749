"""The kit reports the broken rule of each broken peer, and every rule has a broken peer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance import zoo_devices, zoo_managers, zoo_workers  # noqa: F401 - they fill it
from tests.conformance.zoo import ZOO, Animal, Bent
from wmp.conformance.case import Verdict
from wmp.conformance.check import cases_for, run_all
from wmp.conformance.library_testees import LibraryDevice, LibraryManager, LibraryWorker
from wmp.conformance.wire import Terms

GOOD: dict[str, Any] = {
    "manager": lambda terms: LibraryManager(),
    "worker": LibraryWorker.of,
    "device": LibraryDevice.of,
}


def caught(animal: Animal) -> list[tuple[tuple[str, ...], str, str]]:
    """Return (rules, case, text) of each failed case about the animal's rule."""

    def make(terms: Terms) -> Bent:
        good = (animal.make or GOOD[animal.testee])(terms)
        return Bent(good, animal.bend(terms=terms), device=animal.testee == "device")

    cases = cases_for(animal.testee, rules=[animal.rule])
    return [
        (result.breaks, result.case.id, result.text)
        for result in run_all(make, cases)
        if result.verdict in (Verdict.FAILED, Verdict.NON_STRICT)
    ]


@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: f"{animal.testee}: {animal.name}")
def test_a_broken_peer_is_caught_by_the_rule_it_breaks(
    animal: Animal, monkeypatch: pytest.MonkeyPatch
) -> None:
    if animal.switch is not None:
        animal.switch(monkeypatch)
    found = caught(animal)

    assert any(animal.rule in rules for rules, _, _ in found), found
