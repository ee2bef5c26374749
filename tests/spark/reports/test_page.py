"""The page of handwritten rows, without a Spark session."""

from __future__ import annotations

import html
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from tests.markup import HARMLESS, HOSTILE, SHOWN, Tags
from tests.spark.reports.pages import BEGIN, EVIL, example_report, node, row, story
from wmp.spark.folds.facts import ALWAYS
from wmp.spark.journals.schema import TABLES
from wmp.spark.journals.tables import Tables
from wmp.spark.reports.charts import figures, plotly, script_hash
from wmp.spark.reports.page import page as whole_page
from wmp.spark.reports.report_data import ReportData, read_report_data
from wmp.spark.reports.violation_diagram import violation_diagram


def page(data: ReportData) -> str:
    """Return the page without Plotly's script, which has four megabytes."""
    return whole_page(data).replace(plotly(), "")


def words_of(data: ReportData) -> str:
    """Return the text of the page, with one space between words."""
    return " ".join(" ".join(Tags(page(data)).words).split())


def test_all_of_it_is_there():
    tags = Tags(page(example_report()))

    sections = [given["id"] for tag, given in tags.seen if tag == "section"]
    assert sections == [
        "gaps", "violations", "processes", "roles", "phases", "percentiles", "latency", "slowest",
        "failed", "requeued", "handshakes", "workers", "requeues", "drops", "fairness", "hops",
        "nodes", "tables",
    ]  # fmt: skip
    words = " ".join(tags.words)
    for text in ("1 violation found", "no stale result", "torn", "m2", "silence", "duplicate",
                 "30.0%", "0.960", "killed or still running"):  # fmt: skip
        assert text in words, text


def test_labels_of_nodes_are_shown_as_text_only():
    text = page(example_report())

    assert "<img" not in text
    assert EVIL in " ".join(Tags(text).words)


def hostile(text: str) -> ReportData:
    """Return a report in which every text from a journal is this text."""
    some = example_report()

    def rows_of(table: str) -> list[Mapping[str, Any]]:
        known = dict.fromkeys(("slowest", "failed", "requeued"), "jobs")
        kinds = {column.name: column.type for column in TABLES[known.get(table, table)].columns}
        return [
            {name: text if kinds[name] == "string" and name not in ("phase", "by") else value
             for name, value in record.items()}
            for record in some.tables[table]
        ]  # fmt: skip

    return ReportData(
        (text,),
        {name: rows_of(name) for name in some.tables},
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
    assert allowed.split() == [script_hash(script) for script in scripts]
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
        stories={violation["violation"]: [story(1, "m", "halt")] * 80 for violation in worst},
    )  # fmt: skip

    text = page(large)

    assert len(text) < 2_000_000
    assert "952 more are in the table <code>nodes</code>" in text
    assert "976 more roles" in text
    assert "960 more are in the table <code>violations</code>" in text.replace("\n", "")


def test_two_reports_are_compared():
    before = example_report()
    slower = [{**record, "p99": 2 * record["p99"]} for record in before.tables["latency"]]
    now = evolve(example_report(latency=slower), before=before)

    tags = Tags(page(now))

    assert "compared" in [given["id"] for tag, given in tags.seen if tag == "section"]
    words = " ".join(tags.words)
    assert "total 2 ms 2 ms 1 × 12 ms 24 ms 2 ×" in words


def test_a_comparison_names_the_other_report_and_counts_lost_leases():
    numbers = {"lines": 9.0, "leases over": 5.0, "leases refused": 3.0}
    numbers |= {"jobs ok": 7.0, "jobs error": 2.0}
    before = ReportData(("/reports/yesterday",), example_report().tables, numbers, {})

    words = words_of(evolve(example_report(), before=before))

    assert "Before: the report in /reports/yesterday." in words
    assert "leases lost 2 3 1.5 ×" in words
    assert "jobs error 2 0 0 × jobs per second" in words


def test_each_violation_shows_its_rule_and_its_story():
    rule = "a manager gives a worker up after `max_silence` without a message"
    some = example_report()
    broken = [{**some.tables["violations"][0], "violation": key, "text": rule} for key in "ab"]
    stories = {"a": some.stories["v1"], "b": some.stories["v1"]}

    text = page(evolve(example_report(violations=broken), stories=stories))

    drawn = re.findall(r"<details class=\"violation\".*?</details>", text, re.DOTALL)
    assert len(drawn) == 2
    for element in drawn:
        assert "Rule: a manager gives a worker up after “max_silence” without a message<" in element
        assert "<svg" in element
    assert [" open>" in element for element in drawn] == [True, False]


