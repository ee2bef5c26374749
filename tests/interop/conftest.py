"""Fixtures of the tests of programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.forks import Forks


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A process that forks for each run of a program that ends at once."""
    with Forks(tmp_path_factory.mktemp("forks")) as forks:
        yield forks
