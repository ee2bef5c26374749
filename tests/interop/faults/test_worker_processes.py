"""Jobs whose worker process is killed or hangs, as the submitter sees them, with real sockets."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wmp
from tests.interop.faults.process_handlers import die, hang, where
from tests.interop.programs.forks import wmp as program
from tests.waiting import WAIT, gone, wait_until
from wmp.events import Received
from wmp.message import Command

pytestmark = pytest.mark.interop


HANDLERS = {"die": die, "where": where, "hang": hang}


@contextlib.contextmanager
def pair(
    slots: int = 2, max_worker_losses: int = 3, max_silence: float = 6.0, **worker: Any
) -> Iterator[Any]:
    """A manager, and a worker with worker processes."""
    with wmp.Manager(max_worker_losses=max_worker_losses, max_silence=max_silence) as manager:
        own_worker = wmp.Worker(
            *manager.endpoints, handlers=HANDLERS, slots=slots, pool="process", label="w", **worker
        )
        with own_worker:
            manager.wait_for_workers(timeout=WAIT)
            yield manager, own_worker


def test_a_time_limit_of_a_month_or_of_thirty_years_does_not_end_the_pool() -> None:
    with pair() as (manager, worker):
        for timeout in (2_500_000, 1e9):
            assert manager.submit(b"", role="where", timeout=timeout).result(WAIT)
        assert manager.submit(b"", role="where").result(WAIT)
        worker.drain(WAIT)


@pytest.mark.rule("WMP-6.14", "WMP-6.15")
def test_a_job_whose_process_is_killed_is_tried_again() -> None:
    with pair() as (manager, _):
        jobs = [manager.submit(b"%d 2" % signal.SIGKILL, role="die") for _ in range(2)]
        results = [job.result(WAIT) for job in jobs]
        attempts = [int(result.removeprefix(b"survived in attempt ")) for result in results]
        assert min(attempts) >= 3
        requeued = manager.statistics().requeued
        # A new process needs some time to start: jobs that wait for it may be handed back.
        again = requeued["lost at the worker"] + requeued.get("handed back", 0)
        assert again == sum(attempt - 1 for attempt in attempts)
        assert requeued["lost at the worker"] > 0


@pytest.mark.rule("WMP-6.15")
def test_a_poison_job_is_lost_with_its_cause_and_harms_no_other_job() -> None:
    with pair(max_worker_losses=2) as (manager, worker):
        poison = manager.submit(b"%d 99" % signal.SIGSEGV, role="die")
        # The other jobs of the same worker continue.
        assert len(list(manager.map([b""] * 50, role="where", timeout=WAIT))) == 50

        error = poison.exception(WAIT)
        assert isinstance(error, wmp.WorkerLost)
        # While a new process starts, a job that waits for the process may be handed back. That
        # lease is not a worker loss, but counts as an attempt.
        handed_back = manager.statistics().requeued.get("handed back", 0)
        assert 3 <= error.attempts <= 3 + handed_back
        assert error.host == "w"
        assert re.fullmatch(r"worker process \d+ was killed by SIGSEGV", error.cause)
        assert error.cause in str(error)
        assert worker.statistics().outcomes[4] == 3
        assert manager.submit(b"", role="where").result(WAIT)


class Pings:
    """A machine that counts the PINGs that arrive."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.count = 0

    def handle(self, event: Any, now: float) -> Any:
        if isinstance(event, Received):
            self.count += event.message.command is Command.PING
        return self.machine.handle(event, now)

    def deadline(self) -> Any:
        return self.machine.deadline()


@pytest.mark.rule("WMP-6.10", "WMP-6.16", "WMP-9.5")
def test_a_hanging_job_is_cancelled_while_heartbeats_and_other_jobs_go_on(tmp_path: Path) -> None:
    with pair(max_silence=WAIT, ping=0.1, cancel_grace=0.5) as (manager, _):
        begun, ended = threading.Event(), threading.Event()
        pings = Pings(manager._inner._node.driver.machine)
        manager._inner._node.driver.machine = pings
        job = manager.submit(
            str(tmp_path / "pid"), role="hang", on_status=lambda status: begun.set()
        )
        assert begun.wait(WAIT)
        pid = int((tmp_path / "pid").read_text())

        began = time.monotonic()
        job.add_done_callback(lambda job: ended.set())
        job.stop()
        done, heard = 0, pings.count
        while not ended.wait(0.02):
            assert manager.submit(b"", role="where").result(WAIT)
            done += not ended.is_set()
        took = time.monotonic() - began
        heard = pings.count - heard

        assert job.cancelled()
        assert took >= 1.5, "grace, then a second"
        assert done > 0
        assert heard > 0
        assert gone(pid)
        assert list(manager.map([b""] * 20, role="where", timeout=WAIT))


