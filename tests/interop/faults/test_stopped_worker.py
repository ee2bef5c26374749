"""A worker whose process is stopped with SIGSTOP and continued."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

import wmp
from tests.interop.programs.programs import WMP, Program
from tests.waiting import WAIT, wait_until

HANDLER = """
def note(payload):
    with open("begun.txt", "a") as file:
        file.write(payload.decode() + "\\n")
    return payload
"""


@pytest.mark.interop
@pytest.mark.rule("WMP-9.22")
def test_a_worker_that_was_stopped_begins_no_job_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("noting.py").write_text(HANDLER, encoding="utf-8")
    with (
        wmp.Manager("tcp://127.0.0.1:*", max_silence=1.0) as manager,
        Program(
            *WMP, "worker", "noting:note", "--no-beats", "--connect", manager.endpoints[0]
        ) as worker,
    ):
        assert manager.submit(b"first").result(WAIT) == b"first"
        worker.signal(signal.SIGSTOP)
        try:
            # The worker holds a GIVE, so that the TAKE waits in its socket.
            stopped = manager.submit(b"stopped")
            deadline = time.monotonic() + WAIT
            while manager.statistics().workers and time.monotonic() < deadline:
                time.sleep(0.01)
            with wmp.Worker(*manager.endpoints, handlers=bytes.upper):
                assert stopped.result(WAIT) == b"STOPPED"
        finally:
            worker.signal(signal.SIGCONT)
        # The worker serves again, and has begun nothing that ended.
        assert manager.submit(b"later").result(WAIT) == b"later"
    assert Path("begun.txt").read_text(encoding="utf-8").split() == ["first", "later"]


@pytest.mark.interop
@pytest.mark.rule("WMP-9.22")
@pytest.mark.parametrize("pool", ["thread", "process"])
def test_the_lane_of_a_worker_that_was_stopped_begins_no_job_that_ended(
    pool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("noting.py").write_text(HANDLER, encoding="utf-8")
    begun = Path("begun.txt")
    with (
        wmp.Manager("tcp://127.0.0.1:*", max_silence=1.0) as manager,
        Program(
            *WMP,
            *("worker", "noting:note", "--no-beats", "--slots", "1", "--pool", pool),
            *("--connect", manager.endpoints[0]),
        ) as worker,
    ):
        assert manager.submit(b"first").result(WAIT) == b"first"
        # So many short jobs that the lane has a bundle.
        jobs = manager.submit_many([b"%d" % number for number in range(5000)])
        wait_until(lambda: begun.read_bytes().count(b"\n") > 500)
        worker.signal(signal.SIGSTOP)
        try:
            wait_until(lambda: not manager.statistics().workers)
            with wmp.Worker(*manager.endpoints, handlers=bytes):
                wait_until(lambda: all(job.done() for job in jobs))
            before = begun.read_text(encoding="utf-8").split()
        finally:
            worker.signal(signal.SIGCONT)
        assert manager.submit(b"later").result(WAIT) == b"later"
    after = begun.read_text(encoding="utf-8").split()[len(before) :]
    # The job that was running at the moment of the stop may note itself afterwards.
    assert after[-1] == "later"
    assert len(after) <= 2
