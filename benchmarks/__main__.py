"""``python -m benchmarks [--quick] [--only GROUP,…] [--json FILE] [--plot FILE]``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from benchmarks import (
    arrays,
    calls,
    device,
    fairness,
    floor,
    growth,
    jobs,
    journal,
    ours,
    starts,
    store,
)
from benchmarks.figure import FULL, QUICK, TINY, Bench, Skip, stderr
from benchmarks.peers.cases import GROUP as PEERS
from benchmarks.raw import Raw
from benchmarks.report import Figures, as_json, draw, from_json, markdown, table

GROUPS = (
    *ours.GROUPS,
    "arrays",
    "floor",
    "journal",
    "store",
    "peers",
    "growth",
    "fairness",
    "work",
    "calls",
    "starts",
)
CASES = {**ours.GROUPS, "floor": floor.CASES, "peers": PEERS}


def _groups(text: str) -> list[str]:
    groups = [word.strip() for word in text.split(",") if word.strip()]
    for word in groups:
        if word not in GROUPS:
            raise argparse.ArgumentTypeError(
                f"there is no group {word!r}; expected some of {', '.join(GROUPS)}"
            )
    return groups


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure wmp and other systems beside a raw pyzmq echo; check every result.",
    )
    parser.add_argument("--quick", action="store_true", help="measure with fewer jobs and repeats")
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="measure with almost no jobs, only to show that everything runs",
    )
    parser.add_argument(
        "--only",
        type=_groups,
        metavar="GROUP,…",
        help=f"measure only these groups, of {', '.join(GROUPS)}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the figures into FILE, which ends in .png, .svg or .html",
    )
    parser.add_argument(
        "--short", action="store_true", help="draw only the figures that --table writes"
    )
    parser.add_argument(
        "--from",
        type=Path,
        metavar="FILE",
        dest="source",
        help="measure nothing; show the figures of a file that --json wrote",
    )
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="write the main figures as Markdown"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Measure the chosen groups and show the figures."""
    options = _options(arguments)
    # sys.exit after SIGTERM lets every context end its child processes.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if options.source is not None:
        try:
            figures = from_json(json.loads(options.source.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"{options.source} is no file that --json wrote: {error}")
        _show(figures, options)
        return
    groups = options.only or GROUPS
    scale = TINY if options.tiny else QUICK if options.quick else FULL
    with Raw() as raw:
        bench = Bench(raw, scale, stderr)
        for group in groups:
            for case in CASES.get(group, ()):
                bench.run(case)
            if group == "device":
                device.measure(bench)
            elif group == "arrays":
                arrays.measure(bench)
            elif group == "floor":
                floor.measure(bench)
            elif group == "journal":
                journal.measure(bench)
            elif group == "store":
                store.measure(bench)
    if "growth" in groups:
        growth.measure(bench, tiny=options.tiny)
    if "fairness" in groups:
        fairness.measure(bench, tiny=options.tiny)
    if "work" in groups:
        jobs.measure(bench, tiny=options.tiny)
    if "calls" in groups:
        calls.measure(bench, tiny=options.tiny)
    if "starts" in groups:
        starts.measure(bench, tiny=options.tiny)
    if options.json is not None:
        written = as_json(bench, quick=options.quick or options.tiny)
        options.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    _show(bench, options)


def _show(bench: Figures, options: argparse.Namespace) -> None:
    print("\n".join(table(bench)))
    if options.table is not None:
        options.table.write_text("\n".join(markdown(bench.figures)) + "\n", encoding="utf-8")
    if options.plot is not None:
        try:
            draw(bench, options.plot, short=options.short)
        except Skip as reason:
            stderr(str(reason))


if __name__ == "__main__":
    main()
