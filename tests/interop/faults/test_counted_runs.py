"""``job.attempt`` counts runs, and ``job.lease`` leases."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import wmp
from tests.waiting import WAIT

pytestmark = pytest.mark.interop


def count(payload: bytes, job: Any) -> str:
    return f"{job.attempt} {job.lease}"


class Slow:
    """A handler whose first job waits, so that the next jobs wait behind it at the worker."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, payload: bytes) -> str:
        self.begun.set()
        assert self.go.wait(WAIT)
        return "slow"


@pytest.mark.rule("WMP-6.34")
@pytest.mark.parametrize("store", [False, True])
def test_the_first_run_after_a_drain_is_attempt_1(tmp_path: Path, store: bool) -> None:
    stored = {"store": tmp_path / "jobs.db"} if store else {}
    slow = Slow()
    with wmp.Manager(**stored) as manager:  # type: ignore[arg-type]
        first = manager.submit(b"first")
        with wmp.Worker(*manager.endpoints, handlers=slow, window=8) as worker:
            assert slow.begun.wait(WAIT)
            waiting = [manager.submit(b"next") for _ in range(4)]
            while worker.statistics().held < 5:
                threading.Event().wait(0.01)
            drain = threading.Thread(target=worker.drain, args=(WAIT,))
            drain.start()
            while worker.statistics().held > 1:
                threading.Event().wait(0.01)
            slow.go.set()
            drain.join(WAIT)
        assert first.result(WAIT) == b"slow"
        with wmp.Worker(*manager.endpoints, handlers=count):
            # The first run, in the second lease.
            assert [job.result(WAIT) for job in waiting] == [b"1 2"] * 4


@pytest.mark.rule("WMP-6.34")
@pytest.mark.parametrize("pool", ["thread", "process", "inline"])
@pytest.mark.parametrize("store", [False, True])
def test_a_run_that_failed_counts(tmp_path: Path, pool: str, store: bool) -> None:
    stored = {"store": tmp_path / "jobs.db"} if store else {}
    with (
        wmp.Manager(**stored) as manager,  # type: ignore[arg-type]
        wmp.Worker(*manager.endpoints, handlers=fail_first, pool=pool),
    ):
        job = manager.submit(b"x", retry=wmp.Retry(times=3, backoff=0.01))
        assert job.result(WAIT) == b"3 3"


def fail_first(payload: bytes, job: Any) -> str:
    if job.attempt < 3:
        raise ConnectionError(f"run {job.attempt}")
    return f"{job.attempt} {job.lease}"
