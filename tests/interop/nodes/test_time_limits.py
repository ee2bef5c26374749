"""Expiries and run limits with real sockets, threads, coroutines and processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import wmp
from tests.interop.faults.process_handlers import hang, where
from tests.interop.nodes.test_runtime import Gate, pair
from tests.waiting import WAIT, gone

pytestmark = pytest.mark.interop


def test_a_job_that_waits_ends_at_its_expiry_and_one_that_runs_goes_on() -> None:
    gate = Gate()
    with pair(gate) as manager:
        running = manager.submit(b"running", expires=5.0)
        gate.wait_begun()
        waiting = manager.submit(b"waiting", expires=0.1)

        with pytest.raises(wmp.JobTimeout, match="expired before a worker"):
            waiting.result(WAIT)
        gate.go.set()
        assert running.result(WAIT) == b"running"
    assert gate.calls == 1


async def sleep(payload: bytes) -> bytes:
    await asyncio.sleep(float(payload))
    return payload


def test_a_coroutine_is_cancelled_at_its_run_limit() -> None:
    with pair(sleep) as manager:
        job = manager.submit(b"3600", run_limit=0.1)

        with pytest.raises(wmp.JobTimeout, match=r"ran for longer than its run_limit of 0\.1 s"):
            job.result(WAIT)
        assert manager.submit(b"0", run_limit=WAIT).result(WAIT) == b"0"


def test_a_thread_is_answered_for_after_the_grace() -> None:
    gate = Gate()
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=gate, slots=1, cancel_grace=0.1),
    ):
        job = manager.submit(b"job", run_limit=0.1)

        with pytest.raises(wmp.JobTimeout, match="its handler still runs"):
            job.result(WAIT)
        gate.go.set()
        assert manager.submit(b"next").result(WAIT) == b"next"


def test_a_process_is_ended_at_its_run_limit(tmp_path: Path) -> None:
    handlers = {"hang": hang, "where": where}
    with (
        wmp.Manager() as manager,
        wmp.Worker(
            *manager.endpoints, handlers=handlers, slots=1, pool="process", cancel_grace=0.1
        ),
    ):
        job = manager.submit(str(tmp_path / "pid"), role="hang", run_limit=2.0)

        with pytest.raises(wmp.JobTimeout, match="ran for longer"):
            job.result(WAIT)
        pid = int((tmp_path / "pid").read_text())
        assert manager.submit(b"", role="where").result(WAIT) != b"%d" % pid
        assert gone(pid)


def test_an_expiry_after_the_timeout_is_refused() -> None:
    with wmp.Manager() as manager:
        with pytest.raises(wmp.ConfigError, match="expires is 5 s and timeout 2 s"):
            manager.submit(b"job", expires=5, timeout=2)
        with pytest.raises(wmp.ConfigError, match=r"run_limit is .*; expected a number of seconds"):
            manager.submit(b"job", run_limit=0)
