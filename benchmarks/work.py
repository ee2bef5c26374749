"""The common work: echo J payloads. Used by ``python -m benchmarks``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

from attrs import frozen

__all__ = ["SIZES", "Failure", "Work", "echo", "make", "one_by_one", "through"]

SIZES = {"100": 100, "10k": 10_000, "1m": 1_000_000}
"""Bytes of a payload, by the word at the end of figures' names."""


class Failure(Exception):
    """A result differs from its input."""


@frozen
class Work:
    """J jobs of one size."""

    jobs: int
    size: int

    def payloads(self) -> list[bytes]:
        """Make the payloads; no two are equal."""
        return make(self.jobs, self.size)


def echo(payload: bytes) -> bytes:
    """The handler: return the payload."""
    return payload


def make(jobs: int, size: int) -> list[bytes]:
    """Make payloads, each beginning with its number in eight bytes."""
    rest = bytes(i % 251 for i in range(size - 8)) if size > 8 else b""
    return [number.to_bytes(8, "big") + rest for number in range(jobs)]


def through(call: Callable[[Sequence[bytes]], Iterable[bytes]], payloads: Sequence[bytes]) -> float:
    """Take every result and compare it with its payload; return the seconds that this took.

    For every system the measured time includes the call and the comparison, because some systems
    work during the call, and others when results are taken.

    Raises:
        Failure: A result is wrong or missing, or there is one result too many.
    """
    start = perf_counter()
    taken = 0
    for result, payload in zip(call(payloads), payloads, strict=False):
        if result != payload:
            raise Failure(f"result {taken} differs from its payload")
        taken += 1
    seconds = perf_counter() - start
    if taken != len(payloads):
        raise Failure(f"{taken} results came; expected {len(payloads)}, one for each job")
    return seconds


def one_by_one(call: Callable[[bytes], bytes], payloads: Sequence[bytes]) -> list[float]:
    """Do one job at a time; return the seconds of each, sorted.

    Raises:
        Failure: A result is wrong.
    """
    times = []
    for payload in payloads:
        start = perf_counter()
        result = call(payload)
        times.append(perf_counter() - start)
        if result != payload:
            raise Failure("a result differs from its payload")
    times.sort()
    return times
