"""Journals of killed processes: cut at a line, or written by processes that are really killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import wmp
from tests.waiting import WAIT, wait_until
from wmp.spark.journals.journals import Source, find_segments
from wmp.spark.journals.tables import Tables
from wmp.spark.pipeline.engines import InProcess
from wmp.spark.pipeline.publishing import PipelineResult
from wmp.spark.pipeline.run import build_tables

Key = tuple[str, int]
WORKERS = 8
"""Number of the workers of each killed process."""

_PROCESS = """
import sys, threading, time, wmp
endpoint, name, folder, workers = sys.argv[1:]
def work(payload):
    time.sleep(float(payload))
    return payload
running = [
    wmp.Worker(endpoint, handlers={"work": work}, slots=2, identity=f"{name}x{number}",
               journal=folder)
    for number in range(int(workers))
]
for worker in running:
    worker.start()
threading.Event().wait()
"""


def report_on(journal: Path, out: Path) -> PipelineResult:
    """Make the tables of a journal in this process."""
    tables = Tables(lambda: None, str(out))
    return build_tables(tables, InProcess(), Source.of(find_segments([journal])))


def accusations(journal: Path, out: Path) -> list[tuple[str, str]]:
    """Return (name, detail) of the violations in a report of a journal, certain or not."""
    result = report_on(journal, out)
    if not result.findings:
        return []
    shown = result.tables.dataset("violations").to_table(columns=["name", "detail"]).to_pylist()
    return [(row["name"], row["detail"]) for row in shown]


def by_process(lines: Iterable[str]) -> dict[Key, list[str]]:
    """Return the lines of each process, in their order."""
    counts = defaultdict(list)
    for line in lines:
        row = json.loads(line)
        counts[row["node"], row["epoch"]].append(line)
    return dict(counts)


def cut(processes: Mapping[Key, Sequence[str]], left: Mapping[Key, int]) -> Iterator[str]:
    """Yield all lines, and of the processes in ``left`` only so many."""
    for key, lines in processes.items():
        yield from lines[: left.get(key)]


def run_and_kill(folder: Path, kills: int, seed: int) -> int:
    """Let a manager give jobs to processes of busy workers that are killed one after the other.

    Returns:
        The number of the jobs that ended ok.
    """
    draw, jobs = random.Random(seed), []
    with wmp.Manager("tcp://127.0.0.1:*", identity="mgr", journal=folder) as manager:
        for number in range(kills + 1):
            with subprocess.Popen(
                [sys.executable, "-c", _PROCESS, manager.endpoints[0], f"r{number}", str(folder),
                 str(WORKERS)]
            ) as process:  # fmt: skip
                try:
                    name = f"r{number}x"
                    wait_until(lambda name=name: _served(manager, name) == WORKERS)
                    jobs += [
                        manager.submit(
                            b"%.3f" % draw.uniform(0.01, 0.09), role="work", max_worker_losses=99
                        )
                        for _ in range(60)
                    ]
                    for job in jobs[-60 : None if number == kills else draw.randrange(-59, -20)]:
                        job.result(timeout=WAIT)
                    if number == kills:
                        for job in jobs:
                            job.result(timeout=WAIT)
                finally:
                    process.send_signal(signal.SIGKILL)
    return len(jobs)


def _served(manager: wmp.Manager, name: str) -> int:
    workers = manager.statistics().workers
    return sum(
        worker.identity.startswith(name.encode()) and bool(worker.roles) for worker in workers
    )
