"""First results after starts: ``python -m benchmarks --only starts``.

One end waits, and the other end starts at its address. The time runs from the start until the first
job has its result. The waiting end has lost the connection to a node that ended before.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Iterator
from time import perf_counter, sleep
from typing import Final

import wmp
from benchmarks.figure import Bench, summary
from benchmarks.work import Failure, echo

__all__ = ["measure"]

_STARTS: Final = 50
_TINY: Final = 3
_PAUSE: Final = (0.1, 0.3)
"""The least and the greatest number of seconds without the other end.

A waiting end tries to connect at regular times. A start comes at any moment between two attempts.
"""
_LIMIT: Final = 30.0
"""Seconds within which a job must end."""

_DRAW: Final = random.Random(15)


def measure(bench: Bench, *, tiny: bool) -> None:
    """Measure starts of managers and of workers; add the medians and the 95th percentiles."""
    starts = _TINY if tiny else _STARTS
    for name, first_result in (("manager", _managers), ("worker", _workers)):
        with _silent():
            times = sorted(first_result(starts))
        for word, rank in (("p50", 50), ("p95", 95)):
            milliseconds = times[(starts - 1) * rank // 100] * 1000
            bench.figures[f"starts_{name}_{word}"] = summary(
                [milliseconds], "ms", starts=starts, verified=True
            )
        bench.say(f"starts_{name}")


def _managers(starts: int) -> list[float]:
    """Start managers at the address of a worker that waits; return the seconds of each."""
    with wmp.Manager() as manager:
        endpoint = manager.endpoints[0]
        with wmp.Worker(endpoint, handlers=echo):
            manager.wait_for_workers(timeout=_LIMIT)
            manager.close()
            return [_first_result(lambda: wmp.Manager(endpoint)) for _ in range(starts)]


def _workers(starts: int) -> list[float]:
    """Start workers while a manager waits; return the seconds of each."""
    with wmp.Manager() as manager:
        endpoint = manager.endpoints[0]
        return [
            _first_result(lambda: wmp.Worker(endpoint, handlers=echo), manager)
            for _ in range(starts)
        ]


def _first_result(
    make: Callable[[], wmp.Manager | wmp.Worker], manager: wmp.Manager | None = None
) -> float:
    """Return the seconds from the start of a node to the result of the first job.

    Args:
        make: Makes the node.
        manager: The manager that waits; None if the node is a manager.
    """
    sleep(_DRAW.uniform(*_PAUSE))
    begin = perf_counter()
    with make() as node:
        owner = node if isinstance(node, wmp.Manager) else manager
        assert owner is not None
        result = owner.submit(b"first").result(_LIMIT)
        seconds = perf_counter() - begin
    if result != b"first":
        raise Failure(f"the result is {result!r}; expected the payload")
    return seconds


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Log no warning about the ends of connections, which are intended here."""
    logger = logging.getLogger("wmp")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
