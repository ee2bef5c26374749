"""The store alone, and a manager with a store: ``python -m benchmarks --only store``.

One process, one file, jobs of 100 bytes. A commit waits for the disk, except in figures whose name
ends with ``_process``. Every answer is checked while the clock runs. The figures of a manager have
1,024 submitters, each of which submits a job, awaits the result and begins again, and one worker.
Celery on Redis is measured beside them: Redis keeps tasks and results on the disk, and waits for
the disk before each reply, or with ``_process`` once a second.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, Literal

import wmp.aio
from benchmarks.figure import TINY, Bench, Case, beside, quiet, raw_name, summary
from benchmarks.ours import READY, nodes
from benchmarks.peers.celery import Celery
from wmp.message import Kind
from wmp.store.contract import StoreInstance
from wmp.store.job_terms import StoredTerms
from wmp.store.sqlite.sqlite_store import SqliteStore
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import BatchAnswer, JobChanges, NewJobs, Reservation, WriteBatch

__all__ = ["FEW", "measure"]

FEW: Final = 10_000
"""Waiting jobs of the figures with ``few``."""

_KIND: Final = Kind("echo")
_TERMS: Final = StoredTerms()
_PAYLOAD: Final = bytes(100)
_ADDED: Final = 1024
_RESERVED: Final = 64
_SUBMITTERS: Final = 1024


class _Filler:
    """One instance of a store, which adds, reserves and ends jobs."""

    def __init__(self, path: Path, durability: Literal["power", "process"]) -> None:
        self.store = SqliteStore(path, durability=durability)
        self.me: StoreInstance = self.store.begin(b"benchmark", "benchmark")
        self._number = 0
        self._block = self.me.block

    def _apply(self, batch: WriteBatch) -> BatchAnswer:
        self._number += 1
        return self.store.apply(self.me, self._number, batch)

    def add(self, count: int) -> None:
        """Add jobs in one batch."""
        if len(self._block) < count:
            block = self._apply(WriteBatch(block=True)).block
            assert block is not None
            self._block = block
        ids, self._block = self._block[:count], self._block[count:]
        batch = WriteBatch(adds=[NewJobs(_KIND, _TERMS, ids, [_PAYLOAD] * count)])
        (answer,) = self._apply(batch).adds
        assert list(answer.ids) == list(ids)

    def reserve(self) -> JobChanges:
        """Reserve jobs in one batch; return the change that ends them."""
        batch = WriteBatch(reservations=[Reservation(_KIND, _RESERVED, 1 << 20)])
        (jobs,) = self._apply(batch).reserved
        assert list(jobs.payloads) == [_PAYLOAD] * _RESERVED
        return JobChanges(StoredJobInput.SUCCEED, jobs.ids, jobs.attempts, jobs.payloads)

    def finish(self, changes: JobChanges) -> None:
        """End jobs in one batch."""
        (answer,) = self._apply(WriteBatch(changes=[changes])).changes
        assert set(answer.states) == {StoredJobState.OK}


@contextmanager
def _opened(path: Path, durability: Literal["power", "process"]) -> Iterator[_Filler]:
    filler = _Filler(path, durability)
    try:
        yield filler
    finally:
        filler.store.close()


def measure(bench: Bench) -> None:
    """Measure adds, reservations and ends."""
    scale = bench.scale
    rows = scale.jobs["100"] * 2
    many = 1_000_000 if scale.repeats > 3 else 20 * FEW
    few = FEW
    if scale is TINY:
        many, few = 4000, 1000
    with tempfile.TemporaryDirectory(prefix="wmp-store-") as folder:
        for word, durability in (("", "power"), ("_process", "process")):
            _adds(bench, Path(folder) / f"adds{word}.db", f"store_add{word}", durability, rows)
        for word, waiting in (("few", few), ("many", many)):
            path = Path(folder) / f"{word}.db"
            with _opened(path, "process") as filler:
                for _ in range(-(-waiting // 8192)):
                    filler.add(8192 if waiting >= 8192 else waiting)
            _reserves(bench, path, word, waiting)
        for name, durability in (("", "power"), ("_process", "process"), ("_unstored", None)):
            store = Path(folder) / f"jobs{name}.db"
            asyncio.run(_jobs(bench, f"store_jobs{name}", store, durability, rows // 2))
    for word, disk in (("", "always"), ("_process", "everysec")):
        bench.run(Case(partial(Celery, 1, disk=disk), {f"store_celery{word}": "100"}))


async def _jobs(
    bench: Bench,
    name: str,
    path: Path,
    durability: Literal["power", "process"] | None,
    count: int,
) -> None:
    """Measure jobs from submission to result, with a store or without one."""
    store = None if durability is None else SqliteStore(path, durability=durability)
    left, samples, units = 0, [], []

    async def submit(manager: wmp.aio.Manager) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            job = await manager.submit(_PAYLOAD)
            assert await job == _PAYLOAD

    async with wmp.aio.Manager(store=store) as manager:
        with nodes(manager.endpoints, 1):
            await manager.wait_for_workers(1, timeout=READY)
            for _ in range(bench.scale.repeats):
                units.append(bench.unit("100"))
                left = count
                with quiet():
                    start = perf_counter()
                    await asyncio.gather(*[submit(manager) for _ in range(_SUBMITTERS)])
                    samples.append(count / (perf_counter() - start))
    bench.figures[name] = beside(
        samples, "jobs/s", units, raw_name("100"), jobs=count, under_way=_SUBMITTERS
    )
    bench.say(name)


def _adds(
    bench: Bench, path: Path, name: str, durability: Literal["power", "process"], rows: int
) -> None:
    samples = []
    with _opened(path, durability) as filler:
        filler.add(_ADDED)
        for _ in range(bench.scale.repeats):
            with quiet():
                start, batches = perf_counter(), max(rows // _ADDED, 1)
                for _ in range(batches):
                    filler.add(_ADDED)
                samples.append(batches * _ADDED / (perf_counter() - start))
    bench.figures[name] = summary(samples, "jobs/s", verified=True, jobs=batches * _ADDED)
    bench.say(name)


def _reserves(bench: Bench, path: Path, word: str, waiting: int) -> None:
    rates: dict[str, list[float]] = {"reserve": [], "finish": []}
    batches = max(min(bench.scale.single // 20, waiting // (2 * _RESERVED * 6)), 1)
    count = batches * _RESERVED
    with _opened(path, "power") as filler:
        filler.finish(filler.reserve())
        for _ in range(bench.scale.repeats):
            with quiet():
                start = perf_counter()
                reserved = [filler.reserve() for _ in range(batches)]
                between = perf_counter()
                for changes in reserved:
                    filler.finish(changes)
                end = perf_counter()
            rates["reserve"].append(count / (between - start))
            rates["finish"].append(count / (end - between))
    for what, samples in rates.items():
        name = f"store_{what}_{word}"
        bench.figures[name] = summary(samples, "jobs/s", verified=True, jobs=count, waiting=waiting)
        bench.say(name)
