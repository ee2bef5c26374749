"""Seeds of worlds as parameters of a test: a few for each run, and many for the deep lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from _pytest.mark import ParameterSet

_AT_ONCE = 25


def seeds(count: int, deep: int) -> list[ParameterSet]:
    """Return one seed for each default test, and ranges up to ``deep`` for deep tests.

    Each process of the tests collects all tests, and thousands of deep tests would take a second.
    """
    single = [pytest.param(range(seed, seed + 1), id=str(seed)) for seed in range(count)]
    return single + [
        pytest.param(
            range(first, min(first + _AT_ONCE, deep)), id=f"from {first}", marks=pytest.mark.deep
        )
        for first in range(count, deep, _AT_ONCE)
    ]


def printed(seeds: Iterable[int]) -> Iterator[int]:
    """Print each seed before its world is played, so that a failure shows the seed."""
    for seed in seeds:
        print(f"seed {seed}")
        yield seed
