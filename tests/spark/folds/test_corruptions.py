"""Each corruption of a journal is found with certainty, and named by its rule."""

from __future__ import annotations

import json

import pytest

from tests.spark.folds.corruptions import BOTH, CORRUPTIONS, corrupted, sound_journal
from tests.spark.folds.plain import fold, table
from tests.spark.folds.worlds import build, renamed, save

SPARK = {
    BOTH, "one line for each number", "one process for each identity", "a stop is the last line",
}  # fmt: skip
"""Findings that need the lines of several processes at once, so Spark makes them."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return sound_journal(tmp_path_factory.mktemp("sound"))


def test_the_sound_journal_shows_nothing(rows):
    sink = fold(map(json.dumps, rows))

    assert [row["detail"] for row in table(sink, "violations")] == []
    assert len(CORRUPTIONS) >= 40


@pytest.mark.parametrize(
    "title", [title for title, (name, _) in CORRUPTIONS.items() if name not in SPARK]
)
def test_a_corruption_of_one_end_is_named(rows, title):
    name, make = CORRUPTIONS[title]
    sink = fold(corrupted(rows, make))

    found = {row["name"] for row in table(sink, "violations") if row["certain"]}
    assert name in found, table(sink, "violations")


def test_a_job_without_an_end_is_a_violation_of_its_manager(rows):
    sink = fold(corrupted(rows, CORRUPTIONS["a_job_without_end"][1]))

    (row,) = table(sink, "violations")
    assert (row["node"][0], row["worker"]) == ("m", None)


def test_every_corruption_is_named_in_a_report(spark, rows, tmp_path):
    """All corrupted journals are one journal of many fleets, beside one sound fleet."""
    lines = [renamed(json.dumps(row), "sound.") for row in rows]
    for number, (_, make) in enumerate(CORRUPTIONS.values()):
        lines += [renamed(line, f"c{number}.") for line in corrupted(rows, make)]
    save(tmp_path / "all-1-000001.jsonl", lines)

    result = build(spark, [tmp_path], tmp_path / "out")

    found: dict[str, set[str]] = {}
    for row in result.tables.read("violations").where("certain").collect():
        found.setdefault(row.node.partition(".")[0], set()).add(row.name)
    wrong = {
        title: (name, found.get(f"c{number}"))
        for number, (title, (name, _)) in enumerate(CORRUPTIONS.items())
        if name not in found.get(f"c{number}", ())
    }
    assert wrong == {}
    assert "sound" not in found
