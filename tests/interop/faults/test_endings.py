"""The end of a node: no caller waits for ever, no socket stays open, no thread keeps running."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from typing import Any

import pytest

import wmp
import wmp.aio
from tests.interop.programs.forks import forks
from tests.unit.runtime.posts import no_threads
from tests.waiting import WAIT, wait_until


def run(text: str) -> tuple[int, str, str]:
    ended = forks().run(sys.executable, "-c", text)
    return ended.returncode, ended.stdout.strip(), ended.stderr


def test_a_job_can_be_cancelled_while_its_manager_drains() -> None:
    with wmp.Manager() as manager:
        job = manager.submit(b"nobody will do it")
        thread = threading.Thread(target=manager.drain, args=(WAIT,))
        thread.start()
        wait_until(lambda: manager._inner._node.draining)

        assert job.cancel()
        assert job.cancelled()
        thread.join(WAIT)
        assert not thread.is_alive()


def test_closing_ends_waiting_for_workers_in_another_thread() -> None:
    manager = wmp.Manager()
    manager.start()
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            manager.wait_for_workers()
        except BaseException as error:
            ended.append(error)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(5)]
    for thread in threads:
        thread.start()
    manager.close(0)
    for thread in threads:
        thread.join(WAIT)

    assert [type(error) for error in ended] == 5 * [wmp.ClosedError]


def test_a_drained_manager_rests_until_it_is_closed() -> None:
    with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=bytes.upper, ping=0.1):
        assert manager.submit(b"a").result(WAIT) == b"A"
        manager.drain(WAIT)
        # The worker keeps sending PING, and the drained manager does not read it.
        begun, cpu = time.monotonic(), time.process_time()
        wait_until(lambda: time.monotonic() - begun > 1.0)
        assert time.process_time() - cpu < 0.5


CTRL_C = """
import os, signal, threading, zmq, wmp
made = []
class Context(zmq.Context):
    def socket(self, *args, **kwargs):
        socket = super().socket(*args, **kwargs)
        made.append(socket)
        return socket
context = Context()
manager = wmp.Manager(context=context)
manager.start()
job = manager.submit(b"nobody does it")
def interrupt():
    while not manager._inner._node.draining:
        pass
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    manager.close(30)
except KeyboardInterrupt:
    closed = all(one.closed for one in made)
    print("interrupted", bool(made), closed, type(job.exception(0)).__name__)
context.destroy(linger=0)
"""


def test_ctrl_c_in_a_close_closes_at_once() -> None:
    assert run(CTRL_C) == (0, "interrupted True True ClosedError", "")


AT_EXIT = """
import time, wmp
manager = wmp.Manager()
manager.start()
jobs = [manager.submit(b"a") for _ in range(3)]
for number, job in enumerate(jobs):
    job.add_done_callback(lambda job, n=number: (time.sleep(0.1), print(n, flush=True)))
"""


def test_callbacks_are_called_at_exit_too() -> None:
    assert run(AT_EXIT) == (0, "0\n1\n2", "")


def test_callbacks_and_the_end_of_a_manager_do_without_threads() -> None:
    called: list[wmp.Job] = []
    manager = wmp.Manager()
    manager.start()
    job = manager.submit(b"nobody does it")
    job.add_done_callback(called.append)

    with no_threads():
        manager.close(0.0)

    assert called == [job]
    assert isinstance(job.exception(0), wmp.ClosedError)


def test_callbacks_are_called_before_close_returns_and_after_it() -> None:
    called: list[str] = []
    with wmp.Manager() as manager:
        job = manager.submit(b"nobody will do it")
        slow = threading.Event()
        job.add_done_callback(lambda job: (slow.wait(0.2), called.append("before")))
        manager.close(0)

    assert called == ["before"]
    job.add_done_callback(lambda job: called.append("after"))
    assert called == ["before", "after"]


FORKED = """
import os, sys, wmp
with wmp.Manager() as manager:
    child = os.fork()
    if not child:
        try:
            manager.statistics()
            manager.wait_for_workers(timeout=100)
        except wmp.ClosedError as error:
            print(error, flush=True)
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_ends_by_itself() -> None:
    code, out, _ = run(FORKED)

    assert code == 0
    assert "not in this fork" in out
    assert out.endswith("7")


