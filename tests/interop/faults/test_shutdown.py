"""The end of a node: bounded, idempotent, in any state, by call, by signal and by program end."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import textwrap
import threading
import time
from typing import Any

import pytest

import wmp
import wmp.aio
from tests.interop.programs.forks import ForkedProgram, forks
from tests.waiting import WAIT


def program(text: str, *arguments: str) -> ForkedProgram:
    return ForkedProgram(sys.executable, "-c", text, *arguments)


WORKER = """
import sys, threading, time, wmp

def slow(payload):
    print("begun", flush=True)
    time.sleep(float(payload))
    return payload

def watch():
    while not worker._inner._node.draining:
        time.sleep(0.002)
    print("draining", flush=True)

worker = wmp.Worker(sys.argv[1], handlers=slow, window=0)
threading.Thread(target=watch, daemon=True).start()
worker.run()
print("drained", flush=True)
"""

AIO_WORKER = """
import asyncio, sys, threading, time, wmp.aio

def slow(payload):
    print("begun", flush=True)
    time.sleep(float(payload))
    return payload

def watch():
    while not worker._node.draining:
        time.sleep(0.002)
    print("draining", flush=True)

worker = wmp.aio.Worker(sys.argv[1], handlers=slow, window=0)
threading.Thread(target=watch, daemon=True).start()
asyncio.run(worker.run())
print("drained", flush=True)
"""


@pytest.mark.rule("WMP-9.10")
@pytest.mark.parametrize("text", [WORKER, AIO_WORKER], ids=["blocking", "aio"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_a_worker(text: str, number: signal.Signals) -> None:
    with wmp.Manager() as manager, program(text, manager.endpoints[0]) as worker:
        manager.wait_for_workers(timeout=WAIT)
        job = manager.submit("0.3")
        # Only a job that has begun is finished; a waiting job would be handed back.
        assert worker.line() == "begun"
        worker.signal(number)

        assert job.result(WAIT) == b"0.3"
        assert worker.line() == "draining"
        assert (worker.ends(), worker.line(), worker.stderr) == (0, "drained", "")
        assert list(manager.statistics().workers) == []


@pytest.mark.parametrize("text", [WORKER, AIO_WORKER], ids=["blocking", "aio"])
def test_a_second_signal_stops_at_once(text: str) -> None:
    with wmp.Manager() as manager, program(text, manager.endpoints[0]) as worker:
        manager.wait_for_workers(timeout=WAIT)
        job = manager.submit("60")
        assert worker.line() == "begun"
        worker.signal(signal.SIGTERM)
        assert worker.line() == "draining"  # two signals at the same time would count as one
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
        assert not job.done()
        job.stop()
        manager.close(0)


def test_run_returns_when_drained_and_close_is_idempotent() -> None:
    with wmp.Manager() as manager:
        worker = wmp.Worker(*manager.endpoints, handlers=bytes.upper)
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert manager.submit(b"a").result(WAIT) == b"A"
        worker.drain(WAIT)
        thread.join(WAIT)
        assert not thread.is_alive()
        worker.close()
        worker.close()
        with pytest.raises(wmp.ClosedError):
            worker.start()


@pytest.mark.parametrize("kind", ["manager", "worker", "device"])
def test_starting_a_closed_node_again_raises_closed_error(kind: str) -> None:
    async def main() -> None:
        node: Any
        async with wmp.aio.Manager() as manager:
            if kind == "manager":
                node = wmp.aio.Manager()
            elif kind == "worker":
                node = wmp.aio.Worker(*manager.endpoints, handlers=bytes.upper)
            else:
                node = wmp.aio.Device(bind="tcp://127.0.0.1:*", connect=manager.endpoints)
            async with node:
                await node.start()  # the second call has no effect on a running node
            with pytest.raises(wmp.ClosedError, match=f"the {kind} is closed; make a new {kind}"):
                await node.__aenter__()
            for again in (node.start,) if kind == "manager" else (node.start, node.run):
                with pytest.raises(wmp.ClosedError, match="make a new"):
                    await again()

    asyncio.run(main())


def test_draining_a_manager_takes_no_more_and_waits_for_all() -> None:
    go = threading.Event()

    def gate(payload: bytes) -> bytes:
        assert go.wait(WAIT)
        return payload

    with wmp.Manager() as manager, wmp.Worker(*manager.endpoints, handlers=gate):
        job = manager.submit(b"a")
        with pytest.raises(TimeoutError, match="1 job has not ended"):
            manager.drain(0.05)
        with pytest.raises(wmp.ClosedError, match="draining"):
            manager.submit(b"b")
        go.set()
        manager.drain(WAIT)
        assert job.result(0) == b"a"


def test_jobs_that_wait_at_the_end_end_with_closed_error() -> None:
    with wmp.Manager(max_jobs=2) as manager:
        jobs = [manager.submit(b"a"), manager.submit(b"b")]
        caught: list[BaseException] = []

        def wait_for_room() -> None:
            try:
                manager.submit(b"c")
            except wmp.ClosedError as error:
                caught.append(error)

        def wait_for_results() -> None:
            try:
                list(manager.map([b"d"]))
            except wmp.ClosedError as error:
                caught.append(error)

        threads = [threading.Thread(target=t) for t in (wait_for_room, wait_for_results)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        manager.close(0.1)
        for thread in threads:
            thread.join(WAIT)

    assert time.monotonic() - began < WAIT
    assert len(caught) == 2
    for job in jobs:
        assert isinstance(job.exception(0), wmp.ClosedError)
    with pytest.raises(wmp.ClosedError):
        manager.submit(b"e")


def test_leaving_by_an_exception_does_not_wait() -> None:
    began = time.monotonic()
    manager = wmp.Manager()

    def leave() -> None:
        with manager:
            manager.submit(b"nobody will do it")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave()
    assert time.monotonic() - began < WAIT


def test_a_hanging_handler_does_not_hold_up_the_end() -> None:
    go = threading.Event()
    begun = threading.Event()

    def hang(payload: bytes) -> bytes:
        begun.set()
        go.wait(2 * WAIT)
        return payload

    with wmp.Manager() as manager:
        worker = wmp.Worker(*manager.endpoints, handlers=hang)
        worker.start()
        job = manager.submit(b"a")
        assert begun.wait(WAIT)
        began = time.monotonic()
        worker.close(0.1)
        manager.close(0.1)
        assert time.monotonic() - began < WAIT
        assert isinstance(job.exception(0), wmp.ClosedError)
    go.set()


def test_of_two_processes_of_an_identity_the_one_that_came_second_ends() -> None:
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper, identity="w"),
    ):
        manager.wait_for_workers(timeout=WAIT)
        second = wmp.Worker(*manager.endpoints, handlers=bytes.lower, identity="w", ping=0.05)
        with pytest.raises(wmp.Superseded, match="no manager serves worker w"):
            second.run()
        assert manager.submit(b"a").result(WAIT) == b"A"


@pytest.mark.parametrize("seed", range(12))
def test_everything_ends_in_bounded_time_in_any_state(seed: int) -> None:
    chance = random.Random(seed)

    def handler(payload: bytes) -> bytes:
        time.sleep(float(payload))
        return payload

    manager = wmp.Manager(max_jobs=chance.choice([5, 1000]))
    manager.start()
    nodes: list[Any] = [manager]
    endpoints = manager.endpoints
    if chance.random() < 0.5:
        device = wmp.Device(bind="tcp://127.0.0.1:*", connect=endpoints)
        device.start()
        nodes.append(device)
        endpoints = device.endpoints
    for _ in range(chance.randrange(3)):
        worker = wmp.Worker(*endpoints, handlers=handler, slots=chance.choice([1, 3]))
        worker.start()
        nodes.append(worker)
    jobs = []
    for _ in range(chance.choice([0, 3, 200])):
        try:
            jobs.append(manager.submit_nowait(str(chance.choice([0, 0, 0.001, 0.2]))))
        except wmp.QueueFull:
            break
    if jobs and chance.random() < 0.5:
        chance.choice(jobs).stop()
    time.sleep(chance.choice([0, 0.001, 0.02]))
    chance.shuffle(nodes)

    for node in nodes:
        began = time.monotonic()
        if isinstance(node, wmp.Device):
            node.close()
        else:
            node.close(chance.choice([0.0, 0.2]))
        assert time.monotonic() - began < WAIT, f"seed {seed}: {type(node).__name__}"
        node.close()
    for job in jobs:
        assert job.done(), f"seed {seed}: {job}"


def test_closing_twice_at_once_and_cancelling_the_close_in_asyncio() -> None:
    async def main() -> None:
        manager = wmp.aio.Manager()
        await manager.start()
        job = await manager.submit(b"a")
        first = asyncio.create_task(manager.close(30))
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.gather(manager.close(), manager.close())
        with pytest.raises(wmp.ClosedError):
            await job

    asyncio.run(asyncio.wait_for(main(), WAIT))


FORGETFUL = """
import wmp
manager = wmp.Manager()
manager.start()
worker = wmp.Worker(*manager.endpoints, handlers=bytes.upper)
worker.start()
print(manager.submit(b"a").result(100), flush=True)
manager.submit(b"b", role="nobody has it")
"""


def test_a_program_that_forgets_to_close_ends() -> None:
    with program(FORGETFUL) as forgetful:
        assert (forgetful.ends(), forgetful.line(), forgetful.stderr) == (0, "b'A'", "")


INTERRUPTED = """
import sys, wmp
with wmp.Manager(max_jobs=1) as manager:
    job = manager.submit(b"nobody does it")
    print("waiting", flush=True)
    try:
        if sys.argv[1] == "result":
            job.result()
        elif sys.argv[1] == "map":
            list(manager.map([b"a"]))
        elif sys.argv[1] == "submit":
            manager.submit(b"no room")
        elif sys.argv[1] == "workers":
            manager.wait_for_workers()
        elif sys.argv[1] == "drain":
            manager.drain()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise SystemExit(3)
"""


@pytest.mark.parametrize("what", ["result", "map", "submit", "workers", "drain"])
def test_ctrl_c_ends_every_waiting_call(what: str) -> None:
    with program(INTERRUPTED, what) as waiting:
        assert waiting.line() == "waiting"
        # The call does not show that it waits, so the test waits for a moment.
        time.sleep(0.1)
        waiting.signal(signal.SIGINT)
        assert (waiting.ends(), waiting.line(), waiting.stderr) == (3, "interrupted", "")


def test_a_signal_that_another_thread_receives_ends_the_node() -> None:
    """Python's own signal handlers run only on the main thread, which blocks in this test."""
    script = textwrap.dedent("""
        import signal, sys, threading, wmp

        def kill_myself():
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        with wmp.Manager() as manager:
            worker = wmp.Worker(*manager.endpoints, handlers=bytes.upper)
            job = manager.submit(b"a")
            job.add_done_callback(lambda job: kill_myself())
            worker.run()
        print("ended")
    """)
    process = forks().run(sys.executable, "-c", script)
    assert (process.returncode, process.stdout) == (0, "ended\n"), process.stderr
