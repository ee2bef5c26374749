"""A job of the blocking API keeps the contract of ``concurrent.futures.Future``."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

import wmp
from tests.interop.nodes.pair import Gate, pair
from tests.waiting import WAIT


@contextlib.contextmanager
def waiting_and_running() -> Iterator[tuple[wmp.Job, wmp.Job, Gate]]:
    """Yield a job without a worker, a job at a worker, and the gate that ends the second job."""
    gate = Gate()
    with pair(gate) as manager:
        running = manager.submit(b"running")
        gate.wait_begun()
        waiting = manager.submit(b"waiting")
        yield waiting, running, gate
        gate.go.set()
        waiting.stop()


def test_a_waiting_job_can_be_cancelled() -> None:
    with waiting_and_running() as (waiting, running, gate):
        assert (waiting.running(), waiting.done()) == (False, False)
        assert waiting.cancel() is True
        assert (waiting.cancelled(), waiting.done(), waiting.running()) == (True, True, False)
        assert waiting.cancel() is True  # a second call returns the same
        assert waiting.stop() is False
        for ask in (waiting.result, waiting.exception):
            with pytest.raises(concurrent.futures.CancelledError) as raised:
                ask(0)
            assert isinstance(raised.value, wmp.JobCancelled)
            assert raised.value.job_id == waiting.id
        gate.go.set()
        assert running.result(WAIT) == b"running"
        assert gate.calls == 1


def test_a_running_job_cannot_be_cancelled() -> None:
    with waiting_and_running() as (_, running, gate):
        assert running.running() is True
        assert running.cancel() is False
        assert (running.cancelled(), running.done()) == (False, False)
        gate.go.set()
        assert running.result(WAIT) == b"running"
        assert (running.running(), running.cancel(), running.cancelled()) == (False, False, False)


def test_a_running_job_can_only_be_stopped() -> None:
    begun = threading.Event()

    def patient(payload: bytes, job: wmp.RunningJob) -> None:
        begun.set()
        while not job.cancelled:
            pass
        raise wmp.JobCancelled("as asked")

    with pair(patient) as manager:
        job = manager.submit(b"")
        assert begun.wait(WAIT)
        assert job.cancel() is False
        assert job.stop() is True
        with pytest.raises(wmp.JobCancelled) as raised:
            job.result(WAIT)
        assert raised.value.may_have_started
        assert job.cancelled()


def test_a_job_that_ended_cannot_be_cancelled() -> None:
    def fail(payload: bytes) -> None:
        raise ValueError("no")

    with pair({"well": bytes.upper, "badly": fail}) as manager:
        for role in ("well", "badly"):
            job = manager.submit(b"a", role=role)
            concurrent.futures.wait([job], WAIT)
            assert (job.done(), job.cancel(), job.stop(), job.cancelled()) == (
                True,
                False,
                False,
                False,
            )


def test_callbacks_run_for_results_errors_and_cancellation() -> None:
    called: list[tuple[str, wmp.Job]] = []
    there = threading.Semaphore(0)

    def note(name: str) -> Callable[[wmp.Job], None]:
        def call(job: wmp.Job) -> None:
            called.append((name, job))
            there.release()

        return call

    with waiting_and_running() as (waiting, running, gate):
        waiting.add_done_callback(note("cancelled"))
        running.add_done_callback(note("result"))
        waiting.cancel()
        assert there.acquire(timeout=WAIT)
        waiting.add_done_callback(note("later"))
        assert there.acquire(timeout=WAIT)
        gate.go.set()
        assert there.acquire(timeout=WAIT)
    assert called == [("cancelled", waiting), ("later", waiting), ("result", running)]


def test_wait_and_as_completed_take_cancelled_jobs_for_done() -> None:
    with waiting_and_running() as (waiting, running, gate):
        waiting.cancel()
        done, left = concurrent.futures.wait([waiting, running], 0)
        assert (done, left) == ({waiting}, {running})
        first = concurrent.futures.wait([waiting, running], 0, concurrent.futures.FIRST_EXCEPTION)
        assert running in first.not_done  # wait() does not count a cancelled job as an error
        gate.go.set()
        assert set(concurrent.futures.as_completed([waiting, running], WAIT)) == {waiting, running}


def test_a_result_that_is_late_raises_the_builtin_timeout() -> None:
    with waiting_and_running() as (_, running, _):
        for ask in (running.result, running.exception):
            with pytest.raises(TimeoutError):
                ask(0)


def test_the_text_of_a_late_result_names_the_cause() -> None:
    with waiting_and_running() as (waiting, running, _):
        with pytest.raises(TimeoutError, match=r"has not ended after 0.01 s: a worker has the job"):
            running.result(0.01)
        with pytest.raises(TimeoutError, match=r"a worker with free capacity$"):
            waiting.result(0.01)
    with wmp.Manager() as alone:
        with pytest.raises(TimeoutError, match=r"s: no worker is connected$"):
            alone.submit(b"").result(0.01)
        alone.close(0)


def test_an_awaitable_of_asyncio_follows_the_job() -> None:
    async def main(waiting: wmp.Job, running: wmp.Job, gate: Gate) -> None:
        futures = asyncio.wrap_future(waiting), asyncio.wrap_future(running)
        futures[0].cancel()
        while not waiting.cancelled():
            await asyncio.sleep(0)
        gate.go.set()
        assert await futures[1] == b"running"

    with waiting_and_running() as (waiting, running, gate):
        asyncio.run(asyncio.wait_for(main(waiting, running, gate), WAIT))
        assert running.done()


def test_a_job_that_is_only_submitted_can_be_cancelled_at_once() -> None:
    with wmp.Manager() as manager:
        jobs = [manager.submit(b"a") for _ in range(100)]
        assert all(job.cancel() for job in jobs)
        assert manager.statistics().queued == 0