@pytest.mark.rule("WMP-6.8", "WMP-6.16")
def test_a_job_past_its_deadline_ends_and_so_does_its_process(tmp_path: Path) -> None:
    with pair(slots=1, cancel_grace=0.1) as (manager, _):
        job = manager.submit(str(tmp_path / "pid"), role="hang", timeout=3.0)
        with pytest.raises(wmp.JobTimeout):
            job.result(WAIT)
        pid = int((tmp_path / "pid").read_text())
        # The only slot is free again.
        assert manager.submit(b"", role="where").result(WAIT) != b"%d" % pid
        assert gone(pid)


@pytest.mark.rule("WMP-9.10")
def test_a_drain_that_takes_too_long_hands_the_job_back(tmp_path: Path) -> None:
    with wmp.Manager(max_worker_losses=0, max_silence=3 * WAIT) as manager:
        arguments: dict[str, Any] = {"handlers": HANDLERS, "pool": "process"}
        first = wmp.Worker(*manager.endpoints, cancel_grace=0.1, **arguments)
        first.start()
        job = manager.submit(str(tmp_path / "pid"), role="hang")
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        pid = int((tmp_path / "pid").read_text())
        with wmp.Worker(*manager.endpoints, **arguments):
            first.close(0.1)
            # max_worker_losses is 0, and yet the job is not lost. Nor does it wait until the
            # silence of the worker has become too long.
            assert int(job.result(WAIT)) != pid
        assert gone(pid)


# Many children start one after the other, and a busy machine takes seconds for each. So a deep test
# bounds the whole of its jobs and not each of them.
DEEP = pytest.mark.deep


@pytest.mark.parametrize("jobs", [100, pytest.param(1000, marks=DEEP)])
def test_many_jobs_with_children_replaced_in_between(jobs: int) -> None:
    with pair(max_jobs_per_child=40) as (manager, _):
        pids = [int(pid) for pid in manager.map([b""] * jobs, role="where")]
        assert len(pids) == jobs
        assert max(pids.count(pid) for pid in set(pids)) <= 40
        assert "lost at the worker" not in manager.statistics().requeued
    assert all(gone(pid) for pid in set(pids))


@pytest.mark.parametrize("jobs", [300, pytest.param(5000, marks=DEEP)])
def test_workers_killed_at_random_lose_nothing(jobs: int) -> None:
    with pair(slots=2, max_worker_losses=1000) as (manager, _):
        done = threading.Event()
        kills = 0

        def killer() -> None:
            nonlocal kills
            while not done.is_set():
                try:
                    pid = int(manager.submit(b"", role="where").result(WAIT))
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
                except (ProcessLookupError, TimeoutError, wmp.ClosedError):
                    pass
                done.wait(0.2)

        thread = threading.Thread(target=killer)
        thread.start()
        try:
            pids = list(manager.map([b""] * jobs, role="where", in_flight=100))
            wait_until(lambda: kills >= 3)
        finally:
            done.set()
            thread.join(WAIT)
        assert len(pids) == jobs


def test_the_program_replaces_its_children_too(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        textwrap.dedent("""
            import os

            def where(payload):
                return str(os.getpid())
        """)
    )
    with wmp.Manager() as manager:
        argv = ["worker", "work:where", "--connect", *manager.endpoints, "--pool", "process"]
        options = ("--slots", "1", "--max-jobs-per-child", "2")
        with program(*argv, *options, cwd=tmp_path) as worker:
            pids = [int(pid) for pid in manager.map([b""] * 4, timeout=WAIT)]
            assert len(set(pids)) == 2
            worker.signal(signal.SIGTERM)
            assert worker.ends() == 0, worker.stderr
        assert all(gone(pid) for pid in set(pids))
    with program("worker", "work:where", "--max-jobs-per-child", "2", cwd=tmp_path) as refused:
        assert refused.ends() == 2
        assert "max_jobs_per_child applies to worker processes only" in refused.stderr
