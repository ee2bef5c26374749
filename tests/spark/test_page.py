"""The page of handwritten rows, without a Spark session."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from tests.markup import HARMLESS, HOSTILE, SHOWN, Tags
from tests.spark.pages import BEGIN, EVIL, example_report, node, row, story
from wmp.spark.charts import plotly, script_hash
from wmp.spark.page import page as whole_page
from wmp.spark.report_data import ReportData
from wmp.spark.schema import TABLES
from wmp.spark.violation_diagram import violation_diagram


def page(data: ReportData) -> str:
    """Return the page without Plotly's script, which has four megabytes."""
    return whole_page(data).replace(plotly(), "")


def test_all_of_it_is_there():
    tags = Tags(page(example_report()))

    sections = [given["id"] for tag, given in tags.seen if tag == "section"]
    assert sections == [
        "gaps", "violations", "processes", "roles", "phases", "percentiles", "latency", "slowest",
        "failed", "requeued", "handshakes", "workers", "requeues", "drops", "fairness", "hops",
        "nodes", "tables",
    ]  # fmt: skip
    words = " ".join(tags.words)
    for told in ("1 violation found", "no stale result", "torn", "m2", "silence", "duplicate",
                 "30.0%", "0.960", "killed or still running"):  # fmt: skip
        assert told in words, told


def test_labels_of_nodes_are_shown_as_text_only():
    text = page(example_report())

    assert "<img" not in text
    assert EVIL in " ".join(Tags(text).words)


def hostile(text: str) -> ReportData:
    """Return a report in which every text from a journal is this text."""
    some = example_report()

    def told(table: str) -> list[Mapping[str, Any]]:
        known = {"grouped": "latency", **dict.fromkeys(("slowest", "failed", "requeued"), "jobs")}
        kinds = {column.name: column.type for column in TABLES[known.get(table, table)].columns}
        return [
            {name: text if kinds[name] == "string" and name not in ("phase", "by") else value
             for name, value in one.items()}
            for one in some.tables[table]
        ]  # fmt: skip

    return ReportData(
        (text,),
        {name: told(name) for name in some.tables},
        some.numbers,
        {text: [{**line, "node": text, "source": text, "target": text, "text": text,
                 "what": "send" if line["what"] == "send" else text, "command": text}
                for line in some.stories["v1"]]},
    )  # fmt: skip


def test_no_text_of_a_journal_is_taken_for_markup():
    text = page(hostile(HOSTILE))
    tags = Tags(text)

    assert tags.structure == Tags(page(hostile(HARMLESS))).structure
    assert tags.words.count(SHOWN) > 20
    assert f"{SHOWN} 1" in [given.get("title") for _, given in tags.seen]
    assert text.encode()  # no character is left that has no encoding


def test_it_needs_nothing_else():
    text = page(example_report())

    assert re.findall(r'(?:src|href)="|url\((?!#)|@import|<link', text) == []
    assert "default-src 'none'" in text


@pytest.mark.parametrize("words", [HOSTILE, "%{x} <b>y</b> <a href='javascript:z'>"])
def test_only_the_scripts_of_the_page_may_run_whatever_a_journal_has(words):
    text = whole_page(hostile(words))

    (allowed,) = re.findall(r"script-src ([^\";]*); img-src data:\">", text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    assert allowed.split() == [script_hash(one) for one in scripts]
    ((given, data),) = re.findall(r"<script ([^>]*)>(.*?)</script>", page(hostile(words)))
    assert given == 'type="application/json" id="figures"'
    assert not set("<>&") & set(data)
    shown = json.loads(data)["chart-load"]["data"][0]["y"]
    # Plotly shows these entities as the signs, and takes nothing else for a tag.
    assert shown == [html.escape(words, quote=False)]


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"lines": 0.0}, "The journal is empty"),
        ({"lines": 5.0}, "No violation found"),
        ({"lines": 5.0, "uncertain violations": 2.0}, "No certain violation"),
        ({"lines": 5.0, "violations": 2.0}, "2 violations found"),
    ],
)
def test_the_verdict(numbers, verdict):
    nothing = ReportData((), dict.fromkeys(example_report().tables, ()), numbers, {})

    assert f">{verdict}</h1>" in page(nothing)


def test_an_empty_journal_shows_no_pictures():
    nothing = ReportData((), dict.fromkeys(example_report().tables, ()), {}, {})

    assert [g["id"] for tag, g in Tags(page(nothing)).seen if tag == "section"] == ["tables"]


def test_much_of_anything_is_bounded():
    """A page with a thousand processes, roles and violations can still be opened in a browser."""
    many = range(1000)
    worst = [{**example_report().tables["violations"][0], "violation": f"v{n}"} for n in range(40)]
    large = evolve(
        example_report(
            nodes=[node(f"w{n}", "worker", 100) for n in many],
            activity=[row("activity", role=f"r{n}", time=BEGIN, length=10**6, submitted=1, ended=1,
                          failed=0, mean_total=1.0) for n in many],
            violations=worst,
            findings=[row("findings", name="x", text="y", certain=True, violations=1000)],
        ),
        stories={one["violation"]: [story(1, "m", "halt")] * 80 for one in worst},
    )  # fmt: skip

    text = page(large)

    assert len(text) < 2_000_000
    assert "952 more are in the table <code>nodes</code>" in text
    assert "976 more roles" in text
    assert "960 more are in the table <code>violations</code>" in text.replace("\n", "")


def test_two_reports_are_compared():
    before = example_report()
    slower = [{**one, "p99": 2 * one["p99"]} for one in before.tables["latency"]]
    now = evolve(example_report(latency=slower), before=before)

    tags = Tags(page(now))

    assert "compared" in [given["id"] for tag, given in tags.seen if tag == "section"]
    words = " ".join(tags.words)
    assert "total, p99 12 ms 24 ms 2.00 ×" in words
    assert "total, p50 2 ms 2 ms 1.00 ×" in words


def test_the_axis_is_in_utc_and_the_window_is_its_range():
    later = evolve(example_report(), window=(BEGIN + 300_000, BEGIN + 500_000))

    assert ">22:13:20.00<" in page(example_report())
    assert ">22:13:20.00<" not in page(later)
    assert ">22:13:20.30<" in page(later)


def test_refused_leases_are_not_lost():
    numbers = {**example_report().numbers, "leases refused": 1.0, "leases handed back": 1.0}

    words = Tags(page(evolve(example_report(), numbers=numbers))).words

    assert words[words.index("leases lost") - 1] == "1"


def test_a_message_is_an_arrow_from_sender_to_receiver():
    one = example_report()
    nodes = {(n["node"], n["epoch"]): n for n in one.tables["nodes"]}

    svg = violation_diagram(one.tables["violations"][0], one.stories["v1"], nodes)

    lives = dict(re.findall(r'<text x="([\d.]+)"[^>]*class="head"[^>]*><title>(\w+) 1<', svg))
    manager, worker = (next(x for x, who in lives.items() if who == name) for name in ("m", "w1"))
    (arrow,) = re.findall(r'<line x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"[^>]*class="arrow"', svg)
    assert arrow[0] == manager
    assert 0 < float(worker) - float(arrow[1]) < 10
    assert svg.count('class="highlight"') == 1  # the line with the violation
