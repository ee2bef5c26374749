"""Worker processes: the jobs of a process that dies, hangs, is replaced or cannot start.

The processes and signals are real. Handlers report by ``job.report`` how far they have come.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.pool_handlers import end_a_fork, log_run
from tests.unit.runtime.posts import (
    CANCELLED,
    LOST,
    OK,
    Opener,
    Posts,
    end_process,
    forever,
    run,
    until_cancelled,
    until_open,
    upper,
)
from tests.waiting import WAIT, gone
from wmp.actions import Interrupt, Recall
from wmp.errors import ConfigError
from wmp.runtime.executors import open_pool

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[4]


def test_sigterm_ends_a_process_that_a_handler_forked(opened: Opener, posts: Posts) -> None:
    pool = opened("process", 1, default=end_a_fork)
    pool.run(run(1, [b""]))
    assert posts.results(1, [1]) == [(OK, b"-15")]


@pytest.mark.rule("WMP-6.14")
def test_a_killed_child_costs_its_job_an_attempt_and_nothing_else(
    opened: Opener, posts: Posts, tmp_path: Path
) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    os.mkfifo(other := tmp_path / "other")
    pool = opened("process", 2, default=until_open)
    pool.run(run(1, [b"", os.fsencode(fifo), b"", b""]))
    pid = int(posts.report().text or "")
    pool.run(run(2, [os.fsencode(other)]))
    posts.report()
    os.kill(pid, signal.SIGKILL)
    assert f"worker process {pid} was killed by SIGKILL, perhaps because" in posts.cause(1, 2)
    rest = posts.results(1, [1, 3, 4])
    assert [outcome for outcome, _ in rest] == [OK] * 3
    assert rest[1] == rest[2] != (OK, b"%d" % pid)
    assert gone(pid)
    other.write_bytes(b"undisturbed")
    assert posts.results(2, [1]) == [(OK, b"undisturbed")]


def test_a_child_that_exits_is_reported_with_its_code_and_replaced(
    opened: Opener, posts: Posts
) -> None:
    pool = opened("process", default=end_process)
    pool.run(run(1, [b"", b"die", b"die", b""]))
    results = posts.results(1, range(1, 5))
    assert [outcome for outcome, _ in results] == [OK, LOST, LOST, OK]
    texts = {results[i][1].decode() for i in (1, 2)}
    assert all("exit code 3" in text for text in texts)
    assert len(texts) == 2, "each names a child of its own"


@pytest.mark.rule("WMP-6.14")
@pytest.mark.parametrize("size", [1, 20_000, 100_000], ids=["small", "some", "large"])
def test_jobs_that_ended_before_the_child_died_do_not_run_again(
    opened: Opener, posts: Posts, tmp_path: Path, size: int
) -> None:
    log = tmp_path / "log"
    jobs = [f"{log}|{number}|{size}" for number in range(40)]
    for fatal in (10, 11):
        jobs[fatal] = f"{log}|{fatal}|die"
    pool = opened("process", default=log_run)
    pool.run(run(1, [job.encode() for job in jobs]))
    results = posts.results(1, range(1, 41))
    assert log.read_text().split() == [str(number) for number in range(40)]
    for number, (outcome, payload) in enumerate(results):
        if number in (10, 11):
            assert outcome is LOST
        else:
            assert (outcome, payload) == (OK, str(number).encode() * size)


def test_deadlines_that_no_selector_can_wait_for_do_no_harm(opened: Opener, posts: Posts) -> None:
    pool = opened("process", default=upper)
    now = time.monotonic()
    deadlines = [now + 2_500_000, now + (2**63 - 1) / 1000, None]
    pool.run(run(1, [b"a", b"b", b"c"], deadlines=deadlines))
    assert posts.results(1, [1, 2, 3]) == [(OK, b"A"), (OK, b"B"), (OK, b"C")]
    pool.run(run(2, [b"d"]))
    assert posts.results(2, [1]) == [(OK, b"D")]


def test_an_idle_child_that_dies_is_replaced(opened: Opener, posts: Posts) -> None:
    pool = opened("process", default=end_process)
    pool.run(run(1, [b""]))
    pid = int(posts.results(1, [1])[0][1])
    os.kill(pid, signal.SIGKILL)
    pool.run(run(2, [b"", b""]))
    results = posts.results(2, [1, 2])
    # The lane may have been sent to the dying child, but the child did not begin a job of it, so no
    # job is lost.
    assert [outcome for outcome, _ in results] == [OK, OK]
    assert int(results[0][1]) != pid


def test_a_recall_that_a_dead_child_cannot_answer_is_answered(opened: Opener, posts: Posts) -> None:
    pool = opened("process", default=forever)
    pool.run(run(1, [b"", b"", b"", b""]))
    pid = int(posts.report().text or "")
    os.kill(pid, signal.SIGSTOP)
    pool.recall(Recall(1, [1, 2]))
    pool.interrupt(Interrupt(1, [3]))
    pool.recall(Recall(1, [4]))
    os.kill(pid, signal.SIGKILL)
    assert "killed by SIGKILL" in posts.cause(1, 1)
    posts.until(lambda: len(posts.recalled) == 2)
    assert posts.recalled == [(1, [2]), (1, [4])]
    assert posts.results(1, [3]) == [(CANCELLED, b"")]


def test_recall_and_interrupt_reach_a_lane_that_waits_for_a_child(
    opened: Opener, posts: Posts
) -> None:
    pool = opened("process", default=until_cancelled)
    pool.run(run(1, [b""]))
    posts.report()
    pool.run(run(2, [b"", b"", b""]))
    pool.recall(Recall(2, [1, 2]))
    pool.interrupt(Interrupt(2, [2, 3]))
    posts.until(lambda: bool(posts.recalled))
    assert posts.recalled == [(2, [1, 2])]
    assert posts.results(2, [3]) == [(CANCELLED, b"")]
    pool.interrupt(Interrupt(1, [1]))
    assert posts.results(1, [1]) == [(CANCELLED, b"")]


def test_the_same_id_of_another_manager_is_not_blamed(opened: Opener, posts: Posts) -> None:
    pool = opened("process", default=end_process)
    pool.run(run(1, [b""]))
    pid = int(posts.results(1, [1])[0][1])
    os.kill(pid, signal.SIGSTOP)
    pool.run(run(2, [b""]))  # job 1 of another manager was sent and has not begun
    os.kill(pid, signal.SIGKILL)
    assert posts.results(2, [1])[0][0] is OK


def test_more_than_a_socket_holds_goes_both_ways(opened: Opener, posts: Posts) -> None:
    pool = opened("process", default=upper)
    payloads = [os.urandom(5 << 20), b"x" * (3 << 20), b"y"]
    pool.run(run(1, [payloads[0], memoryview(payloads[1]), payloads[2]]))
    assert posts.results(1, [1, 2, 3]) == [(OK, payload.upper()) for payload in payloads]


def test_children_leave_signals_of_the_group_to_the_parent(
    opened: Opener, posts: Posts, tmp_path: Path
) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    pool = opened("process", default=until_open)
    pids = set()
    for number in (signal.SIGINT, signal.SIGTERM):
        pool.run(run(number, [os.fsencode(fifo)]))
        pids.add(pid := int(posts.report().text or ""))
        os.kill(pid, number)
        fifo.write_bytes(b"still here")
        assert posts.results(number, [1]) == [(OK, b"still here")]
    assert len(pids) == 1


def test_close_kills_a_stuck_child(opened: Opener, posts: Posts) -> None:
    pool = opened("process", default=forever)
    pool.run(run(1, [b""]))
    pid = int(posts.report().text or "")
    pool.close(0.2)
    assert gone(pid)


def nested() -> Any:
    def inner(payload: bytes) -> bytes:
        return payload

    return inner


@pytest.mark.parametrize("handler", [lambda payload: payload, nested()])
def test_a_handler_that_cannot_be_pickled_is_a_config_error(handler: Any, posts: Posts) -> None:
    pool = open_pool("process", {"resize": handler}, 1, posts)
    with pytest.raises(ConfigError, match="'resize' cannot be sent to worker processes") as caught:
        pool.start()
    assert 'or pool="thread"' in str(caught.value)
    assert "\n" not in str(caught.value)
    pool.close(1)


def test_a_handler_that_a_child_cannot_import_is_a_config_error(
    posts: Posts, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("only_in_this_process")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("def handler(payload): return payload", module.__dict__)
    pool = open_pool("process", {"default": module.handler}, 1, posts)
    with pytest.raises(ConfigError, match="No module named 'only_in_this_process'") as caught:
        pool.start()
    assert 'or pool="thread"' in str(caught.value)
    pool.close(1)


SCRIPT = """
import queue, sys
from wmp.actions import Run
from wmp.errors import ConfigError
from wmp.message import Kind
from wmp.runtime.executors import open_pool

