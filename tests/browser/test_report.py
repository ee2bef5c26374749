"""The page of the pipeline's report in a browser."""

from __future__ import annotations

import importlib.util
import os

import pytest

if importlib.util.find_spec("pyspark") is None:
    if os.environ.get("WMP_REQUIRE_SPARK", "") not in ("", "0"):
        pytest.fail("WMP_REQUIRE_SPARK is set, and pyspark is not installed", pytrace=False)
    pytest.skip(
        "pyspark not installed; run: pip install -e '.[test,spark]'", allow_module_level=True
    )

from tests.spark.reports.pages import EVIL, example_report
from wmp.spark.reports.page import page

pytestmark = pytest.mark.spark

SEEN = """(() => {
  const box = one => one.getBoundingClientRect(), all = s => [...document.querySelectorAll(s)];
  return {
    title: document.title, verdict: document.getElementById('verdict').innerText,
    colour: getComputedStyle(document.getElementById('verdict')).color,
    pictures: all('#processes svg, #violations svg').map(one =>
      [box(one).width > 300, box(one).height > 30]),
    words: document.body.innerText, images: all('img, script[src], link').length,
    arrows: all('#violations line.arrow').length, wide: document.documentElement.scrollWidth,
    charts: all('.chart').map(one => [one.id, one.querySelectorAll('svg').length > 0]),
    roles: all('#chart-load .yaxislayer-above text').map(one => one.textContent),
    cells: all('#chart-phases .hm image').map(one =>
      [box(one).width > 300, one.href.baseVal.slice(0, 10)]),
    rows: all('#processes text.name').map(one => one.lastChild.data),
  }
})()"""


@pytest.fixture
def report_page(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page(example_report()), encoding="utf-8")
    return path


def test_a_browser_shows_all_of_it(browser, report_page):
    seen = browser.ask(report_page, SEEN)

    assert seen["title"] == "wmp report"  # not the title that the hostile node name tries to set
    assert EVIL in seen["words"]
    assert seen["images"] == 0
    assert seen["verdict"] == "1 violation found"
    # Red, in the light or the dark scheme.
    assert seen["colour"] in ("rgb(220, 38, 38)", "rgb(248, 113, 113)")
    assert len(seen["pictures"]) == 2
    assert all(wide and high for wide, high in seen["pictures"])
    assert seen["rows"] == ["m", "d", f"{EVIL[:21]}…", "w1"]
    assert seen["arrows"] == 1
    assert dict(seen["charts"]) == {
        f"chart-{name}": True
        for name in ("load", "phases", "percentiles", "total", "queue-wait", "handler")
    }
    assert seen["roles"] == ["count", EVIL]  # as text, which Plotly did not take for tags
    assert seen["cells"] == [[True, "data:image"]]


NARROW = """(() => {
  document.body.style.width = '420px'
  const broken = cell => {
    const range = document.createRange()
    range.selectNodeContents(cell)
    return new Set([...range.getClientRects()].map(one => one.top)).size > 1
  }
  return {
    timeline: document.querySelector('#processes svg').getBoundingClientRect().width,
    broken: [...document.querySelectorAll('.n')].filter(broken).map(one => one.innerText),
    wide: document.body.scrollWidth,
  }
})()"""


def test_it_fits_its_window(browser, report_page):
    assert browser.ask(report_page, "document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_narrow_window_scrolls_its_sections_and_breaks_no_number(browser, report_page):
    seen = browser.ask(report_page, NARROW)

    assert seen["timeline"] >= 700
    assert seen["broken"] == []
    assert seen["wide"] <= 420


OVERLAPS = """(() => {
  const box = one => one.getBoundingClientRect()
  const meet = (a, b) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
  return [...document.querySelectorAll('.chart')].map(chart => {
    const words = [...chart.querySelectorAll('.xtick text, .ytick text, .gtitle')].map(box)
    const legends = [...chart.querySelectorAll('.legend, .colorbar')].map(box)
    return [chart.id, words.length > 2, box(chart).width < 400,
      legends.some(a => words.some(b => meet(a, b)))]
  })
})()"""


@pytest.mark.parametrize("width", [320, 1100])
def test_no_label_of_an_axis_meets_a_legend(browser, report_page, width):
    narrow = f"<style>body {{ width: {width}px }}</style></head>"
    report_page.write_text(report_page.read_text(encoding="utf-8").replace("</head>", narrow, 1))

    seen = browser.ask(report_page, OVERLAPS)

    assert len(seen) == 6
    assert [box for box in seen if box[1:] != [True, width == 320, False]] == []


def test_it_is_not_an_empty_sheet(browser, report_page, tmp_path):
    picture = browser.picture(report_page, tmp_path / "report.png")

    # A picture of one colour has a few kilobytes.
    assert picture.stat().st_size > 40_000
