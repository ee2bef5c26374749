"""Handlers that keep the whole process of their worker from running, beside real sockets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import wmp
from tests.waiting import RUN, WAIT, children, gone, wait_until
from wmp import aio
from wmp.runtime.node.beat_child import BeatChild

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent / "stalling_worker.py"

Workers = list[subprocess.Popen[str]]


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Ends the workers that a test adds."""
    processes: Workers = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate(timeout=WAIT)


def start(endpoint: str, pool: str = "thread", beats: str = "yes") -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), pool, beats, endpoint]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def output(processes: Workers) -> str:
    """End workers in order; return all that they printed."""
    for process in processes:
        process.terminate()
    return "".join(process.communicate(timeout=RUN)[0] for process in processes)


@pytest.mark.parametrize(
    ("pool", "role", "result"),
    [
        ("thread", "hold", b"held"),
        ("thread", "search", b"searched"),
        ("inline", "block", b"blocked"),
    ],
)
@pytest.mark.rule("WMP-9.17")
@pytest.mark.rule("WMP-9.18")
def test_a_handler_that_holds_the_interpreter_runs_once_and_the_log_names_the_pause(
    workers: Workers, pool: str, role: str, result: bytes
) -> None:
    with wmp.Manager(max_silence=4.0) as manager:
        workers += [start(*manager.endpoints, pool) for _ in range(2)]
        manager.wait_for_workers(2, timeout=WAIT)
        assert manager.submit(b"7", role=role).result(timeout=WAIT) == result
        printed = output(workers)
    assert printed.count("begun") == 1
    assert "this process did not run for" in printed
    assert f"(role {role!r})" in printed


def test_the_log_names_a_pause_of_a_worker_with_processes(workers: Workers) -> None:
    with wmp.Manager(max_silence=6.0) as manager:
        workers.append(start(*manager.endpoints, "process"))
        manager.wait_for_workers(1, timeout=WAIT)
        manager.submit(b"8", role="hold")
        assert workers[0].stdout is not None
        assert workers[0].stdout.readline() == "begun\n"
        workers[0].send_signal(signal.SIGSTOP)
        wait_until(lambda: not manager.statistics().workers)
        workers[0].send_signal(signal.SIGCONT)
        printed = output(workers)
        manager.close(0)
    assert "this process did not run for" in printed
    assert "interpreter lock" not in printed


@pytest.mark.rule("WMP-9.17")
def test_beats_pass_a_device(workers: Workers) -> None:
    with (
        wmp.Manager(max_silence=4.0) as manager,
        wmp.Device(bind="tcp://127.0.0.1:*", connect=manager.endpoints) as device,
    ):
        workers += [start(*device.endpoints) for _ in range(2)]
        manager.wait_for_workers(2, timeout=WAIT)
        assert manager.submit(b"7", role="hold").result(timeout=WAIT) == b"held"
        assert output(workers).count("begun") == 1


def test_without_beats_a_worker_that_does_not_run_is_given_up(workers: Workers) -> None:
    with wmp.Manager(max_silence=4.0) as manager:
        workers.append(start(*manager.endpoints, beats="no"))
        manager.wait_for_workers(1, timeout=WAIT)
        job = manager.submit(b"7", role="hold", max_worker_losses=0)
        with pytest.raises(wmp.WorkerLost):
            job.result(timeout=WAIT)


@pytest.mark.rule("WMP-9.17")
@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
def test_a_worker_that_was_stopped_or_killed_in_a_stall_is_given_up(
    workers: Workers, end: signal.Signals
) -> None:
    with wmp.Manager(max_silence=1.5, reconnect_grace=100.0, max_stall=1000.0) as manager:
        workers.append(start(*manager.endpoints))
        manager.wait_for_workers(1, timeout=WAIT)
        job = manager.submit(b"1000", role="hold", max_worker_losses=0)
        assert workers[0].stdout is not None
        assert workers[0].stdout.readline() == "begun\n"
        (child,) = children(workers[0].pid)
        workers[0].send_signal(end)
        with pytest.raises(wmp.WorkerLost):
            job.result(timeout=WAIT)
        workers[0].kill()
        wait_until(lambda: gone(child))


def test_a_worker_without_jobs_has_no_child_and_its_end_ends_the_child() -> None:
    before = children(os.getpid())
    with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=bytes) as worker:
        manager.wait_for_workers(1, timeout=WAIT)
        assert children(os.getpid()) == before
        manager.submit(b"").result(timeout=WAIT)
        (child,) = children(os.getpid()) - before
        worker.close()
        wait_until(lambda: gone(child))


def test_processes_of_a_pool_need_no_beats() -> None:
    handlers = os.path.basename
    assert aio.Worker("tcp://127.0.0.1:1", handlers=handlers)._settings.beat_key
    processes = aio.Worker("tcp://127.0.0.1:1", handlers=handlers, pool="process")
    assert not processes._settings.beat_key
    with pytest.raises(wmp.ConfigError, match="expected True or False"):
        wmp.Worker("tcp://127.0.0.1:1", beats="no")  # type: ignore[arg-type]


def test_a_child_that_ended_is_reported_and_costs_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    child = BeatChild(None)
    child.report(1.0, ())
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)

    def reported() -> bool:
        child.report(1.0, ())
        return "the process that sends beats has ended" in caplog.text

    deadline = time.monotonic() + WAIT
    while not reported():
        assert time.monotonic() < deadline
    assert child.pid is None
    child.close()
