"""`.ci/run` runs each failed test once more, alone, and names the tests that then pass."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import rerun
from tests.interop.programs.programs import ROOT
from tests.waiting import RUN

CONFTEST = """
import os
from pathlib import Path
from tests.outcomes import Outcomes

def pytest_configure(config):
    path = os.environ.pop("WMP_TEST_OUTCOMES", None)
    if path is not None:
        config.pluginmanager.register(Outcomes(Path(path)))
"""
TESTS = """
import os
from pathlib import Path
import pytest

def failed_before(name):
    try:
        Path(name).touch(exist_ok=False)
    except FileExistsError:
        return True
    return False

def test_always_fails():
    failed_before("always")
    assert False

@pytest.mark.parametrize("text", ["a b - c::d[e]"])
def test_fails_the_first_time(text):
    assert failed_before("first")

@pytest.fixture
def late():
    yield
    assert failed_before("teardown")

def test_passes_and_its_teardown_fails_the_first_time(late):
    pass

def test_fails_and_is_then_skipped():
    if failed_before("skipped"):
        pytest.skip("no reason to trust it")
    assert False

def test_passes():
    assert "WMP_TEST_OUTCOMES" not in os.environ  # a pytest that a test starts has no outcomes

def test_is_skipped():
    pytest.skip("always")
"""
UNSTEADY = [
    "test_lane.py::test_fails_the_first_time[a b - c::d[e]]",
    "test_lane.py::test_passes_and_its_teardown_fails_the_first_time",
]


class Lane:
    """A small project in a folder, and its outcomes."""

    def __init__(self, folder: Path, tests: str) -> None:
        self._folder = folder / "project"
        self._folder.mkdir()
        (self._folder / "conftest.py").write_text(CONFTEST)
        (self._folder / "test_lane.py").write_text(tests)
        self.totals = folder / "outcomes"
        self.totals.mkdir()
        self.outcomes = self.totals / "tests"

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        # Without the other plugins pytest starts in a third of the time.
        plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
        environ = {**os.environ, **plugins, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, *argv],
            cwd=self._folder,
            env={**environ, "WMP_TEST_OUTCOMES": str(self.outcomes)},
            capture_output=True,
            text=True,
            timeout=RUN,
        )

    def pytest(self, *argv: str) -> int:
        return self.run("-m", "pytest", *argv).returncode

    def again(self) -> subprocess.CompletedProcess[str]:
        return self.run(str(ROOT / "tests" / "rerun.py"), "again", str(self.outcomes))


def test_a_test_that_fails_twice_fails_the_lane_and_the_others_are_unsteady(
    tmp_path: Path,
) -> None:
    lane = Lane(tmp_path, TESTS)
    assert lane.pytest("-n", "2") == 1
    assert rerun.totals(lane.totals) == "1 passed, 4 failed, 1 skipped"

    ended = lane.again()

    assert ended.returncode == 1, ended.stdout
    assert "== rerun: test_lane.py::test_always_fails: failed\n" in ended.stdout
    assert "== rerun: test_lane.py::test_fails_and_is_then_skipped: skipped\n" in ended.stdout
    *unsteady, empty, total = rerun.totals(lane.totals).split("\n")[1:]
    assert sorted(unsteady) == [f"{name} (lane tests)" for name in UNSTEADY]
    assert (empty, total) == ("", "3 passed, 2 failed, 1 skipped")


def test_a_lane_succeeds_whose_failed_tests_all_pass_then(tmp_path: Path) -> None:
    lane = Lane(tmp_path, TESTS)
    chosen = ("-k", "first_time or passes or is_skipped")
    assert lane.pytest("-n", "0", *chosen) == 1

    ended = lane.again()

    assert ended.returncode == 0, ended.stdout
    assert rerun.totals(lane.totals).endswith("\n\n3 passed, 0 failed, 1 skipped")


def test_a_module_that_cannot_be_imported_fails_at_once(tmp_path: Path) -> None:
    lane = Lane(tmp_path, f"{TESTS}\nimport nothing_of_that_name\n")
    assert lane.pytest("-n", "2") != 0

    ended = lane.again()

    assert ended.returncode == 1
    assert "for another reason than a test" in ended.stdout
    assert "alone" not in ended.stdout
    assert rerun.totals(lane.totals) == "0 passed, 1 failed, 0 skipped"


def test_a_run_without_outcomes_fails_at_once(tmp_path: Path) -> None:
    lane = Lane(tmp_path, "import os\n\ndef test_crash():\n    os._exit(1)\n")
    assert lane.pytest("-n", "0") == 1

    ended = lane.again()

    assert (ended.returncode, lane.outcomes.exists()) == (1, False)
    assert "pytest left no outcomes" in ended.stdout


@pytest.mark.parametrize(
    ("status", "failed", "reason"),
    [
        (2, 1, "pytest ended with 2, for another reason than a test"),
        (1, 0, "pytest ended with 1, for another reason than a test"),
        (1, rerun.MOST + 1, "21 tests failed; no more than 20 are run once more"),
    ],
)
def test_other_failures_are_not_tried_again(
    status: int, failed: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "outcomes"
    tests = {f"test_x.py::test_{number}": "failed" for number in range(failed)}
    path.write_text(json.dumps({"status": status, "tests": tests, "errors": []}))

    assert rerun.again(path) == 1
    assert reason in capsys.readouterr().out


def test_every_pytest_of_the_lanes_runs_its_failed_tests_again() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for name in re.findall(r"^lane (\w+) ", script, re.MULTILINE):
        body = script.partition(f"\nlane_{name}() {{\n")[2].partition("\n}\n")[0]
        (*interpreters,) = re.findall(r"(\S+/python) -m pytest", body)
        # A lane has one file of outcomes, so it runs pytest once.
        assert len(interpreters) <= 1
        assert re.findall(r"\|\| again (\S+)", re.sub(r"\s+", " ", body)) == interpreters
