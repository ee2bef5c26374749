"""Figures: repeats measured in turn with the raw echo. Used by ``python -m benchmarks``."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter, process_time
from typing import Any, Protocol

from attrs import field, frozen

from benchmarks.raw import Raw
from benchmarks.work import SIZES, Work, make, one_by_one, through

__all__ = [
    "FULL",
    "QUICK",
    "TINY",
    "Bench",
    "Case",
    "Contender",
    "Scale",
    "Skip",
    "beside",
    "quiet",
    "raw_name",
    "stderr",
    "summary",
]


class Skip(Exception):
    """A case lacks a requirement; the text says how to install it."""


class Contender(Protocol):
    """A measured system; open it as a context manager."""

    def map(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the results in order, in the fastest way of the system."""

    def do_job(self, payload: bytes) -> bytes:
        """Do one job and wait for its result."""


@frozen
class Case:
    """The figures that are measured while one contender is open."""

    open: Callable[[], contextlib.AbstractContextManager[Any]]
    rates: Mapping[str, str] = field(factory=dict)
    """The size of the payloads (a key of ``SIZES``), by name of the figure."""
    latency: str = ""
    """Start of the names with ``_p50``, ``_p99`` and ``_cpu``; empty if these are not measured."""


@frozen
class Scale:
    """The size of a measurement."""

    repeats: int
    jobs: Mapping[str, int]
    """Number of jobs in a repeat, by size."""
    single: int
    """Number of jobs in a repeat in which they run one at a time."""
    seconds: float
    """Limit of the seconds of a repeat. A slower contender does fewer jobs."""


FULL = Scale(5, {"100": 50_000, "10k": 5_000, "1m": 100}, 2_000, 2.0)
QUICK = Scale(3, {"100": 20_000, "10k": 2_500, "1m": 64}, 500, 1.0)
TINY = Scale(1, {"100": 300, "10k": 40, "1m": 4}, 20, 0.5)


def summary(samples: Sequence[float], unit: str, **more: Any) -> dict[str, Any]:
    """Put samples into the form that the JSON file has."""
    return {
        "median": median(samples),
        "minimum": min(samples),
        "maximum": max(samples),
        "unit": unit,
        "repeats": len(samples),
        **more,
    }


def beside(
    samples: Sequence[float], unit: str, units: Sequence[float], against: str, **more: Any
) -> dict[str, Any]:
    """Return samples, and the ratio of each sample to a sample of another contender just before it.

    If the machine is slow for some time, it slows both, so the median of the ratios is more
    reliable.
    """
    # CPU clocks are coarse: in a run as short as --tiny the clock may not have advanced.
    ratios = [sample / max(base, 1e-9) for sample, base in zip(samples, units, strict=True)]
    return summary(
        samples,
        unit,
        ratio=median(ratios),
        ratio_minimum=min(ratios),
        ratio_maximum=max(ratios),
        against=against,
        verified=True,
        **more,
    )


def raw_name(size: str) -> str:
    """Return the name of the raw echo's figure for a size."""
    return "raw" if size == "100" else f"raw_{size}"


