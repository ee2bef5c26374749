"""Sound worlds of many seeds, and real fleets with kills, folded without Spark: no violation."""

from __future__ import annotations

import subprocess

import pytest

from tests.interop.programs.programs import WMP
from tests.spark.folds.killed import accusations
from tests.spark.folds.plain import fold, table
from tests.spark.folds.worlds import play
from tests.waiting import RUN

SEEDS = range(50)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_world_shows_no_violation(tmp_path, seed):
    played = play(seed, tmp_path, timed=bool(seed % 2))
    assert played.violation is None
    sink = fold(played.lines)
    violations = [(row["name"], row["detail"]) for row in table(sink, "violations")]
    assert violations == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_world_with_a_pair_of_managers_shows_no_violation(tmp_path, seed):
    played = play(seed, tmp_path, paired=True)
    assert played.violation is None
    assert any('"standby":true' in line for line in played.lines)
    sink = fold(played.lines)
    assert [(row["name"], row["detail"]) for row in table(sink, "violations")] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_world_with_a_forwarding_manager_shows_no_violation(tmp_path, seed):
    played = play(seed, tmp_path, forwarded=True, timed=bool(seed % 2))
    assert played.violation is None
    sink = fold(played.lines)
    assert [(row["name"], row["detail"]) for row in table(sink, "violations")] == []


def fleets():
    """Yield the flags of 20 real fleets, in which every process is killed without a word.

    Of the fleets without another flag only a worker is killed.
    """
    kinds = ["--chaos"] * 8 + ["--store"] * 6 + ["--star"] * 4 + [""] * 2
    for number, kind in enumerate(kinds):
        seed = ["--seed", str(number)] if kind in ("--chaos", "--store") else []
        files = ["--files", str(200 + 100 * (number % 4))] if kind else []
        flags = [*filter(None, [kind]), *seed, *files, "--workers", str(2 + number % 5)]
        yield pytest.param(flags, id=" ".join(flags), marks=[pytest.mark.deep] * (number > 0))


@pytest.mark.interop
@pytest.mark.parametrize("flags", list(fleets()))
def test_a_real_fleet_with_kills_is_not_accused(tmp_path, flags):
    journal = tmp_path / "journal"
    demo = subprocess.run(
        [*WMP, "demo", *flags, "--journal", str(journal)],
        capture_output=True, text=True, timeout=RUN, check=False,
    )  # fmt: skip
    assert demo.returncode == 0, demo.stderr

    assert accusations(journal, tmp_path / "out") == []
