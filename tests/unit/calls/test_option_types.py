"""Type checkers find unknown options of calls that submit jobs, and options of a wrong type."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT
from tests.waiting import RUN

pytest.importorskip("mypy", reason="needs mypy: pip install -e '.[lint]'")

PROGRAM = """
import asyncio
from datetime import timedelta
import wmp

@wmp.task
def resize(image: bytes, width: int = 100) -> bytes:
    return image

manager = wmp.Manager(codec="cbor")
resize.using(manager, role="gpu", run_limit=timedelta(minutes=1)).submit(b"")  # right
resize.using(manager, rolle="gpu")  # wrong: rolle
resize.using(rolle="gpu")  # wrong: rolle
resize.using(timeout="soon")  # wrong: str
resize.using(wmp.aio.Manager(), rolle="gpu")  # wrong: rolle
wmp.task(timout=5)(len)  # wrong: timout
manager.submit(b"", prioritty=1)  # wrong: prioritty
list(manager.map([b""], key="a"))  # wrong: key
wmp.Executor(workers=1, role="a")  # wrong: role
"""


def test_a_type_checker_finds_unknown_and_wrong_options(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    # The settings of this project name the files to check, and the types of this tree are wanted.
    options = ["--config-file", os.devnull, "--cache-dir", str(tmp_path / "cache"), "--no-pretty"]
    command = [sys.executable, "-m", "mypy", *options, str(program)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN)

    errors: dict[int, str] = {}
    for line, text in re.findall(r"program\.py:(\d+): error: (.*)", run.stdout):
        errors[int(line)] = errors.get(int(line), "") + text
    wrong = {
        number: line.partition("# wrong: ")[2]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "# wrong: " in line
    }
    assert errors.keys() == wrong.keys(), run.stdout + run.stderr
    for number, option in wrong.items():
        assert f'"{option}"' in errors[number]
