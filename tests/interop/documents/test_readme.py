"""The code of the README and of the guide runs unchanged, and prints the output on the page."""

from __future__ import annotations

import hashlib
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

from tests.interop.programs.programs import ROOT, Program
from tests.waiting import RUN

pytestmark = pytest.mark.interop

README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide.md"
EXECUTORS = ROOT / "docs" / "executors.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

BLOCKS: list[tuple[str, str]] = FENCE.findall(README.read_text(encoding="utf-8"))
FILES = {
    code.splitlines()[0].removeprefix("# "): code
    for language, code in BLOCKS
    if language == "python" and re.match(r"# \w+\.py$", code.splitlines()[0])
}
ALONE = [
    (code, expected)
    for page in (README, GUIDE, EXECUTORS)
    for blocks in (FENCE.findall(page.read_text(encoding="utf-8")),)
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

    with Program(sys.executable, str(folder / "worker.py")) as worker:
        with Program(sys.executable, str(folder / "manager.py")) as manager:
            assert (manager.ends(), manager.stdout.decode(), manager.stderr) == (0, expected, "")
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
        # The worker reports that no manager answers, and only then the manager starts.
        lines = [line for line in worker.stderr.splitlines() if "; retrying" not in line]
        assert lines == []


@pytest.mark.deep
def test_the_lines_for_a_shell_run(folder):
    (lines,) = [code for language, code in BLOCKS if language == "sh" and "wmp map" in code]
    for name in ("one.py", "two.py"):
        (folder / name).write_text(name)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "WMP_WORKER_CONNECT": f"ipc://{folder}/s",
        "WMP_MAP_BIND": f"ipc://{folder}/s",
    }

    shell = subprocess.run(
        ["sh", "-c", f"{lines}kill 0"],  # the workers of this group end
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN,
        start_new_session=True,
    )

    sums = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("one.py", "two.py")}
    assert f'"result": "{sums["one.py"]}' in shell.stdout, shell.stderr
    assert f"{sums['two.py']}  ./two.py" in shell.stdout


def test_the_guide_has_code_that_stands_alone():
    assert ALONE


@pytest.mark.parametrize(("code", "expected"), ALONE)
def test_each_self_contained_example_runs(code, expected, forks, tmp_path):
    assert forks.run(sys.executable, "-c", code, cwd=tmp_path) == (0, expected, "")


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("majordomo", ["b'HELLO'", "True", *(f"('upper', b'NUMBER {n}')" for n in range(3))]),
        ("round-robin", ["[b'HELLO']"]),
    ],
)
def test_the_first_example_of_a_protocol_runs(page, printed, folder):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    code = next(code for language, code in FENCE.findall(text) if language == "python")
    # The code runs with an unused address.
    code = code.replace("tcp://127.0.0.1:6714", f"ipc://{folder}/s")

    with Program(sys.executable, "-c", code) as program:
        assert (program.ends(), program.stderr) == (0, "")
        # Replies may come in any order.
        assert sorted(program.stdout.decode().splitlines()) == sorted(printed)
