"""``python -m wmp.testing``: plays seeded worlds and reports each that broke an invariant.

Exit status: 0 all invariants held, 1 an invariant was broken, 2 wrong usage, 141 the reader of the
output closed the pipe. If no invariant was broken before the interruption: 130 after Ctrl-C, 143
after SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from wmp.checks.job_history import INVARIANTS
from wmp.cli.common.entry_point import (
    BROKEN_PIPE,
    INTERRUPTED,
    TERMINATED,
    ProgramTerminated,
    terminated,
)
from wmp.cli.common.standard_streams import drop_stdout
from wmp.testing.worlds.campaign import CampaignResult, replay_command, reports
from wmp.testing.worlds.world import WorldReport


def parse_seeds(text: str) -> range:
    """Parse ``17`` or ``0:500``, as an argument of a program."""
    first, colon, last = text.partition(":")
    try:
        seeds = range(int(first), int(last) if colon else int(first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a seed or a range of seeds; write 17, or 0:500 for 0 to 499"
        ) from None
    if not seeds or seeds[0] < 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} contains no seed; write 17, or 0:500 for 0 to 499"
        )
    return seeds


def _processes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes from 1 to 256")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m wmp.testing",
        description=(
            "Simulate networks (worlds) of managers, workers and devices with faults in virtual "
            "time. Draw each world from a seed, and check the named invariants in it."
        ),
        epilog="exit status: 0 all invariants held, 1 an invariant was broken, 2 wrong usage, "
        "130 Ctrl-C, 141 the reader of the output closed the pipe, 143 SIGTERM",
    )
    add = parser.add_argument
    add(
        "--timed",
        action="store_true",
        help="draw jobs with delays, expiries, run limits and retries",
    )
    add("--dialed", action="store_true", help="let managers dial in to devices")
    add("--forwarded", action="store_true", help="put a forwarding manager before workers")
    add("--paired", action="store_true", help="let two managers be a pair, one of them on standby")
    add(
        "--seeds",
        type=parse_seeds,
        default=range(100),
        help="a seed, as 17, or a range of seeds, as 0:500 (default: 0:100)",
    )
    add("--json", action="store_true", help="print the result as one JSON object")
    add("--trace", action="store_true", help="print every step of every world")
    add("--jobs", type=_processes, default=1, help="number of processes (default: 1)")
    add("--journal", metavar="DIR", type=Path, help="write the journals of all nodes into DIR")
    add("--invariants", action="store_true", help="list the invariants, and exit")
    return parser


def _why_not(folder: Path) -> str:
    """Return the reason why no journals can be written into a folder; empty when they can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot make the folder {folder}: {error.strerror}"
    if any(
        True
        for kind in ("seed", "timed", "dialed", "paired", "forwarded")
        for _ in folder.glob(f"{kind}-*")
    ):
        return f"{folder} has journals of other worlds; name another folder"
    return ""


class _CampaignProgress:
    """Progress: one line that is rewritten on a terminal; a line every ten seconds elsewhere."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._live = stream.isatty()
        self._start = self._shown = time.monotonic()

    def show(self, tally: CampaignResult) -> None:
        now = time.monotonic()
        if now - self._shown < (0.1 if self._live else 10.0):
            return
        self._shown = now
        rate = tally.schedules / max(1e-9, now - self._start)
        text = (
            f"{tally.schedules}/{self._total} worlds, {rate:.0f}/s, "
            f"{tally.hours:.2f} simulated hours, {tally.violations.total()} violations"
        )
        if self._live:
            self._stream.write(f"\r\x1b[K{text}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _print(text: str, out: TextIO) -> None:
    out.write(f"{text}\n")


def _print_failure(report: WorldReport, out: TextIO) -> None:
    violation = report.violation
    assert violation is not None
    _print(f"seed {report.seed} broke “{violation.name}”", out)
    _print(f"  the invariant: {INVARIANTS[violation.name]}", out)
    _print(f"  observed: {violation.detail}", out)
    _print("  the last steps:", out)
    for line in report.trace:
        _print(f"    {line}", out)
    again = replay_command(report)
    _print(f"  play it again: {again}\n", out)


def _summarise(tally: CampaignResult, seconds: float, out: TextIO) -> None:
    rate = tally.schedules / max(1e-9, seconds)
    _print(f"schedules        {tally.schedules} in {seconds:.1f} s ({rate:.0f}/s)", out)
    _print(f"simulated hours  {tally.hours:.2f}", out)
    _print(f"events           {tally.steps}", out)
    _print(f"messages         {tally.messages}", out)
    ends = ", ".join(f"{count} {end}" for end, count in tally.ends.most_common())
    _print(f"jobs             {tally.jobs}; ended: {ends}", out)
    _print(f"executions       {tally.executions}", out)
    _print(f"faults           {tally.faults.total()}", out)
    for fault, count in tally.faults.most_common():
        _print(f"  {fault:<24}{count:>8}", out)
    _print(f"violations       {tally.violations.total()}", out)
    for name, count in tally.violations.most_common():
        _print(f"  {name:<24}{count:>8}", out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    options = _parser().parse_args(arguments)
    if options.invariants:
        for name, text in INVARIANTS.items():
            _print(f"{name}: {text}", sys.stdout)
        return 0
    tally, progress = CampaignResult(), _CampaignProgress(len(options.seeds), sys.stderr)
    out = sys.stderr if options.json else sys.stdout
    start, status = time.monotonic(), 0
    if options.journal is not None and (refusal := _why_not(options.journal)):
        _print(refusal, sys.stderr)
        return 2
    keep = None if options.trace else 30
    worlds = reports(
        options.seeds,
        processes=options.jobs,
        keep=keep,
        journal=options.journal,
        timed=options.timed,
        dialed=options.dialed,
        forwarded=options.forwarded,
        paired=options.paired,
    )
    try:
        for report in worlds:
            tally.add(report)
            if options.trace:
                progress.clear()
                _print(f"seed {report.seed}, trace {report.digest}", out)
                _print("\n".join(report.trace), out)
                if report.violation is not None:
                    _print(f"broke “{report.violation.name}”: {report.violation.detail}", out)
            elif report.violation is not None:
                progress.clear()
                _print_failure(report, out)
            progress.show(tally)
    except KeyboardInterrupt as interruption:
        _print("\ninterrupted; these are the results so far", sys.stderr)
        status = TERMINATED if isinstance(interruption, ProgramTerminated) else INTERRUPTED
    progress.clear()
    if options.json:
        _print(json.dumps(tally.as_dict(), indent=2), sys.stdout)
    else:
        _summarise(tally, time.monotonic() - start, sys.stdout)
    return 1 if tally.violations else status


def _run() -> int:
    """Run the program as a process: end quietly when the reader closes the pipe (``| head``)."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()
        return BROKEN_PIPE
    return status


if __name__ == "__main__":
    with terminated():
        sys.exit(_run())
