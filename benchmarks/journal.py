"""The cost of a journal: ``python -m benchmarks --only journal``.

Two managers, each with a worker of its own, take turns: one writes journals at both ends, the other
writes none. Each run is compared with the other's run just before it, by time and by the CPU time
of the manager's process, including the writing thread. The CPU time varies less.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

from benchmarks.figure import Bench, beside, quiet
from benchmarks.ours import Map
from benchmarks.work import make, one_by_one, through

__all__ = ["AGAINST", "measure"]

AGAINST: Final = "the same without"

_PAIRS: Final = 3
"""Number of pairs of runs in place of each repeat, because the differences are small."""


def measure(bench: Bench) -> None:
    """Measure ``map`` with a journal and without, then single jobs."""
    with (
        tempfile.TemporaryDirectory(prefix="wmp-journal-") as folder,
        Map() as without,
        Map(options=("--settings", json.dumps({"journal": folder})), journal=folder) as with_one,
    ):
        for size in ("100", "10k"):
            payloads = bench.payloads(size)
            _pairs(bench, f"journal_map_{size}", without, with_one, payloads, single=False)
        _pairs(
            bench, "journal_single", without, with_one, make(bench.scale.single, 100), single=True
        )
        written = sum(path.stat().st_size for path in Path(folder).iterdir())
        bench.say(f"the journals took {written / 1e6:.1f} MB")


def _pairs(
    bench: Bench, name: str, off: Map, on: Map, payloads: Sequence[bytes], *, single: bool
) -> None:
    runs: dict[Map, list[tuple[float, float]]] = {off: [], on: []}
    for contender in (off, on):
        _run(contender, payloads, single=single)
    for _ in range(bench.scale.repeats * _PAIRS):
        for contender in (off, on):
            runs[contender].append(_run(contender, payloads, single=single))
    more: dict[str, Any] = {"jobs": len(payloads), "size": len(payloads[0])}
    for index, unit, word in ((0, "jobs/s", ""), (1, "µs CPU", "_cpu")):
        samples, units = ([run[index] for run in runs[who]] for who in (on, off))
        bench.figures[f"{name}{word}"] = beside(samples, unit, units, AGAINST, **more)
        bench.say(f"{name}{word}")


def _run(contender: Map, payloads: Sequence[bytes], *, single: bool) -> tuple[float, float]:
    """Return jobs a second, and the manager's µs of CPU a job."""
    with quiet():
        start, computed = perf_counter(), process_time()
        if single:
            one_by_one(contender.do_job, payloads)
        else:
            through(contender.map, payloads)
        seconds, computed = perf_counter() - start, process_time() - computed
    return len(payloads) / seconds, computed / len(payloads) * 1e6