def shout(payload):
    return payload.upper()

def forever(payload):
    import sys, threading
    print("here", flush=True)
    threading.Event().wait()

def main():
    events = queue.SimpleQueue()
    pool = open_pool("process", {"default": globals()[sys.argv[1]]}, 1, events.put)
    try:
        pool.start()
    except ConfigError as error:
        print("ConfigError:", error)
        sys.exit(2)
    pool.run(Run(1, Kind(), (b"m", 1), [1], [1], None, [b"hello"]))
    print(events.get().payloads[0].decode())
    if sys.argv[1:] != ["shout", "unclosed"]:
        pool.close(5)

"""
GUARDED = SCRIPT + 'if __name__ == "__main__":\n    main()\n'


def script(text: str, *arguments: str, path: Path | None = None) -> subprocess.Popen[bytes]:
    if path is not None:
        path.write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-" if path is None else str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if path is None:
        assert process.stdin is not None
        process.stdin.write(text.encode())
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    return process


@pytest.mark.parametrize("arguments", [["shout"], ["shout", "unclosed"]])
def test_handlers_of_the_program_itself_work(arguments: list[str], tmp_path: Path) -> None:
    process = script(GUARDED, *arguments, path=tmp_path / "program.py")
    stdout, stderr = process.communicate(timeout=WAIT)
    assert (process.returncode, stdout, stderr) == (0, b"HELLO\n", b"")


def test_handlers_typed_into_an_interpreter_are_a_config_error() -> None:
    process = script(GUARDED, "shout")
    stdout, stderr = process.communicate(timeout=WAIT)
    assert process.returncode == 2, stderr
    assert stdout.count(b"\n") == 1
    assert b"interactive session" in stdout
    assert b'or use pool="thread"' in stdout


def test_a_program_without_a_main_guard_is_an_error_that_names_the_guard(tmp_path: Path) -> None:
    process = script(SCRIPT + "main()\n", "shout", path=tmp_path / "program.py")
    stdout, stderr = process.communicate(timeout=WAIT)
    assert process.returncode == 2, stderr
    assert b"if __name__ == '__main__':" in stdout


def test_children_end_when_their_parent_dies(tmp_path: Path) -> None:
    process = script(GUARDED, "forever", path=tmp_path / "program.py")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"here\n"
    process.kill()
    process.wait(WAIT)
    # The process's children write to the same pipe, which ends when the last child ends.
    assert process.stdout.read() == b""
    process.stdout.close()
    process.stderr.close()


@pytest.mark.rule("WMP-9.22")
def test_a_stopped_child_begins_no_job_that_was_interrupted_meanwhile(
    opened: Opener, posts: Posts, tmp_path: Path
) -> None:
    pool = opened("process", default=until_open)
    for lane in range(1, 11):
        os.mkfifo(fifo := tmp_path / str(lane))
        pool.run(run(lane, [os.fsencode(fifo), *[b""] * 50]))
        pid = int(posts.report().text or "")
        with open(fifo, "wb") as file:  # the handler reads now
            os.kill(pid, signal.SIGSTOP)
            pool.interrupt(Interrupt(lane, range(2, 52)))
            file.write(b"go")
        # The handler ends at the same time as the process reads the interruption.
        os.kill(pid, signal.SIGCONT)
        ends = posts.results(lane, range(1, 52))
        assert ends == [(OK, b"go"), *[(CANCELLED, b"")] * 50]
