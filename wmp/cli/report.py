"""``wmp report``: makes tables and a page from journals."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import click

from wmp.cli.common.entry_point import FAILED, complain
from wmp.cli.common.options import ProgramCommand
from wmp.cli.common.progress import ProgressBar
from wmp.cli.common.report_numbers import report_numbers
from wmp.cli.common.standard_streams import CLOSED, drop_stdout
from wmp.errors import ConfigError, WMPError
from wmp.message import counted, printable

CRASHED: Final = 3
"""Exit code: the report could not be made, and nothing is known about violations."""


class _Result(Protocol):
    """The part of a pipeline's result that the program prints.

    Spark is an extra. The program loads the pipeline only for a report.
    """

    @property
    def violations(self) -> int: ...

    @property
    def uncertain(self) -> int: ...

    @property
    def summary(self) -> Mapping[str, float]: ...

    @property
    def findings(self) -> Sequence[Mapping[str, Any]]: ...


class _Report(Protocol):
    """The part of a pipeline's report that the program prints."""

    @property
    def page(self) -> Path | str: ...

    @property
    def result(self) -> _Result: ...

    @property
    def seconds(self) -> float: ...


_PROGRAM: Final = "wmp"
_QUOTED: Final = re.compile("'(/.*?)'")


@click.command(
    cls=ProgramCommand,
    short_help="Write a report of journals: what happened, and rule violations.",
    epilog="""
    wmp report journal --out report
    wmp report journal --out report --follow
    wmp report journal --out numbers --numbers
    wmp report journal --out today --since 2026-11-23 --compare yesterday
    wmp report /mnt/a /mnt/b --out /mnt/report --master spark://host:7077
    """,
)
@click.argument("journals", metavar="JOURNAL…", nargs=-1, required=True)
@click.option(
    "--out", metavar="DIR", required=True, help="Folder or URL for the tables and report.html."
)
@click.option(
    "--master",
    metavar="URL",
    help="Master URL of Spark (default: no Spark for up to 16 MiB, then Spark on this machine).",
)
@click.option(
    "--follow", is_flag=True, help="Keep running, and update the report when the journals grow."
)
@click.option(
    "--idle",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help="With --follow: stop after SECONDS without new lines.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Leave out jobs submitted before TIME (UTC), for example 2026-11-23T14:00 or "
    "2026-11-23T15:00+01:00.",
)
@click.option(
    "--until",
    metavar="TIME",
    help="Leave out jobs submitted at TIME (UTC) or later.",
)
@click.option(
    "--compare", metavar="DIR", help="Folder of an earlier report; the page compares both."
)
@click.option(
    "--numbers",
    is_flag=True,
    help="Count load, latency and throughput only, in a tenth of the CPU time: no verdicts, no "
    "page, and no Spark for journals of any size.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the outcome, and no progress.")
