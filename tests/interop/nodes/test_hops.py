"""The path of one job passes through few files, so that a reader can follow it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import RUN

ROOT = Path(__file__).resolve().parents[3]

FILES = 30
HOPS_BETWEEN_FILES = 30
HOPS = 45

pytestmark = pytest.mark.interop


def test_a_job_passes_few_files_and_functions():
    # A separate process, because coverage and debuggers use the same hook as the script.
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.hops", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN,
        check=True,
    )
    way = json.loads(run.stdout)

    assert 10 < way["files_with_the_job"] <= way["files"] <= FILES
    assert 10 < way["hops_between_files"] <= HOPS_BETWEEN_FILES
    assert way["hops"] <= HOPS
