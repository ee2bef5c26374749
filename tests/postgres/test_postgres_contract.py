"""The contract of a store, on PostgreSQL: the tests of the store on SQLite, call by call."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.unit.store import (
    test_kept_results,
    test_sqlite_store,
    test_store_clock,
    test_stored_attempts,
    test_waiting_jobs,
)
from tests.unit.store.stores import Clock
from wmp.store.postgres.postgres_store import PostgresStore

ABOUT_FILES = {
    # They look into the file, or need the lock of an instance.
    "test_a_killed_process_is_noticed_at_once_and_a_living_one_is_left_alone",
    "test_the_jobs_of_an_ended_instance_lapse_after_the_grace",
    "test_ended_jobs_are_purged_after_their_time_to_live",
}


MODULES = (
    test_kept_results,
    test_sqlite_store,
    test_store_clock,
    test_stored_attempts,
    test_waiting_jobs,
)


def _shared() -> dict[str, Any]:
    """Return the tests that use nothing but a store and a clock."""
    return {
        name: member
        for module in (
            test_kept_results,
            test_sqlite_store,
            test_store_clock,
            test_stored_attempts,
            test_waiting_jobs,
        )
        for name, member in vars(module).items()
        if name.startswith("test_") and name not in ABOUT_FILES
        if "store" in inspect.signature(member).parameters
        if "manager" not in inspect.signature(member).parameters
    }


globals().update(_shared())


@pytest.fixture
def clock():
    return Clock()


def opened(url: str, clock: Clock) -> PostgresStore:
    return PostgresStore(url, clock=lambda: clock.wall, monotonic=lambda: clock.steady)


@pytest.fixture
def store(url, clock):
    store = opened(url, clock)
    yield store
    store.close()


@pytest.fixture
def other(url, clock, store):
    """Return a second process's view of the store."""
    second = opened(url, clock)
    yield second
    second.close()
