"""Each thread and task of a node is ended in turn: the node stops, and its error is reported."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import wmp
from tests.unit.runtime.pool_handlers import report
from tests.waiting import RUN, WAIT, gone
from wmp.cli.map import feed
from wmp.cli.worker.command import _ManagerWatch
from wmp.cli.worker.source_watch import SourceWatch
from wmp.runtime.common import recorder
from wmp.runtime.executors import coroutine_executor, pool, process_executor, reporter
from wmp.runtime.node import portal

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[3]


DEFECT = "a defect of the test"


async def later(payload: bytes) -> bytes:
    await asyncio.sleep(0)
    return payload


class Breaker:
    """Lets functions of a node raise as soon as ``broken`` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken = threading.Event()
        self._monkeypatch = monkeypatch

    def patch(self, where: Any, name: str) -> None:
        original = getattr(where, name)

        def broken(*args: Any, **options: Any) -> Any:
            if self.broken.is_set():
                raise MemoryError(DEFECT)
            return original(*args, **options)

        self._monkeypatch.setattr(where, name, broken)


@pytest.fixture
def breaker(monkeypatch: pytest.MonkeyPatch) -> Breaker:
    return Breaker(monkeypatch)


def run_until_error(worker: wmp.Worker) -> Callable[[], BaseException]:
    """Run the worker on a thread; return a function that waits for the error of ``run``."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> BaseException:
        thread.join(WAIT)
        assert not thread.is_alive(), "the worker did not stop"
        assert len(errors) == 1, "run() returned as if nothing had happened"
        return errors[0]

    return wait


WORKER_THREADS = {
    "wmp-processes": ("process", process_executor.ProcessExecutor, "_time_to_sleep"),
    "wmp-handlers-0": ("thread", pool, "run_lane"),
    "wmp-reporter": ("thread", reporter.Reporter, "_run"),
    "wmp-coroutines": ("async", coroutine_executor.CoroutineExecutor, "_serve"),
    "the task of lane 1": ("async", coroutine_executor, "run_lane_async"),
    "wmp-journal": ("journal", recorder._Writer, "_write_some"),
}


@pytest.mark.parametrize("name", WORKER_THREADS)
def test_a_worker_stops_with_the_error_of_its_thread_and_jobs_go_to_others(
    name: str, breaker: Breaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kind, where, function = WORKER_THREADS[name]
    breaker.patch(where, function)
    unbroken = getattr(where, function)
    handler = later if kind == "async" else report
    with wmp.Manager(max_silence=60.0) as manager:
        worker = wmp.Worker(
            *manager.endpoints,
            handlers=handler,
            pool="process" if kind == "process" else "thread",
            journal=tmp_path if kind == "journal" else None,
        )
        if name == "wmp-coroutines":  # The thread of coroutines starts with the worker.
            monkeypatch.setattr(where, function, end_loop)
        ended = run_until_error(worker)
        if name != "wmp-coroutines":
            manager.wait_for_workers(timeout=WAIT)
            breaker.broken.set()
        job = manager.submit(b"a")
        error = ended()

        assert isinstance(error, wmp.ClosedError)
        assert f"{name} of the worker ended unexpectedly: MemoryError('{DEFECT}')" in str(error)
        worker.close()
        breaker.broken.clear()
        monkeypatch.setattr(where, function, unbroken)
        # The worker sent BYE, so the manager does not wait for `max_silence`.
        with wmp.Worker(*manager.endpoints, handlers=handler):
            assert job.result(WAIT) == b"a"


def end_loop(executor: coroutine_executor.CoroutineExecutor) -> None:
    assert executor._loop is not None
    executor._loop.close()
    raise MemoryError(DEFECT)


def test_children_end_with_the_thread_that_watches_them(breaker: Breaker) -> None:
    breaker.patch(process_executor.ProcessExecutor, "_time_to_sleep")
    with wmp.Manager() as manager:
        worker = wmp.Worker(*manager.endpoints, handlers=report, pool="process", slots=2)
        ended = run_until_error(worker)
        manager.wait_for_workers(timeout=WAIT)
        assert worker._inner._pool is not None
        executor = worker._inner._pool._plain
        assert isinstance(executor, process_executor.ProcessExecutor)
        pids = [child.pid for child in executor._children]
        assert pids
        breaker.broken.set()
        job = manager.submit(b"a")
        ended()
        job.stop()
        assert all(pid is not None and gone(pid) for pid in pids)


def test_a_handler_that_stops_its_event_loop_stops_nothing_else() -> None:
    async def stop(payload: bytes) -> bytes:
        asyncio.get_running_loop().stop()
        return payload

    with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=stop):
        assert list(manager.map([b"a", b"b", b"c"], timeout=WAIT)) == [b"a", b"b", b"c"]


def test_pending_jobs_end_with_the_error_of_the_callbacks_thread(breaker: Breaker) -> None:
    breaker.patch(portal, "_serve_calls")
    breaker.broken.set()
    called: list[Any] = []
    with wmp.Manager() as manager:
        pending = manager.submit(b"a")
        pending.add_done_callback(called.append)
        other = manager.submit(b"b", role="other")
        with wmp.Worker(*manager.endpoints, handlers=report):
            assert pending.result(WAIT) == b"a"
            error = other.exception(WAIT)
        assert isinstance(error, wmp.ClosedError)
        assert "wmp-manager-callbacks of the manager ended unexpectedly" in str(error)
        with pytest.raises(wmp.ClosedError, match="ended unexpectedly"):
            manager.submit(b"c")
    assert called == [pending], "a callback is not lost with its thread"


def test_a_callback_that_exits_leaves_the_next_ones_their_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called = threading.Event()
    with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=report):
        manager.submit(b"a").add_done_callback(sys.exit)
        manager.submit(b"b").add_done_callback(lambda job: called.set())
        assert called.wait(WAIT)
        assert manager.submit(b"c").result(WAIT) == b"c"
    assert "a callback raised an error" in caplog.text


@pytest.mark.parametrize("how", ["raises", "stops", "turn"])
def test_a_node_stops_with_the_error_that_stopped_its_loop(
    how: str, breaker: Breaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wmp.Manager() as manager:
        pending = manager.submit(b"a")
        node = manager._inner._node

        def stop() -> None:
            assert node.driver is not None
            match how:
                case "raises":
                    raise SystemExit(3)
                case "stops":
                    asyncio.get_running_loop().stop()
                case "turn":
                    breaker.broken.set()
                    monkeypatch.setattr(node.driver, "_take_time", raise_defect)
                    node.inbox.schedule()

        manager._portal.post(stop)
        error = pending.exception(WAIT)
        assert isinstance(error, wmp.ClosedError)
        expected = {"raises": "SystemExit(3)", "stops": "it was stopped", "turn": DEFECT}
        assert expected[how] in str(error)
    assert node.closed, "the sockets of a node that stopped are closed"


def raise_defect() -> None:
    raise MemoryError(DEFECT)


@pytest.mark.parametrize("ended", ["reporter.Reporter._run", "child_main._Child._receive"])
def test_a_child_whose_thread_ends_exits_and_is_replaced(ended: str, tmp_path: Path) -> None:
    """The thread that reports, or reads from the parent, is ended. Another child does the job."""
    program = tmp_path / "broken.py"
    program.write_text(CHILD)
    done = subprocess.run(
        [sys.executable, program],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "MARK": str(tmp_path / "mark"), "ENDED": ended},
        capture_output=True,
        text=True,
        timeout=RUN,
    )
    assert done.stdout == "b'a'\n", done.stderr
    assert "MemoryError: a defect of the test" in done.stderr


CHILD = """
import os, time, wmp
from wmp.runtime.executors import child_main, reporter

