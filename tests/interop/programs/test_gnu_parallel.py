"""A line of GNU parallel and the same line with `wmp` print the same and write the same log."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.programs.programs import ROOT
from tests.waiting import RUN

pytestmark = pytest.mark.interop

FOLDER = ROOT / "examples" / "migrate"

COLUMNS = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand"


def run(script: str, folder: Path) -> tuple[str, list[list[str]]]:
    """Return the output of a script, and the cells of its job log, sorted by number."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "wmp").write_text(f'#!/bin/sh\nexec {sys.executable} -m wmp "$@"\n')
    (programs / "wmp").chmod(0o755)
    address = "ipc://here"
    ended = subprocess.run(
        ["sh", FOLDER / script, "a", "b", "c"],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            # Other tests use the default address.
            "WMP_MAP_BIND": address,
            "WMP_WORKER_CONNECT": address,
        },
        capture_output=True,
        text=True,
        timeout=RUN,
    )
    assert ended.returncode == 0, ended.stderr
    first, *lines = (folder / "log").read_text().splitlines()
    assert first == COLUMNS
    return ended.stdout, sorted(line.split("\t") for line in lines)


def test_the_line_with_wmp_counts_words(tmp_path: Path) -> None:
    for name, text in {"a": "to be", "b": "or", "c": "not to be"}.items():
        (tmp_path / name).write_text(text)

    printed, rows = run("gnu_parallel_wmp.sh", tmp_path)

    assert printed.split() == ["2", "1", "3"]
    assert [(row[0], row[6], row[7]) for row in rows] == [(n, "0", "0") for n in ("1", "2", "3")]
    if shutil.which("parallel") is None:
        pytest.skip("GNU parallel is not installed")
    other = tmp_path / "other"
    shutil.copytree(tmp_path, other, ignore=shutil.ignore_patterns("other", "log", "programs"))
    assert run("gnu_parallel.sh", other)[0].split() == printed.split()


def test_the_line_with_wmp_is_not_longer() -> None:
    def lines(name: str) -> int:
        return len(re.findall(r"^[^#\n]", (FOLDER / name).read_text(), re.M))

    assert lines("gnu_parallel_wmp.sh") <= lines("gnu_parallel.sh")
