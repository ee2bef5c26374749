"""Fairness under load: jobs of mixed length on four workers, and quick jobs behind a slow one.

``python -m benchmarks --only fairness``.

It measures four differences: the time of the busiest and the least busy worker; the time that jobs
wait while a worker that could do them is idle; the time that quick jobs wait behind a job that
suddenly takes long, although another worker could do them; and the throughput of two free workers
with and without other workers that offer the same role and are busy for another manager.
"""

from __future__ import annotations

import bisect
import os
import random
import struct
import time
from itertools import pairwise

from benchmarks.figure import Bench, summary
from benchmarks.ours import Map
from benchmarks.process import python

__all__ = ["idle_gaps", "idle_waits", "labor", "measure"]

WORKERS = 4
SEED = 14
LENGTHS = ((0.001, 0.90), (0.010, 0.09), (0.100, 0.01))
"""Duration of jobs in seconds, and the number of such jobs."""

SLOW = 3.0
"""Duration of the job in front of quick jobs, in seconds."""

BESIDE: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("none", 0, ()),
    ("busy_20", 20, ("--credit", "0")),
    ("busy_60", 60, ("--credit", "0")),
    ("busy_apart_1000", 1000, ("--credit", "0", "--apart")),
)
"""Case, number of other workers, and options of ``benchmarks.crowd``."""

_NOTE = struct.Struct("!Qdd")

Span = tuple[float, float]


def labor(payload: bytes) -> bytes:
    """The handler: run for as long as the payload says.

    Return the worker, the start and the end.
    """
    start = time.monotonic()
    time.sleep(struct.unpack_from("!d", payload)[0])
    return _NOTE.pack(os.getpid(), start, time.monotonic())


def measure(bench: Bench, *, tiny: bool) -> None:
    """Run the mixed jobs and add the figures."""
    draw = random.Random(SEED)
    lengths, weights = zip(*LENGTHS, strict=True)
    count = 80 if tiny else 1000 * bench.scale.repeats
    works = draw.choices(lengths, weights, k=count)
    spread, waits, gaps, useful = [], [], [], []
    for _ in range(1 if tiny else bench.scale.repeats):
        with Map(workers=WORKERS, options=("--handler", "labor")) as ours:
            begun = time.monotonic()
            results = list(ours.map([struct.pack("!d", seconds) for seconds in works]))
            ended = time.monotonic()
        notes = [_NOTE.unpack(result) for result in results]
        if len(notes) != count:
            raise RuntimeError(f"{len(notes)} results came; expected {count}, one for each job")
        busy: dict[int, list[Span]] = {}
        for pid, start, end in notes:
            busy.setdefault(pid, []).append((start, end))
        totals = [sum(end - start for start, end in spans) for spans in busy.values()]
        totals += [0.0] * (WORKERS - len(totals))
        spread.append(max(totals) / max(min(totals), 1e-9))
        useful.append(sum(totals) / (WORKERS * (ended - begun)))
        gaps.append(idle_gaps(begun, busy))
        waits.append(idle_waits([(begun, start) for _, start, _ in notes], busy))
    more = {"jobs": count, "seed": SEED, "workers": WORKERS, "verified": True}
    bench.figures["fairness_busiest"] = summary(spread, "times the least busy", **more)
    bench.figures["fairness_busy"] = summary(useful, "of the workers' time", **more)
    for word, which in (("mean", None), ("p99", 0.99), ("max", 1.0)):
        bench.figures[f"fairness_idle_wait_{word}"] = summary(
            [_pick(sorted(times), which) * 1e3 for times in waits], "ms", **more
        )
        bench.figures[f"fairness_idle_gap_{word}"] = summary(
            [_pick(sorted(times), which) * 1e3 for times in gaps], "ms", **more
        )
    bench.figures["fairness_behind"] = summary(
        [_behind(jobs=100 if tiny else 2000) * 1e3 for _ in range(bench.scale.repeats)],
        "ms",
        slow=SLOW,
        workers=2,
        verified=True,
    )
    for word, others, options in BESIDE:
        bench.figures[f"fairness_beside_{word}"] = summary(
            [
                _beside(min(others, 5) if tiny else others, options, 500 if tiny else 20_000)
                for _ in range(bench.scale.repeats)
            ],
            "jobs/s",
            workers=2,
            verified=True,
        )
    bench.say("fairness")


