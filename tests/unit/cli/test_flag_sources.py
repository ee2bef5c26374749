"""Flags from the environment and from a TOML file; log lines as JSON; watched sources."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from wmp.cli.common.entry_point import complain
from wmp.cli.common.flag_sources import given_by
from wmp.cli.common.options import ProgramCommand, ProgramGroup, verbose
from wmp.cli.device import command as device
from wmp.cli.map.command import map_command
from wmp.cli.worker.command import worker
from wmp.cli.worker.source_watch import SourceWatch
from wmp.errors import ConfigError
from wmp.runtime.executors.job_log import LOG_FORMAT, RUNNING, JsonFormatter

ROOT = Path(__file__).parents[3]


@click.group(cls=ProgramGroup)
def program() -> None:
    """Do things."""


@program.command(cls=ProgramCommand)
@click.argument("target", required=False)
@click.option("--connect", multiple=True)
@click.option("--resource", multiple=True)
@click.option("--drain-timeout", type=float, default=60.0)
@click.option("--json", "as_json", is_flag=True)
@click.option("--max-silence", type=float)
@click.option("--retries", type=int)
@click.pass_context
def run(context: click.Context, **given: Any) -> None:
    """Run."""
    context.obj.update(given, sources={name: given_by(context, name) for name in given})


def called(*arguments: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    program.main(["run", *arguments], prog_name="wmp", standalone_mode=False, obj=values)
    return values


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("WMP_RUN_", "WMP_CONFIG", "WMP_LOG", "WMP_WORKER_")):
            monkeypatch.delenv(name)
    # With this line the changes of a test to the variable are undone too.
    monkeypatch.setenv(LOG_FORMAT, "text")


def test_a_flag_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WMP_RUN_CONNECT", "tcp://a:1 tcp://b:2")
    monkeypatch.setenv("WMP_RUN_DRAIN_TIMEOUT", "5")
    monkeypatch.setenv("WMP_RUN_JSON", "1")
    monkeypatch.setenv("WMP_RUN_TARGET", "app:work")
    monkeypatch.setenv("WMP_RUN_HELP", "1")

    values = called()

    assert values["connect"] == ("tcp://a:1", "tcp://b:2")
    assert (values["drain_timeout"], values["as_json"], values["target"]) == (5.0, True, "app:work")
    assert values["sources"]["connect"] == "the environment"
    assert values["sources"]["resource"] is None


def test_a_flag_comes_from_a_file() -> None:
    Path("wmp.toml").write_text(
        '[run]\ntarget = "app:work"\nconnect = "tcp://a:1"\nresource = { gpu = 2, disk = 1 }\n'
        "drain-timeout = 5\njson = true\n[other]\nunknown = 1\n"
    )

    values = called("--config", "wmp.toml")

    assert (values["target"], values["connect"]) == ("app:work", ("tcp://a:1",))
    assert values["resource"] == ("gpu=2", "disk=1")
    assert (values["drain_timeout"], values["as_json"]) == (5.0, True)
    assert values["sources"]["connect"] == "the file of --config"


def test_a_time_of_a_file_needs_no_quotes() -> None:
    texts = {"2026-11-23": "2026-11-23", "2026-11-23T14:00:00Z": "2026-11-23T14:00:00+00:00"}
    for given, text in texts.items():
        Path("wmp.toml").write_text(f"[run]\ntarget = {given}\n")
        assert called("--config", "wmp.toml")["target"] == text


def test_the_command_line_comes_before_the_environment_and_the_file_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("wmp.toml").write_text('[run]\ndrain_timeout = 1\nconnect = ["c"]\ntarget = "file"\n')
    monkeypatch.setenv("WMP_CONFIG", "wmp.toml")
    monkeypatch.setenv("WMP_RUN_DRAIN_TIMEOUT", "2")
    monkeypatch.setenv("WMP_RUN_CONNECT", "b")

    values = called("--connect", "a")

    assert (values["connect"], values["drain_timeout"], values["target"]) == (("a",), 2.0, "file")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "cannot read wmp.toml: no such file"),
        ("[run", "wmp.toml is not TOML"),
        ("run = 3", r"run is 3; expected a table \[run\]"),
        ("json = true\n[run]", r"json is outside of a table; put the key below \[run\]"),
        ("[rune]\njson = true", r"\[rune\] is not a known table; did you mean \[run\]"),
        ("[run]\nconect = 'a'", "conect is not a known key; did you mean connect"),
        ("[run]\nzzz = 'a'", "zzz is not a known key; expected connect, drain-timeout"),
        ("[run]\nconfig = 'a'", "config is not a known key"),
        ("[run]\nexpire = 6", "expire is not a known key; it was renamed; write max-silence"),
        ("[run]\ntries = 2", "tries is not a known key; it was renamed; write retries"),
        ("[run]\njson = 1", "run.json is 1; expected true or false"),
        ("[run]\ndrain-timeout = true", "run.drain-timeout is True; expected text or a number"),
        ("[run]\nconnect = [[1]]", r"run.connect is \[1\]; expected text or a number, or a list"),
    ],
)
def test_a_wrong_file_is_an_error(text: str | None, error: str) -> None:
    if text is not None:
        Path("wmp.toml").write_text(text)

    with pytest.raises(ConfigError, match=error):
        called("--config", "wmp.toml")


@pytest.mark.parametrize(("old", "new"), [("tries", "retries"), ("expire", "max-silence")])
def test_the_error_for_a_renamed_flag_contains_the_new_name(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(click.UsageError, match=f"--{old} is not a known flag.*write --{new}$"):
        called(f"--{old}", "2")

    monkeypatch.setenv(f"WMP_RUN_{old.upper()}", "2")
    variable = f"WMP_RUN_{new.upper().replace('-', '_')}"
    with pytest.raises(ConfigError, match=f"WMP_RUN_{old.upper()} .*write {variable}$"):
        called()


def test_an_unknown_flag_without_a_new_name_stays_unknown() -> None:
    with pytest.raises(click.NoSuchOption, match="--keep"):
        called("--keep", "2")


def test_a_wrong_value_of_a_file_is_an_error_of_its_flag() -> None:
    Path("wmp.toml").write_text("[run]\ndrain-timeout = 'soon'\n")
    with pytest.raises(click.UsageError, match="'soon' is not a valid") as caught:
        called("--config", "wmp.toml")
    assert "--drain-timeout" in caught.value.format_message()


@pytest.mark.parametrize("name", ["WMP_RUN_DRAIN_TIMEOUT", "wmp.toml", "argument"])
def test_a_wrong_value_names_its_source(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("wmp.toml").write_text("[run]\ndrain-timeout = 'soon'\n")
    arguments = {"wmp.toml": ["--config", name], "argument": ["--drain-timeout", "soon"]}
    if name.startswith("WMP"):
        monkeypatch.setenv(name, "soon")

    with pytest.raises(click.UsageError, match="'soon' is not a valid") as caught:
        called(*arguments.get(name, []))

    source = {"wmp.toml": "the file of --config"}.get(name, name)
    end = caught.value.format_message().partition("; the value is from ")[2]
    assert end == ("" if name == "argument" else source)


def test_a_misspelt_variable_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WMP_RUN_DRAIN_TIMEOUTS", "5")
    monkeypatch.setenv("WMP_RUN_SERVICE_HOST", "10.0.0.1")

    assert called()["drain_timeout"] == 60

    assert capsys.readouterr().err == (
        "wmp: WMP_RUN_DRAIN_TIMEOUTS in the environment sets no flag; "
        "did you mean WMP_RUN_DRAIN_TIMEOUT\n"
    )


def test_the_file_of_the_deployment_fits_all_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    config = str(ROOT / "deploy" / "wmp.toml")
    for command, path in ((worker, "wmp worker"), (map_command, "wmp map"), (device, "wmp-device")):
        outer, _, name = path.rpartition(" ")
        parent = click.Context(click.Group(), info_name=outer) if outer else None
        context = command.make_context(name, ["--config", config], parent)
        assert context.default_map, path
        assert given_by(context, next(iter(context.default_map))) == "the file of --config"


def test_a_command_may_have_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    @click.command(cls=ProgramCommand)
    @click.option("--config")
    @click.option("--slots", type=int)
    def serve(config: str, slots: int) -> None:
        """Serve."""
        names.append(config)

    monkeypatch.setenv("SERVE_CONFIG", "mine.toml")
    serve.main([], prog_name="serve", standalone_mode=False)

    assert names == ["mine.toml"]
    shown = serve.get_help(serve.make_context("serve", []))
    assert "SERVE_SLOTS for --slots. The command line comes first." in " ".join(shown.split())


def test_the_help_names_the_variable_and_the_table() -> None:
    context = run.make_context("run", [], click.Context(program, info_name="wmp"))
    shown = " ".join(run.get_help(context).split())
    assert "WMP_RUN_CONNECT for --connect" in shown
    assert "'connect' in the table [run]" in shown


# -- log lines


def test_log_lines_are_json() -> None:
    class Lane:
        running, role = 7, "wc"

    def line(**options: Any) -> dict[str, Any]:
        record = logging.LogRecord("app", logging.WARNING, "f", 1, "two\n%s", ("lines",), **options)
        text = JsonFormatter().format(record)
        assert "\n" not in text
        return json.loads(text)  # type: ignore[no-any-return]

    plain = line(exc_info=None)
    assert set(plain) == {"time", "level", "logger", "message"}
    assert (plain["level"], plain["logger"], plain["message"]) == ("warning", "app", "two\nlines")
    assert plain["time"].endswith("+00:00")
    token = RUNNING.set(Lane())
    try:
        raise ValueError("bad")
    except ValueError:
        with_error = line(exc_info=sys.exc_info())
    finally:
        RUNNING.reset(token)
    assert (with_error["job"], with_error["role"]) == (7, "wc")
    assert "ValueError: bad" in with_error["error"]


def test_lines_of_programs_have_the_layout_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    complain("wmp", "one\nline")
    monkeypatch.setenv(LOG_FORMAT, "json")
    complain("wmp", "one\nline")

    plain, warning = capsys.readouterr().err.splitlines()
    assert plain == "wmp: one line"
    assert json.loads(warning)["message"] == "one line"


def test_the_layout_is_a_flag_and_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("wmp")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(logger, "level", logging.NOTSET)

    @click.command(cls=ProgramCommand)
    @verbose
    def talk() -> None:
        """Talk."""

    monkeypatch.setenv(LOG_FORMAT, "xml")
    with pytest.raises(click.UsageError, match=r"'xml' is not one of .* from WMP_LOG_FORMAT"):
        talk.main([], standalone_mode=False)

    talk.main(["--log-format", "json"], standalone_mode=False)

    assert os.environ[LOG_FORMAT] == "json"
    assert isinstance(logger.handlers[0].formatter, JsonFormatter)


# -- watched sources


def test_changes_of_the_modules_of_the_user_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    path = tmp_path / "watched_jobs.py"
    path.write_text("a = 1\n")
    # The folder is the current one, and not yet a folder of modules.
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    watch = SourceWatch("watched_jobs", lines.append)

    assert watch.look() is None
    path.write_text("a = 23\n")
    assert watch.look() == path
    assert watch.look() is None
    path.write_text("a = \n")
    assert not watch._check()
    assert "cannot be compiled" in lines[0]
    path.unlink()
    assert watch.look() is None
    path.write_text("a = 456\n")
    assert watch._check()
    assert watch.changed == path


def test_installed_modules_are_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = SourceWatch("json", print)
    assert not any("attr" in path.parts or path.parts[-2] == "json" for path in watch._seen)
    assert not any(path.is_relative_to(ROOT / "wmp") for path in watch._seen)
