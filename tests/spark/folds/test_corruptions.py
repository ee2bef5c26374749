"""Each corruption of a journal is found with certainty, and named by its rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

import pytest

import tests.spark.folds.term_corruptions  # noqa: F401 - registers its corruptions
from tests.spark.folds.corruptions import CORRUPTIONS, corrupted, sound_journal
from tests.spark.folds.killed import report_on
from tests.spark.folds.plain import fold, table
from tests.spark.folds.worlds import renamed, save


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return sound_journal(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def named(rows, tmp_path_factory):
    """Return the names of the certain violations of each corrupted fleet, by title.

    Some corrupted journals are one journal of several fleets, beside one sound fleet: a report
    shows at most a hundred violations of a name.
    """
    names: dict[str, set[str]] = {}
    for some in batched(CORRUPTIONS, 24):
        folder = tmp_path_factory.mktemp("corrupted")
        fleets = {"sound": map(json.dumps, rows)}
        fleets |= {f"c{index}": corrupted(rows, CORRUPTIONS[title][1])
                   for index, title in enumerate(some)}  # fmt: skip
        lines = [renamed(line, f"{name}.") for name, texts in fleets.items() for line in texts]
        save(folder / "journal" / "all-1-000001.jsonl", lines)
        result = report_on(folder / "journal", folder / "out")
        for row in result.tables.dataset("violations").to_table().to_pylist():
            fleet = row["node"].partition(".")[0]
            if row["certain"] or fleet == "sound":
                title = fleet if fleet == "sound" else some[int(fleet[1:])]
                names.setdefault(title, set()).add(row["name"])
    return names


def batched(titles: Iterable[str], size: int) -> Iterator[tuple[str, ...]]:
    """Yield so many titles at a time."""
    left = iter(titles)
    while some := tuple(islice(left, size)):
        yield some


def test_the_sound_journal_shows_nothing(rows, named):
    sink = fold(map(json.dumps, rows))

    assert [row["detail"] for row in table(sink, "violations")] == []
    assert "sound" not in named
    assert len(CORRUPTIONS) >= 62 + 40


@pytest.mark.parametrize("title", CORRUPTIONS)
def test_a_corruption_is_named_by_its_rule(named, title):
    expected, _ = CORRUPTIONS[title]

    assert expected in named.get(title, ())


def test_a_job_without_an_end_is_a_violation_of_its_manager(rows):
    sink = fold(corrupted(rows, CORRUPTIONS["a_job_without_end"][1]))

    (row,) = table(sink, "violations")
    assert (row["node"][0], row["worker"]) == ("m", None)
