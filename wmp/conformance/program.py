"""The program ``wmp-conformance``: test a live peer, in any language, against the specification."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import evolve

import wmp
from wmp.cli.common.entry_point import FAILED
from wmp.cli.common.options import ProgramCommand, ProgramGroup, version
from wmp.conformance.engine.run import RunPlan
from wmp.conformance.engine.selection import check, choose, failed, name_of, play_plan, spoken
from wmp.conformance.engine.socket_plays import LiveTestee
from wmp.conformance.report.junit import junit as make_junit
from wmp.conformance.report.page import badge as make_badge
from wmp.conformance.report.page import page as make_page
from wmp.conformance.report.report import ConformanceReport, read
from wmp.conformance.report.terminal import show, show_cases, show_summary
from wmp.conformance.script.rules import PROFILES
from wmp.errors import ConfigError

_UNIT: Final = 200
_EXAMPLES: Final = 20

_F = TypeVar("_F", bound=Callable[..., Any])


def _may_write(
    context: click.Context, parameter: click.Parameter, file: Path | None
) -> Path | None:
    """Report before the run that a file cannot be written."""
    if file is not None:
        try:
            file.open("a").close()
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error.strerror}") from None
    return file


@click.group(
    cls=ProgramGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
    wmp-conformance worker --command "./my-worker {endpoint}"
    wmp-conformance worker --command "./my-worker {endpoint}" --rule WMP-4.9 --json found.json
    wmp-conformance worker --replay found.json
    wmp-conformance compare mine.json yours.json --html matrix.html
    """,
)
@version
def command() -> None:
    """Test a peer of the Worker-Manager Protocol against its specification.

    The peer is a program in any language. The kit starts the peer anew for every case and plays
    the other side, with correct and with wrong messages. specs/testee.md states what the peer
    must offer. Exit codes: 0 the peer conforms, 1 it does not, 2 wrong usage.
    """


def _output(name: str, text: str, **settings: Any) -> Callable[[_F], _F]:
    path = click.Path(dir_okay=False, path_type=Path)
    return click.option(
        f"--{name}", type=path, metavar="FILE", help=text, callback=_may_write, **settings
    )


def _outputs(function: _F) -> _F:
    for name, text in (
        ("badge", "Write a badge (SVG) to this file."),
        ("html", "Write a page (HTML): the rules, and each failure with its conversation."),
        ("junit", "Write JUnit XML: a test case for each case."),
    ):
        function = _output(name, text)(function)
    return function


def _make(testee: str) -> click.Command:
    words = {
        "manager": "{endpoint} is the address that the manager binds, {connect} the addresses of "
        "devices to which the manager dials in",
        "worker": "{endpoint} is the address to connect to, {slots} the number of jobs at once",
        "device": "{bind} is the address that the device binds, {connect} the address to connect "
        "to, {managers} the address to bind for managers that dial in",
    }[testee]
    wishes = {
        "manager": "./my-manager {endpoint} --unit {unit}",
        "worker": "./my-worker {endpoint} --slots {slots} --unit {unit}",
        "device": "./my-device {bind} {connect}",
    }[testee]

    @click.command(
        name=testee,
        cls=ProgramCommand,
        help=f"Test a {testee} against the specification.",
        epilog=f"""
        wmp-conformance {testee} --command "{wishes}" --html found.html
        wmp-conformance {testee} --list
        """,
    )
    @click.option(
        "--command", metavar="COMMAND", help=f"Start the {testee} by this command: {words}."
    )
    @click.option(
        "--endpoint",
        metavar="ADDRESS",
        help=f"Address of a {testee} that runs already; with --command, the address to use.",
    )
    @click.option(
        "--unit",
        type=click.IntRange(10, 60_000),
        metavar="MS",
        help="Milliseconds that one second of the specification's timers takes; replaces {unit} in "
        f"the command. Default: {_UNIT}, or 1000 if the command has no {{unit}}.",
    )
    @click.option("--name", metavar="NAME", help=f"Name of the {testee} in reports.")
    @click.option(
        "--profile",
        "profiles",
        type=click.Choice(PROFILES),
        multiple=True,
        help="Test only the core and this profile; repeat the option for more.",
    )
    @click.option(
        "--without",
        type=click.Choice(PROFILES[1:]),
        multiple=True,
        help="Do not test this profile; repeat the option for more.",
    )
    @click.option("--strict", is_flag=True, help="Count a broken SHOULD as a failure.")
    @click.option(
        "--rule",
        "rules",
        multiple=True,
        metavar="WMP-4.3",
        help="Play only the cases of this rule; repeat the option for more.",
    )
    @click.option(
        "--case",
        "cases",
        multiple=True,
        metavar="ID",
        help="Play only this case; repeat the option for more.",
    )
    @click.option("--list", "listing", is_flag=True, help="List the cases, and exit.")
    @click.option(
        "--examples",
        type=click.IntRange(0, 100_000),
        metavar="N",
        help=f"Number of randomly drawn conversations besides the cases; {_EXAMPLES}.",
    )
    @click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Seed of the drawn conversations.",
    )
    @click.option(
        "--at-once",
        type=click.IntRange(1, 64),
        metavar="N",
        help=(
            "Number of cases that are played at the same time; default: the number of processors, "
            "at most 4."
        ),
    )
    @click.option(
        "--replay",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Play the failed cases of a --json report again.",
    )
    @_output("json", "Write the report as JSON.")
    @_outputs
    def held(**wishes: Any) -> int:
        return _hold(testee, **wishes)

    return held


