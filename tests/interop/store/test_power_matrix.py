"""Power cuts of a real store: ``python -m wmp.testing.power``."""

from __future__ import annotations

import json
import random

import pytest

from wmp.errors import ConfigError
from wmp.testing.power.__main__ import main
from wmp.testing.power.crash_matrix import CrashMatrix

pytestmark = pytest.mark.interop


def recorded(batches: int, durability: str) -> CrashMatrix:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}: python -m wmp.testing.power --batches {batches} --seed {seed}")
    try:
        return CrashMatrix.recorded(batches, seed, durability)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.rule("STORE-12.1", "STORE-9.2", "STORE-9.7")
def test_a_store_keeps_its_word_after_power_cuts() -> None:
    matrix = recorded(2, "power")
    assert matrix.batches() >= 2
    cuts = list(matrix.cuts(range(0, len(matrix.calls), 11)))
    assert {cut.kind for cut in cuts} == {"none", "all", "some", "torn"}
    assert [cut for cut in cuts if cut.fault] == []


def test_the_matrix_finds_what_a_store_loses_that_does_not_wait_for_the_disk() -> None:
    matrix = recorded(4, "process")
    last = max(number for number, call in enumerate(matrix.calls) if call.path == matrix.store)
    faults = {cut.fault for cut in matrix.cuts(range(0, last, 5))}
    assert "lost" in faults
    assert faults <= {"lost", ""}


def test_drawn_calls_are_cut_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    recorded(2, "power")  # skips where calls cannot be recorded
    capsys.readouterr()
    assert main(["--batches", "2", "--seed", "1", "--cuts", "3", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert 0 < summary["power cuts"] <= 3 * 4


def test_no_cut_at_all_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cuts", "0"]) == 2
    assert "expected at least 1" in capsys.readouterr().err


@pytest.mark.deep
def test_a_store_keeps_its_word_wherever_the_power_is_cut() -> None:
    assert main(["--batches", "60"]) == 0
