"""Type checkers find unknown options of calls that submit jobs, and options of a wrong type."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.house import ROOT
from tests.waiting import RUN

pytest.importorskip("mypy", reason="needs mypy: pip install -e '.[lint]'")

PROGRAM = """
import asyncio
from datetime import timedelta
import wmp

@wmp.task
def resize(image: bytes, width: int = 100) -> bytes: ...

manager = wmp.Manager(codec="cbor")
resize.using(manager, role="gpu", run_limit=timedelta(minutes=1)).submit(b"")  # right
resize.using(manager, rolle="gpu")  # wrong: rolle
resize.using(rolle="gpu")  # wrong: rolle
resize.using(timeout="soon")  # wrong: timeout
resize.using(wmp.aio.Manager(), rolle="gpu")  # wrong: rolle
wmp.task(timout=5)(len)  # wrong: timout
manager.submit(b"", prioritty=1)  # wrong: prioritty
list(manager.map([b""], key="a"))  # wrong: key
wmp.Executor(workers=1, role="a")  # wrong: role
"""


def test_a_type_checker_finds_unknown_and_wrong_options() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "-c", PROGRAM]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN)

    found = {
        int(line): text
        for line, text in re.findall(r"^<string>:(\d+): error: (.*)$", run.stdout, re.MULTILINE)
    }
    wrong = {
        number: line.partition("# wrong: ")[2]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "# wrong: " in line
    }
    assert found.keys() == wrong.keys(), run.stdout + run.stderr
    for number, option in wrong.items():
        assert f'"{option}"' in found[number]
