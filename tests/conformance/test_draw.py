"""A drawn conversation that breaks a rule is shortened, even when there is little time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from wmp.conformance.engine.draw import draw
from wmp.conformance.engine.play import terms_of
from wmp.conformance.script.case import Case, Verdict
from wmp.conformance.testees.library_testees import LibraryWorker
from wmp.conformance.wire.virtual import VirtualWire
from wmp.message import Command


class Fragile(LibraryWorker):
    """Raises an error at CANCEL."""

    def handle(self, event: Any, now: float) -> Any:
        if getattr(getattr(event, "message", None), "command", None) is Command.CANCEL:
            raise ZeroDivisionError("oh")
        return LibraryWorker.handle(self, event, now)


def wire(case: Case) -> VirtualWire:
    return VirtualWire(Fragile.of(terms_of(case)))


@pytest.mark.parametrize("seconds", [30.0, math.inf])
def test_the_shortest_is_found(seconds: float) -> None:
    drawn = draw("worker", wire, examples=200, number=3, shrinking=seconds)

    assert (drawn.verdict, drawn.rule, drawn.seed) == (Verdict.FAILED, "WMP-10.1", 3)
    assert [name for name, *_ in drawn.script] == ["cancel"]


def test_without_time_it_stays_as_it_was_found() -> None:
    drawn = draw("worker", wire, examples=200, number=3, shrinking=0.0)

    assert drawn.verdict is Verdict.FAILED
    assert len(drawn.script) > 1


def test_a_failure_counts_only_if_it_repeats_at_a_slower_pace() -> None:
    def good(case: Case) -> VirtualWire:
        return VirtualWire(LibraryWorker.of(terms_of(case)))

    drawn = draw("worker", wire, examples=20, number=3, sure=good)

    assert drawn.verdict is Verdict.OK
