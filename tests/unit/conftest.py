"""Fixtures of the tests of managers and of pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.core.manager.managers import make
from tests.unit.runtime.posts import Opener, Posts
from tests.waiting import WAIT
from wmp.core.manager.machine import ManagerMachine
from wmp.runtime.executors import Pool, ProcessLimits, open_pool, restart_policy
from wmp.testing.peers.scripted_worker import ScriptedWorker


@pytest.fixture
def manager() -> ManagerMachine:
    return make()


@pytest.fixture
def worker(manager: ManagerMachine) -> ScriptedWorker:
    """A scripted worker of the fixture ``manager``."""
    return ScriptedWorker(manager)


@pytest.fixture
def posts() -> Posts:
    return Posts()


@pytest.fixture
def opened(posts: Posts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    """Open and start pools that are closed at the end."""
    monkeypatch.setattr(restart_policy, "_START_TIMEOUT", WAIT)  # on a busy machine a start is slow
    pools = []

    def opener(
        kind: str, slots: int = 1, limits: ProcessLimits | None = None, **handlers: Any
    ) -> Pool:
        pool = open_pool(kind, handlers, slots, posts, limits)
        pools.append(pool)
        pool.start()
        return pool

    yield opener
    for pool in pools:
        pool.close(5)
