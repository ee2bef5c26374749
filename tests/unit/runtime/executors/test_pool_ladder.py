"""Worker processes that are ended by force, replaced in time, or short of memory.

The processes and signals are real. ``grace`` is short in tests that wait for its end, and long in
tests in which no signal may come.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.runtime.pool_handlers import allocate, cling, echo, leave_a_thread, stubborn, tidy
from tests.unit.runtime.posts import (
    CANCELLED,
    ERROR,
    OK,
    Opener,
    Posts,
    end_process,
    forever,
    run,
    until_cancelled,
    until_open,
)
from tests.waiting import WAIT, gone, wait_until
from wmp.actions import Interrupt
from wmp.errors import ConfigError
from wmp.runtime.executors import (
    Pool,
    ProcessLimits,
    kill_deadlines,
    make_process_limits,
    open_pool,
    process_executor,
)
from wmp.runtime.executors.assignment import NEVER

pytestmark = pytest.mark.interop

WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
SOON = ProcessLimits(cancel_grace=0.1)


def pid_of(posts: Posts) -> int:
    return int(posts.report().text or "")


@pytest.fixture
def late_sigkill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a handler time to react to SIGTERM, on a busy machine too."""
    monkeypatch.setattr(kill_deadlines, "KILL_AFTER", WAIT)


# -- the ladder: flag, SIGTERM, SIGKILL -----------------------------------------------------


