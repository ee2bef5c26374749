"""The page: what it shows, of what was written down by hand. Without a session."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from attrs import evolve

from tests.spark.pages import BEGIN, EVIL, node, row, shown, story
from wmp.spark.page import page
from wmp.spark.report_data import ReportData
from wmp.spark.sequence import sequence
from wmp.spark.svg import LogScale, amount, duration


class Tags(HTMLParser):
    """Which elements there are, and that each is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.words = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_all_of_it_is_there():
    tags = Tags(page(shown()))

    sections = [given["id"] for tag, given in tags.seen if tag == "section"]
    assert sections == [
        "gaps", "violations", "processes", "roles", "phases", "percentiles", "handshakes",
        "workers", "requeues", "drops", "fairness", "hops", "nodes", "tables",
    ]  # fmt: skip
    words = " ".join(tags.words)
    for told in ("1 violation found", "no stale result", "torn", "m2", "silence", "duplicate",
                 "30.0%", "0.960", "killed, or runs still"):  # fmt: skip
        assert told in words, told


def test_what_nodes_call_themselves_is_text():
    text = page(shown())

    assert "<img" not in text
    assert EVIL in " ".join(Tags(text).words)


def test_it_needs_nothing_else():
    text = page(shown())

    assert re.findall(r'(?:src|href)="|url\((?!#)|@import|<script|<link', text) == []
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"lines": 0.0}, "The journal is empty"),
        ({"lines": 5.0}, "No violation found"),
        ({"lines": 5.0, "uncertain violations": 2.0}, "No violation that is certain"),
        ({"lines": 5.0, "violations": 2.0}, "2 violations found"),
    ],
)
def test_the_verdict(numbers, verdict):
    nothing = ReportData((), dict.fromkeys(shown().tables, ()), numbers, {}, {})

    assert f">{verdict}</h1>" in page(nothing)


def test_an_empty_journal_shows_no_pictures():
    nothing = ReportData((), dict.fromkeys(shown().tables, ()), {}, {}, {})

    assert [g["id"] for tag, g in Tags(page(nothing)).seen if tag == "section"] == ["tables"]


def test_much_of_anything_is_bounded():
    """A thousand processes, roles and violations: a page that a browser can open."""
    many = range(1000)
    worst = [{**shown().tables["violations"][0], "violation": f"v{n}"} for n in range(40)]
    large = evolve(
        shown(
            nodes=[node(f"w{n}", "worker", 100) for n in many],
            activity=[row("activity", role=f"r{n}", time=BEGIN, length=10**6, submitted=1, ended=1,
                          failed=0, mean_total=1.0) for n in many],
            violations=worst,
        ),
        names={("x", "y", True): 1000},
        stories={one["violation"]: [story(1, "m", "halt")] * 80 for one in worst},
    )  # fmt: skip

    text = page(large)

    assert len(text) < 2_000_000
    assert "952 more are in the table <code>nodes</code>" in text
    assert "976 more roles" in text
    assert "960 more are in the table <code>violations</code>" in text.replace("\n", "")


def test_a_message_is_an_arrow_from_who_sent_it_to_who_got_it():
    one = shown()
    nodes = {(n["node"], n["epoch"]): n for n in one.tables["nodes"]}

    svg = sequence(one.tables["violations"][0], one.stories["v1"], nodes)

    lives = dict(re.findall(r'<text x="([\d.]+)"[^>]*class="head"[^>]*><title>(\w+) 1<', svg))
    manager, worker = (next(x for x, who in lives.items() if who == name) for name in ("m", "w1"))
    (arrow,) = re.findall(r'<line x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"[^>]*class="arrow"', svg)
    assert arrow[0] == manager
    assert 0 < float(worker) - float(arrow[1]) < 10
    assert svg.count('class="broke"') == 1  # the line in which it showed


def test_words_for_amounts():
    assert [duration(x) for x in (None, 0, 850, 1234, 2.5e6, 9e7, 7.2e9)] == [
        "–", "0 µs", "850 µs", "1.23 ms", "2.5 s", "1.5 min", "2 h",
    ]  # fmt: skip
    assert [amount(x).replace("\u202f", " ") for x in (None, 0, 12345, 0.4212, 12345.6)] == [
        "–", "0", "12 345", "0.421", "12 346",
    ]  # fmt: skip


def test_ten_times_as_long_is_as_far_everywhere():
    scale = LogScale(1.0, 1000.0, 0.0, 300.0)

    assert [scale(10.0**power) for power in range(4)] == pytest.approx([0, 100, 200, 300])
    assert [scale(0), scale(1e9)] == [0, 300]
    assert scale.ticks() == [1, 10, 100, 1000]