FORKED_SUBMITTER = """
import asyncio, os, sys, wmp, wmp.aio

def refused(what, call):
    try:
        call()
    except wmp.ClosedError as error:
        print(what, "not in this fork" in str(error), flush=True)
    else:
        print(what, "was accepted", flush=True)

def try_all(manager, job):
    refused("submit", lambda: manager.submit(b"a"))
    refused("submit_nowait", lambda: manager.submit_nowait(b"a"))
    refused("map", lambda: list(manager.map([b"a"])))
    refused("result", lambda: job.result(60))
    refused("stop", job.stop)

async def wait(job):
    return await job

async def first(jobs):
    async for job in jobs:
        return job

def try_all_aio(manager, worker, job):
    refused("aio submit", lambda: asyncio.run(manager.submit(b"a")))
    refused("aio await", lambda: asyncio.run(wait(job)))
    refused("aio cancel", job.cancel)
    refused("aio as_completed", lambda: asyncio.run(first(manager.as_completed([job]))))
    refused("aio wait_for_workers", lambda: asyncio.run(manager.wait_for_workers(9)))
    for node in (manager, worker):
        refused("aio drain", lambda: asyncio.run(node.drain()))
        asyncio.run(node.close())
    refused("aio run", lambda: asyncio.run(worker.run()))

async def both(manager, unstarted):
    async with wmp.aio.Manager() as other:
        waiting = await other.submit(b"", role="nobody")
        async with wmp.aio.Worker(*other.endpoints, handlers=bytes.upper, pool="process") as worker:
            child = os.fork()
            if not child:
                try:
                    try_all(manager, job)
                    try_all_aio(other, worker, waiting)
                    with unstarted:
                        print("cancelled", unstarted.submit(b"a").cancel(), flush=True)
                finally:
                    os._exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            # The calls in the child changed nothing here.
            print(await other.submit_nowait(b"a", timeout=100), flush=True)
            waiting.cancel()

if __name__ == "__main__":
    unstarted = wmp.Manager()
    with wmp.Manager() as manager:
        job = manager.submit(b"nobody will do it")
        asyncio.run(both(manager, unstarted))
        manager.close(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_calls_in_a_forked_child_raise_the_reason_and_do_no_harm() -> None:
    code, out, errors = run(FORKED_SUBMITTER)

    assert code == 0, errors
    calls = ["submit", "submit_nowait", "map", "result", "stop", "aio submit", "aio await"]
    calls += ["aio cancel", "aio as_completed", "aio wait_for_workers", *["aio drain"] * 2]
    calls += ["aio run"]
    expected = [*(f"{call} True" for call in calls), "cancelled True", "7", "b'A'"]
    assert out.split("\n") == expected


FORKED_BY_A_HANDLER = """
import os, signal, threading, time, wmp

def fork(payload):
    ready, begun = os.pipe()
    child = os.fork()
    if not child:
        os.write(begun, b"x")
        time.sleep(100)
        os._exit(0)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

with wmp.Manager() as manager:
    worker = wmp.Worker(*manager.endpoints, handlers=fork)

    def submit():
        # The worker goes on after the signal, so it does a second job.
        print(*manager.map([b""] * 2, timeout=100), worker._inner._node.draining, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=submit)
    thread.start()
    worker.run()
    thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_signal_to_a_process_that_a_handler_forked_does_not_stop_the_worker() -> None:
    code, out, errors = run(FORKED_BY_A_HANDLER)

    assert code == 0, errors
    assert out == "b'-15' b'-15' False"


class Recorder:
    """A machine that records the names of its events."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.seen: list[str] = []

    def handle(self, event: Any, now: float) -> Any:
        self.seen.append(type(event).__name__)
        return self.machine.handle(event, now)

    def deadline(self) -> float | None:
        due = self.machine.deadline()
        assert due is None or isinstance(due, float)
        return due


def test_a_node_that_was_held_up_listens_before_it_looks_at_the_clock() -> None:
    async def main() -> list[str]:
        async with wmp.aio.Manager(max_silence=0.9) as manager:
            worker = wmp.Worker(*manager.endpoints, handlers=bytes.upper, ping=0.2)
            await asyncio.to_thread(worker.start)
            try:
                await manager.wait_for_workers(timeout=WAIT)
                driver = manager._node.serving()
                recorder = driver.machine = Recorder(driver.machine)
                # This turn begins after the sleep, when no turn has read the waiting messages.
                manager._node.inbox.schedule()
                time.sleep(1.2)
                async with asyncio.timeout(WAIT):
                    while "Ticked" not in recorder.seen:
                        await asyncio.sleep(0.01)
                return recorder.seen
            finally:
                await asyncio.to_thread(worker.close)

    seen = asyncio.run(main())
    assert "Ticked" in seen
    assert "Received" in seen[: seen.index("Ticked")], seen


def test_a_worker_that_is_closed_at_once_sends_bye() -> None:
    go = threading.Event()
    begun = threading.Event()

    def gate(payload: bytes) -> bytes:
        begun.set()
        go.wait(WAIT)
        return payload

    with wmp.Manager(max_silence=3 * WAIT) as manager:
        worker = wmp.Worker(*manager.endpoints, handlers=gate)
        worker.start()
        job = manager.submit(b"a")
        assert begun.wait(WAIT)
        threading.Thread(target=worker.close, args=(0,), daemon=True).start()
        wait_until(lambda: not manager.statistics().workers)
        go.set()
        with wmp.Worker(*manager.endpoints, handlers=bytes.upper):
            assert job.result(WAIT) == b"A"


def test_a_worker_does_not_wait_for_a_manager_that_was_closed_at_once() -> None:
    manager = wmp.Manager()
    manager.start()
    worker = wmp.Worker(*manager.endpoints, handlers=bytes.upper)
    worker.start()
    assert manager.submit(b"a").result(WAIT) == b"A"
    manager.close(0)
    began = time.monotonic()
    worker.close(2 * WAIT)
    assert time.monotonic() - began < WAIT, "it waited for the manager"
