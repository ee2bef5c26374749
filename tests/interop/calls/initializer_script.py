"""A program whose initializers set globals of the program itself; it prints what its calls see."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import wmp

database: str | None = None
opened: dict[str, str] = {}
count = 0
limit = 1


class Pool:
    connection: str | None = None


def connect(address: str) -> None:
    global database, count
    database = f"connection to {address}"
    opened["address"] = address
    Pool.connection = address
    connect.address = address  # type: ignore[attr-defined]
    count = 10


def query(number: int) -> str:
    return f"{number} by {database}"


def address_of_dict() -> str | None:
    return opened.get("address")


def address_of_class() -> str | None:
    return Pool.connection


def address_of_function() -> str | None:
    return getattr(connect, "address", None)


def add_one() -> int:
    global count
    count += 1
    return count


def read_count() -> int:
    return count


def seen_by(executor: Executor) -> list[object]:
    calls: list[Callable[[], Any]] = [
        functools.partial(query, 1),
        address_of_dict,
        address_of_class,
        address_of_function,
        add_one,
        add_one,
        read_count,
        functools.partial(query, 2),
    ]
    return [executor.submit(call).result() for call in calls]


def below_limit() -> str:
    return f"{limit} {helper()}"


def helper() -> str:
    return "old"


def changed(executor: Executor) -> list[str]:
    """Change a function and a number of this program between two calls, as in a notebook."""
    global limit, helper
    before = executor.submit(below_limit)
    limit, helper = 2, lambda: "new"
    after = executor.submit(below_limit)
    seen = [before.result(), after.result()]
    limit = 1
    return [*seen, executor.submit(below_limit).result()]


if __name__ == "__main__":
    partial = functools.partial(connect, "db1")
    with ProcessPoolExecutor(1, get_context("spawn"), connect, ("db1",)) as pool:
        expected = seen_by(pool)
    with wmp.Executor(workers=1, initializer=connect, initargs=("db1",)) as executor:
        seen = seen_by(executor)
        mapped = list(executor.map(query, range(4), chunksize=2))
        latest = changed(executor)
    with wmp.Executor(workers=1, initializer=partial) as executor:
        by_partial = seen_by(executor)
    print(
        json.dumps(
            {
                "expected": expected,
                "seen": seen,
                "mapped": mapped,
                "partial": by_partial,
                "changed": latest,
            }
        )
    )