module, owner, name = os.environ["ENDED"].split(".")
owner = getattr({"child_main": child_main, "reporter": reporter}[module], owner)
original = getattr(owner, name)

def broken(self):
    mark = os.environ["MARK"]
    if not os.path.exists(mark):
        while not os.path.exists(mark + ".started"):
            time.sleep(0.002)
        open(mark, "w").close()
        raise MemoryError("a defect of the test")
    original(self)

setattr(owner, name, broken)

def handle(payload, job):
    job.report(0.1)
    job.report(0.2)
    return payload

if __name__ == "__main__":
    with wmp.Manager() as manager:
        with wmp.Worker(*manager.endpoints, handlers=handle, pool="process"):
            open(os.environ["MARK"] + ".started", "w").close()
            jobs = [manager.submit(b"a") for _ in range(3)]
            print(*{job.result(100) for job in jobs})
"""


@pytest.mark.parametrize("api", ["wmp", "wmp.aio"])
def test_a_signal_ends_a_program_whose_thread_for_signals_fails(api: str, tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text(SIGNALS.replace("API", api))
    with subprocess.Popen(
        [sys.executable, program],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == "ready\n"
            running.send_signal(signal.SIGTERM)
            _, errors = running.communicate(timeout=WAIT)
        finally:
            running.kill()
    assert running.returncode == 1
    assert "wmp-signals of the worker ended unexpectedly" in errors


SIGNALS = """
import asyncio, threading, time, wmp, wmp.aio
from wmp.runtime.node import signals

class Broken(list):
    def append(self, number):
        raise MemoryError("a defect of the test")

signals.caught = Broken()
manager = wmp.Manager()
manager.start()
worker = API.Worker(*manager.endpoints, handlers=bytes.upper)

def ready():
    manager.wait_for_workers(timeout=100)
    print("ready", flush=True)

threading.Thread(target=ready, daemon=True).start()
try:
    if isinstance(worker, wmp.Worker):
        worker.run()
    else:
        asyncio.run(worker.run())
finally:
    manager.close()
"""


def test_a_worker_ends_with_the_thread_that_watches_for_managers(breaker: Breaker) -> None:
    worker = wmp.Worker("tcp://127.0.0.1:9", handlers=report)
    breaker.patch(wmp.Worker, "statistics")
    breaker.broken.set()
    watch, drained = _ManagerWatch(worker, 60.0), threading.Event()

    watch.start(drained.set)

    assert drained.wait(WAIT)
    assert watch.failure is not None
    assert watch.failure.name == "wmp-lookout"
    assert DEFECT in str(watch.failure.cause)
    assert not watch.alone


def test_the_end_of_the_thread_that_watches_the_sources_is_reported(breaker: Breaker) -> None:
    lines: SimpleQueue[str] = SimpleQueue()
    watch = SourceWatch("json", lines.put)
    breaker.patch(SourceWatch, "look")
    breaker.broken.set()

    watch.start(lambda: None)

    line = lines.get(timeout=WAIT)
    assert line.startswith("wmp-watch ended, so changes are not noticed: MemoryError(")
    assert watch.failure is not None


def test_inputs_that_cannot_be_read_further_end_the_program(breaker: Breaker) -> None:
    breaker.patch(feed.Feed, "_hand_in")
    breaker.broken.set()
    with wmp.Manager() as manager:
        source = iter([feed.MapInput("one", b"1")])
        inputs = feed.Feed(manager, source, {})
        with inputs._changed:
            assert inputs._changed.wait_for(lambda: inputs._ended, WAIT)
        with pytest.raises(MemoryError, match=DEFECT):
            inputs.first(0.0)
