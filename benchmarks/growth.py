"""The cost of size: ``python -m benchmarks --only growth``.

The sizes are workers, queued jobs, managers of a worker, and roles. Times are CPU time of the
measured process, which other programs on the machine do not change. Each point has separate
processes.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.figure import Bench, Skip, summary
from benchmarks.ours import nodes
from benchmarks.process import Process, python

__all__ = ["measure"]

_MICRO = 1e6

_GATHER = 120.0
"""Seconds within which a crowd must have connected. A manager that is too slow is also a result."""

_STAND = 2.0
"""Seconds of idle time, the cost of which is measured."""


def measure(bench: Bench, *, tiny: bool) -> None:
    """Add all curves and their figures."""
    quick = bench.scale.repeats < 5
    jobs = 400 if tiny else 10_000 if quick else 50_000
    _idle(bench, (3, 10) if tiny else (10, 100, 1000, 10_000), jobs)
    _queued(bench, (1, 100, 1000) if tiny else (1, 1000, 100_000 if quick else 1_000_000))
    _managers(bench, (1, 2) if tiny else (1, 2, 5, 10, 25, 50), jobs)
    _roles(bench, (1, 5) if tiny else (1, 10, 100), jobs)


def _curve(bench: Bench, name: str, x: list[int], x_label: str, unit: str, **lines: Any) -> None:
    named = {label.replace("_", " "): values for label, values in lines.items()}
    bench.curves[name] = {"x": x, "x_label": x_label, "unit": unit, "lines": named}
    bench.say(f"growth: {name}")


def _figure(bench: Bench, name: str, samples: list[float], unit: str, **more: Any) -> float:
    figure = bench.figures[name] = summary(samples, unit, verified=True, **more)
    median: float = figure["median"]
    return median


def _files(needed: int) -> None:
    """Raise the limit of open files of this process and its children.

    Raises:
        Skip: The limit cannot be raised so far.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Skip(f"this measurement needs {needed} open files; the limit is {hard} (ulimit -Hn)")
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


# -- idle workers ---------------------------------------------------------------------------


@contextlib.contextmanager
def _crowd(holder: Process, endpoint: str, workers: int, *options: str) -> Iterator[Process]:
    with python("benchmarks.crowd", endpoint, "--workers", str(workers), *options) as crowd:
        crowd.receive(_GATHER)
        until = time.monotonic() + 30.0
        while holder.ask(do="look")["found"] < workers:
            if time.monotonic() > until:
                raise RuntimeError(f"some of the {workers} workers did not connect")
        yield crowd


def _standing(holder: Process) -> float:
    """Return the share of a core, in percent, that an idle manager takes."""
    start = holder.cpu()
    time.sleep(_STAND)
    return (holder.cpu() - start) / _STAND * 100