def test_many_workers_leave_room_for_roles_and_hours():
    """The slowest workers are listed first, each with its label."""
    some = example_report().tables["latency"][0]
    groups = [
        {**some, "phase": phase, "by": by, "key": key, "p99": 1000 * index}
        for phase in ("total", "queue wait", "handler")
        for by, keys in (
            ("worker", ["w1", *(f"w{n}" for n in range(1000, 1300))]),
            ("role", ["count"]),
            ("hour", ["2026-11-27 00:00"]),
        )
        for index, key in enumerate(keys)
    ]
    lives = [node("m", "manager", 900), {**node("w1299", "worker", 900), "label": "the last"}]

    words = words_of(example_report(latency=groups, nodes=lives))

    assert "worker jobs total, p50 total, p99" in words
    assert "the last 114 2 ms 300 ms 2 ms 300 ms 2 ms 300 ms w1298 114" in words
    assert "101 more are in the tables" in words
    assert "role jobs total, p50" in words
    assert "2026-11-27 00:00 114 2 ms 0 µs" in words


def test_a_job_names_its_worker_by_its_label_and_its_day():
    job = {**example_report().tables["slowest"][0], "worker": "w9"}
    lives = [node("m", "manager", 900), {**node("w9", "worker", 900), "label": "worker nine"}]

    words = words_of(example_report(slowest=[job], nodes=lives))

    assert "error worker nine 2023-11-14 22:13:20.000 3 2" in words


def test_nodes_with_one_label_are_told_apart_by_their_identities():
    """All nodes of a process have one label, unless each has a label of its own."""
    host = "a-host-with-a-long-name:4711"
    names = [f"0x{number:030x}c0de" for number in (0x1A, 0x2A)]
    lives = [{**node(name, "worker", 900), "label": host} for name in names]
    lives += [{**node("r0x1", "worker", 900), "label": host}, node("m", "manager", 900)]
    lives += [{**node(names[0], "worker", 900), "epoch": 2, "label": host}]
    report = example_report(nodes=lives)

    shown = [report.name_of(row["node"], row["epoch"]) for row in lives]

    assert shown == [
        "a-host-with-a-… 1ac0de", "a-host-with-a-… 2ac0de", "a-host-with-a-lo… r0x1", "m",
        "a-host-with-a-… 1ac0de",
    ]  # fmt: skip
    assert all(len(name) <= 22 for name in shown)
    assert report.name_of(names[1]) == shown[1]
    words = words_of(report)
    assert all(name in words for name in shown)


def test_workers_are_in_the_order_of_their_labels():
    used = {**example_report().tables["utilisation"][0], "worker_epoch": 1}
    lives = [{**node(name, "worker", 900), "label": f"worker {index}"}
             for index, name in enumerate("cab")]  # fmt: skip
    use = [{**used, "worker": name} for name in "abc"]

    words = words_of(example_report(nodes=lives, utilisation=use))

    shown = " ".join(f"worker {index} slots 0.0% 2" for index in range(3))
    assert f"worker resource taken has {shown}" in words


def test_the_worst_jobs_are_slow_or_failed_or_had_several_leases(tmp_path):
    tables = Tables(None, str(tmp_path))
    for name in TABLES:
        tables.write_rows(name, [])
    jobs = [
        row("jobs", owner="m", owner_epoch=1, job=job, end=end, attempts=attempts, over=over,
            total=total)
        for job, end, attempts, over, total in (
            (1, "ok", 1, 0, 50), (2, "error", 1, 0, 40), (3, "timeout", 1, 1, 30),
            (4, "ok", 3, 2, 90), (5, "lost", 2, 2, 95), (6, None, 2, 1, None),
        )
    ]  # fmt: skip
    tables.write_rows("jobs", [tuple(values.values()) for values in jobs])

    rows = read_report_data(tables).tables

    shown = {
        name: [values["job"] for values in rows[name]] for name in ("slowest", "failed", "requeued")
    }
    assert shown == {"slowest": [5, 4, 1, 2, 3], "failed": [5, 2, 3], "requeued": [4, 5, 6]}


def test_the_page_says_how_jobs_ended_and_how_many_are_not_listed():
    numbers = {"lines": 9.0, "jobs": 30.0, "jobs ok": 9.0, "jobs error": 20.0, "jobs open": 1.0,
               "leases handed back": 4.0, "jobs tried again": 3.0}  # fmt: skip

    words = words_of(evolve(example_report(), numbers=numbers))

    assert "30 jobs 9 ok, 20 error, 1 open " in words
    assert "leases lost 4 handed back, 3 jobs tried again" in words
    failed = words.partition("Failed jobs")[2].partition("Jobs that were queued again")[0]
    assert "19 more are in the table jobs" in failed