def report(
    journals: tuple[str, ...],
    out: str,
    master: str | None,
    follow: bool,
    idle: float | None,
    since: str | None,
    until: str | None,
    compare: str | None,
    numbers: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Read journals (folders or files), and write tables (Parquet) and a page to DIR.

    The page needs no network and no server: open DIR/report.html. The exit code is 1 if a rule
    was certainly violated, 2 if a setting is wrong, JOURNAL cannot be read or has another version,
    or DIR cannot be written to, 3 if the report could not be made for another reason, else 0. Jobs
    that failed do not change the exit code.

    With --follow the report is updated while journals grow, until Ctrl-C. The same command
    continues the report later, and may name further journals. A command that leaves out an earlier
    journal is an error: DIR has the report of certain journals.

    A report needs the extra `report`, and Spark the extra `spark`.
    """
    if not (out and all(journals)):
        raise ConfigError("the name of JOURNAL or DIR is empty; expected a folder, file or URL")
    if idle is not None and not follow:
        raise ConfigError("--idle needs --follow; add --follow, or leave out --idle")
    if numbers and (follow or master or since or until or compare):
        raise ConfigError(
            "--numbers cannot be combined with --follow, --master, --since, --until and --compare; "
            "leave out --numbers, or leave out these flags"
        )
    if numbers:
        return guarded(lambda: report_numbers(journals, out, as_json=as_json, quiet=quiet))
    if follow and (since or until or compare):
        raise ConfigError(
            "--since, --until and --compare cannot be combined with --follow; leave out --follow, "
            "or leave out these flags"
        )
    if follow:
        return guarded(lambda: _follow(journals, out, master, idle, as_json, quiet))

    def once() -> int:
        parts = {"since": since, "until": until, "compare": compare}
        report = make(journals, out, master=master, quiet=quiet, **parts)
        print_outcome(report, as_json=as_json)
        if (since or until) and not report.result.summary["jobs"]:
            complain(_PROGRAM, "no job was submitted in this time; times without a zone are in UTC")
        return FAILED if report.result.violations else 0

    return guarded(once)


def guarded(make_report: Callable[[], int]) -> int:
    """Return the exit code of a report; an error of the report itself is not a violation."""
    try:
        return make_report()
    except (ConfigError, click.ClickException):
        raise
    except WMPError as error:
        complain(_PROGRAM, str(error))
    except PermissionError as error:
        raise ConfigError(f"cannot open {_cause(error)}") from error
    except Exception as error:  # noqa: BLE001 — a defect must not look like a violation
        if not (isinstance(error, OSError) and error.errno):
            traceback.print_exc()
        complain(
            _PROGRAM, f"the report could not be made: {_cause(error)}; nothing is known about rules"
        )
    return CRASHED


def _cause(error: Exception) -> str:
    """Return one line about an error; py4j writes the error of Java after a line of its own."""
    if isinstance(error, OSError) and error.errno:
        reason = os.strerror(error.errno).lower()
        # Arrow has the name of a file in the text alone.
        name = error.filename or next(iter(_QUOTED.findall(str(error))), "")
        return f"{name}: {reason}" if name else reason
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return lines[1].removeprefix(": ")
    return lines[0]


def make(
    journals: tuple[str, ...],
    out: str,
    *,
    master: str | None = None,
    quiet: bool = False,
    **parts: Any,
) -> _Report:
    """Make a report, and show a progress bar; ``parts`` are further arguments of the pipeline.

    Raises:
        ConfigError: A journal does not exist or cannot be read, or the extra is missing.
    """
    build = pipeline("report")
    _hush()
    with ProgressBar(_PROGRAM, None, shown=not quiet) as bar:
        step = _StepProgress(bar)
        report: _Report = build(journals, out, master=master, progress=step, **parts)
    return report


def _follow(
    journals: tuple[str, ...],
    out: str,
    master: str | None,
    idle: float | None,
    as_json: bool,
    quiet: bool,
) -> int:
    follow = pipeline("follow")
    _hush()
    last: _Report | None = None
    shown = ""
    with ProgressBar(_PROGRAM, None, shown=not quiet) as bar:
        steps = _StepProgress(bar)

        def show(report: _Report, lines: int) -> bool:
            nonlocal last, shown
            last = report
            if as_json:
                try:
                    bar.print(f"{_as_json(report)}\n".encode())
                    bar.flush()
                except CLOSED:
                    drop_stdout()
                    return False
            elif not quiet:
                jobs = int(report.result.summary["jobs"])
                text = (
                    f"{counted(lines, 'line')}, {counted(jobs, 'job')}, {_violations_text(report)}"
                )
                if text != shown:  # a report of settled jobs often has the same numbers
                    bar.complain(text)
                    shown = text
            steps.rest()
            return True

        try:
            last = follow(journals, out, show, idle=idle, master=master, progress=steps)
        except KeyboardInterrupt:
            again = f"; {out} has the last report, and the same command continues it"
            bar.complain(f"stopped{again if last is not None else ' before the first report'}")
    if last is None:
        return 0
    if not as_json:
        print_outcome(last)
    return FAILED if last.result.violations else 0


def _hush() -> None:
    """Suppress the tracebacks that py4j logs when Ctrl-C comes during a call of Java."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("KeyboardInterrupt")


def pipeline(name: str) -> Any:
    """Return a public name of the pipeline, whose packages the programs need only at its use.

    Raises:
        ConfigError: The extra is missing.
    """
    return getattr(importlib.import_module("wmp.spark"), name)


class _StepProgress:
    """Advances the progress bar."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self._done = 0

    def __call__(self, name: str, done: int, total: int) -> None:
        self._bar.know(total)
        self._bar.advance(done - self._done, name)
        self._done = done

    def rest(self) -> None:
        """Show that a report is made and the next one has not begun."""
        self._bar.advance(-self._done, "waiting for lines")
        self._done = 0


def print_outcome(report: _Report, *, as_json: bool = False) -> None:
    """Print the outcome of a report; the exit code is the same if nobody reads all of it."""
    try:
        _print_outcome(report, as_json=as_json)
        sys.stdout.flush()
    except CLOSED:
        drop_stdout()


def _print_outcome(report: _Report, *, as_json: bool) -> None:
    if as_json:
        print(_as_json(report))
        return
    numbers = report.result.summary
    if not numbers["lines"]:
        print("the journal is empty: it has no file *.jsonl with a readable line")
    else:
        back = numbers["leases handed back"] + numbers["leases refused"]
        lost = int(numbers["leases over"] - back)
        ends = (
            f"{numbers[f'jobs {end}']:.0f} {end}"
            for end in ("ok", "error", "cancelled", "timeout", "lost", "open")
            if numbers[f"jobs {end}"] or end == "ok"
        )
        print(
            f"{counted(int(numbers['lines']), 'line')} of "
            f"{counted(int(numbers['nodes']), 'process', 'processes')}, which cover "
            f"{numbers['seconds']:.1f} s: {counted(int(numbers['jobs']), 'job')}, "
            f"{', '.join(ends)}; {counted(lost, 'lease')} lost"
        )
        print(_violations_text(report))
        for finding in report.result.findings:
            unsure = "" if finding["certain"] else ", which gaps may explain"
            text = printable(finding["text"])
            print(f"  {finding['violations']} of {finding['name']}{unsure}: {text}")
    for name, singular, plural in (
        ("bad lines", "line could not be read", "lines could not be read"),
        ("lines missing", "line is missing", "lines are missing"),
        ("lines repeated", "line was there twice", "lines were there twice"),
        ("nodes missing", "process left no journal", "processes left no journal"),
        (
            "without an end",
            "process was killed or still runs, so its last lines are missing",
            "processes were killed or still run, so their last lines are missing",
        ),
        (
            "jobs partly known",
            "job is known only in part: no line shows its submission",
            "jobs are known only in part: no line shows their submission",
        ),
    ):
        if numbers[name]:
            notice = counted(int(numbers[name]), singular, plural)
            complain(_PROGRAM, f"{notice}; see the report for details")
    print(f"report: {_near(report.page)}, made in {report.seconds:.1f} s")


def _violations_text(report: _Report) -> str:
    certain, uncertain = report.result.violations, report.result.uncertain
    text = f"violations: {certain}"
    return text + (
        f", and {uncertain} more that may be due to gaps in the journals" if uncertain else ""
    )


def _as_json(report: _Report) -> str:
    return json.dumps(
        {
            "page": str(report.page),
            "violations": report.result.violations,
            "uncertain": report.result.uncertain,
            "findings": report.result.findings,
            "summary": report.result.summary,
        }
    )


def _near(page: Path | str) -> str:
    """Return the path relative to the current directory; a URL stays as it is."""
    here = Path.cwd()
    inside = isinstance(page, Path) and page.is_relative_to(here)
    return str(Path(page).relative_to(here)) if inside else str(page)
