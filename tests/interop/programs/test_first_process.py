"""The programs as process 1 of a container without an init."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wmp
from tests.interop.programs.programs import ROOT
from tests.waiting import RUN, WAIT, children, wait_until

UNSHARE = ["unshare", "-f", "-p", "--mount-proc", "--kill-child"]


def _is_allowed() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not _is_allowed(), reason="unshare may not make process namespaces here"),
]

Contained = list["subprocess.Popen[str]"]


@pytest.fixture
def contained() -> Iterator[Contained]:
    """Ends the containers that a test adds."""
    processes: Contained = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate(timeout=WAIT)


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*UNSHARE, sys.executable, "-m", "wmp", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_process(container: subprocess.Popen[str]) -> int:
    """Return the number of process 1 outside of its container."""
    wait_until(lambda: bool(children(container.pid)))
    (first,) = children(container.pid)
    return first


def zombies(first: int) -> int:
    """Return the number of ended processes that process 1 has not reaped."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        count += state == "Z" and int(parent) == first
    return count


def check_reaped(first: int) -> None:
    """Wait for the end of all processes but the program, and for their zombies."""
    wait_until(lambda: not any(children(child) for child in children(first)), "the commands end")
    wait_until(lambda: len(children(first)) <= 1, "the orphans end")
    wait_until(lambda: zombies(first) == 0, "process 1 reaps")


def test_commands_that_were_ended_leave_no_zombies(contained: Contained, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/jobs"
    command = ["worker", "--role", "sh", "--slots", "4", "--connect", address]
    with wmp.Manager(address) as manager:
        contained.append(start(*command, "--", "sh", "-c", "sleep 99 | cat; true"))
        manager.wait_for_workers(1, timeout=WAIT)
        jobs = [manager.submit(b"", role="sh", run_limit=0.3) for _ in range(12)]
        for job in jobs:
            with pytest.raises(wmp.JobTimeout):
                job.result(timeout=WAIT)
        check_reaped(first_process(contained[0]))


def test_an_orphan_of_a_function_is_reaped(contained: Contained, tmp_path: Path) -> None:
    """The child of a child, which a function starts and forgets."""
    (tmp_path / "orphans.py").write_text(
        "import subprocess\n"
        "def leave(payload: bytes) -> bytes:\n"
        "    return subprocess.check_output(['sh', '-c', 'true & echo $!'])\n"
    )
    address = f"ipc://{tmp_path}/jobs"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with wmp.Manager(address) as manager:
        contained.append(
            subprocess.Popen(
                [
                    *UNSHARE,
                    sys.executable,
                    "-m",
                    "wmp",
                    "worker",
                    "orphans:leave",
                    "--no-beats",
                    "--connect",
                    address,
                ],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        for _ in range(5):
            assert manager.submit(b"").result(timeout=WAIT).strip().isdigit()
        check_reaped(first_process(contained[0]))


def test_sigterm_lets_a_worker_finish_its_job(contained: Contained, tmp_path: Path) -> None:
    address, mark = f"ipc://{tmp_path}/jobs", tmp_path / "begun"
    command = ["worker", "--role", "sh", "--connect", address]
    with wmp.Manager(address) as manager:
        script = f"touch {mark}; while [ -e {mark} ]; do sleep 0.01; done; echo finished"
        contained.append(start(*command, "--", "sh", "-c", script))
        job = manager.submit(b"", role="sh")
        wait_until(mark.exists)
        os.kill(first_process(contained[0]), signal.SIGTERM)
        manager.wait_for_workers(1, timeout=WAIT)
        mark.unlink()
        assert job.result(timeout=WAIT) == b"finished\n"
        assert contained[0].wait(timeout=RUN) == 0


def test_a_signal_without_a_handler_ends_the_program(contained: Contained) -> None:
    """Process 1 itself ignores such a signal.

    A shell starts background programs with SIGQUIT ignored, so this test sends another signal.
    """
    contained.append(start("worker", "--connect", "tcp://127.0.0.1:1", "--", "true"))
    first = first_process(contained[0])
    wait_until(lambda: bool(children(first)))
    os.kill(first, signal.SIGUSR1)
    assert contained[0].wait(timeout=RUN) == 128 + signal.SIGUSR1


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["--nonsense"], 2)])
def test_the_exit_code_is_that_of_the_program(
    contained: Contained, arguments: list[str], code: int
) -> None:
    contained.append(start(*arguments))
    output, errors = contained[0].communicate(timeout=RUN)
    assert contained[0].returncode == code, errors
    assert output.startswith("wmp ") is (code == 0)
