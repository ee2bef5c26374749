"""The page of situations has 42 rows, each with a test that exists."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house import ROOT

PAGE = (ROOT / "docs" / "situations.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| situation")
]
NAME = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_the_page_has_the_rows_of_its_title() -> None:
    assert PAGE.startswith("# Forty-two situations\n")
    assert len(ROWS) == 42
    assert len({row[0] for row in ROWS}) == 42


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_every_row_names_what_happens_and_a_test_that_exists(row: list[str]) -> None:
    _, fact, test = row
    assert fact.endswith(".")
    path, name = NAME.fullmatch(test.rstrip(" |")).groups()  # type: ignore[union-attr]
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_other_pages_lead_to_the_page() -> None:
    for page in ("README.md", "docs/map.md"):
        assert "situations.md" in (ROOT / page).read_text(encoding="utf-8")
