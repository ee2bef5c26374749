"""A real run keeps its own books in plain Python, and the tables of its journals equal them.

The run has workers as processes, of which one is killed, jobs that fail and jobs that are
cancelled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import CancelledError, wait
from pathlib import Path
from statistics import median

import pytest

import wmp
from tests.interop.programs.programs import WMP, Program
from tests.spark.folds.plain import fold, table
from tests.waiting import WAIT

HANDLER = """
import os, sys, time
text = sys.stdin.read()
with open(sys.argv[1], "a") as book:
    book.write(f"{text} {os.getpid()}\\n")
if text.startswith("fail"):
    sys.exit(3)
time.sleep(5 if text.startswith("slow") else 0.01)
print(text.upper(), end="")
"""


@pytest.mark.deep
@pytest.mark.interop
def test_the_tables_of_a_real_run_equal_its_own_books(tmp_path):
    book, script, journal = tmp_path / "book", tmp_path / "handler.py", tmp_path / "journal"
    script.write_text(HANDLER)
    book.touch()
    ends: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        manager = stack.enter_context(wmp.Manager(identity="m", journal=journal))
        argv = [*WMP, "worker", "--connect", *manager.endpoints, "--journal", str(journal)]
        handler = ["--slots", "2", "--", sys.executable, str(script), str(book)]
        workers = [
            stack.enter_context(Program(*argv, "--identity", f"w{number}", *handler))
            for number in range(3)
        ]
        jobs, took = {}, []
        for name in [f"{kind}{n}" for n in range(40) for kind in ("plain", "fail")]:
            began = time.monotonic()
            jobs[name] = manager.submit(name.encode(), max_worker_losses=5)
            jobs[name].add_done_callback(lambda _, began=began: took.append(since(began)))
        wait(list(jobs.values())[:10], WAIT)
        slow = [manager.submit(f"slow{n}".encode(), max_worker_losses=5) for n in range(8)]
        wait(jobs.values(), WAIT)
        quick = len(jobs)
        time.sleep(1.5)  # a killed worker loses the lines of its last second
        os.kill(workers[0].process.pid, signal.SIGKILL)
        for job in slow[4:]:
            job.stop()
        jobs |= {f"slow{n}": job for n, job in enumerate(slow)}
        for job in jobs.values():
            try:
                job.result(WAIT)
                ends["ok"] += 1
            except CancelledError:
                ends["cancelled"] += 1
            except wmp.JobFailed:
                ends["error"] += 1
        for worker in workers[1:]:
            worker.process.terminate()
            worker.process.wait(WAIT)

    sink = fold(lines_of(journal))

    assert [row["detail"] for row in table(sink, "violations")] == []
    rows = table(sink, "jobs")
    assert Counter(row["end"] for row in rows) == ends
    assert len(took) == quick
    measured = [row["total"] / 1e6 for row in rows if row["job"] <= quick]
    assert median(measured) == pytest.approx(median(took), abs=0.2)  # the callbacks run later
    begun = Counter(line.split()[0] for line in book.read_text().splitlines())
    runs = table(sink, "executions")
    # The killed worker had two slots, and loses its last lines.
    assert sum(row["outcome"] != "recalled" for row in runs) >= begun.total() - 2
    assert {row["worker"] for row in runs} == {row["worker"] for row in table(sink, "locks")}
    leases: defaultdict[int, int] = defaultdict(int)
    for row in table(sink, "attempts"):
        leases[row["job"]] += row["granted"] is not None
    assert {row["job"]: row["attempts"] for row in rows if row["attempts"]} == leases
    # Jobs are numbered in the order of their submission. A cancelled job may have a lease that no
    # handler began.
    numbers = dict(enumerate(jobs, 1))
    assert {n: leases[n] for n, name in numbers.items() if leases[n] < begun[name]} == {}
    more = {name: leases[n] - begun[name] for n, name in numbers.items() if leases[n] > begun[name]}
    assert sum(more.values()) <= ends["cancelled"] + 2, more


def since(began: float) -> float:
    """Return the seconds since a time."""
    return time.monotonic() - began


def lines_of(journal: Path) -> list[str]:
    """Return all lines; the last line of a killed process may be torn."""
    return [
        line
        for path in sorted(journal.iterdir())
        for line in path.read_text(encoding="ascii").splitlines()
        if line.endswith("}")
    ]
