"""Stores on SQLite for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.unit.store.stores import Clock, sqlite_store


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    store = sqlite_store(tmp_path / "jobs.db", clock)
    yield store
    store.close()


@pytest.fixture
def other(tmp_path, clock, store):
    """Return a second process's view of the store."""
    second = sqlite_store(tmp_path / "jobs.db", clock)
    yield second
    second.close()
