"""``wmp demo``: managers, a device and workers on this machine, with a kill in the middle."""

from __future__ import annotations

import importlib
import logging
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from wmp.cli.common.entry_point import (
    FAILED,
    INTERRUPTED,
    TERMINATED,
    ProgramTerminated,
    complain,
    terminated,
)
from wmp.cli.common.options import VERBOSE, ProgramCommand, verbose
from wmp.cli.common.options import journal as journal_flag
from wmp.cli.common.progress import ProgressBar
from wmp.cli.demo.chaos import Chaos
from wmp.cli.demo.processes import DemoProcesses
from wmp.cli.demo.runner import DemoRunner, source_files
from wmp.cli.demo.star import StarDemo
from wmp.cli.report import guarded, make, pipeline, print_outcome
from wmp.errors import ConfigError
from wmp.message import counted
from wmp.runtime.common.journal import Journal

_PROGRAM: Final = "wmp"

_SEEDS: Final = 1_000_000
"""Number of seeds, one of which is drawn when --seed is not given."""


@click.command(
    cls=ProgramCommand,
    short_help="Run managers, a device and workers on this machine.",
    epilog="""
    wmp demo
    wmp demo --workers 8 --no-kill
    wmp demo --chaos
    wmp demo --store
    wmp demo --star
    wmp demo --spark
    wmp demo --report
    """,
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    metavar="N",
    help="Number of workers; each is a process.",
)
@click.option(
    "--files", type=click.IntRange(1), metavar="N", help="Give the workers at most N files."
)
@click.option("--no-kill", is_flag=True, help="Kill no worker while the jobs run.")
@click.option("--chaos", is_flag=True, help="Kill every process in turn, and start it again.")
@click.option("--store", is_flag=True, help="As --chaos, and keep jobs and results in a store.")
@click.option("--star", is_flag=True, help="Run a pair of managers, and kill the active manager.")
@click.option("--spark", is_flag=True, help="Use Spark tasks as the managers and the workers.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    help="Seed of the order in which --chaos and --store kill processes (default: random).",
)
@journal_flag
@click.option(
    "--report",
    metavar="[DIR]",
    is_flag=False,
    flag_value="wmp-report",
    help="Write a journal and its report to DIR (default: wmp-report).",
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@verbose
@click.pass_context
def demo(
    context: click.Context,
    workers: int,
    files: int | None,
    no_kill: bool,
    chaos: bool,
    store: bool,
    star: bool,
    spark: bool,
    seed: int | None,
    journal: str | None,
    report: str | None,
    quiet: bool,
) -> int:
    """Run two managers, a device and some workers as processes of this machine.

    The workers count the words of every source file of Python's standard library, and hash the
    file. Every second worker connects through the device. The demo kills one of these workers while
    it runs a job. At the end the demo compares every result with its own: the exit code is 0 if all
    results are equal, else 1. With --report the exit code is 3 if the report could not be made.

    With --chaos the demo kills (SIGKILL) every process in turn, managers and the device as well,
    and starts the process again under the same name. With enough files the demo kills each process
    twice. The demo submits again the jobs that a killed manager held.

    With --store both managers keep their jobs in one file. The demo kills every process as with
    --chaos. No job is lost with its manager: the new process gets the results of the old one. At
    the end the store must have one job for each file.

    With --star the two managers are a pair (Binary Star): one serves the clients, and the other is
    on standby. The demo kills the active one twice, starts it again, and measures the takeovers.
    The clients send the requests of the killed manager again.

    With --spark the demo starts Spark on this machine, with the extra `spark`. The workers are a
    fleet inside Spark. The files are the rows of a table, and the tasks of the table are managers
    that dial in to a device. The demo kills a worker, the device and a manager.
    """
    chaos = chaos or store
    if chaos and no_kill:
        flag = "--store" if store else "--chaos"
        raise ConfigError(f"{flag} and --no-kill exclude each other; give only one of them")
    if seed is not None and not chaos:
        raise ConfigError("--seed needs --chaos; add --chaos, or leave out --seed")
    if star and (chaos or spark):
        raise ConfigError("--star excludes --chaos, --store and --spark; leave out these flags")
    if spark and (chaos or journal is not None or report is not None):
        raise ConfigError(
            "--spark excludes --chaos, --store, --journal and --report; leave out these flags"
        )
    if workers == 1 and not (spark or star or no_kill or chaos):
        raise ConfigError("the demo cannot kill its only worker; add --no-kill, or more --workers")
    if report is not None:
        pipeline("report")  # a missing package is reported now, and not after the demo
        # One folder for each demo, because a report covers one demo.
        journal = journal or str(Path(report) / f"journal-{time.time():.0f}")
    if journal is not None:
        Journal(journal).prepare()
    names = source_files(files)
    loud = context.find_root().meta[VERBOSE]
    try:
        with (
            terminated(),
            tempfile.TemporaryDirectory(prefix="wmp-demo-") as folder,
            ProgressBar(_PROGRAM, len(names), shown=not quiet) as bar,
            DemoProcesses(verbose=loud, journal=journal) as children,
        ):
            shown = None if quiet else bar
            show: Any
            if spark:
                show = _on_spark(children, names, workers, not no_kill, shown)
            elif star:
                if not loud:  # the clients run in this process
                    logging.getLogger("wmp").setLevel(logging.ERROR)
                show = StarDemo(
                    children, names, workers, kill=not no_kill, bar=shown, folder=folder
                )
            elif chaos:
                order = secrets.randbelow(_SEEDS) if seed is None else seed
                path = str(Path(folder) / "jobs.db") if store else None
                show = Chaos(
                    children, names, workers, kill=False, bar=shown, seed=order, store=path
                )
            else:
                show = DemoRunner(children, names, workers, kill=not no_kill, bar=shown)
            show.run()
    except ProgramTerminated:
        complain(_PROGRAM, "terminated; nothing is left running")
        return TERMINATED
    except KeyboardInterrupt:
        complain(_PROGRAM, "interrupted; nothing is left running")
        return INTERRUPTED
    if not quiet and (spark or star):
        for line in show.verdict():
            print(line)
    elif not quiet and isinstance(show, Chaos):
        _report_chaos(show)
    elif not quiet:
        _report(show)
    for text in show.wrong:
        complain(_PROGRAM, text)
    code = FAILED if show.wrong else 0
    if report is None or journal is None:
        return code
    return guarded(lambda: _report_journal(journal, report, code, quiet=quiet))


def _on_spark(
    children: DemoProcesses,
    names: Sequence[str],
    workers: int,
    kill: bool,
    bar: ProgressBar | None,
) -> Any:
    """Return the demo with Spark, whose packages only this demo needs."""
    pipeline("Fleet")
    return importlib.import_module("wmp.spark.fleet.demo").SparkDemo(
        children, names, workers, kill, bar
    )


def _report_journal(journal: str, out: str, code: int, *, quiet: bool) -> int:
    """Write the report of the demo's journal; return the exit code of the demo with its report."""
    report = make((journal,), out, quiet=quiet)
    if report.result.violations or not quiet:
        print_outcome(report)
    return FAILED if report.result.violations else code


def _report(show: DemoRunner) -> None:
    """Print the table and the result of the demo."""
    rows = []
    for index, child in enumerate(show.workers):
        jobs = show.done[child.label]
        rows.append(
            (
                child.label,
                "the device" if index % 2 else "the managers",
                f"{jobs}",
                f"{jobs / show.seconds:.0f}",
                f"killed at {show.killed_at:.0%}" if child is show.victim else "lived",
            )
        )
    _print_table(("worker", "connected to", "jobs", "jobs/s", "fate"), rows)
    _print_verdict(show)


def _report_chaos(show: Chaos) -> None:
    """Print the killed processes and the result of the demo."""
    rows = []
    for label in show.labels:
        killed = show.killed[label]
        rows.append(
            (
                label,
                f"{killed}",
                f"{show.back[label]:.1f} s" if killed else "",
                f"{show.resubmitted[label]}" if label.startswith("manager") else "",
                f"{show.done[label]}" if label.startswith("worker") else "",
            )
        )
    again = "submitted again" if show.store is None else "asked for again"
    _print_table(("process", "killed", "longest absence", again, "jobs done"), rows)
    if show.spared:
        print(
            f"these processes were not killed, because all jobs had ended: {', '.join(show.spared)}"
        )
    _print_verdict(show)
    print(
        f"{counted(show.killed.total(), 'process was', 'processes were')} killed (SIGKILL) and "
        f"started again; seed {show.seed}"
    )
    if show.store is not None and not show.wrong:
        print(f"the store has {counted(len(show.names), 'job')}, one for each file, and all are ok")
        print(f"{counted(show.first, 'job was', 'jobs were')} done in the first attempt")


def _print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*heads)
        for index, column in enumerate(table.columns):
            if all(row[index][:1].isdecimal() or not row[index] for row in rows):
                column.justify = "right"
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def _print_verdict(show: DemoRunner) -> None:
    total = len(show.names)
    print(
        f"{total} files, {show.size / 1e6:.1f} MB in {show.seconds:.1f} s: "
        f"{total / show.seconds:.0f} jobs/s, {show.size / 1e6 / show.seconds:.0f} MB/s"
    )
    if isinstance(show, Chaos):
        # The other counters of the managers are gone with their processes.
        print(f"jobs done in a second attempt: {show.again}")
    else:
        print(
            f"jobs queued again: {_counts(show.requeued)}; jobs done in a second attempt: "
            f"{show.again}; "
            f"messages dropped: {_counts(show.dropped)}"
        )
    if show.kill and show.victim is None:
        print("no worker was killed, because all jobs had ended; raise --files")
    lost, twice = total - len(show.seen), show.seen.total() - len(show.seen)
    print(f"{len(show.right)} of {total} results are correct; lost: {lost}, duplicates: {twice}")


def _counts(counts: Counter[str]) -> str:
    if not counts:
        return "0"
    causes = ", ".join(f"{cause} {n}" for cause, n in sorted(counts.items()))
    return f"{sum(counts.values())} ({causes})"
