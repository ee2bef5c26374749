"""The ends of an executor: shutdown, the end of its worker, and the end of its program."""

from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

import wmp
from tests.interop.calls import call_functions as functions
from tests.interop.calls.busy_workers import busy
from tests.interop.programs.forks import Forks
from tests.interop.programs.programs import Program
from tests.waiting import WAIT, children, gone, wait_until
from wmp.runtime.executors import process_executor

pytestmark = pytest.mark.interop


@pytest.mark.rule("CALL-5.2")
def test_shutdown_refuses_calls_and_waits_for_those_submitted(tmp_path: Path) -> None:
    executor = wmp.Executor(workers=1)
    with busy(executor, tmp_path / "go", 1) as (running,):
        waiting = executor.submit(functions.where)
        executor.shutdown(wait=False)
        assert not running.done()
        with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
            executor.submit(functions.add, 1)
        with pytest.raises(RuntimeError, match="shutdown"):
            executor.map(functions.add, [1])
    executor.shutdown()
    executor.shutdown()

    assert waiting.result(0) == running.result(0)
    wait_until(lambda: gone(running.result(0)))


@pytest.mark.rule("CALL-5.2")
def test_map_and_shutdown_cancel_the_waiting_calls(tmp_path: Path) -> None:
    executor = wmp.Executor(workers=1)
    with busy(executor, tmp_path / "go", 1) as (running,):
        results = executor.map(functions.add, range(5), timeout=0.0)
        assert len(executor._calls) == 6
        with pytest.raises(TimeoutError):
            next(results)
        assert executor._calls == {running}
        waiting = [executor.submit(functions.add, 1) for _ in range(5)]
        executor.shutdown(wait=False, cancel_futures=True)
        assert all(call.cancelled() for call in waiting)
    executor.shutdown()

    assert running.done()


@pytest.mark.deep
def test_an_executor_that_is_dropped_ends_its_processes() -> None:
    executor = wmp.Executor(workers=1)
    pid = executor.submit(functions.where).result(WAIT)

    del executor
    gc.collect()

    wait_until(lambda: gone(pid))


@pytest.mark.rule("CALL-5.5")
def test_an_executor_whose_worker_cannot_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
        with pytest.raises(
            wmp.ConfigError, match=r"daemonic process .* start it with daemon=False"
        ):
            wmp.Executor(workers=1)

    def refuse(*arguments: object) -> None:
        raise LookupError("no such process")

    monkeypatch.setattr(process_executor, "ChildProcess", refuse)
    with pytest.raises(wmp.ConfigError, match="could not be started: LookupError: no such process"):
        wmp.Executor(workers=1)


@pytest.mark.rule("CALL-5.5")
def test_the_end_of_its_worker_ends_the_calls_of_an_executor(tmp_path: Path) -> None:
    with wmp.Executor(workers=1) as executor:
        calls = [executor.submit(functions.wait_for, str(tmp_path / "never")) for _ in range(3)]
        assert executor._own is not None
        worker = executor._own._worker
        worker._portal.post(lambda: worker._inner.node.halted(RuntimeError("no more memory")))

        for call in calls:
            with pytest.raises(concurrent.futures.BrokenExecutor, match="no more memory") as caught:
                call.result(WAIT)
            assert isinstance(caught.value, wmp.WorkersEnded)
        with pytest.raises(concurrent.futures.BrokenExecutor, match="make a new one"):
            executor.submit(abs, -1)
        with pytest.raises(concurrent.futures.BrokenExecutor):
            list(executor.map(abs, [-1]))


@pytest.mark.rule("CALL-5.5")
def test_the_end_of_its_worker_ends_the_jobs_of_a_local_manager() -> None:
    with wmp.local(1) as manager:
        job = manager.submit(b"", role="nobody does this")
        worker = manager._worker
        worker._portal.post(lambda: worker._inner.node.halted(None))

        with pytest.raises(wmp.WorkersEnded, match="its worker has ended"):
            job.result(WAIT)


PROGRAM = """
    import sys, time
    import wmp
    from pathlib import Path

    class Mine:
        pass

    def work(path, mine):
        time.sleep(0.2)
        Path(path).write_text(type(mine).__name__)

    executor = wmp.Executor(workers=1)
    executor.submit(work, sys.argv[1], Mine())
    executor.submit(work, sys.argv[2], Mine())
"""


def test_pending_calls_end_before_the_interpreter_does(tmp_path: Path, forks: Forks) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    names = [str(tmp_path / "one"), str(tmp_path / "two")]

    ended = forks.run(sys.executable, "-W", "error", "program.py", *names, cwd=tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert [Path(name).read_text() for name in names] == ["Mine", "Mine"]


ORPHANS = """
    import os, sys, time
    import wmp
    executor = wmp.Executor(workers=2)
    calls = [executor.submit(time.sleep, 60) for _ in range(2)]
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.deep
@pytest.mark.rule("CALL-5.1")
def test_no_process_outlives_a_program_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(ORPHANS))
    with Program(sys.executable, "program.py", cwd=tmp_path) as program:
        program.wait_for_line("ready", on="stdout")
        started = children(program.process.pid)
        assert len(started) >= 2
        program.signal(signal.SIGKILL)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in started))
