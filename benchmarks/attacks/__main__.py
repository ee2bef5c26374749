"""``python -m benchmarks.attacks [--only DRILL,…] [--seconds S] [--json FILE]``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

import attrs

from benchmarks.attacks.drills import DRILLS
from benchmarks.attacks.stage import MEMORY, Finding, perform

__all__ = ["main"]

KEPT = 0.8
"""The part of the baseline's throughput that must remain during each drill."""


def _drills(text: str) -> list[str]:
    drills = [word.strip() for word in text.split(",") if word.strip()]
    for word in drills:
        if word not in DRILLS:
            raise argparse.ArgumentTypeError(
                f"there is no drill {word!r}; expected some of {', '.join(DRILLS)}"
            )
    return drills


def _row(finding: Finding) -> str:
    good = finding.withstood and finding.kept >= KEPT
    wrong = (
        f"not ended: {finding.left}, failed: {len(finding.failed)}" if not finding.withstood else ""
    )
    return (
        f"{finding.drill:<33}{finding.rate:>9,.0f}{finding.baseline:>10,.0f}"
        f"{finding.kept:>7.0%}{finding.kept_cpu:>10.0%}{finding.share:>10.0%}"
        f"{finding.memory:>7,.0f}  "
        f"{'held' if good else 'BROKEN'} {wrong}".rstrip()
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the drills and print a table; exit with 1 when a node fails a drill."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attacks",
        description="Attack nodes at work. The same work also runs beside processes that use as "
        f"much CPU time and attack no node. Each drill must leave {KEPT:.0%} of the throughput of "
        f"that run. A node may grow by {MEMORY} MB. Every honest job must end with its result.",
    )
    parser.add_argument(
        "--only",
        type=_drills,
        metavar="DRILL,…",
        help=f"play only these drills, of {', '.join(DRILLS)}",
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of each measurement")
    parser.add_argument("--repeats", type=int, default=3, help="number of rounds of each drill")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args(arguments)
    # sys.exit after SIGTERM lets every context end its child processes.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    print(
        f"{'drill':<33}{'jobs/s':>9}{'baseline':>10}"
        f"{'kept':>7}{'of CPU':>10}{'attacker':>10}{'MB':>7}"
    )
    findings = []
    for name in options.only or DRILLS:
        findings.append(perform(name, options.seconds, options.repeats))
        print(_row(findings[-1]), flush=True)
    if options.json is not None:
        rows = [{**attrs.asdict(finding), "kept": finding.kept} for finding in findings]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if not all(finding.withstood and finding.kept >= KEPT for finding in findings):
        sys.exit(1)


if __name__ == "__main__":
    main()