class Bench:
    """Runs cases and collects figures.

    Args:
        raw: The open raw echo.
        scale: The size of a measurement.
        say: Called with each figure's name when it is measured.
    """

    def __init__(self, raw: Raw, scale: Scale, say: Callable[[str], None]) -> None:
        self.figures: dict[str, dict[str, Any]] = {}
        self.curves: dict[str, dict[str, Any]] = {}
        self.skipped: dict[str, str] = {}
        self.scale = scale
        self.say = say
        self._raw = raw
        self._units: dict[str, list[float]] = {}
        self._payloads: dict[str, list[bytes]] = {}
        self.unit("100")

    def run(self, case: Case) -> None:
        """Open a contender and measure all its figures; skip it if a requirement is missing."""
        names = [*case.rates, *([case.latency] if case.latency else [])]
        if all(name in self.figures or f"{name}_p50" in self.figures for name in names):
            return
        try:
            with case.open() as contender:
                for name, size in case.rates.items():
                    self.rate(name, contender, size)
                if case.latency:
                    self.latency(case.latency, contender)
        except Skip as reason:
            self.skip(names, str(reason))
        except Exception as error:
            # An error of one system must not end the measurement of the other systems.
            if any(name.startswith(("map", "submit", "latency", "device")) for name in names):
                raise
            self.skip(names, f"{type(error).__name__}: {error}")

    def skip(self, names: Sequence[str], reason: str) -> None:
        """Record why a figure is missing."""
        self.skipped.update(dict.fromkeys(names, reason))
        self.say(f"{', '.join(names)}: skipped: {reason}")

    def payloads(self, size: str) -> list[bytes]:
        """Return the jobs of a size."""
        if size not in self._payloads:
            self._payloads[size] = Work(self.scale.jobs[size], SIZES[size]).payloads()
        return self._payloads[size]

    # -- the unit ---------------------------------------------------------------------------

    def unit(self, size: str) -> float:
        """Measure the raw echo once more; return jobs a second."""
        payloads = self.payloads(size)
        name = raw_name(size)
        if name not in self._units:
            through(self._raw.map, payloads[:100])
        with quiet():
            rate = len(payloads) / through(self._raw.map, payloads)
        self._keep(name, rate, "jobs/s", jobs=len(payloads), size=SIZES[size])
        return rate

    def unit_latency(self) -> dict[str, float]:
        """Measure the raw echo one at a time; return microseconds by the name's last word."""
        latencies = _singles(self._raw, make(self.scale.single, 100))
        for word, value in latencies.items():
            name = f"raw_latency_{word}"
            self._keep(name, value, _UNITS[word], jobs=self.scale.single, size=100)
        return latencies

    def _keep(self, name: str, value: float, unit: str, **more: Any) -> None:
        samples = self._units.setdefault(name, [])
        samples.append(value)
        self.figures[name] = summary(samples, unit, ratio=1.0, against=name, verified=True, **more)

    # -- contenders -------------------------------------------------------------------------

    def rate(self, name: str, contender: Contender, size: str) -> None:
        """Measure jobs a second: echo, contender, echo, contender, …"""
        payloads = self._warm(contender, size)
        samples, units = [], []
        for _ in range(self.scale.repeats):
            units.append(self.unit(size))
            with quiet():
                samples.append(len(payloads) / through(contender.map, payloads))
        self.figures[name] = beside(
            samples, "jobs/s", units, raw_name(size), jobs=len(payloads), size=SIZES[size]
        )
        self.say(name)

    def _warm(self, contender: Contender, size: str) -> list[bytes]:
        """Warm the contender up; return the number of jobs that it does in the limit of time."""
        payloads = self.payloads(size)
        count = min(16, len(payloads))
        while True:
            some = payloads[:count]
            # The better of two runs, because the machine may have been busy during one of them.
            rate = count / min(through(contender.map, some) for _ in range(2))
            possible = int(rate * self.scale.seconds)
            if count >= len(payloads) // 4 or count * 4 > possible:
                return payloads[: max(min(len(payloads), possible), 16)]
            count *= 4

    def latency(self, name: str, contender: Contender) -> None:
        """Measure one job at a time: p50 and p99, and the submitting process's own CPU."""
        some = make(min(20, self.scale.single), 100)
        start = perf_counter()
        one_by_one(contender.do_job, some)
        possible = int(self.scale.seconds * len(some) / (perf_counter() - start))
        payloads = make(max(20, min(self.scale.single, possible)), 100)
        latencies, units = [], []
        for _ in range(self.scale.repeats):
            units.append(self.unit_latency())
            latencies.append(_singles(contender, payloads))
        for word, unit in _UNITS.items():
            self.figures[f"{name}_{word}"] = beside(
                [sample[word] for sample in latencies],
                unit,
                [sample[word] for sample in units],
                f"raw_latency_{word}",
                jobs=len(payloads),
                size=100,
            )
        self.say(f"{name}_p50")


_UNITS = {"p50": "µs", "p99": "µs", "cpu": "µs CPU"}
"""The figures of one job at a time, and their units."""


def _singles(contender: Contender, payloads: Sequence[bytes]) -> dict[str, float]:
    with quiet():
        start = process_time()
        times = one_by_one(contender.do_job, payloads)
        cpu = process_time() - start
    count = len(times)
    return {
        "p50": times[count // 2] * 1e6,
        "p99": times[count * 99 // 100] * 1e6,
        "cpu": cpu / count * 1e6,
    }


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Collect the garbage of earlier cases before the clock starts.

    The collector stays on, as in ordinary programs.
    """
    gc.collect()
    yield


def stderr(text: str) -> None:
    """Print progress to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
