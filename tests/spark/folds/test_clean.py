"""Sound worlds of many seeds, folded without Spark: no violation is found."""

from __future__ import annotations

import pytest

from tests.spark.folds.plain import fold, table
from tests.spark.folds.worlds import play

SEEDS = range(50)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_world_shows_no_violation(tmp_path, seed):
    played = play(seed, tmp_path, timed=bool(seed % 2))
    assert played.violation is None
    sink = fold(played.lines)
    found = [(row["name"], row["detail"]) for row in table(sink, "violations")]
    assert found == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_world_with_a_pair_of_managers_shows_no_violation(tmp_path, seed):
    played = play(seed, tmp_path, paired=True)
    assert played.violation is None
    assert any('"standby":true' in line for line in played.lines)
    sink = fold(played.lines)
    assert [(row["name"], row["detail"]) for row in table(sink, "violations")] == []
