"""Fixtures of the tests of programs."""

from __future__ import annotations

import pytest

from tests.interop.programs import forks as module
from tests.interop.programs.forks import Forks


@pytest.fixture(scope="session")
def forks() -> Forks:
    """A process that forks for each run of a program."""
    return module.forks()
