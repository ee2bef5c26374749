"""Handlers in threads that continue after their jobs were interrupted: reported, then replaced."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

import wmp
from tests.interop.programs.programs import wmp as program
from tests.waiting import WAIT, wait_until

pytestmark = pytest.mark.interop

WORK = """
import os, time, wmp

def work(payload):
    while payload == b"hang":
        time.sleep(0.01)
    return str(os.getpid())

worker = wmp.Worker("ENDPOINT", handlers=work, on_hang="replace", hang_timeout=0.1)
"""


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """Lets the hung handlers of a test return at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wmp.runtime.node.hang_watch._LOOK", 0.02)
    monkeypatch.setattr("wmp.runtime.node.hang_watch._REPORT", 0.05)


def test_a_hung_handler_is_logged_once_and_counted_until_it_returns(
    go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    begun = threading.Event()

    def hang(payload: bytes) -> None:
        begun.set()
        go.wait(WAIT)

    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=hang, hang_timeout=0.1) as worker,
    ):
        job = manager.submit(b"")
        assert begun.wait(WAIT)
        job.stop()
        wait_until(lambda: worker.statistics().hung == 1)
        wait_until(lambda: "still runs in a thread" in caplog.text)
        waiting = manager.submit(b"")
        assert not waiting.running()
        go.set()
        waiting.result(WAIT)
        assert worker.statistics().hung == 0
    lines = [line for line in caplog.messages if "still runs" in line]
    assert len(lines) == 1
    assert "job 1 (role 'default', interrupted 0 s ago)" in lines[0]
    assert "it holds slots=1" in lines[0]


def test_run_raises_when_a_handler_hangs_and_other_jobs_end_first(go: threading.Event) -> None:
    gate = threading.Event()
    begun = threading.Event()

    def hang(payload: bytes) -> bytes:
        if payload == b"hang":
            begun.set()
        (go if payload == b"hang" else gate).wait(WAIT)
        return payload

    with wmp.Manager() as manager:
        worker = wmp.Worker(
            *manager.endpoints, handlers=hang, slots=2, on_hang="stop", hang_timeout=0.1
        )
        raised: list[BaseException] = []

        def run() -> None:
            try:
                worker.run()
            except wmp.HandlerHung as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        other = manager.submit(b"other")
        wait_until(other.running)
        hung = manager.submit(b"hang")
        assert begun.wait(WAIT)
        hung.stop()
        wait_until(lambda: worker._inner._node.draining)
        assert not other.done()
        gate.set()
        assert other.result(WAIT) == b"other"
        thread.join(WAIT)
        assert "job 2 (role 'default', interrupted" in str(raised[0])


@pytest.mark.parametrize(
    "target",
    ["work:worker", pytest.param("work:work --hang-timeout 0.1", marks=pytest.mark.deep)],
)
def test_the_program_replaces_itself_and_does_the_next_job(
    target: str, tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    with contextlib.ExitStack() as stack:
        manager = stack.enter_context(wmp.Manager())
        (endpoint,) = manager.endpoints
        with open("work.py", "w") as file:
            file.write(WORK.replace("ENDPOINT", endpoint))
        worker = stack.enter_context(program("worker", *target.split(), "--connect", endpoint))
        manager.wait_for_workers(timeout=WAIT)
        hung = manager.submit(b"hang", timeout=2.0)
        assert isinstance(hung.exception(WAIT), wmp.JobTimeout)
        after = manager.submit(b"after")
        # The program was started again in the same process.
        assert int(after.result(WAIT)) == worker.process.pid
        worker.wait_for_line("replacing this process")


def test_an_unknown_reaction_is_refused() -> None:
    with pytest.raises(wmp.ConfigError, match="one of report, stop, replace"):
        wmp.Worker("tcp://127.0.0.1:1", handlers=bytes.upper, on_hang="ignore")
