"""The other systems and their cases: ``python -m benchmarks --only peers``."""

from __future__ import annotations

from benchmarks.figure import Case
from benchmarks.peers.celery import Celery
from benchmarks.peers.dask import Dask
from benchmarks.peers.gearman import Gearman
from benchmarks.peers.guide import Guide
from benchmarks.peers.nats import Nats
from benchmarks.peers.pools import Executor, Processes

__all__ = ["GROUP"]


def _cases(name, kind, *, latency=True, **how) -> list[Case]:  # type: ignore[no-untyped-def]
    case = Case(
        lambda: kind(1, **how),
        {f"{name}_{size}": size for size in ("100", "10k", "1m")},
        f"{name}_latency" if latency else "",
    )
    return [case, Case(lambda: kind(2, **how), {f"{name}_100_w2": "100"})]


GROUP: list[Case] = [
    *_cases("executor_chunk1", Executor, chunk=1),
    *_cases("executor_chunk64", Executor, chunk=64, latency=False),
    *_cases("pool_chunk1", Processes, chunk=1),
    *_cases("pool_chunk64", Processes, chunk=64, latency=False),
    *_cases("guide", Guide),
    *_cases("gearman", Gearman),
    *_cases("nats", Nats),
    *_cases("dask", Dask),
    *_cases("celery", Celery),
    *_cases("celery_chunk64", Celery, chunk=64, latency=False),
]
