"""A module that starts worker processes at its top does not start processes without end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import wmp
from tests.waiting import RUN, WAIT
from wmp.errors import ConfigError
from wmp.runtime.executors import handler_imports

pytestmark = pytest.mark.interop

# The guard ends a storm of a broken library after nine generations.
HEAD = """\
import asyncio, os
generation = int(os.environ.get("GENERATION", "0"))
os.environ["GENERATION"] = str(generation + 1)
with open("runs", "a") as runs:
    runs.write("x")
if generation > 8:
    os._exit(1)
import wmp

def square(x):
    return x * x

class Point:
    pass

"""

TOPS = {
    "executor": "with wmp.Executor(workers=1) as ex: print(ex.submit(square, 3).result(60))",
    "argument": "with wmp.Executor(workers=1) as ex: print(ex.submit(repr, Point()).result(60))",
    "initializer": (
        "with wmp.Executor(workers=1, initializer=square, initargs=(1,)) as ex:\n"
        "    print(ex.submit(abs, 3).result(60))"
    ),
    "local": (
        "with wmp.local(1, {'square': square}) as manager:\n"
        "    print(manager.submit(3, role='square').result(60))"
    ),
    "worker": ("wmp.Worker('tcp://127.0.0.1:9', handlers={'r': square}, pool='process').start()"),
    "joblib": (
        "import joblib, wmp.joblib\n"
        "with wmp.joblib.parallel_config('wmp', n_jobs=2):\n"
        "    print(joblib.Parallel()(joblib.delayed(square)(n) for n in range(9)))"
    ),
    "asyncio": (
        "async def main():\n"
        "    async with wmp.aio.Worker('tcp://127.0.0.1:9', handlers=square,"
        " pool='process'): pass\n"
        "import wmp.aio\n"
        "asyncio.run(main())"
    ),
}


@pytest.mark.rule("CALL-5.7")
@pytest.mark.parametrize("top", TOPS)
def test_an_import_by_a_worker_starts_no_processes(tmp_path: Path, top: str) -> None:
    (tmp_path / "report.py").write_text(HEAD + TOPS[top] + "\n")
    run = subprocess.run(
        [sys.executable, "-c", "import report"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=RUN,
        check=False,
    )
    assert run.returncode == 1, run.stdout
    error = "the module 'report' starts worker processes when it is imported, and a worker imports"
    assert error in run.stderr
    # The first process, and each worker process that it started in place of the one before.
    assert len((tmp_path / "runs").read_text()) <= 8


@pytest.mark.rule("CALL-5.7")
def test_worker_processes_start_worker_processes_for_a_few_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with wmp.Executor(workers=1) as executor:
        assert executor.submit(handler_imports.depth_below).result(WAIT) == 2
    monkeypatch.setattr(handler_imports, "_depth", 8)
    with pytest.raises(ConfigError, match="for 8 levels"):
        wmp.Executor(workers=1)


@pytest.mark.rule("CALL-5.7")
def test_a_call_may_start_processes_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "report.py").write_text(
        "import wmp\n\n\ndef total(numbers):\n"
        "    with wmp.Executor(workers=1) as ex:\n"
        "        return sum(ex.map(abs, numbers))\n\n\n"
        "def start():\n"
        "    with wmp.Executor(workers=1) as ex:\n"
        "        print(ex.submit(total, [-1, -2]).result(60))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", "import report; report.start()"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=RUN,
        check=False,
    )
    assert run.stdout == "3\n", run.stderr