def _hold(
    testee: str,
    *,
    command: str | None,
    endpoint: str | None,
    unit: int | None,
    name: str | None,
    profiles: Sequence[str],
    without: Sequence[str],
    strict: bool,
    rules: Sequence[str],
    cases: Sequence[str],
    listing: bool,
    examples: int | None,
    seed: int,
    at_once: int | None,
    replay: Path | None,
    json: Path | None,
    **files: Path | None,
) -> int:
    chosen, draws = choose(testee, rules, cases)
    if listing:
        show_cases(chosen)
        return 0
    moves: list[Any] = []
    if replay is not None:
        before = read(replay)
        again = failed(before, testee, replay, cases)
        command, endpoint = command or before.command, endpoint or before.endpoint
        unit, name = unit or before.unit, name or before.name
        strict = strict or before.strict
        profiles = profiles or before.profiles
        chosen = [case for case in chosen if case.id in {entry.case for entry in again}]
        moves = [entry.moves for entry in again if entry.drawn]
        draws = False
    check(testee, command, endpoint)
    live = LiveTestee(testee, command, endpoint, unit or _UNIT)
    speaks = spoken(testee, profiles, without)
    plan = RunPlan(
        live,
        chosen,
        (_EXAMPLES if examples is None else examples) if draws else 0,
        seed,
        speaks,
        moves,
        1 if command is None else at_once or min(4, os.cpu_count() or 1),
    )
    report = ConformanceReport(
        testee,
        name or name_of(command, endpoint),
        command,
        endpoint,
        live.own_unit,
        strict,
        seed,
        plan.examples,
        tuple(profile for profile in PROFILES if profile in speaks),
        datetime.now(UTC).isoformat(timespec="seconds"),
        kit=wmp.__version__,
        whole=not (rules or cases or replay or plan.examples == 0),
    )
    report, stopped = play_plan(plan, report)
    source = json or replay
    report = evolve(report, file=None if source is None else str(source))
    show(report)
    if json is not None:
        json.write_text(report.dumps(), encoding="utf-8")
    _write([report], **files)
    if stopped:
        return stopped
    return 0 if report.conforms else FAILED


def _write(
    reports: Sequence[ConformanceReport],
    *,
    html: Path | None = None,
    junit: Path | None = None,
    badge: Path | None = None,
) -> None:
    if html is not None:
        html.write_text(make_page(reports), encoding="utf-8")
    if junit is not None:
        junit.write_text(make_junit(reports), encoding="utf-8")
    if badge is not None:
        badge.write_text(make_badge(reports[0]), encoding="utf-8")


@click.command(
    cls=ProgramCommand, epilog="wmp-conformance compare mine.json yours.json --html matrix.html"
)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="REPORT…",
)
@_output("html", "Write the page (HTML) to this file.", required=True)
@_output("junit", "Write JUnit XML: a suite for each report.")
def compare(files: Sequence[Path], html: Path, junit: Path | None) -> int:
    """Put several reports on one page: each rule, and the verdict on each peer.

    Reports are files that --json wrote. They may be about managers, workers and devices.
    """
    reports = [read(file) for file in files]
    _write(reports, html=html, junit=junit)
    for report in reports:
        show_summary(report)
    return 0 if all(report.conforms for report in reports) else FAILED


for _testee in ("manager", "worker", "device"):
    command.add_command(_make(_testee))
command.add_command(compare)
