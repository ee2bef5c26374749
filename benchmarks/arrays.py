"""Arrays of numpy beside bytes of the same size: ``python -m benchmarks --only arrays``.

Two managers, each with a worker of its own, take turns: the jobs of one are bytes, those of the
other are arrays of floats by the codec ``cbor-tags``. The handler returns its payload. Every result
is compared while the clock runs.

A job of bytes copies twice in Python: the payload at the worker, and the result at the manager. A
job of an array copies once: the payload at the manager, because the array could be changed later.
The worker does not copy an array that its handler returns unchanged. A handler that returns another
array makes a second copy.

The bytes are there before the clock starts, but the encoding of an array needs memory. Few jobs are
in flight, and each payload is sent several times, so that this memory is that of earlier jobs, as
in a long ``map``. Fresh pages of memory would cost the kernel more than the copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

from benchmarks.figure import Bench, beside, quiet
from benchmarks.ours import Map
from benchmarks.work import SIZES, Failure, make, through

numpy: Any = None
with contextlib.suppress(ImportError):
    numpy = importlib.import_module("numpy")

__all__ = ["measure"]

_compare: Final = ctypes.CDLL(None).memcmp
_compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_IN_FLIGHT: Final = 16

_ROUNDS: Final = 4
"""Number of times that each payload is sent in a run."""

_PAIRS: Final = 3
"""Number of pairs of runs in place of each repeat, because the difference is small."""


def measure(bench: Bench) -> None:
    """Measure ``map`` with arrays and with bytes."""
    name = "arrays_1m"
    if numpy is None:
        bench.skip([name], "needs numpy; run pip install numpy")
        return
    round_payloads = make(bench.scale.jobs["1m"], SIZES["1m"])
    payloads = round_payloads * _ROUNDS
    arrays = [numpy.frombuffer(payload, "<f8") for payload in round_payloads] * _ROUNDS
    rates: list[float] = []
    units: list[float] = []
    with Map() as plain, Map(codec="cbor-tags") as typed:
        echo = partial(plain.map, in_flight=_IN_FLIGHT)
        through(echo, payloads)
        _through(typed, arrays)
        for _ in range(bench.scale.repeats * _PAIRS):
            with quiet():
                units.append(len(payloads) / through(echo, payloads))
            with quiet():
                rates.append(len(arrays) / _through(typed, arrays))
    more: dict[str, Any] = {"jobs": len(payloads), "size": SIZES["1m"]}
    bench.figures[name] = beside(rates, "jobs/s", units, "bytes of the same size", **more)
    bench.say(name)


def _through(contender: Map, arrays: Sequence[Any]) -> float:
    """Take every result and compare its memory with that of its payload; return the seconds."""
    start = perf_counter()
    taken = 0
    results: Any = contender.map(arrays, in_flight=_IN_FLIGHT)
    for result, array in zip(results, arrays, strict=False):
        # ``==`` compares the memory of bytes by the same function of the C library.
        if result.shape != array.shape or _compare(
            result.ctypes.data, array.ctypes.data, array.nbytes
        ):
            raise Failure(f"result {taken} differs from its payload")
        taken += 1
    if taken != len(arrays):
        raise Failure(f"{taken} results came; expected {len(arrays)}, one for each job")
    return perf_counter() - start
