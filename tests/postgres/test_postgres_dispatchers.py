"""Dispatchers on PostgreSQL: their transactions, call by call, and programs that are killed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.dispatcher.dispatcher_kills import KillRun
from tests.postgres.server import PostgresServer
from tests.unit.dispatcher import test_dispatcher_steps
from tests.unit.store.stores import Clock
from wmp.store.postgres.postgres_store import PostgresStore


def _shared() -> dict[str, Any]:
    """Return the tests that use nothing but dispatchers and a clock."""
    return {
        name: member
        for name, member in vars(test_dispatcher_steps).items()
        if name.startswith("test_") and "world" in inspect.signature(member).parameters
    }


globals().update(_shared())


@pytest.fixture
def world(url: str) -> Iterator[test_dispatcher_steps.World]:
    clock = Clock()

    def opened() -> PostgresStore:
        return PostgresStore(url, clock=lambda: clock.wall, monotonic=lambda: clock.steady)

    world = test_dispatcher_steps.World(clock, opened)
    yield world
    for store in world.opened:
        store.close()


@pytest.fixture
def killed_server() -> Iterator[PostgresServer]:
    """Yield a server of the test's own, which may be killed."""
    server = PostgresServer()
    yield server
    server.stop()


def kill_all(folder: Path, server: PostgresServer, jobs: int, *counts: int) -> None:
    run = KillRun(folder, jobs, *counts, server.url, server=server)
    run.run(timeout=120)
    report = run.report()
    assert (report["open"], report["lost"], report["wrong"]) == (0, 0, 0), report
    assert report["never executed"] == 0
    assert report["kills"] == sum(counts) + 1


@pytest.mark.interop
@pytest.mark.rule("STORE-8.3", "STORE-13.8")
def test_jobs_outlive_kills_of_all_programs_and_of_the_server(
    tmp_path: Path, killed_server: PostgresServer
) -> None:
    kill_all(tmp_path, killed_server, 40, 2, 1, 1)


@pytest.mark.deep
@pytest.mark.interop
def test_many_jobs_outlive_kills_of_all_programs_and_of_the_server(
    tmp_path: Path, killed_server: PostgresServer
) -> None:
    kill_all(tmp_path, killed_server, 400, 3, 4, 4)
