"""Tasks for tests of chains."""

from __future__ import annotations

import wmp


@wmp.task
def add(first: int, other: int) -> int:
    return first + other


@wmp.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@wmp.task
def fail(number: int) -> int:
    raise ValueError(f"bad {number}")
