"""The output of a run on a terminal."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from wmp.conformance.report.report import ConformanceReport, ReportEntry
from wmp.conformance.script.case import Case, Verdict
from wmp.conformance.script.rules import RULES
from wmp.conformance.script.transcript import conversation, excerpt
from wmp.message import counted

_STYLES: Final = {
    Verdict.OK: "green",
    Verdict.NON_STRICT: "yellow",
    Verdict.UNIMPLEMENTED: "dim",
    Verdict.INFORMATIONAL: "cyan",
    Verdict.FAILED: "bold red",
    Verdict.UNCLEAN: "magenta",
    Verdict.VOID: "dim yellow",
}
_OFTEN: Final = 10.0
"""Seconds between two lines of progress where there is no terminal."""
_LINES: Final = 40
"""Number of the last lines of a conversation that are shown, because the breach is at the end."""
_STDERR_LINES: Final = 8
"""Number of the last lines of a testee's stderr that are shown."""


class Progress:
    """Progress on stderr, in a ``with`` block: a bar on a terminal, lines elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bad = 0
        self._printed_at = time.monotonic()
        self._done = 0
        self._bar: RichProgress | None = None
        if sys.stderr.isatty():
            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task("starting it", total=total)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, done: int) -> None:
        """Show that this number of steps is done."""
        self._done = done
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def ended(self, entry: ReportEntry) -> None:
        """Show the end of a case."""
        if entry.unwell:
            self._bad += 1
            self._print(f"{entry.verdict.value} {', '.join(entry.breaks)} in {entry.case}")
        if self._bar is not None:
            self._bar.update(self._task, description=entry.case)
        elif time.monotonic() - self._printed_at > _OFTEN:
            self._printed_at = time.monotonic()
            self._print(f"{self._done} of {self._total} cases played, {self._bad} failed")

    def _print(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.out(line, highlight=False)
        else:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def _console() -> Console:
    # Without a terminal a table is as wide as its content.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def show(report: ConformanceReport) -> None:
    """Print the report: failures with their conversations, then the rules by verdict."""
    console = _console()
    for entry in report.entries:
        if entry.unwell:
            _show_failure(console, report, entry)
    if len(report.entries) > 1:
        console.print(_table(report))
    _show_reasons(console, report)
    show_summary(report)


def _show_failure(console: Console, report: ConformanceReport, entry: ReportEntry) -> None:
    style = _STYLES[entry.verdict]
    rules = ", ".join(entry.breaks) or entry.rules[0]
    console.print(f"[{style}]{entry.verdict.value}[/] {rules} in {entry.case}", soft_wrap=True)
    for rule in entry.breaks:
        console.print(f"  {rule}: {escape(RULES[rule].text)}", soft_wrap=True)
    console.print(f"  the case: {escape(entry.about)}", soft_wrap=True)
    console.print(f"  observed: [bold]{escape(entry.text)}[/]", soft_wrap=True)
    left_out = len(entry.lines) - _LINES
    if left_out > 0:
        console.print(
            f"  … {left_out} earlier lines are not shown; reports by --html and --json have all "
            "lines"
        )
    for line in conversation(excerpt(entry.lines, _LINES), report.testee).splitlines():
        console.out(f"  {line}", highlight=False)
    for line in entry.stderr.splitlines()[-_STDERR_LINES:]:
        console.out(f"  stderr: {line}", highlight=False)
    console.print(f"  play it again: {escape(report.replay(entry))}\n", soft_wrap=True)


def _show_reasons(console: Console, report: ConformanceReport) -> None:
    """Print the informational results, and the reasons for cases that were not played."""
    for entry in report.entries:
        if entry.verdict is Verdict.INFORMATIONAL:
            style = _STYLES[entry.verdict]
            console.print(f"[{style}]{entry.rules[0]}[/] {escape(entry.text)}", soft_wrap=True)
    style = _STYLES[Verdict.VOID]
    for entry in report.entries:
        if entry.verdict is Verdict.VOID:
            again = f"play it again: {report.replay(entry)}"
            console.print(
                f"[{style}]VOID[/] {entry.case}: {escape(entry.text)}; {escape(again)}",
                soft_wrap=True,
            )
    style = _STYLES[Verdict.UNIMPLEMENTED]
    why = Counter(e.text for e in report.entries if e.verdict is Verdict.UNIMPLEMENTED)
    for text, count in why.most_common():
        console.print(
            f"[{style}]{counted(count, 'case')} not played:[/] {escape(text)}", soft_wrap=True
        )


def _table(report: ConformanceReport) -> Table:
    table = Table(title=f"{report.name}, a {report.testee}", title_justify="left", box=None)
    table.add_column("verdict")
    table.add_column("rules", justify="right")
    table.add_column("cases", justify="right")
    table.add_column("rules by number", overflow="fold")
    rules = report.rules()
    for verdict in reversed(Verdict):
        ids = [rule for rule, (seen, _) in rules.items() if seen is verdict]
        count = report.count(verdict)
        if ids or count:
            style = _STYLES[verdict]
            table.add_row(
                f"[{style}]{verdict.value}[/]", str(len(ids)), str(count), _shortened(ids)
            )
    unseen = [rule for rule, (seen, _) in rules.items() if seen is None]
    if unseen and report.whole:
        table.add_row("not checked", str(len(unseen)), "", _shortened(unseen))
    return table


def _shortened(rules: Sequence[str]) -> str:
    """``3.1 3.2 4.1``: the numbers of rules, without their prefix."""
    return " ".join(rule.removeprefix("WMP-") for rule in rules)


def show_summary(report: ConformanceReport) -> None:
    """Print the outcome in one line."""
    console = _console()
    style = "green" if report.conforms else "bold red"
    part = "" if report.whole else f" ({len(report.entries)} of all cases)"
    console.print(
        f"{report.name}, a {report.testee}: [{style}]{report.outcome}[/]{part}; "
        f"unit {report.unit} ms, seed {report.seed}, {report.seconds:.0f} s",
        soft_wrap=True,
    )


def show_cases(cases: Iterable[Case]) -> None:
    """Print the cases."""
    table = Table(box=None)
    for name in ("case", "rules", "profile", "level"):
        table.add_column(name, no_wrap=True)
    table.add_column("about", overflow="fold")
    for case in cases:
        table.add_row(case.id, " ".join(case.rules), case.profile, case.level, escape(case.about))
    _console().print(table)
