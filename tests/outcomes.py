"""The outcome of each test of a run, for `.ci/run`; a plugin of pytest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

_WORST = ("passed", "skipped", "failed")
"""A test has a report for its setup, its call and its teardown. The last of these words counts."""


class Outcomes:
    """Writes the outcome of each test into a file, as JSON.

    The file has three members. ``status`` is the exit code of pytest. ``tests`` maps the name of
    each test to ``passed``, ``skipped`` or ``failed``. ``errors`` lists what could not be
    collected. If pytest itself crashes, there is no file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: dict[str, str] = {}
        self._errors: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._errors.append(report.nodeid)
        elif report.skipped:
            self._tests[report.nodeid] = "skipped"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        known = self._tests.get(report.nodeid, "passed")
        self._tests[report.nodeid] = max(known, report.outcome, key=_WORST.index)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        outcomes = {"status": int(exitstatus), "tests": self._tests, "errors": self._errors}
        self._path.write_text(json.dumps(outcomes), encoding="utf-8")
