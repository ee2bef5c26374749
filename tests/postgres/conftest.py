"""One server of PostgreSQL for all tests here. Without one they are skipped, or fail in CI."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.postgres.server import PostgresServer, why_no_server

REQUIRED = os.environ.get("WMP_REQUIRE_POSTGRES", "") not in ("", "0")
HERE = Path(__file__).parent
REASON = why_no_server()


class WithoutServer(pytest.Module):
    """Tests that cannot run, with the reason."""

    def collect(self):
        if REQUIRED:
            raise self.CollectError(f"WMP_REQUIRE_POSTGRES is set, and {REASON}")
        pytest.skip(f"no PostgreSQL: {REASON}", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    return WithoutServer.from_parent(parent, path=module_path) if REASON else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.postgres)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.stop()


_numbers = itertools.count(1)


@pytest.fixture
def url(server: PostgresServer) -> str:
    """Return the URL of a store that does not exist yet."""
    return f"{server.url}&schema=store_{os.getpid()}_{next(_numbers)}"


@pytest.fixture
def new_url(server: PostgresServer) -> Callable[[], str]:
    """Return what makes URLs of stores."""
    return lambda: f"{server.url}&schema=store_{os.getpid()}_{next(_numbers)}"
