"""`wmp map`: files and lines, order, errors, a terminal, Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import threading
import time

import pytest

import wmp
from tests.interop.programs.forks import forks
from tests.interop.programs.forks import wmp as program
from tests.interop.programs.programs import ENVIRON, WMP
from tests.waiting import WAIT

pytestmark = pytest.mark.interop


def work(payload: bytes) -> bytes:
    """Return the line in upper case; a line with "slow" takes longer than the lines after it."""
    if b"slow" in payload:
        time.sleep(0.2)
    if b"bad" in payload:
        raise ValueError("this is bad")
    return payload.upper()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def worker(folder):
    with wmp.Worker("ipc://here", handlers={"shout": work}, slots=4) as worker:
        yield worker


def spread(*argv: str) -> tuple[str, ...]:
    return ("map", "--bind", "ipc://here", "--role", "shout", *argv)


def test_results_of_files_come_in_their_order_each_with_a_newline(folder, worker):
    contents = {"a": "slow\nand long\n", "b": "no newline", "c": "", "d": "x\n"}
    for name, text in contents.items():
        (folder / name).write_text(text)

    with program(*spread(*contents)) as mapped:
        assert mapped.ends() == 0
        assert mapped.stdout == b"SLOW\nAND LONG\nNO NEWLINE\n\nX\n"
        assert "wmp: warning" not in mapped.stderr


def test_lines_of_stdin_come_back_while_more_may_come(worker):
    with program(*spread()) as mapped:
        for line in ("first", "second"):
            # The next line is written only when the result of the line before was read.
            mapped.feed(f"{line}\n".encode())
            assert mapped.wait_for_line(line.upper(), on="stdout") == line.upper()
        mapped.feed(b"\nlast without newline")
        mapped.end_input()

        assert mapped.ends() == 0
        assert mapped.stdout == b"FIRST\nSECOND\n\nLAST WITHOUT NEWLINE\n"


def test_lines_of_files_are_named_by_their_number(folder, worker):
    (folder / "a").write_text("one\nbad\n")
    (folder / "b").write_text("three")

    with program(*spread("--lines", "--checksum", "a", "b")) as mapped:
        assert mapped.ends() == 1
        assert mapped.stdout == b"ONE\nTHREE\n"
        assert "wmp: a:2: ValueError: this is bad\n" in mapped.stderr
        assert "wmp: 1 of 3 jobs failed\n" in mapped.stderr
        assert "Traceback" not in mapped.stderr


def test_json_has_the_name_and_end_of_each_input(folder, worker):
    (folder / "good").write_bytes(b"fine")
    (folder / "bytes").write_bytes(b"\xff")
    (folder / "bad").write_bytes(b"bad")

    with program(*spread("--json", "good", "bytes", "bad")) as mapped:
        assert mapped.ends() == 1
        assert [json.loads(line) for line in mapped.stdout.splitlines()] == [
            {"name": "good", "ok": True, "result": "FINE"},
            {"name": "bytes", "ok": True, "base64": "/w=="},
            {"name": "bad", "ok": False, "error": "ValueError: this is bad"},
        ]


def test_many_lines(worker):
    with program(*spread()) as mapped:
        mapped.feed(b"".join(b"line %d\n" % n for n in range(2_000)))
        mapped.end_input()

        assert mapped.ends() == 0
        assert mapped.stdout == b"".join(b"LINE %d\n" % n for n in range(2_000))


def test_a_time_limit_is_for_each_job(folder):
    with program(*spread("--timeout", "0.2", "--lines", "-")) as mapped:
        mapped.feed(b"one\ntwo\n")
        mapped.end_input()

        assert mapped.ends() == 1
        assert mapped.stderr.count("wmp: stdin:") == 2


def test_a_missing_worker_is_reported_once_and_ctrl_c_cancels(folder):
    with (
        wmp.Worker("ipc://here", handlers={"whisper": work}),
        program(*spread()) as mapped,
    ):
        mapped.feed(b"one\ntwo\n")
        warning = mapped.wait_for_line("no worker for role 'shout'")
        assert "ipc://here" in warning
        assert "offer 'whisper'" in warning
        assert "wmp worker --role shout --connect ipc://here" in warning
        mapped.signal(signal.SIGINT)

        assert mapped.ends() == 130
        assert mapped.stdout == b""
        assert mapped.stderr.count("no worker for role") == 1
        assert "Traceback" not in mapped.stderr


def test_a_missing_worker_ends_the_program_after_the_wait(folder):
    with program(*spread("--wait", "0.5")) as mapped:
        mapped.feed(b"one\n")
        assert mapped.ends() == 2
        assert "no worker for role 'shout'" in mapped.stderr
        assert "wait longer with --wait" in mapped.stderr
        assert "Traceback" not in mapped.stderr


def test_a_missing_resource_ends_the_program_after_the_wait(worker):
    with program(*spread("--need", "gpu=1", "--need", "slots=9", "--wait", "0.5")) as mapped:
        mapped.feed(b"one\n")
        assert mapped.ends() == 2
        assert "no connected worker of the role 'shout' has gpu=1" in mapped.stderr
        assert "slots=9 (the largest of these workers has slots=" in mapped.stderr
        assert "wmp worker --role shout --resource gpu=1 --slots 9 " in mapped.stderr
        assert "wait longer with --wait" in mapped.stderr


def test_the_hint_for_a_worker_names_the_flags_for_keys(folder):
    with program("keys", "here") as process:
        assert process.ends() == 0
    secured = spread("--secret", "here.key_secret", "--wait", "0.5")
    for argv, start in (
        (spread("--wait", "0.5"), "--role shout --connect ipc://here -- "),
        (secured, "--role shout --secret FILE --server FILE --connect ipc://here -- "),
    ):
        with program(*argv) as mapped:
            mapped.feed(b"one\n")
            assert mapped.ends() == 2
            assert f"start one: wmp worker {start}COMMAND" in mapped.stderr


def test_the_start_that_is_suggested_names_a_host_that_a_worker_can_reach(folder):
    with program("keys", "here") as process:
        assert process.ends() == 0
    with program(
        *("map", "--bind", "tcp://0.0.0.0:*", "--secret", "here.key_secret", "--wait", "0.5")
    ) as mapped:
        mapped.feed(b"one\n")

        assert mapped.ends() == 2
        (address,) = re.findall(r"--connect tcp://(\S+):\d+ ", mapped.stderr)
        assert address == socket.gethostname()


def test_a_missing_worker_is_reported_again_when_the_only_worker_leaves(folder):
    with program(*spread()) as mapped:
        for word in (b"one", b"two"):
            with wmp.Worker("ipc://here", handlers={"shout": work}):
                mapped.feed(word + b"\n")
                mapped.wait_for_line(word.decode().upper(), on="stdout")
            mapped.feed(b"slow\n")
            mapped.wait_for_count("no worker for role 'shout'", 1 if word == b"one" else 2)
        mapped.signal(signal.SIGINT)

        assert mapped.ends() == 130
        assert mapped.stderr.count("no worker for role") == 2


def test_a_port_chosen_by_the_system_is_printed(folder):
    with program("map", "--bind", "tcp://127.0.0.1:*") as mapped:
        endpoint = mapped.wait_for_line("bound to").rpartition(" ")[2]
        with wmp.Worker(endpoint, handlers=work):
            mapped.feed(b"hello")
            mapped.end_input()

            assert mapped.ends() == 0
            assert mapped.stdout == b"HELLO\n"


def test_a_reader_that_closes_the_pipe_early_causes_no_traceback(worker):
    ours, theirs = os.pipe()
    process = forks().start(*WMP, *spread(), output=theirs)
    os.close(theirs)
    with process.stdin, process.stderr:
        try:
            process.stdin.write(b"one\n")
            process.stdin.flush()
            assert os.read(ours, 100) == b"ONE\n"
            os.close(ours)
            process.stdin.write(b"two\n")
            process.stdin.close()

            assert process.stderr.read() == b""
            assert process.wait(WAIT) == 141
        finally:
            process.kill()


def on_a_terminal(*argv, lines=None, typed=None, code=0):
    """Run on a terminal of 80 columns; return the output. Stdin is a pipe, or the keyboard."""
    ours, theirs = pty.openpty()
    process = forks().start(
        *WMP,
        *argv,
        env={**ENVIRON, "TERM": "xterm"},
        input=theirs if typed is not None else None,
        output=theirs,
        errors=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        if typed is not None:
            os.write(ours, typed)
        else:
            process.stdin.write(lines or b"")
            process.stdin.close()
        until = time.monotonic() + WAIT
        while select.select([ours], [], [], max(0.0, until - time.monotonic()))[0]:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux reports in this way that the other side has been closed
                chunk = b""
            if not chunk:
                break
            seen += chunk

        assert process.wait(WAIT) == code
        return seen
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        if typed is None:
            process.stdin.close()


def test_a_terminal_shows_how_far_it_is(folder, worker):
    for name in ("a", "b", "c"):
        (folder / name).write_text(f"file {name}, slow")
    seen = on_a_terminal(*spread("a", "b", "c"))

    assert b"0/3" in seen
    assert seen.index(b"FILE A, SLOW") < seen.index(b"FILE B, SLOW")


def test_how_much_there_is_is_shown_when_stdin_has_ended(worker):
    seen = on_a_terminal(*spread(), lines=b"slow one\nslow two\n" * 4)

    assert b"/8" in seen


def test_log_lines_appear_above_the_progress_bar(worker):
    seen = on_a_terminal(*spread("--verbose"), lines=b"bad\nslow\n", code=1)
    (line,) = [line for line in seen.split(b"\n") if b"wmp: stdin:1: Traceback" in line]

    # The progress bar is erased first.
    assert b"/2" not in line.rpartition(b"\x1b[2K")[2]


def test_there_is_no_bar_where_lines_are_typed(worker):
    seen = on_a_terminal(*spread(), typed=b"slow one\n\x04")

    assert b"SLOW ONE" in seen
    assert b"\x1b[" not in seen


def test_sigterm_cancels_the_running_jobs(folder):
    cancelled = threading.Event()
    begun = threading.Event()

    def hang(payload: bytes, job: wmp.RunningJob) -> bytes:
        begun.set()
        until = time.monotonic() + WAIT
        while not job.cancelled and time.monotonic() < until:
            time.sleep(0.01)
        cancelled.set()
        return payload

    with (
        wmp.Worker("ipc://here", handlers={"shout": hang}) as worker,
        program(*spread()) as mapped,
    ):
        mapped.feed(b"one\n")
        assert begun.wait(WAIT)
        mapped.signal(signal.SIGTERM)

        assert mapped.ends() == 143
        assert cancelled.wait(WAIT)
        assert "terminated; running jobs were cancelled" in mapped.stderr
        assert "Traceback" not in mapped.stderr
        worker.close(0)  # no manager is left to take the result


def test_a_file_that_is_too_large_fails_alone(folder, worker):
    with open("large", "wb") as file:
        file.truncate((256 << 20) + 1)
    (folder / "small").write_text("a")
    with program(*spread("large", "small")) as mapped:
        assert mapped.ends() == 1
        assert mapped.stdout == b"A\n"
        assert "large: is too large for one job" in mapped.stderr


def test_a_run_is_resumed_from_its_job_log(folder, worker):
    for name in ("a", "b", "c"):
        (folder / name).write_text(name)
    (folder / "b").write_text("bad")

    with program(*spread("--joblog", "log", "a", "b", "c")) as mapped:
        assert mapped.ends() == 1
        assert mapped.stdout == b"A\nC\n"
    rows = [line.split("\t") for line in (folder / "log").read_text().splitlines()[1:]]
    assert [(row[0], row[4], row[5], row[6], row[8]) for row in rows] == [
        ("1", "1", "1", "0", "shout a"),
        ("2", "3", "0", "1", "shout b"),
        ("3", "1", "1", "0", "shout c"),
    ]
    assert all(row[1] and float(row[2]) > 1e9 and float(row[3]) >= 0 for row in rows)

    (folder / "b").write_text("good")
    with program(*spread("--joblog", "log", "--resume-failed", "a", "b", "c")) as mapped:
        assert mapped.ends() == 0
        assert mapped.stdout == b"GOOD\n"
    with program(*spread("--joblog", "log", "--resume", "a", "b", "c")) as mapped:
        assert mapped.ends() == 0
        assert mapped.stdout == b""


def test_a_failed_job_halts_the_run(folder):
    with (
        wmp.Worker("ipc://here", handlers={"shout": work}),
        program(*spread("--halt", "now,fail=1", "--joblog", "log")) as mapped,
    ):
        # Stdin stays open, and the run must end all the same.
        mapped.feed(b"fine\nbad\n")
        assert mapped.ends() == 1
        assert mapped.stdout == b"FINE\n"
        assert "no further job was started because of --halt now,fail=1" in mapped.stderr
    assert [line.split("\t")[8] for line in (folder / "log").read_text().splitlines()[1:]] == [
        "shout stdin:1",
        "shout stdin:2",
    ]


def test_retries_are_further_attempts(folder):
    tried = []

    def fails(payload):
        tried.append(payload)
        raise ValueError("this is bad")

    with (
        wmp.Worker("ipc://here", handlers={"shout": fails}),
        program(*spread("--retries", "2")) as mapped,
    ):
        mapped.feed(b"one\n")
        mapped.end_input()
        assert mapped.ends() == 1
    assert tried == [b"one"] * 3


def test_with_a_store_inputs_of_an_earlier_run_are_not_processed_again(folder):
    (folder / "a").write_text("one")
    (folder / "b").write_text("two")
    stored = spread("--store", "jobs.db", "a", "b")
    with wmp.Worker("ipc://here", handlers={"shout": work}), program(*stored) as first:
        assert first.ends() == 0
    # There is no worker now: the results are those of the store.
    with program(*stored) as again:
        assert again.ends() == 0

    assert first.stdout == again.stdout == b"ONE\nTWO\n"
    with wmp.results("jobs.db") as results, pytest.raises(KeyError):
        results.get(99)


def test_jobs_of_an_interrupted_run_stay_in_its_store(folder):
    (folder / "a").write_text("one")
    stored = spread("--store", "jobs.db", "a")
    with program(*stored) as first:
        first.wait_for_line("no worker for role 'shout'")
        first.signal(signal.SIGINT)
        assert first.ends() == 130
    assert "interrupted; the jobs stay in jobs.db" in first.stderr
    with wmp.Worker("ipc://here", handlers={"shout": work}), program(*stored) as again:
        assert again.ends() == 0
    assert again.stdout == b"ONE\n"
