"""The pages of guarantees and security name existing tests and invariants, and every invariant."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from wmp.checks.job_history import INVARIANTS
from wmp.testing.simulator.faults import Fault

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "specs" / "guarantees.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "specs" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+::\w+)`", PAGE + SECURITY)))


@cache
def defined_in(path: Path) -> set[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_every_test_it_names_is_there():
    assert len(NAMED) > 20
    missing = []
    for name in NAMED:
        path, _, test = name.partition("::")
        if not (ROOT / path).exists() or test not in defined_in(ROOT / path):
            missing.append(name)
    assert not missing


def test_every_promise_has_a_test():
    promised = PAGE.partition("## Not promised")[0]
    rows = [line for line in promised.splitlines() if line.startswith("|") and "---" not in line]
    promises = [row for row in rows if "held by" not in row]
    assert len(promises) > 20
    test = re.compile(r"`tests/[\w/.]+::\w+`|the same")
    held = {row: test.search(row.rsplit("|", 2)[1]) for row in promises}
    assert all(held.values()), [row for row, passes in held.items() if not passes]


def test_it_names_every_invariant_and_no_other():
    promised = PAGE.partition("## While")[2]
    assert set(re.findall(r'(?<!=)"([a-z ]+)"', promised)) == set(INVARIANTS)


def test_the_page_has_the_number_of_kinds_of_faults():
    assert "the twenty kinds" in PAGE
    assert len(Fault) == 20
