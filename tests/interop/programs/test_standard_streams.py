"""Programs whose stdin, stdout or stderr is closed, full, or not read to the end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import wmp
from tests.interop.programs.programs import installed, shell
from tests.waiting import WAIT

pytestmark = pytest.mark.interop

PRINTING: dict[str, list[str]] = {
    "help": ["wmp", "--help"],
    "device help": ["wmp-device", "--help"],
    "kit": ["wmp-conformance", "worker", "--command", "x {endpoint}", "--list"],
    "keys": ["wmp", "jobs", "list", "jobs.db", "--json"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that has one waiting job."""
    path = tmp_path_factory.mktemp("stored")
    manager = wmp.Manager(store=path / "jobs.db")
    manager.start()
    manager.submit(b"waits")
    manager.close(0)
    return path


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
        installed(PRINTING[name]), cwd=folder, stdout=writing, stderr=subprocess.PIPE
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
