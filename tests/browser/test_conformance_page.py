"""The page of the conformance kit in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from tests.browser.conftest import Browser
from tests.conformance import broken_workers  # noqa: F401 - it registers broken workers
from tests.conformance.broken_peers import BROKEN_PEERS, Bent
from wmp.conformance.engine.check import cases_for, run_all
from wmp.conformance.report.page import page
from wmp.conformance.report.report import ConformanceReport, entry_of
from wmp.conformance.testees.library_testees import LibraryManager, LibraryWorker

RULE = "WMP-4.9"


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Make the page for a good manager and a worker that breaks a rule."""
    peer = next(a for a in BROKEN_PEERS if a.testee == "worker" and a.rule == RULE)

    def make(terms: Any) -> Bent:
        return Bent(LibraryWorker.of(terms), peer.bend(terms=terms))

    worker = run_all(make, cases_for("worker", rules=[RULE]))
    manager = run_all(LibraryManager.of, cases_for("manager", rules=["WMP-4.4"]))
    reports = [
        ConformanceReport(
            "manager", "ours", "./ours", entries=tuple(entry_of(r, 1.0) for r in manager)
        ),
        ConformanceReport(
            "worker", "deaf", "./deaf", entries=tuple(entry_of(r, 1.0) for r in worker)
        ),
    ]
    reports[1] = evolve(reports[1], file="found.json")
    path = tmp_path / "matrix.html"
    path.write_text(page(reports), encoding="utf-8")
    return path


SEE = """(() => {
  const visible = (element) => element.getClientRects().length > 0;
  const row = document.getElementById("WMP-4.9");
  const talk = document.querySelector("details.conversation.failed");
  const drawing = talk.querySelector("svg.sequence");
  const text = getComputedStyle(drawing.querySelector("text.broken"));
  return {
    rows: [...document.querySelectorAll("tr.rule")].filter(visible).length,
    columns: [...document.querySelectorAll("thead th a")].map((head) => head.textContent),
    cells: [...row.cells].slice(2).map((cell) => cell.className),
    link: row.querySelector("td.failed a").getAttribute("href"),
    talk: "#" + talk.id,
    open: talk.open,
    width: drawing.getBoundingClientRect().width,
    height: drawing.getBoundingClientRect().height,
    arrows: drawing.querySelectorAll("path").length,
    heads: [...drawing.querySelectorAll(".head")].map((head) => head.textContent),
    fill: text.fill,
    command: talk.querySelector("pre.command").textContent,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    errors: document.querySelectorAll("parsererror").length,
  };
})()"""


def test_rules_a_diagram_and_the_command_are_there(browser: Browser, matrix: Path) -> None:
    seen = browser.ask(matrix, SEE)

    assert seen["columns"] == ["ours", "deaf"]
    assert seen["rows"] > 80
    assert seen["cells"] == ["none", "failed"]
    assert seen["link"] == seen["talk"]
    assert seen["open"] is True
    assert seen["width"] > 600
    assert seen["height"] > 100
    assert seen["arrows"] > 3
    assert seen["heads"][0] == "worker"
    assert seen["command"].startswith("wmp-conformance worker --replay found.json --case worker/")
    assert seen["overflow"] <= 0
    assert seen["errors"] == 0


def test_rows_can_be_sifted(browser: Browser, matrix: Path) -> None:
    rows = browser.ask(
        matrix,
        """(() => {
          for (const box of document.querySelectorAll("#legend input"))
            if (box.dataset.shows !== "failed") box.click();
          return [...document.querySelectorAll("tr.rule")]
            .filter((row) => row.getClientRects().length > 0).map((row) => row.id);
        })()""",
    )

    assert "WMP-4.9" in rows
    assert len(rows) < 4


def test_it_has_a_look(browser: Browser, matrix: Path, tmp_path: Path) -> None:
    png = browser.picture(matrix, tmp_path / "matrix.png")

    # A screenshot of an empty page has a tenth of these bytes.
    assert len(png.read_bytes()) > 20_000
