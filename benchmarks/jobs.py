"""Realistic jobs: handlers that compute or wait, of equal and of mixed lengths.

``python -m benchmarks --only work``.

Each set of jobs is done in turn

- by an executor of the standard library with chunks of 1, to which the ratios compare the others;
- by the same executor with chunks of 16 (processes only);
- by two workers with a thread each;
- by one worker with a pool.

All have the same number of places.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence

from attrs import frozen

from benchmarks.figure import Bench, beside, summary
from benchmarks.ours import Map

__all__ = ["SETS", "JobSet", "compute", "measure", "wait"]

SEED = 15
CORES = 2
"""Number of places for jobs that compute."""
PLACES = 100
"""Number of places for jobs that wait."""

_SECONDS = struct.Struct("!d")


def compute(payload: bytes) -> bytes:
    """The handler: use the given seconds of CPU time; return the payload."""
    (seconds,) = _SECONDS.unpack(payload)
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    return payload


def wait(payload: bytes) -> bytes:
    """The handler: wait for the given seconds; return the payload."""
    time.sleep(_SECONDS.unpack(payload)[0])
    return payload


@frozen
class JobSet:
    """Jobs of one kind."""

    name: str
    handler: Callable[[bytes], bytes]
    lengths: Callable[[], Sequence[float]]
    """Seconds of each job."""


def _pareto() -> Sequence[float]:
    """Draw lengths from 0.1 ms on, most of them short and few long."""
    draw = random.Random(SEED)
    return [min(0.05, 0.0001 * draw.paretovariate(1.1)) for _ in range(4000)]


SETS = (
    JobSet("cpu_0.1ms", compute, lambda: [0.0001] * 8000),
    JobSet("cpu_0.4ms", compute, lambda: [0.0004] * 4000),
    JobSet("cpu_1ms", compute, lambda: [0.001] * 2000),
    JobSet("cpu_10ms", compute, lambda: [0.01] * 200),
    JobSet("cpu_pareto", compute, _pareto),
    JobSet("wait_5ms", wait, lambda: [0.005] * 20_000),
)

_Mapping = Callable[[Sequence[bytes]], Iterator[bytes]]


@contextlib.contextmanager
def _executor(jobs: JobSet, chunk: int) -> Iterator[_Mapping]:
    """Yield the map of an executor of the standard library."""
    executor: concurrent.futures.Executor
    if jobs.handler is wait:
        executor = concurrent.futures.ThreadPoolExecutor(PLACES)
    else:
        executor = concurrent.futures.ProcessPoolExecutor(CORES)
    with executor:
        yield lambda payloads: executor.map(jobs.handler, payloads, chunksize=chunk)


@contextlib.contextmanager
def _workers(jobs: JobSet, workers: int, *options: str) -> Iterator[_Mapping]:
    """Yield ``map`` of a manager with this number of workers, which run with these options."""
    with Map(workers=workers, options=("--handler", jobs.handler.__name__, *options)) as ours:
        yield ours.map


def _contenders(jobs: JobSet) -> dict[str, contextlib.AbstractContextManager[_Mapping]]:
    """Return the contenders by the ends of the names of their figures, the executor first."""
    if jobs.handler is wait:
        half = str(PLACES // CORES)
        return {
            "_executor": _executor(jobs, 1),
            "": _workers(jobs, CORES, "--slots", half),
            "_one": _workers(jobs, 1, "--slots", str(PLACES)),
        }
    return {
        "_executor": _executor(jobs, 1),
        "_executor16": _executor(jobs, 16),
        "": _workers(jobs, CORES),
        "_one": _workers(jobs, 1, "--slots", str(CORES), "--pool", "process"),
    }


def measure(bench: Bench, *, tiny: bool) -> None:
    """Do every set of jobs and add the figures: jobs a second, and the share of the best rate."""
    for jobs in SETS:
        lengths = list(jobs.lengths())
        if tiny:
            lengths = lengths[: len(lengths) // 40]
        payloads = [_SECONDS.pack(seconds) for seconds in lengths]
        places = PLACES if jobs.handler is wait else CORES
        best = len(lengths) / max(sum(lengths) / places, max(lengths))
        with contextlib.ExitStack() as stack:
            maps = {
                end: stack.enter_context(contender) for end, contender in _contenders(jobs).items()
            }
            rates: dict[str, list[float]] = {end: [] for end in maps}
            for call in maps.values():
                # First processes must start and windows must grow.
                _rate(call, payloads[: len(payloads) // 4 or 1])
            for _ in range(bench.scale.repeats):
                for end, call in maps.items():
                    rates[end].append(_rate(call, payloads))
        base = f"work_{jobs.name}_executor"
        for end, samples in rates.items():
            more = {"jobs": len(lengths), "places": places, "best": best}
            bench.figures[f"work_{jobs.name}{end}"] = (
                summary(samples, "jobs/s", verified=True, **more)
                if end == "_executor"
                else beside(samples, "jobs/s", rates["_executor"], base, **more)
            )
            used = [sample / best for sample in samples]
            bench.figures[f"work_{jobs.name}{end}_used"] = summary(used, "of the best rate")
        bench.say(f"work {jobs.name}")


def _rate(call: _Mapping, payloads: Sequence[bytes]) -> float:
    """Return the jobs a second of one map; the results are compared."""
    start = time.monotonic()
    if list(call(payloads)) != payloads:
        raise RuntimeError("some jobs have no result")
    return len(payloads) / (time.monotonic() - start)