def test_the_page_has_the_meaning_of_phases_and_the_identity_of_labels():
    lives = [node("m", "manager", 900), {**node("w9", "worker", 900), "label": "worker nine"}]

    words = words_of(example_report(nodes=lives))

    assert "12 ms 16.4 ms from READY sent to WAKE received, at the worker" in words
    assert "worker nine w9 worker" in words


def test_more_has_a_stronger_colour_on_any_background():
    scale = figures(example_report())["chart-load"]["data"][0]["colorscale"]

    blues = [re.fullmatch(r"rgba\((.*),([\d.]+)\)", colour) for _, colour in scale]
    assert len({blue[1] for blue in blues}) == 1
    assert sorted(float(blue[2]) for blue in blues) == [float(blue[2]) for blue in blues]


def test_the_page_of_a_part_of_the_time_says_so():
    since = evolve(example_report(), window=(BEGIN + 300_000, ALWAYS[1]))
    whole = evolve(example_report(), window=(BEGIN + 300_000, BEGIN + 500_000))

    assert "Only the jobs" not in page(example_report())
    begin = "Only the jobs submitted from 2023-11-14 22:13:20.300"
    assert f"{begin} UTC." in page(since)
    assert f"{begin} until 2023-11-14 22:13:20.500 UTC." in page(whole)
    assert "· 2023-11-14 22:13:20.300 UTC, 200 ms<" in page(whole)


def test_the_timeline_of_a_part_has_what_was_there_at_that_time():
    """A worker that was killed before, and a violation before, are not in the picture."""
    part = evolve(example_report(), window=(BEGIN + 500_000, BEGIN + 800_000))

    drawn = {
        name: re.findall(r'class="(name|cross|flag)"', page(data).partition('id="roles"')[0])
        for name, data in (("whole", example_report()), ("part", part))
    }
    assert Counter(drawn["whole"]) == {"name": 4, "cross": 1, "flag": 1}
    assert Counter(drawn["part"]) == {"name": 3}


def test_an_axis_of_durations_has_minutes_and_hours():
    axis = figures(example_report())["chart-phases"]["layout"]["xaxis"]

    assert axis["ticktext"][6:] == ["1 s", "10 s", "1 min", "10 min", "1 h", "10 h", "100 h"]
    assert axis["tickvals"][8] == pytest.approx(math.log10(60e6))


def test_the_axis_is_in_utc_and_the_window_is_its_range():
    later = evolve(example_report(), window=(BEGIN + 300_000, BEGIN + 500_000))

    assert ">22:13:20.000<" in page(example_report())
    assert ">22:13:20.000<" not in page(later)
    assert ">22:13:20.300<" in page(later)


def test_refused_leases_are_not_lost():
    numbers = {**example_report().numbers, "leases refused": 1.0, "leases handed back": 1.0}

    words = Tags(page(evolve(example_report(), numbers=numbers))).words

    assert words[words.index("leases lost") - 1] == "1"


def test_a_message_is_an_arrow_from_sender_to_receiver():
    example = example_report()

    svg = violation_diagram(example.tables["violations"][0], example)

    lives = dict(re.findall(r'<text x="([\d.]+)"[^>]*class="head"[^>]*><title>(\w+) 1<', svg))
    manager, worker = (next(x for x, who in lives.items() if who == name) for name in ("m", "w1"))
    (arrow,) = re.findall(r'<line x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"[^>]*class="arrow"', svg)
    assert arrow[0] == manager
    assert 0 < float(worker) - float(arrow[1]) < 10
    assert svg.count('class="highlight"') == 1  # the line with the violation


def test_the_words_of_a_story_have_the_width_of_the_page():
    example, ends = example_report(), "number=1 session=2 outcomes=[0] reason=stale result"
    alone = story(1, "m", "received", "DONE", source="w1", ids=[7], attempts=[1], text=ends)

    svg = violation_diagram(
        example.tables["violations"][0], evolve(example, stories={"v1": [alone]})
    )

    assert f">DONE [7] attempt 1 from w1 {ends}</text>" in svg


def test_a_message_that_was_ignored_shows_why():
    example = example_report()
    _, take, taken, _ = example.stories["v1"]
    lines = [take, {**taken, "text": "number=1 outcomes=[0] reason=old session"}]

    svg = violation_diagram(example.tables["violations"][0], evolve(example, stories={"v1": lines}))

    assert ">ignored: old session</text>" in svg
