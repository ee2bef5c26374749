"""Tasks for tests of chains."""

from __future__ import annotations

import wmp


@wmp.task
def add(one: int, other: int) -> int:
    return one + other


@wmp.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@wmp.task
def fail(number: int) -> int:
    raise ValueError(f"bad {number}")
