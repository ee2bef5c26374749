"""Safeguards of a manager with a store: without each, some world breaks a promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ablation import store_side, successor_side
from tests.simulation.test_store_worlds import RESTARTS
from tests.unit.core.manager.stored_manager import StoredManager
from tests.unit.core.manager.test_store_link import (
    test_no_stored_job_is_granted_seven_seconds_after_the_last_renewal as limit_of_grants,
)
from wmp.testing.store_worlds.store_world import BrokenStorePromise, StoreFaults, StoreWorld

Switch = Callable[[pytest.MonkeyPatch], None]

SECONDS = 4.0

WORLDS: list[tuple[Switch, set[str], tuple[int, ...]]] = [
    (store_side.ends_after_the_write, {"what is reported is stored"}, (1, 2)),
    (store_side.acknowledgement_after_the_write, {"what is acknowledged is stored"}, (1, 2)),
    (store_side.sweep, {"an acknowledged job ends", "every end is reported"}, (2, 1)),
    (store_side.number_of_the_batch, {"an acknowledged job ends"}, (4, 9, 11)),
    (store_side.comparison, {"an acknowledged job ends"}, (1, 2, 3)),
    (store_side.changes_on_their_way, {"an attempt begins once"}, (2, 9, 11)),
    (store_side.watch, {"every end is reported"}, (1, 2, 3)),
    (store_side.receipt_of_news, {"every end is reported"}, (1, 2, 3)),
]
"""The switch, the promises that may break with it, and seeds of worlds that break one."""

AGAIN = "a job runs no more often than it must"

RESTARTED: list[tuple[Switch, set[str], tuple[int, ...]]] = [
    (successor_side.keep_of_take, {AGAIN}, (1, 2, 3)),
    (successor_side.served_store, {AGAIN}, (1, 2, 3)),
    (successor_side.kept_number, {AGAIN}, (1, 2, 3, 4, 5)),
    (successor_side.results_until_kept, {AGAIN}, (1, 2, 3, 4, 5)),
    (successor_side.orphaned_jobs, {AGAIN}, (1, 2, 3)),
    (successor_side.list_of_jobs, {AGAIN}, (1, 2, 3)),
    (successor_side.taking_over, {AGAIN}, (1, 2, 3)),
    (successor_side.lease_of_a_job_taken_over, {AGAIN}, (1, 2, 3)),
    (successor_side.results_of_others, {AGAIN}, (1, 2, 3)),
]
"""The same for worlds in which only managers end: no work may be done again."""


def broken(seed: int, switch: Switch, faults: StoreFaults | None = None) -> str:
    """Return the promise that a world breaks without a safeguard; empty for none."""
    with pytest.MonkeyPatch.context() as patch:
        switch(patch)
        try:
            StoreWorld(seed=seed, faults=faults or StoreFaults()).play(SECONDS)
        except BrokenStorePromise as error:
            return error.name
    return ""


@pytest.mark.parametrize(
    ("switch", "promises", "seeds"), WORLDS, ids=[row[0].__name__ for row in WORLDS]
)
def test_worlds_notice_that_a_safeguard_is_off(
    switch: Switch, promises: set[str], seeds: tuple[int, ...]
) -> None:
    violations = {}
    for seed in seeds:
        violations[seed] = broken(seed, switch)
        if violations[seed] in promises:
            return
    pytest.fail(f"none of {sorted(promises)} is broken: {violations}")


@pytest.mark.parametrize(
    ("switch", "promises", "seeds"), RESTARTED, ids=[row[0].__name__ for row in RESTARTED]
)
def test_worlds_of_restarts_notice_that_a_safeguard_is_off(
    switch: Switch, promises: set[str], seeds: tuple[int, ...]
) -> None:
    violations = {}
    for seed in seeds:
        violations[seed] = broken(seed, switch, RESTARTS)
        if violations[seed] in promises:
            return
    pytest.fail(f"none of {sorted(promises)} is broken: {violations}")


def test_the_test_of_its_rule_notices_that_old_renewals_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store_side.limit_of_grants(monkeypatch)

    with pytest.raises(AssertionError):
        limit_of_grants(StoredManager())
