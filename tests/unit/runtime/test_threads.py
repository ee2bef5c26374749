"""When the system can start no more threads, no call hangs and no job is lost.

From Python 3.12 on, no thread can start after the end of the main thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tests.unit.runtime.posts import LOST, OK, Opener, Posts, no_threads, run, until_open, upper
from wmp.runtime.common.threads import aside, start_thread
from wmp.runtime.executors.handlers import RunningJob


def test_a_thread_is_a_daemon_with_a_name_and_none_where_there_is_none() -> None:
    heard: list[int] = []
    with no_threads():
        assert start_thread(heard.append, "nobody", 1) is None

    thread = start_thread(heard.append, "somebody", 2)

    assert thread is not None
    assert (thread.name, thread.daemon) == ("somebody", True)
    thread.join(20)
    assert heard == [2]


def test_blocking_calls_run_on_a_thread_or_here_if_none_can_start() -> None:
    where: list[threading.Thread] = []
    never = threading.Event()

    async def main() -> None:
        await aside(lambda: where.append(threading.current_thread()), "there", 20)
        with no_threads():
            await aside(lambda: where.append(threading.current_thread()), "here", 20)
        # The caller does not wait for this thread any longer.
        await aside(lambda: never.wait(20), "stuck", 0.0)

    asyncio.run(main())
    assert not never.is_set()
    never.set()

    assert [thread.name for thread in where] == ["there", threading.main_thread().name]


@pytest.mark.rule("WMP-6.14")
def test_a_lane_without_a_thread_goes_to_another_worker(opened: Opener, posts: Posts) -> None:
    pool = opened("thread", default=upper)

    with no_threads():
        pool.run(run(1, [b"a", b"b"]))
        assert posts.cause(1, 1) == "the worker could not start a thread for the job"
        assert posts.results(1, [2])[0][0] is LOST
    pool.run(run(2, [b"a"]))

    assert posts.results(2, [1]) == [(OK, b"A")]


def test_lanes_share_the_threads_that_there_are(opened: Opener, posts: Posts) -> None:
    pool = opened("thread", 2, default=upper)
    pool.run(run(1, [b"a"]))
    posts.results(1, [1])

    with no_threads():
        for lane in range(2, 20):
            pool.run(run(lane, [b"a"]))
        ended = [posts.results(lane, [1]) for lane in range(2, 20)]

    assert ended == [[(OK, b"A")]] * 18


def test_results_and_reports_come_without_the_thread_that_looks_after_them(
    opened: Opener, posts: Posts, tmp_path: Path
) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")

    def handle(payload: bytes, job: RunningJob) -> bytes:
        if payload == b"first":
            return b"first"
        job.report(0.1, "one")
        job.report(0.2, "two")  # the report comes too soon after the first one
        return until_open(payload, job)

    pool = opened("thread", warm=upper, default=handle)
    pool.run(run(1, [b""], "warm"))
    posts.results(1, [1])

    with no_threads():
        pool.run(run(2, [b"first", os.fsencode(fifo)]))
        assert posts.results(2, [1]) == [(OK, b"first")]
        assert posts.report().text == "one"
        fifo.write_bytes(b"second")
        assert posts.results(2, [2]) == [(OK, b"second")]
    assert posts.report().text == str(os.getpid())