@pytest.mark.rule("WMP-6.10", "WMP-6.16")
def test_only_the_job_that_ignores_flag_and_sigterm_is_killed(
    opened: Opener, posts: Posts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The child must report SIGTERM before SIGKILL comes.
    monkeypatch.setattr(kill_deadlines, "KILL_AFTER", 2.0)
    os.mkfifo(fifo := tmp_path / "fifo")
    pool = opened("process", 2, SOON, default=stubborn, other=until_open)
    pool.run(run(1, [b"", b"quick", b"quick"]))
    pid = pid_of(posts)
    pool.run(run(2, [os.fsencode(fifo)], "other"))
    posts.report()

    began = time.monotonic()
    pool.interrupt(Interrupt(1, [1, 2]))
    assert posts.report().text == "Terminated"
    assert posts.results(1, [1, 2]) == [(CANCELLED, b""), (CANCELLED, b"")]
    assert time.monotonic() - began >= 0.1 + 2.0
    assert gone(pid)
    assert posts.results(1, [3])[0][0] is OK
    fifo.write_bytes(b"undisturbed")
    assert posts.results(2, [1]) == [(OK, b"undisturbed")]


@pytest.mark.rule("WMP-6.16")
def test_sigterm_lets_a_handler_tidy_up(
    opened: Opener, posts: Posts, tmp_path: Path, late_sigkill: None
) -> None:
    note = tmp_path / "note"
    pool = opened("process", 1, SOON, default=tidy)
    pool.run(run(1, [b"", os.fsencode(note), b""]))
    pid = pid_of(posts)
    began = time.monotonic()
    pool.interrupt(Interrupt(1, [2]))
    first, cancelled, last = posts.results(1, [1, 2, 3])
    assert cancelled == (CANCELLED, b"")
    assert time.monotonic() - began >= 0.1
    assert note.read_text() == "tidied up"
    assert gone(pid)
    assert int(first[1]) == pid != int(last[1])


def test_a_result_in_the_face_of_sigterm_counts_and_its_process_is_replaced(
    opened: Opener, posts: Posts, late_sigkill: None
) -> None:
    pool = opened("process", 1, SOON, default=cling, other=end_process)
    pool.run(run(1, [b""]))
    pid = pid_of(posts)
    pool.interrupt(Interrupt(1, [1]))
    assert posts.results(1, [1]) == [(OK, b"%d" % pid)]
    pool.run(run(2, [b""], "other"))
    assert int(posts.results(2, [1])[0][1]) != pid


@pytest.mark.rule("WMP-6.16")
def test_a_job_that_runs_past_its_deadline_is_killed_and_lost_with_the_cause(
    opened: Opener, posts: Posts
) -> None:
    pool = opened("process", 1, SOON, default=forever)
    at = time.monotonic() + 2.0
    pool.run(run(1, [b"", b"too late"], deadlines=[at, at]))
    pid = pid_of(posts)
    cause = posts.cause(1, 1)
    assert time.monotonic() >= at + 0.1
    assert cause == f"the job ran for 0.1 s after its deadline; worker process {pid} was killed"
    assert posts.results(1, [2]) == [(CANCELLED, b"")]
    assert gone(pid)


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_the_flag_goes_up_at_the_deadline(kind: str, opened: Opener, posts: Posts) -> None:
    pool = opened(kind, 1, ProcessLimits(cancel_grace=1e6), default=until_cancelled)
    at = time.monotonic() + 2.0
    pool.run(run(1, [b""], deadlines=[at]))
    assert posts.results(1, [1]) == [(CANCELLED, b"")]
    assert time.monotonic() >= at


def test_a_stopped_process_is_killed(opened: Opener, posts: Posts) -> None:
    pool = opened("process", 1, SOON, default=forever)
    pool.run(run(1, [b""]))
    pid = pid_of(posts)
    os.kill(pid, signal.SIGSTOP)
    pool.interrupt(Interrupt(1, [1]))
    assert posts.results(1, [1]) == [(CANCELLED, b"")]
    assert gone(pid)


def test_without_a_grace_no_process_is_killed(opened: Opener, posts: Posts, tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    pool = opened("process", 1, ProcessLimits(cancel_grace=None), default=until_open)
    pool.run(run(1, [os.fsencode(fifo)], deadlines=[time.monotonic() + 2.0]))
    pid = pid_of(posts)
    pool.interrupt(Interrupt(1, [1]))
    executor = pool._plain
    assert isinstance(executor, process_executor.ProcessExecutor)
    wait_until(lambda: executor._assignments[1].alarm == NEVER)
    assert executor._time_to_sleep(time.monotonic()) is None
    fifo.write_bytes(b"in the end")
    assert posts.results(1, [1]) == [(OK, b"in the end")]
    pool.run(run(2, [b""]))
    assert int(posts.results(2, [1])[0][1]) == pid


def test_sigterm_for_a_job_that_has_just_ended_hits_no_other(
    opened: Opener, posts: Posts, tmp_path: Path
) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    pool = opened("process", 1, SOON, default=until_open)
    pool.run(run(1, [os.fsencode(fifo), b""]))
    pid = pid_of(posts)
    executor = pool._plain
    assert isinstance(executor, process_executor.ProcessExecutor)
    (child,) = executor._children
    with executor._lock:
        child.condemn(99, time.monotonic() + 0.05)
    executor._wake()
    pool.run(run(2, [b""]))  # the lane must wait, because the child may still end the first lane
    fifo.write_bytes(b"here")
    assert posts.results(1, [1, 2]) == [(OK, b"here"), (OK, b"%d" % pid)]
    assert posts.results(2, [1]) == [(OK, b"%d" % pid)]


def test_interrupting_a_job_that_has_not_begun_kills_no_process(
    opened: Opener, posts: Posts, tmp_path: Path
) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    pool = opened("process", 1, ProcessLimits(cancel_grace=0.0), default=until_open)
    pool.run(run(1, [os.fsencode(fifo), b"", b""], deadlines=[None, time.monotonic(), None]))
    pid = pid_of(posts)
    pool.interrupt(Interrupt(1, [3]))
    assert posts.results(1, [3]) == [(CANCELLED, b"")]
    fifo.write_bytes(b"here")
    assert posts.results(1, [1, 2]) == [(OK, b"here"), (CANCELLED, b"")]
    pool.run(run(2, [b""]))
    assert posts.results(2, [1]) == [(OK, b"%d" % pid)]


def test_everything_is_interrupted_when_there_is_no_time_left(opened: Opener, posts: Posts) -> None:
    pool = opened("process", 2, SOON, default=forever, other=until_cancelled)
    pool.run(run(1, [b"", b""]))
    pool.run(run(2, [b"", b""], "other"))
    pool.run(run(3, [b"", b""]))  # no child is free
    posts.report()
    posts.report()
    pool.interrupt_all()
    for lane in (1, 2, 3):
        assert posts.results(lane, [1, 2]) == [(CANCELLED, b"")] * 2


def test_close_lets_a_handler_tidy_up_and_leaves_no_process(posts: Posts, tmp_path: Path) -> None:
    note = tmp_path / "note"
    pool = open_pool("process", {"default": tidy, "other": stubborn}, 2, posts)
    pool.start()
    pool.run(run(1, [os.fsencode(note)]))
    pool.run(run(2, [b""], "other"))
    pids = [pid_of(posts), pid_of(posts)]
    pool.close(1.0)
    assert note.read_text() == "tidied up"
    assert all(gone(pid) for pid in pids)


# -- a process for a number of jobs ---------------------------------------------------------


def children_of(pool: Pool) -> list[int]:
    executor = pool._plain
    assert isinstance(executor, process_executor.ProcessExecutor)
    return [child.pid for child in executor._children if child.pid is not None]


def test_children_are_replaced_after_so_many_jobs_and_nothing_is_lost(
    opened: Opener, posts: Posts
) -> None:
    pool = opened("process", 2, ProcessLimits(max_jobs=150), default=end_process)
    for lane in range(5):
        pool.run(run(lane, [b""] * 100, first=1 + 100 * lane))
    pids: Counter[int] = Counter()
    for lane in range(5):
        results = posts.results(lane, range(1 + 100 * lane, 101 + 100 * lane))
        assert {outcome for outcome, _ in results} == {OK}
        pids.update(int(pid) for _, pid in results)
    assert pids.total() == 500
    assert max(pids.values()) == 150, "in the middle of a lane, and no job too late"
    assert len(pids) >= 4
    left = children_of(pool)
    pool.close(5)
    assert posts.silent()
    assert all(gone(pid) for pid in {*pids, *left})


def test_a_successor_is_there_before_its_predecessor_leaves(
    opened: Opener, posts: Posts, tmp_path: Path
) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    pool = opened("process", 1, ProcessLimits(max_jobs=1), default=until_open)
    pool.run(run(1, [os.fsencode(fifo), b""]))
    pid = pid_of(posts)
    pool.run(run(2, [b""]))
    assert int(posts.results(2, [1])[0][1]) != pid  # the last job of ``pid`` still runs
    fifo.write_bytes(b"here")
    here, other = posts.results(1, [1, 2])
    assert here == (OK, b"here")
    assert other[0] is OK
    assert int(other[1]) != pid


def test_a_retired_process_that_cannot_end_is_killed(
    opened: Opener, posts: Posts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_executor, "_LEAVE", 0.1)
    pool = opened("process", 1, ProcessLimits(max_jobs=1), default=leave_a_thread)
    pool.run(run(1, [b""] * 2))
    pids = [int(pid) for _, pid in posts.results(1, [1, 2])]
    assert len(set(pids)) == 2
    wait_until(lambda: all(gone(pid) for pid in pids))


# -- memory ---------------------------------------------------------------------------------


def test_memory_error_is_an_ordinary_error(opened: Opener, posts: Posts) -> None:
    pool = opened("process", 1, ProcessLimits(memory=256 << 20), default=allocate)
    pool.run(run(1, [b"16", b"512", b"16"]))
    before, error, after = posts.results(1, [1, 2, 3])
    assert error[0] is ERROR
    assert posts.error(1, 2)[0] == "MemoryError"
    assert before == after
    assert before[0] is OK


def test_a_payload_that_no_process_can_take_in_is_lost_with_the_cause(
    opened: Opener, posts: Posts
) -> None:
    pool = opened("process", 1, ProcessLimits(memory=128 << 20), default=end_process)
    pool.run(run(1, [b"x" * (80 << 20)]))
    assert re.fullmatch(r"worker process \d+ failed: MemoryError: ?.*", posts.cause(1, 1))
    pool.run(run(2, [b""]))
    assert posts.results(2, [1])[0][0] is OK


def test_less_memory_than_the_handlers_need_is_a_config_error(posts: Posts) -> None:
    pool = open_pool("process", {"default": echo}, 1, posts, ProcessLimits(memory=1 << 20))
    with pytest.raises(ConfigError, match="worker process"):
        pool.start()
    pool.close(1)


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems report ru_maxrss in another unit"
)
def test_a_kill_by_the_kernel_reports_the_used_memory(opened: Opener, posts: Posts) -> None:
    peaks = [resource.getrusage(who).ru_maxrss for who in WHO]
    # More memory than any process before, so that its peak differs.
    amount = (max(peaks) >> 10) + 100
    pool = opened("process", 1, hold=allocate)
    pool.run(run(1, [b"%d" % amount], "hold"))
    pid = pid_of(posts)
    os.kill(pid, signal.SIGKILL)
    cause = posts.cause(1, 1)
    match = re.fullmatch(
        rf"worker process {pid} was killed by SIGKILL, perhaps because the machine had no "
        r"memory left \(the process had used (\d+) MiB\)",
        cause,
    )
    assert match is not None, cause
    assert amount <= int(match[1]) < amount + 100


# -- settings -------------------------------------------------------------------------------


def test_settings_are_checked() -> None:
    def make(pool: str = "process", **given: object) -> ProcessLimits:
        given = {
            "max_jobs_per_child": None,
            "memory_per_child": None,
            "cancel_grace": 2.0,
            **given,
        }
        return make_process_limits(pool, **given)  # type: ignore[arg-type]

    assert make() == ProcessLimits()
    assert make(max_jobs_per_child=5, cancel_grace=None) == ProcessLimits(
        max_jobs=5, cancel_grace=None
    )
    with pytest.raises(
        ConfigError, match=r"max_jobs_per_child is .*; expected a whole number of at least 1"
    ):
        make(max_jobs_per_child=0)
    with pytest.raises(ConfigError, match="add pool='process'"):
        make("thread", memory_per_child=1 << 30)
    for wrong in (-1, float("nan"), True, "2"):
        with pytest.raises(ConfigError, match=r"cancel_grace is .*; expected a number of seconds"):
            make(cancel_grace=wrong)
