"""A testee as a process: the placeholders in its command, its output lines and its end."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

import pytest

from wmp.conformance.wire.process import PeerProcess, fill

pytestmark = pytest.mark.interop

WAITS = "import signal; print('here', flush=True); signal.pause()"


def python(program: str, *arguments: str) -> PeerProcess:
    return PeerProcess([sys.executable, "-c", program, *arguments])


def hear(process: PeerProcess) -> list[str]:
    """Return the next lines of the process."""
    lines: list[str] = []
    while not lines:
        assert select.select([process.output], [], [], 30)[0], "it says nothing"
        lines += process.lines()
    return lines


def test_words_are_replaced_in_each_argument() -> None:
    words = {"endpoint": "tcp://127.0.0.1:1,tcp://127.0.0.1:2", "unit": "200"}
    command = "./my worker 'a b' --to={endpoint} {unit}x{unit} {other}"

    assert fill(command, words) == [
        "./my",
        "worker",
        "a b",
        "--to=tcp://127.0.0.1:1,tcp://127.0.0.1:2",
        "200x200",
        "{other}",
    ]


@pytest.mark.parametrize("command", ["", "  ", "'open"])
def test_a_command_that_is_none_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match=r"command|quotation"):
        fill(command, {})


def test_a_missing_program_is_named_in_the_error() -> None:
    with pytest.raises(OSError, match="no-such-program"):
        PeerProcess(["/no-such-program"])


def test_lines_go_both_ways_and_come_whole() -> None:
    echo = "import sys\nfor line in sys.stdin:\n print('<' + line.strip() + '>', flush=True)"
    process = python(echo)
    process.write_line("one")
    assert hear(process) == ["<one>"]
    process.write_line("x" * 1_000_000)
    assert hear(process) == ["<" + "x" * 1_000_000 + ">"]
    assert process.close(10) == ""


def test_the_end_by_sigterm_is_a_good_end() -> None:
    process = python(WAITS)
    hear(process)

    assert process.close(10) == ""
    assert process.ended


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_a_peer_that_does_not_end_is_killed_with_its_children() -> None:
    stubborn = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {WAITS!r}])\n"
        "print(child.pid, flush=True)\n"
        "signal.pause()\n"
    )
    process = python(stubborn)
    lines: list[str] = []
    while len(lines) < 2:  # the child's "here" and its pid, in either order
        lines += hear(process)
    (child,) = (int(line) for line in lines if line.isdigit())
    complaint = process.close(0.1)

    assert "did not end within 0.1 s" in complaint
    while not ended(child):
        os.sched_yield()  # the child was killed, but may not have been scheduled since


def ended(pid: int) -> bool:
    """Return whether a process has ended; a zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2][1] == "Z"
    except OSError:
        return True


def test_a_failed_end_reports_the_status_and_the_output() -> None:
    process = python("import sys; print('oh dear', file=sys.stderr); sys.exit(7)")

    assert process.wait_ended(30)
    assert process.close(10) == "the testee ended on its own, with status 7; expected 0"
    assert process.stderr.strip() == "oh dear"


def test_telling_the_dead_is_no_error() -> None:
    process = python("")
    assert process.wait_ended(30)
    process.write_line("hello?")

    assert process.close(10) == ""


def test_a_signal_is_named_by_its_number() -> None:
    process = python(WAITS)
    hear(process)
    process._child.send_signal(signal.SIGKILL)
    assert process.wait_ended(30)

    assert (
        process.close(10)
        == f"the testee ended on its own, with status {-signal.SIGKILL}; expected 0"
    )
