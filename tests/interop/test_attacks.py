"""During each attack of ``benchmarks.attacks`` honest jobs end with their results.

No time is asserted: ``python -m benchmarks.attacks`` measures the remaining throughput.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.attacks.drills import DRILLS
from benchmarks.attacks.stage import MEMORY, perform
from tests.interop.programs import ENVIRON, ROOT

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

SMALL = ("garbage",)
"""Drills of the default run."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SMALL else pytest.mark.deep) for name in DRILLS]
)
def test_honest_jobs_end_with_their_results_during_an_attack(name: str) -> None:
    found = perform(name, 0.2 if name in SMALL else 2.0)

    assert found.failed == ()
    assert found.left == 0
    assert found.memory <= MEMORY


@pytest.mark.deep
def test_the_program_prints_and_writes_each_drill(tmp_path) -> None:
    path = tmp_path / "attacks.json"

    options = ["--only", "ping,fuzz", "--seconds", "0.2", "--repeats", "1", "--json", str(path)]
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.attacks", *options],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=ROOT,
        env=ENVIRON,
    )

    assert [row.split()[0] for row in found.stdout.splitlines()] == ["drill", "ping", "fuzz"]
    rows = json.loads(path.read_text())
    assert [row["drill"] for row in rows] == ["ping", "fuzz"]
    assert all(row["kept"] > 0 for row in rows)


def test_an_unknown_drill_is_reported_with_the_known_drills() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.attacks", "--only", "nonsense"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env=ENVIRON,
    )

    assert found.returncode == 2
    assert "there is no drill 'nonsense'; expected some of garbage, " in found.stderr
