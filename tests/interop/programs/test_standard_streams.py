"""Programs whose stdin, stdout or stderr is closed, full, or not read to the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.waiting import WAIT

pytestmark = pytest.mark.interop

PRINTING: dict[str, list[str]] = {
    "help": ["wmp", "--help"],
    "device help": ["wmp-device", "--help"],
    "kit": ["wmp-conformance", "worker", "--command", "x {endpoint}", "--list"],
    "keys": ["wmp", "jobs", "list", "jobs.db", "--json"],
}


def program(arguments: Sequence[str]) -> list[str]:
    return [str(Path(sys.executable).parent / arguments[0]), *arguments[1:]]


def shell(
    arguments: Sequence[str], redirection: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    words = " ".join(f"'{word}'" for word in program(arguments))
    return subprocess.run(
        ["bash", "-c", f"{words} {redirection}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import wmp

    with wmp.Manager(store=tmp_path / "jobs.db") as manager:
        manager.submit(b"waits")
    return tmp_path


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("name", PRINTING)
@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_a_stdout_that_cannot_be_written_is_one_line(
    name: str, redirection: str, folder: Path
) -> None:
    ended = shell(PRINTING[name], redirection, folder)

    assert ended.returncode == 1, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert "stdout cannot be written" in line


@pytest.mark.parametrize("name", PRINTING)
def test_a_reader_that_leaves_ends_a_program_quietly(name: str, folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        program(PRINTING[name]), cwd=folder, stdout=writing, stderr=subprocess.PIPE
    ) as child:
        os.close(writing)
        _, errors = child.communicate(timeout=WAIT)

    assert (child.returncode, errors) == (141, b"")


def test_a_closed_stderr_hides_the_error_and_not_the_exit_code(folder: Path) -> None:
    ended = shell(["wmp", "jobs", "list", "missing.db"], "2>&-", folder)

    assert (ended.returncode, ended.stdout) == (2, "")


def test_a_closed_stdin_has_no_jobs(folder: Path) -> None:
    ended = shell(["wmp", "map", "--role", "echo"], "<&-", folder)

    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
