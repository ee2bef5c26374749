"""``wmp report``: what happened, from journals, as tables and a page."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import click

from wmp.cli.entry_point import FAILED, complain
from wmp.cli.options import ProgramCommand
from wmp.cli.progress import ProgressBar
from wmp.errors import ConfigError

__all__ = ["make", "pipeline", "report", "say"]


class _Result(Protocol):
    """The part of a pipeline's result that the program prints.

    Spark is an extra: the program loads the pipeline when a report is asked for.
    """

    @property
    def violations(self) -> int: ...

    @property
    def uncertain(self) -> int: ...

    @property
    def summary(self) -> Mapping[str, float]: ...


class _Report(Protocol):
    """The part of a pipeline's report that the program prints."""

    @property
    def page(self) -> Path: ...

    @property
    def result(self) -> _Result: ...


_PROGRAM: Final = "wmp"


@click.command(
    cls=ProgramCommand,
    short_help="Tell from journals what happened, and whether it was right.",
    epilog="""
    wmp report journal --out report
    wmp report journal --out report --follow
    wmp report /mnt/a /mnt/b --out /mnt/report --master spark://host:7077
    """,
)
@click.argument("journals", metavar="JOURNAL…", nargs=-1, required=True)
@click.option("--out", metavar="DIR", required=True, help="Where the tables and report.html go.")
@click.option(
    "--master", metavar="URL", help="Which Spark, as it names them (default: this machine)."
)
@click.option("--follow", is_flag=True, help="Go on, and report again when there is more.")
@click.option(
    "--idle",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="With --follow: end when nothing is added for so long.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what came of it as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, print only what was found.")
def report(
    journals: tuple[str, ...],
    out: str,
    master: str | None,
    follow: bool,
    idle: float | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Read journals, folders or files of them, and write tables (Parquet) and a page to DIR.

    The page needs no network and no server: open DIR/report.html. Exit code 1 when something was
    not right for certain, 2 when JOURNAL is not there or of another version, else 0.

    With --follow it goes on while journals grow, until Ctrl-C; started again, it goes on where it
    was.
    """
    if idle is not None and not follow:
        raise ConfigError("--idle is for --follow")
    if follow:
        return _follow(journals, out, master, idle, as_json, quiet)
    made = make(journals, out, master=master, quiet=quiet)
    say(made, as_json=as_json)
    return FAILED if made.result.violations else 0


def make(
    journals: tuple[str, ...], out: str, *, master: str | None = None, quiet: bool = False
) -> _Report:
    """Make a report, behind a progress bar.

    Raises:
        ConfigError: A journal is not there or cannot be read, or the extra is missing.
    """
    spark = pipeline()
    _hush()
    with ProgressBar(_PROGRAM, None, shown=not quiet) as bar:
        made: _Report = spark.report(journals, out, master=master, progress=_Steps(bar))
    return made


def _follow(
    journals: tuple[str, ...],
    out: str,
    master: str | None,
    idle: float | None,
    as_json: bool,
    quiet: bool,
) -> int:
    spark = pipeline()
    _hush()
    last: _Report | None = None
    with ProgressBar(_PROGRAM, None, shown=not quiet) as bar:

        def made(one: _Report, lines: int) -> bool:
            nonlocal last
            last = one
            if as_json:
                bar.print(f"{_as_json(one)}\n".encode())
                bar.flush()
            elif not quiet:
                jobs = one.result.summary["jobs"]
                bar.complain(f"{lines} lines, {jobs:.0f} jobs, {_found(one)}")
            return True

        try:
            last = spark.follow(journals, out, made, idle=idle, master=master, progress=_Steps(bar))
        except KeyboardInterrupt:
            again = f"; the same command goes on from there, {out} has what was reported"
            bar.complain(f"stopped{again if last is not None else ''}")
    if last is None:
        return 0
    if not as_json:
        say(last)
    return FAILED if last.result.violations else 0


def _hush() -> None:
    """Leave out what py4j says of Ctrl-C while Java is asked: tracebacks of its own insides."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("KeyboardInterrupt")


def pipeline() -> Any:
    """The pipeline; the programs do without it as long as nobody asks.

    Raises:
        ConfigError: The extra is missing.
    """
    return importlib.import_module("wmp.spark")


class _Steps:
    """Moves the bar on."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self._done = 0

    def __call__(self, name: str, done: int, total: int) -> None:
        self._bar.know(total)
        self._bar.advance(done - self._done, name)
        self._done = done


def say(made: _Report, *, as_json: bool = False) -> None:
    """Print what came of it."""
    if as_json:
        print(_as_json(made))
        return
    numbers = made.result.summary
    if not numbers["lines"]:
        print("the journal is empty: there is no line in it")
    else:
        print(
            f"{numbers['lines']:.0f} lines of {numbers['nodes']:.0f} processes in "
            f"{numbers['seconds']:.1f} s: {numbers['jobs']:.0f} jobs, {numbers['jobs ok']:.0f} ok, "
            f"{numbers['leases over'] - numbers['leases handed back']:.0f} leases lost"
        )
        print(_found(made))
    for name, what in (
        ("bad lines", "lines could not be read"),
        ("lines missing", "lines are missing"),
        ("nodes missing", "processes left no journal"),
    ):
        if numbers[name]:
            complain(_PROGRAM, f"{numbers[name]:.0f} {what}; the report says which")
    print(f"report: {_near(made.page)}")


def _found(made: _Report) -> str:
    certain, uncertain = made.result.violations, made.result.uncertain
    text = f"violations: {certain}"
    return text + (f", and {uncertain} that gaps in the journals may explain" if uncertain else "")


def _as_json(made: _Report) -> str:
    return json.dumps(
        {
            "page": str(made.page),
            "violations": made.result.violations,
            "uncertain": made.result.uncertain,
            "summary": made.result.summary,
        }
    )


def _near(path: Path) -> str:
    """As somebody here would name it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
