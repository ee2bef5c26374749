"""The kit as a pytest plugin: real runs of pytest in this process, each case a test."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_program import BAD, GOOD
from wmp.conformance.cases import load

pytest_plugins = "pytester"
pytestmark = pytest.mark.interop

load()  # a run first forgets its imports, but each case must be registered only once

ROOT = Path(__file__).resolve().parents[2]
# By the module's name, so that the plugin of this source tree runs even if another is installed.
PLUGIN = ("-p", "no:wmp-conformance", "-p", "wmp.conformance.plugin", "-p", "no:cacheprovider")


@pytest.fixture
def run(pytester: pytest.Pytester) -> Any:
    """Run pytest on the kit."""

    def run(*options: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*PLUGIN, "--pyargs", "wmp.conformance", *options)

    return run


def test_each_case_is_a_test(run: Any) -> None:
    words = ("--wmp-role", "worker", "--wmp-command", GOOD)
    result = run("-v", *words, "--wmp-rule", "WMP-4.10", "--wmp-rule", "WMP-3.8")

    outcomes = result.parseoutcomes()
    assert set(outcomes) == {"passed"}
    assert outcomes["passed"] >= 2
    result.stdout.fnmatch_lines(["*test_peer[[]worker/no-releases*] PASSED*"])


def test_a_broken_rule_is_a_failure_with_its_conversation(run: Any) -> None:
    words = ("--wmp-role", "worker", "--wmp-command", BAD, "--wmp-rule", "WMP-4.10")
    result = run(*words)

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["FAILED *WMP-4.10*", "*m1 → worker*NO *", "here I am", "play it again: wmp-conformance *"]
    )


def test_cases_of_missing_profiles_are_skipped(run: Any) -> None:
    words = ("--wmp-role", "worker", "--wmp-command", GOOD, "--wmp-rule", "WMP-5.1")
    result = run(*words, "--wmp-without", "held-give", "-rs")

    assert result.ret == 0
    assert set(result.parseoutcomes()) == {"skipped"}
    result.stdout.fnmatch_lines(
        ["*UNIMPLEMENTED: the testee does not implement the profile held-give*"]
    )


def test_a_missing_role_is_reported(run: Any) -> None:
    result = run("-rs")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["*the options name no peer; add --wmp-role worker*"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--wmp-role", "worker"), "*the command line names no worker; add --command*"),
        (("--wmp-role", "waiter"), "*invalid choice: 'waiter'*"),
        (
            ("--wmp-role", "worker", "--wmp-command", GOOD, "--wmp-without", "core"),
            "*cannot leave out the profile 'core'; expected one of columns,*",
        ),
        (
            ("--wmp-role", "worker", "--wmp-command", GOOD, "--wmp-rule", "WMP-99.1"),
            "*there is no rule WMP-99.1*",
        ),
    ],
)
def test_bad_options_are_a_usage_error(run: Any, words: tuple[str, ...], text: str) -> None:
    result = run(*words)

    assert result.ret == 4
    result.stderr.fnmatch_lines([text])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_the_plugin_is_an_entry_point() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")

    points = config["options.entry_points"]["pytest11"]
    assert "wmp-conformance = wmp.conformance.plugin" in points


def test_the_plugin_loads_nothing_until_it_is_used(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile("""
        import sys

        def test_nothing_is_there():
            loaded = {name for name in sys.modules if name.startswith("wmp.conformance")}
            assert loaded == {"wmp.conformance", "wmp.conformance.plugin"}
        """)
    result = pytester.runpytest_subprocess(*PLUGIN)

    assert result.parseoutcomes() == {"passed": 1}, result.stdout.str()