def _beside(others: int, options: tuple[str, ...], jobs: int) -> float:
    """Return the jobs a second of two workers beside others that take no job."""
    with Map(workers=2, options=("--pool", "inline"), max_silence=60.0) as ours:
        if others:
            (endpoint,) = ours.endpoints
            crowd = python("benchmarks.crowd", endpoint, "--workers", str(others), *options)
            with crowd as process:
                process.receive(60.0)
                return _rate(ours, jobs)
        return _rate(ours, jobs)


def _rate(ours: Map, jobs: int) -> float:
    payloads = [struct.pack("!d", 0.0)] * jobs
    for _ in ours.map(payloads[: jobs // 4]):  # first the windows must grow
        pass
    start = time.monotonic()
    if sum(1 for _ in ours.map(payloads)) != jobs:
        raise RuntimeError("some jobs have no result")
    return jobs / (time.monotonic() - start)


def _behind(jobs: int) -> float:
    """Return the seconds in which quick jobs behind a slow job are done."""
    quick, slow = struct.pack("!d", 0.0), struct.pack("!d", SLOW)
    with Map(workers=2, options=("--handler", "labor")) as ours:
        # Quick jobs first, so that a worker takes many jobs at once.
        for _ in ours.map([quick] * 5 * jobs):
            pass
        start = time.monotonic()
        first = ours.submit(slow)
        for job in [ours.submit(quick) for _ in range(jobs)]:
            job.result()
        seconds = time.monotonic() - start
        first.stop()
    return seconds


def idle_gaps(begun: float, busy: dict[int, list[Span]]) -> list[float]:
    """Return the seconds of each stretch in which a worker was idle while jobs waited.

    Args:
        begun: When all jobs were submitted.
        busy: Start and end of the jobs of each worker. After the start of the last job, no job
            waits and idle time does not count.
    """
    last = max(start for spans in busy.values() for start, _ in spans)
    gaps = []
    for spans in busy.values():
        edge = begun
        for start, end in [*sorted(spans), (last, last)]:
            if start > edge:
                gaps.append(start - edge)
            edge = max(edge, end)
    return gaps


def idle_waits(waiting: list[Span], busy: dict[int, list[Span]]) -> list[float]:
    """Return the seconds that each job waited while some worker was idle.

    Args:
        waiting: Begin and end of the wait of each job.
        busy: Start and end of the jobs of each worker. A worker is idle in between, also while it
            fetches a job.
    """
    last = max(end for _, end in waiting)
    edges: list[tuple[float, int]] = []
    for spans in busy.values():
        edge = min(start for start, _ in waiting)
        for start, end in [*sorted(spans), (last, last)]:
            if start > edge:
                edges += [(edge, 1), (start, -1)]
            edge = max(edge, end)
    edges.sort()
    # ``idle`` has, for each time in ``at``, the seconds before it in which a worker was idle.
    idle, depth = [0.0], 0
    at = [edges[0][0]] if edges else [0.0]
    for (here, step), (there, _) in pairwise(edges):
        depth += step
        at.append(there)
        idle.append(idle[-1] + (there - here if depth else 0.0))

    def before(when: float) -> float:
        index = bisect.bisect_right(at, when) - 1
        if index < 0:
            return 0.0
        if index + 1 == len(at):
            return idle[index]
        rate = (idle[index + 1] - idle[index]) / max(at[index + 1] - at[index], 1e-12)
        return idle[index] + (when - at[index]) * rate

    return [before(end) - before(start) for start, end in waiting]


def _pick(times: list[float], which: float | None) -> float:
    if which is None:
        return sum(times) / len(times)
    return times[min(len(times) - 1, int(len(times) * which))]
