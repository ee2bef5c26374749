"""Handlers that fail and are tried again, with real sockets, threads, coroutines and processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wmp
import wmp.aio
from tests.interop.faults.process_handlers import fail_twice
from tests.interop.nodes.test_runtime import pair
from tests.waiting import WAIT
from wmp.runtime.executors.handlers import RunningJob

pytestmark = pytest.mark.interop

QUICK = wmp.Retry(times=5, on=(ConnectionError,), backoff=0.01)


class Flaky:
    """A handler that fails twice, then works."""

    def __init__(self, error: Callable[[], Exception] = lambda: ConnectionError("refused")) -> None:
        self.calls: Counter[bytes] = Counter()
        self.error = error

    def __call__(self, payload: bytes) -> bytes:
        self.calls[payload] += 1
        if self.calls[payload] <= 2:
            raise self.error()
        return payload.upper()


def test_a_flaky_handler_fails_twice_and_then_works() -> None:
    handler = Flaky()
    with pair(handler) as manager:
        assert manager.submit(b"job", retry=QUICK).result(WAIT) == b"JOB"
        assert manager.statistics().requeued == {"tried again": 2}
        assert list(manager.map([b"a", b"b"], retry=QUICK)) == [b"A", b"B"]
    assert handler.calls == {b"job": 3, b"a": 3, b"b": 3}


def test_the_settings_of_a_handler_hold_for_jobs_without_settings() -> None:
    handler = Flaky()
    with wmp.Manager() as manager:
        worker = wmp.Worker(*manager.endpoints)
        worker.handler("flaky", retry=QUICK)(handler)
        with worker:
            assert manager.submit(b"a", role="flaky").result(WAIT) == b"A"
            with pytest.raises(wmp.JobFailed, match="refused"):
                manager.submit(b"b", role="flaky", retry=wmp.Retry(times=0)).result(WAIT)
    assert handler.calls == {b"a": 3, b"b": 1}


def test_the_final_error_names_each_attempt() -> None:
    with pair(Flaky(), label="boss") as manager:
        before = time.time()
        job = manager.submit(b"job", retry=wmp.Retry(times=1, backoff=0.01))
        with pytest.raises(wmp.JobFailed, match="ConnectionError: refused") as caught:
            job.result(WAIT)
    error = caught.value
    assert [(failure.attempt, failure.error) for failure in error.history] == [
        (1, "ConnectionError: refused"),
        (2, "ConnectionError: refused"),
    ]
    assert all(before - 1 < failure.at < time.time() + 1 for failure in error.history)
    assert any("2 attempts failed or were lost" in note for note in error.__notes__)


def test_other_errors_are_not_tried_again() -> None:
    handler = Flaky(lambda: ValueError("wrong"))
    with pair(handler) as manager, pytest.raises(wmp.JobFailed, match="wrong"):
        manager.submit(b"job", retry=QUICK).result(WAIT)
    assert handler.calls == {b"job": 1}


def test_a_handler_asks_for_another_attempt_later() -> None:
    handler = Flaky(lambda: wmp.RetryLater(0.05))
    with pair(handler) as manager:
        began = time.monotonic()
        assert manager.submit(b"job").result(WAIT) == b"JOB"
        assert time.monotonic() - began >= 0.1
    assert handler.calls == {b"job": 3}


def test_a_handler_rejects_a_job_whatever_its_settings_are() -> None:
    handler = Flaky(lambda: wmp.Reject("no such user"))
    with pair(handler) as manager, pytest.raises(wmp.JobFailed, match="no such user"):
        manager.submit(b"job", retry=wmp.Retry(backoff=0.0)).result(WAIT)
    assert handler.calls == {b"job": 1}


async def flaky_coroutine(payload: bytes, job: RunningJob) -> bytes:
    if job.attempt < 3:
        raise ConnectionError("refused")
    return b"attempt %d" % job.attempt


def test_coroutines_and_processes_are_tried_again(tmp_path: Path) -> None:
    handlers: dict[str, Any] = {"coroutine": flaky_coroutine, "process": fail_twice}
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=handlers, pool="process", retry=QUICK),
    ):
        jobs = [manager.submit(str(tmp_path / "x"), role=role) for role in handlers]
        assert [job.result(WAIT) for job in jobs] == [b"attempt 3", b"attempt 3"]
    assert (tmp_path / "x").read_text() == "xxx"


def test_a_delayed_job_begins_at_its_time() -> None:
    with pair() as manager:
        began = time.time()
        late = manager.submit(b"late", delay=0.3)
        at = manager.submit(b"at", start_at=began + 0.2)
        assert manager.submit(b"now").result(WAIT) == b"NOW"
        assert at.result(WAIT) == b"AT"
        assert time.time() - began >= 0.2
        assert late.result(WAIT) == b"LATE"
        assert time.time() - began >= 0.3


def test_wrong_settings_are_refused() -> None:
    with wmp.Manager() as manager:
        with pytest.raises(
            wmp.ConfigError, match=r"retry is 3; expected a wmp.Retry \(max_worker_losses="
        ):
            manager.submit(b"job", retry=3)  # type: ignore[arg-type]
        with pytest.raises(wmp.ConfigError, match=r"retry is 3; expected a wmp.Retry"):
            wmp.Worker(*manager.endpoints, handlers=bytes.upper, retry=3)  # type: ignore[arg-type]
