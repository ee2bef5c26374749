"""The stores on which the tests of dispatchers run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.dispatcher.dispatchers import World
from tests.unit.store.stores import Clock, sqlite_store
from wmp.testing.store_worlds.reference_transaction import TransactingReference


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    clock = Clock()
    if request.param == "memory":
        store = TransactingReference(lambda: clock.wall)
        yield World(clock, lambda: store)
        return
    world = World(clock, lambda: sqlite_store(tmp_path / "jobs.db", clock))
    yield world
    for opened in world.opened:
        opened.close()
