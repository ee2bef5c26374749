"""``wmp report --numbers``: prints load, latency and throughput of journals, without verdicts."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from wmp.cli.common.entry_point import complain
from wmp.cli.common.standard_streams import CLOSED, drop_stdout
from wmp.message import counted

_SHOWN = ("mean", "p50", "p90", "p99", "most")


class _Numbers(Protocol):
    """The part of the pipeline's numbers that the program prints."""

    @property
    def where(self) -> str: ...

    @property
    def summary(self) -> Mapping[str, float]: ...

    @property
    def latency(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def seconds(self) -> float: ...


def report_numbers(journals: tuple[str, ...], out: str, *, as_json: bool, quiet: bool) -> int:
    """Count the numbers of journals, write their tables and print them; return the exit code.

    Raises:
        ConfigError: A journal cannot be read, or the extra is missing.
    """
    count = importlib.import_module("wmp.spark").report_numbers
    numbers: _Numbers = count(journals, out)
    try:
        if as_json:
            print(json.dumps({"summary": numbers.summary, "latency": numbers.latency}))
        else:
            print("\n".join(_lines(numbers, quiet=quiet)))
        sys.stdout.flush()
    except CLOSED:
        drop_stdout()
    if bad := int(numbers.summary["bad lines"]):
        complain("wmp", counted(bad, "line could not be read", "lines could not be read"))
    return 0


def _lines(numbers: _Numbers, *, quiet: bool) -> list[str]:
    """Return the lines that a person reads."""
    summary = numbers.summary
    ends = (
        f"{summary[f'jobs {end}']:.0f} {end}"
        for end in ("ok", "error", "cancelled", "timeout", "lost", "open")
        if summary[f"jobs {end}"] or end == "ok"
    )
    head = (
        f"{counted(int(summary['lines']), 'line')} of "
        f"{counted(int(summary['nodes']), 'process', 'processes')}, which cover "
        f"{summary['seconds']:.1f} s: {counted(int(summary['jobs']), 'job')}, {', '.join(ends)}; "
        f"{summary['jobs per second']:.1f} jobs per second"
    )
    lines = [head]
    rows = [row for row in numbers.latency if row["by"] == "role"]
    if rows and not quiet:
        table = [("role", "phase, in ms", "samples", "mean", "50 %", "90 %", "99 %", "maximum")]
        table += [
            (row["key"], row["phase"], str(row["count"]), *(f"{row[n] / 1e3:.3f}" for n in _SHOWN))
            for row in rows
        ]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            texts = [word.ljust(size) for word, size in zip(row[:2], widths, strict=False)]
            texts += [word.rjust(size) for word, size in zip(row[2:], widths[2:], strict=True)]
            lines.append("  ".join(texts))
    return [
        *lines,
        "no rule was checked; without --numbers the report has verdicts",
        f"tables: {numbers.where}, made in {numbers.seconds:.1f} s",
    ]
