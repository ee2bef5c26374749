"""The life of a lock follows its tables."""

from __future__ import annotations

from itertools import product

import pytest

from wmp.core.worker import locks
from wmp.core.worker.locks import IGNORED, TRANSITIONS, Lock, LockInput, LockState


def lock(state=LockState.UNUSED):
    return Lock(1, (("slots", 1),), want=3, reserved=2, opened=0.0, state=state)


def test_the_tables_decide_every_pair_once():
    pairs = set(product(LockState, LockInput))
    assert pairs == TRANSITIONS.keys() | IGNORED.keys()
    assert not TRANSITIONS.keys() & IGNORED.keys()


@pytest.mark.parametrize(("pair", "target"), TRANSITIONS.items())
def test_a_step_follows_the_table(pair, target):
    it = lock(pair[0])
    assert it.step(pair[1])
    assert it.state is target


@pytest.mark.parametrize("pair", IGNORED)
def test_ignored_inputs_change_nothing(pair):
    it = lock(pair[0])
    assert not it.step(pair[1])
    assert it.state is pair[0]


def test_the_code_consults_the_table(monkeypatch):
    smaller = dict(TRANSITIONS)
    del smaller[LockState.OPEN, LockInput.NO]
    monkeypatch.setattr(locks, "TRANSITIONS", smaller)
    assert not lock(LockState.OPEN).step(LockInput.NO)


def test_no_lock_leads_back_to_its_beginning():
    """A lock number is never used again."""
    assert LockState.UNUSED not in TRANSITIONS.values()
    assert not [pair for pair in TRANSITIONS if pair[0] is LockState.CLOSED]


def test_places_without_resources_are_promised_in_the_window():
    assert lock().windowed == 1
