"""Every order of the steps of a manager with a store that is killed once, and starts again."""

from __future__ import annotations

import pytest

from tests.ablation import store_side, successor_side
from wmp.testing.search.store_search import StoreModel, search_store
from wmp.testing.store_worlds.store_world import BrokenStorePromise

AGAIN = "a job runs no more often than it must"


def test_some_states_of_a_small_world_with_a_store_keep_the_promises() -> None:
    result = search_store(30)

    assert result.states >= 30


def test_a_world_that_runs_on_without_faults_ends_its_job() -> None:
    model = StoreModel()

    model.close()

    assert sum(model.begun.values()) == 1
    assert not any(model.open.values())


@pytest.mark.deep
def test_every_state_of_a_small_world_with_a_store_keeps_the_promises() -> None:
    result = search_store(5_000)

    assert result.emptied
    assert result.states > 500
    assert result.leaves > 50


@pytest.mark.deep
def test_states_of_a_small_world_with_two_managers_keep_the_promises() -> None:
    result = search_store(300, managers=2, ticks_left=1)

    assert result.leaves > 5


@pytest.mark.deep
@pytest.mark.parametrize(
    ("switch", "promise"),
    [
        (successor_side.orphaned_jobs, AGAIN),
        (successor_side.results_until_kept, AGAIN),
        (successor_side.results_of_others, AGAIN),
        (store_side.ends_after_the_write, "what is reported is stored"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_search_finds_a_safeguard_that_is_off(monkeypatch, switch, promise) -> None:
    switch(monkeypatch)

    with pytest.raises(BrokenStorePromise) as broken:
        search_store(400)
    assert broken.value.name == promise
