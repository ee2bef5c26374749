"""Cost of ten further lines: ``python -m benchmarks.following --lines 10000,100000``.

A report follows the journal of a fleet of :mod:`benchmarks.pipeline`, of which the last lines are
missing. Then ten lines are added several times, five to each of two nodes. The figure is the CPU
time of the process from the addition until the next report is written. No node has ended, so all
jobs, locks and messages of the last minute are open. The whole journal takes a few seconds of
virtual time, so all of it is open: this is the most expensive case.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pipeline import make
from wmp.spark import JournalReport, follow

LEFT = 2000
"""Number of lines that are missing at first, at most; about as many of each node."""
ADDED = 5
"""Number of lines that are added to a node at a time."""


def measure(folder: Path, lines: int, times: int) -> tuple[int, list[float]]:
    """Return the number of the first lines, and the CPU seconds of each addition."""
    (folder / "whole").mkdir(parents=True)
    make(folder / "whole", lines + LEFT)
    journal = folder / "journal"
    journal.mkdir()
    left: dict[Path, list[bytes]] = {}
    segments = list((folder / "whole").iterdir())
    for path in segments:
        rows = path.read_bytes().splitlines(keepends=True)
        cut = max(len(rows) // 2, len(rows) - LEFT // len(segments))
        hidden = journal / f".{path.name}"
        hidden.write_bytes(b"".join(rows[:cut]))
        left[hidden] = rows[cut:-1]  # the last line would end the node
    first, took, began = 0, [], 0.0

    def add_lines(_: JournalReport, count: int) -> bool:
        nonlocal first, began
        if first:
            took.append(time.process_time() - began)
        first = first or count
        for path in sorted(left, key=lambda path: len(left[path]))[-2:]:
            with path.open("ab") as file:
                file.writelines(left[path][:ADDED])
            del left[path][:ADDED]
        began = time.process_time()
        return len(took) < times

    follow(journal, folder / "out", add_lines)
    return first, took


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.following", description=__doc__)
    parser.add_argument(
        "--lines", default="10000,100000", help="numbers of lines, separated by commas"
    )
    parser.add_argument("--times", type=int, default=8, help="number of additions")
    options = parser.parse_args(arguments)
    for lines in map(int, options.lines.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            first, took = measure(Path(folder), lines, options.times)
        print(
            f"behind {first} lines: ten more take {statistics.median(took):.2f} s of CPU time, at "
            f"most {max(took):.2f} s",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