def _idle(bench: Bench, points: tuple[int, ...], jobs: int) -> None:
    done: list[int] = []
    singles: list[float] = []
    bulks: list[float] = []
    pings: list[float] = []
    stands: list[float] = []
    manager: list[float] = []
    libzmq: list[float] = []
    few = max(20, jobs // 25)
    for workers in points:
        try:
            _files(workers + 200)
            with python("benchmarks.holder") as holder:
                (endpoint,) = holder.receive()
                before = holder.ask(do="look")["memory"]
                with _crowd(holder, endpoint, workers) as crowd:
                    share = _standing(holder)
                    # Each worker has done one job before. Buffers are made at the first message,
                    # and otherwise the least recently served workers would all make theirs during
                    # the measurement.
                    holder.ask(do="singles", jobs=max(few, workers))
                    took = [holder.ask(do="singles", jobs=few)["cpu"] for _ in range(3)]
                    after = holder.ask(do="look")["memory"]
                    rounds = []
                    for _ in range(bench.scale.repeats):
                        start = holder.cpu()
                        crowd.ask()
                        rounds.append((holder.cpu() - start) / workers * _MICRO)
            with python("benchmarks.holder") as holder:
                (endpoint,) = holder.receive()
                with (
                    _crowd(holder, endpoint, workers, "--role", "other"),
                    nodes((endpoint,), 1),
                ):
                    holder.ask(do="wait", workers=workers + 1)
                    bulk = [holder.ask(do="map", jobs=jobs)["cpu"] for _ in range(4)][1:]
            with python("benchmarks.holder", "sink") as sink:
                (endpoint,) = sink.receive()
                empty = sink.ask(do="look")["memory"]
                with _crowd(sink, endpoint, workers, "--mute"):
                    connected = sink.ask(do="look")["memory"]
        except (Skip, RuntimeError) as reason:
            bench.skip([f"growth_idle_job_{workers}"], str(reason))
            continue
        done.append(workers)
        per = [seconds / few * _MICRO for seconds in took]
        singles.append(_figure(bench, f"growth_idle_job_{workers}", per, "µs CPU", jobs=few))
        per = [seconds / jobs * _MICRO for seconds in bulk]
        bulks.append(_figure(bench, f"growth_bulk_job_{workers}", per, "µs CPU", jobs=jobs))
        stands.append(_figure(bench, f"growth_stand_{workers}", [share], "% CPU"))
        pings.append(_figure(bench, f"growth_ping_{workers}", rounds, "µs CPU", jobs=workers))
        manager.append((after - before) / workers / 1024)
        libzmq.append((connected - empty) / workers / 1024)
        bench.say(f"growth: {workers} idle workers")
    if not done:
        return
    # For the maximum number of workers, because the fixed memory of a process is then spread over
    # all of them.
    more = {"workers": done[-1], "verified": True}
    bench.figures["growth_idle_memory_all"] = summary([manager[-1]], "kB", **more)
    bench.figures["growth_idle_memory_libzmq"] = summary([libzmq[-1]], "kB", **more)
    bench.figures["growth_idle_memory"] = summary([manager[-1] - libzmq[-1]], "kB", **more)
    label = "idle workers"
    _curve(
        bench,
        "CPU of the manager beside idle workers",
        done,
        label,
        "µs",
        a_single_job=singles,
        a_job_of_a_map=bulks,
        a_PING=pings,
    )
    _curve(
        bench,
        "CPU while nothing is done",
        done,
        label,
        "%",
        of_the_manager=stands,
    )
    _curve(
        bench,
        "memory a worker",
        done,
        label,
        "kB",
        in_the_manager=manager,
        in_a_bare_ROUTER=libzmq,
    )


# -- queued jobs ----------------------------------------------------------------------------


_WORDS = {"submit": "", "map": "_map", "delay": "_delayed", "scatter": "_scattered"}
"""The ways to make jobs wait, with the words that the names of figures have."""


def _queued(bench: Bench, points: tuple[int, ...]) -> None:
    lines: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    for how in _WORDS:
        for jobs in points:
            rates, drains, sizes = [], [], []
            # Jobs wait only without workers, so each repeat has a new manager.
            for _ in range(bench.scale.repeats if jobs <= 10_000 else 1):
                with python("benchmarks.holder") as holder:
                    endpoints = holder.receive()
                    before = holder.ask(do="look")["memory"]
                    handed = holder.ask(do="queue", jobs=jobs, how=how)
                    with nodes(endpoints, 1):
                        drained = holder.ask(do="drain", jobs=jobs)
                rates.append(jobs / handed["wall"])
                sizes.append((handed["memory"] - before) / 2**20)
                drains.append(drained["cpu"] / jobs * _MICRO)
            word = _WORDS[how]
            more = {"jobs": jobs}
            if jobs > 1:
                _figure(bench, f"growth_queued{word}_rate_{jobs}", rates, "jobs/s", **more)
            lines.setdefault(how, []).append(
                _figure(bench, f"growth_queued{word}_job_{jobs}", drains, "µs CPU", **more)
            )
            memory.setdefault(how, []).append(max(sizes))
            bench.say(f"growth: {jobs} jobs queued by {how}")
        last = {"jobs": points[-1], "verified": True}
        word = _WORDS[how]
        bench.figures[f"growth_queued{word}_memory"] = summary([memory[how][-1]], "MB", **last)
    label = "queued jobs"
    _curve(bench, "CPU time of the manager for each queued job", [*points], label, "µs", **lines)
    _curve(bench, "memory of queued jobs", [*points], label, "MB", **memory)


# -- managers and roles ---------------------------------------------------------------------


def _managers(bench: Bench, points: tuple[int, ...], jobs: int) -> None:
    worker_costs, manager_costs = [], []
    for managers in points:
        with python("benchmarks.holder", str(managers)) as holder:
            endpoints = holder.receive()
            with nodes(endpoints, 1) as (worker,):
                holder.ask(do="wait", workers=1)
                holder.ask(do="map", jobs=jobs)
                mine, theirs = [], []
                for _ in range(3):
                    start = worker.cpu()
                    theirs.append(holder.ask(do="map", jobs=jobs)["cpu"] / jobs * _MICRO)
                    mine.append((worker.cpu() - start) / jobs * _MICRO)
        more = {"jobs": jobs}
        name = f"growth_managers_{managers}"
        worker_costs.append(_figure(bench, f"{name}_worker", mine, "µs CPU", **more))
        manager_costs.append(_figure(bench, f"{name}_manager", theirs, "µs CPU", **more))
    _curve(
        bench,
        "CPU a job with several managers",
        [*points],
        "managers of one worker",
        "µs",
        of_the_worker=worker_costs,
        of_all_managers=manager_costs,
    )


def _roles(bench: Bench, points: tuple[int, ...], jobs: int) -> None:
    worker_costs, manager_costs = [], []
    for roles in points:
        names = ",".join(f"r{number}" for number in range(roles))
        with python("benchmarks.holder") as holder:
            endpoints = holder.receive()
            with nodes(endpoints, 1, options=("--roles", names)) as (worker,):
                holder.ask(do="wait", workers=1)
                holder.ask(do="map", jobs=jobs, roles=roles)
                mine, theirs = [], []
                for _ in range(3):
                    start = worker.cpu()
                    answer = holder.ask(do="map", jobs=jobs, roles=roles)
                    theirs.append(answer["cpu"] / jobs * _MICRO)
                    mine.append((worker.cpu() - start) / jobs * _MICRO)
        more = {"jobs": jobs}
        name = f"growth_roles_{roles}"
        worker_costs.append(_figure(bench, f"{name}_worker", mine, "µs CPU", **more))
        manager_costs.append(_figure(bench, f"{name}_manager", theirs, "µs CPU", **more))
    _curve(
        bench,
        "CPU a job with several roles",
        [*points],
        "roles of one worker",
        "µs",
        of_the_worker=worker_costs,
        of_the_manager=manager_costs,
    )
