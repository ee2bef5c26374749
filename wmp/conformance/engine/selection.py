"""The selection of cases by ``wmp-conformance``, and the run to its end or to Ctrl-C."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from attrs import evolve

from wmp.cli.common.entry_point import INTERRUPTED, SIGNALLED
from wmp.conformance.engine.check import cases_for
from wmp.conformance.engine.run import KitRun, RunPlan, begins, drawn_id, known
from wmp.conformance.report.report import ConformanceReport, ReportEntry
from wmp.conformance.report.terminal import Progress
from wmp.conformance.script.case import Case
from wmp.conformance.script.rules import PROFILES, RULES, UNTESTABLE
from wmp.errors import ConfigError
from wmp.runtime.sockets.endpoints import check_endpoints


def choose(testee: str, rules: Sequence[str], cases: Sequence[str]) -> tuple[list[Case], bool]:
    """Select (scripts, whether conversations are drawn)."""
    for rule in rules:
        if rule not in RULES:
            raise ConfigError(
                f"there is no rule {rule}; specs/wmp.md has the rules, for example WMP-4.9"
            )
        if not cases_for(testee, rules=[rule]):
            why = UNTESTABLE.get((testee, rule), f"the rule does not bind a {testee}")
            raise ConfigError(f"no case for a {testee} tests {rule}: {why}")
    chosen = cases_for(testee, rules=rules)
    if not cases:
        return chosen, not rules
    named, drawn = set(), drawn_id(testee)
    for id in cases:
        case = known(testee, id)
        if id in (drawn, drawn.partition("/")[2]):
            named.add(drawn)
        elif case is None or case.testee != testee:
            raise ConfigError(
                f"there is no case {id} for a {testee}; "
                f"`wmp-conformance {testee} --list` shows the cases"
            )
        else:
            named.add(case.id)
    return [case for case in chosen if case.id in named], drawn in named


def failed(
    before: ConformanceReport, testee: str, file: Path, cases: Sequence[str]
) -> list[ReportEntry]:
    """Return the entries of a report to play again.

    Raises:
        ConfigError: The report has no such entry, or is about another kind of testee.
    """
    if before.testee != testee:
        raise ConfigError(
            f"{file} is a report about a {before.testee}; expected one about a {testee}"
        )
    named = {id if "/" in id else f"{testee}/{id}" for id in cases}
    failed = [entry for entry in before.entries if entry.unwell or entry.replays]
    if any(entry.begins for entry in failed):
        raise ConfigError(
            f"the {testee} of {file} did not start, so no case was played; run this command "
            "without --replay"
        )
    entries = [entry for entry in failed if not named or entry.case in named]
    if not entries:
        raise ConfigError(
            f"{file} has no failed case among the chosen cases, so there is nothing to play again"
        )
    return entries


def check(testee: str, command: str | None, endpoint: str | None) -> None:
    """Check that a command or an endpoint names the testee.

    Raises:
        ConfigError: Both are missing, or one of them is invalid.
    """
    if command is None and endpoint is None:
        words = "{bind} {connect}" if testee == "device" else "{endpoint}"
        raise ConfigError(
            f'the command line names no {testee}; add --command "./my-{testee} {words}", or '
            f"--endpoint tcp://127.0.0.1:PORT if the {testee} runs already; see wmp-conformance "
            f"{testee} "
            "--help"
        )
    if endpoint is not None:
        check_endpoints([endpoint], bind=False, security=None)
    if command is None:
        return
    try:
        words_of = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"cannot split the command {command!r} into words: {error}") from None
    if not words_of:
        raise ConfigError("the command is empty; expected a program and its arguments")
    needed = ("{bind}", "{connect}") if testee == "device" else ("{endpoint}",)
    for word in needed:
        if word not in command and not (endpoint and endpoint in command):
            raise ConfigError(
                f"the command lacks {word}, which gives the {testee} its address: {command!r}"
            )


def spoken(testee: str, profiles: Sequence[str], without: Sequence[str]) -> list[str]:
    """Return the profiles to test: the named ones, or all for this kind of testee."""
    always = {"core", "device"} if testee == "device" else {"core"}
    there = {case.profile for case in cases_for(testee)} | always
    named = set(profiles) | always if profiles else there
    return [profile for profile in PROFILES if profile in named & there and profile not in without]


def name_of(command: str | None, endpoint: str | None) -> str:
    """Make a name for a testee from its command or endpoint."""
    if command is None:
        return endpoint or "?"
    words = [word for word in shlex.split(command) if "{" not in word and word[:1] != "-"]
    # The name of a script is better than the name of its interpreter.
    named = [word for word in words if "." in Path(word).name and not word.startswith("/usr")]
    return Path((named or words)[0]).name


class _SigtermCaught(BaseException):
    """SIGTERM has arrived."""


def play_plan(plan: RunPlan, report: ConformanceReport) -> tuple[ConformanceReport, int]:
    """Play a plan; return (report of the played cases, exit code if stopped or 0)."""
    began, entries, stopped = time.monotonic(), [], 0
    order = {case.id: at for at, case in enumerate(plan.cases)}

    def end(number: int, frame: FrameType | None) -> None:
        # A second signal is ignored, because the testees are already being ended.
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_IGN)
        raise _SigtermCaught if number == signal.SIGTERM else KeyboardInterrupt

    before = {signum: signal.signal(signum, end) for signum in (signal.SIGTERM, signal.SIGINT)}
    progress = Progress(plan.size)
    try:
        with progress:
            if plan.size > 1:
                first = begins(plan.live)
                if first.unwell:
                    return evolve(report, entries=(first,), whole=False), 0
            for entry in KitRun(plan, progress.advance):
                entries.append(entry)
                progress.ended(entry)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot run {report.command!r}: {error}") from None
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    except _SigtermCaught:
        stopped = SIGNALLED + signal.SIGTERM
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    entries.sort(key=lambda entry: order.get(entry.case, len(order)))
    seconds = round(time.monotonic() - began, 3)
    whole = report.whole and not stopped
    return evolve(report, entries=tuple(entries), seconds=seconds, whole=whole), stopped
