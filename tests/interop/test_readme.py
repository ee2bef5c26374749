"""The code of the README and of the guide runs unchanged, and prints the output on the page."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# With this path the files run from another folder, even when wmp is not installed.
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}

BLOCKS: list[tuple[str, str]] = FENCE.findall(README.read_text(encoding="utf-8"))
FILES = {
    code.splitlines()[0].removeprefix("# "): code
    for language, code in BLOCKS
    if language == "python" and re.match(r"# \w+\.py$", code.splitlines()[0])
}
ALONE = [
    (code, expected)
    for blocks in (BLOCKS, FENCE.findall(GUIDE.read_text(encoding="utf-8")))
    for (language, code), (_, expected) in itertools.pairwise(blocks)
    if language == "python" and code not in FILES.values()
]


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not tmp_path, because the name of an ipc socket must be short.
    with tempfile.TemporaryDirectory(prefix="wmp-") as name:
        yield Path(name)


def test_a_manager_and_a_worker_fit_on_a_screen():
    lines = [line for code in FILES.values() for line in code.splitlines() if line.strip()]

    assert {"worker.py", "manager.py"} == FILES.keys()
    assert len(lines) <= 20


def test_the_first_screen_runs(folder):
    for name, code in FILES.items():
        # The code runs with an unused address.
        (folder / name).write_text(code.replace("tcp://127.0.0.1:5570", f"ipc://{folder}/s"))
    expected = next(code for language, code in BLOCKS if language == "text")

    worker = subprocess.Popen(
        [sys.executable, folder / "worker.py"], stderr=subprocess.PIPE, env=ENVIRON
    )
    try:
        manager = subprocess.run(
            [sys.executable, folder / "manager.py"],
            capture_output=True,
            text=True,
            timeout=40,
            env=ENVIRON,
        )
        assert (manager.stdout, manager.stderr) == (expected, "")
        worker.send_signal(signal.SIGTERM)
        _, complaint = worker.communicate(timeout=15)
        # The worker reports that no manager answers, and only then the manager starts.
        lines = [line for line in complaint.splitlines() if b"; retrying" not in line]
        assert (worker.returncode, lines) == (0, [])
    finally:
        worker.kill()
        worker.communicate()


def test_the_guide_has_code_that_stands_alone():
    assert ALONE


@pytest.mark.parametrize(("code", "expected"), ALONE)
def test_each_self_contained_example_runs(code, expected):
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=40, env=ENVIRON
    )

    assert (found.stdout, found.stderr) == (expected, "")
