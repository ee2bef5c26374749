"""The pools with real threads and real spawned processes.

Handlers report where they are by ``job.report``, and wait on FIFOs or events. No test sleeps in the
hope that something has happened.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.pool_handlers import (
    POISON,
    cancel_own_task,
    cancel_self,
    double,
    fail,
    frames_or_bytes,
    kind_of,
    leave,
    number,
    poison,
    poison_async,
    tell,
    who,
)
from tests.unit.runtime.posts import (
    CANCELLED,
    ERROR,
    OK,
    Opener,
    Posts,
    run,
    until_cancelled,
    until_open,
    upper,
)
from tests.waiting import WAIT
from wmp.actions import Interrupt, Recall
from wmp.codec import pack_frames, pack_value, unpack_error, unpack_value
from wmp.errors import ConfigError
from wmp.events import Finished, Reported
from wmp.runtime.executors import open_pool, reporter
from wmp.runtime.executors.handlers import RunningJob


async def upper_async(payload: bytes) -> bytes:
    await asyncio.sleep(0)
    return payload.upper()


# -- every kind -----------------------------------------------------------------------------

KINDS = ["thread", "inline", "process"]


@pytest.mark.parametrize("kind", KINDS)
def test_results_outcomes_and_errors_of_every_kind(kind: str, opened: Opener, posts: Posts) -> None:
    pool = opened(
        kind,
        upper=upper,
        upper_async=upper_async,
        kind_of=kind_of,
        double=double,
        fail=fail,
        leave=leave,
        number=number,
        who=who,
        cancel_self=cancel_self,
    )
    for lane_number, role in enumerate(["upper", "upper_async"], 1):
        pool.run(run(lane_number, [b"%d-x" % i for i in range(300)], role))
        expected = [(OK, b"%d-X" % i) for i in range(300)]
        assert posts.results(lane_number, range(1, 301)) == expected

    pool.run(run(3, [b"x", memoryview(b"xyz")], "kind_of"))
    assert posts.results(3, [1, 2]) == [(OK, b"bytes")] * 2

    pool.run(run(4, [pack_value([1, "a"]), b"\xff\xff", pack_value("b")], "double", codec="cbor"))
    good, bad, after = posts.results(4, [1, 2, 3])
    assert (good[0], unpack_value(good[1])) == (OK, [1, "a", 1, "a"])
    assert (bad[0], unpack_error(bad[1])[0]) == (ERROR, "DecodeError")
    assert (after[0], unpack_value(after[1])) == (OK, "bb")

    pool.run(run(5, [b"cheese"], "fail"))
    type_name, text, trace = posts.error(5, 1)
    assert (type_name, text) == ("LookupError", "no cheese here")
    assert "in fail" in trace
    assert "run_lane" not in trace, "the runner's own frame is nobody's business"

    pool.run(run(6, [b"exit", b"interrupt", b"ok"], "leave"))
    names = [posts.error(6, id)[0] for id in (1, 2, 3)]
    assert names == ["SystemExit", "KeyboardInterrupt", "ValueError"]

    pool.run(run(7, [b""], "number"))
    assert "the handler returned int; expected bytes, str or None" in posts.error(7, 1)[1]

    pool.run(run(8, [b"x", b"x"], "upper", codec="protobuf"))
    assert posts.error(8, 2)[0] == "UnknownCodec"
    pool.run(run(9, [b"x", b"x"], "nobody"))
    assert "no handler for role 'nobody'" in posts.error(9, 2)[1]

    pool.run(run(10, [b""], "who", deadlines=[time.monotonic() + 900]))
    pid, *rest = posts.results(10, [1])[0][1].split()
    assert rest == [b"1", b"3", b"b'manager'", b"who", b"False" if kind == "thread" else b"True"]
    assert (int(pid) == os.getpid()) == (kind != "process")

    # The job was not cancelled: the error is a bug of the handler, not a cancellation.
    pool.run(run(11, [b"job", b"future", b"asyncio"], "cancel_self"))
    names = [posts.error(11, id)[0] for id in (1, 2, 3)]
    assert names == ["JobCancelled", "CancelledError", "CancelledError"]
    assert posts.silent()


@pytest.mark.rule("VALUE-2.6")
@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_frames_is_a_result_of_any_handler(
    kind: str, opened: Opener, posts: Posts
) -> None:
    pool = opened(kind, frames_or_bytes=frames_or_bytes)
    payloads = [b"a", b"a b", b"c", b"c d", b"e f"]
    pool.run(run(1, payloads, "frames_or_bytes"))
    expected = [data if b" " not in data else pack_frames(data.split()) for data in payloads]
    assert posts.results(1, range(1, 6)) == [(OK, payload) for payload in expected]
    ends = [event for event in posts.events if isinstance(event, Finished)]
    assert {id for event in ends if event.codec == "frames" for id in event.ids} == {2, 4, 5}
    assert {id for event in ends if event.codec is None for id in event.ids} == {1, 3}


@pytest.mark.rule("WMP-6.7")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("handler", [upper, upper_async])
def test_a_job_whose_deadline_has_passed_is_not_begun(
    kind: str, handler: Any, opened: Opener, posts: Posts
) -> None:
    pool = opened(kind, default=handler)
    now = time.monotonic()
    pool.run(run(1, [b"a", b"b", b"c"], deadlines=[now - 1, now + 1000, None]))
    assert posts.results(1, [1, 2, 3]) == [(CANCELLED, b""), (OK, b"B"), (OK, b"C")]


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_recall_takes_back_exactly_the_jobs_that_have_not_begun(
    kind: str, opened: Opener, posts: Posts, tmp_path: Path
) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    pool = opened(kind, default=until_open)
    pool.run(run(1, [os.fsencode(fifo), b"", b"", b""]))
    assert posts.report().id == 1
    pool.recall(Recall(1, [1, 2, 4, 99]))
    posts.until(lambda: bool(posts.recalled))
    pool.recall(Recall(1, [2, 4]))
    posts.until(lambda: len(posts.recalled) == 2)
    fifo.write_bytes(b"go")
    assert posts.results(1, [1, 3])[0] == (OK, b"go")
    assert posts.recalled == [(1, [2, 4]), (1, [])]
    assert set(posts.ended) == {(1, 1), (1, 3)}
    pool.recall(Recall(1, [3]))
    posts.until(lambda: len(posts.recalled) == 3)
    assert posts.recalled[2] == (1, [])


def test_recall_of_jobs_of_async_handlers(opened: Opener, posts: Posts) -> None:
    gate = threading.Event()

    async def wait(payload: bytes, job: RunningJob) -> bytes:
        job.report(text="here")
        await asyncio.to_thread(gate.wait)
        return payload

    pool = opened("thread", default=wait)
    pool.run(run(1, [b"a", b"b", b"c"]))
    posts.report()
    pool.recall(Recall(1, [1, 2]))
    gate.set()
    assert posts.results(1, [1, 3]) == [(OK, b"a"), (OK, b"c")]
    assert posts.recalled == [(1, [2])]


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_every_job_ends_once_under_recalls_and_interrupts(
    kind: str, opened: Opener, posts: Posts
) -> None:
    seed = 20
    chooser = random.Random(seed)
    pool = opened(kind, 2, default=upper, other=upper_async)
    expected, requested = set(), 0
    for number_ in range(200):
        k = chooser.randrange(1, 40)
        pool.run(run(number_, [b"x"] * k, chooser.choice(["default", "other"])))
        expected |= {(number_, id) for id in range(1, k + 1)}
        some = [id for id in range(1, k + 1) if chooser.random() < 0.3]
        pool.interrupt(Interrupt(number_, some[::2]))
        pool.recall(Recall(number_, some))
        requested += 1

    def seen() -> set[tuple[int, int]]:
        return set(posts.ended) | {(n, id) for n, ids in posts.recalled for id in ids}

    posts.until(lambda: len(posts.recalled) == requested and seen() == expected)
    count = len(posts.ended) + sum(len(ids) for _, ids in posts.recalled)
    assert count == len(expected), f"a job ended and was recalled (seed {seed})"
    assert posts.silent()


@pytest.mark.rule("WMP-6.10")
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_interrupt_ends_waiting_jobs_and_flags_running_ones(
    kind: str, opened: Opener, posts: Posts
) -> None:
    pool = opened(kind, default=until_cancelled)
    pool.run(run(1, [b"", b"", b"return"]))
    assert posts.report().id == 1
    pool.interrupt(Interrupt(1, [2]))
    assert posts.results(1, [2]) == [(CANCELLED, b"")]
    assert (1, 1) not in posts.ended
    pool.interrupt(Interrupt(1, [1]))
    assert posts.results(1, [1]) == [(CANCELLED, b"")]
    assert posts.report().id == 3
    pool.interrupt(Interrupt(1, [3]))
    # A handler may return in spite of the flag: then its result is the outcome.
    assert posts.results(1, [3]) == [(OK, b"whatever")]
    pool.interrupt(Interrupt(1, [1, 2, 3]))
    assert posts.silent()


def test_interrupt_cancels_the_running_coroutine_and_no_other(opened: Opener, posts: Posts) -> None:
    async def wait(payload: bytes, job: RunningJob) -> bytes:
        if payload == b"quick":
            task = asyncio.current_task()
            assert task is not None
            # asyncio.timeout and TaskGroup would count a leftover cancellation as their own.
            assert task.cancelling() == 0
            return b"done"
        job.report(text="here")
        await asyncio.get_running_loop().create_future()
        return b"never"

    pool = opened("thread", default=wait)
    pool.run(run(1, [b"", b"quick", b"", b"quick"]))
    for id in (1, 3):
        assert posts.report().id == id
        pool.interrupt(Interrupt(1, [id]))
        assert posts.results(1, [id, id + 1]) == [(CANCELLED, b""), (OK, b"done")]


def test_a_coroutine_that_ends_the_loop_ends_nothing(opened: Opener, posts: Posts) -> None:
    async def leave_later(payload: bytes) -> bytes:
        async def leave_now() -> None:
            sys.exit(1)

        task = asyncio.get_running_loop().create_task(leave_now())
        await asyncio.wait([task])
        return repr(task.exception()).encode()

    pool = opened("thread", default=leave_later, other=upper_async)
    pool.run(run(1, [b""]))
    assert posts.results(1, [1]) == [(OK, b"SystemExit(1)")]
    pool.run(run(2, [b"a"], "other"))
    assert posts.results(2, [1]) == [(OK, b"A")]


@pytest.mark.parametrize("handler", [poison, poison_async])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_handler_raises_ends_its_own_job_alone(
    kind: str, handler: Any, opened: Opener, posts: Posts
) -> None:
    pool = opened(kind, default=handler)
    payloads = [part for payload in POISON for part in (payload, b"next")]
    pool.run(run(1, payloads))

    results = posts.results(1, range(1, len(payloads) + 1))
    assert results[1::2] == [(OK, b"next")] * len(POISON)
    assert {outcome for outcome, _ in results[::2]} == {ERROR}
    names = [unpack_error(payload)[0].encode() for _, payload in results[::2]]
    # In a coroutine, these two become a RuntimeError that names them.
    replaced = {b"StopIteration", b"GeneratorExit"} if handler is poison_async else set()
    assert [name for name in names if name != b"RuntimeError"] == [
        name for name in POISON if name not in replaced
    ]


def test_a_coroutine_that_cancels_its_own_task_leaves_the_next_job_alone(
    opened: Opener, posts: Posts
) -> None:
    pool = opened("thread", default=cancel_own_task)
    pool.run(run(1, [b"cancel", b"next", b"cancel", b"last"]))

    expected = [(OK, payload) for payload in (b"cancel", b"next", b"cancel", b"last")]
    assert posts.results(1, range(1, 5)) == expected


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_lanes_run_at_once(kind: str, opened: Opener, posts: Posts, tmp_path: Path) -> None:
    pool = opened(kind, 3, default=until_open)
    fifos = [tmp_path / str(i) for i in range(3)]
    for i, fifo in enumerate(fifos):
        os.mkfifo(fifo)
        pool.run(run(i, [os.fsencode(fifo)]))
    # Three handlers run at the same time.
    assert {posts.report().lane for _ in range(3)} == {0, 1, 2}
    for i in (2, 0, 1):
        fifos[i].write_bytes(b"%d" % i)
        assert posts.results(i, [1]) == [(OK, b"%d" % i)]


def test_lanes_of_coroutines_run_at_once(opened: Opener, posts: Posts) -> None:
    barrier = asyncio.Barrier(50)

    async def meet(payload: bytes) -> bytes:
        await barrier.wait()
        return b"met"

    pool = opened("inline", default=meet)
    for i in range(50):
        pool.run(run(i, [b""]))
    for i in range(50):
        assert posts.results(i, [1]) == [(OK, b"met")]


def test_no_more_threads_than_slots_and_none_before_it_is_needed(
    opened: Opener, posts: Posts
) -> None:
    seen = set()

    def note(payload: bytes) -> None:
        seen.add(threading.get_ident())

    def count() -> int:
        return sum(thread.name.startswith("wmp-handlers") for thread in threading.enumerate())

    before = count()
    pool = opened("thread", 3, default=note)
    assert count() == before
    for i in range(50):
        pool.run(run(i, [b""]))
    for i in range(50):
        posts.results(i, [1])
    assert 1 <= len(seen) <= 3
    assert count() - before <= 3


# -- delivery of results ---------------------------------------------------------------------


@pytest.mark.parametrize("handler", [upper, upper_async])
def test_fast_jobs_cost_one_event_a_bundle(
    handler: Any, opened: Opener, posts: Posts, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The interval is longer than the test, even on a slow machine.
    monkeypatch.setattr(reporter, "FLUSH_INTERVAL", 3600.0)
    pool = opened("thread", default=handler)
    pool.run(run(1, [b"x"] * 256))
    posts.results(1, range(1, 257))
    assert len(posts.events) == 1


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_results_do_not_wait_for_a_slow_job_behind_them(
    kind: str, opened: Opener, posts: Posts, tmp_path: Path
) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    pool = opened(kind, default=until_open)
    pool.run(run(1, [b"", b"", os.fsencode(fifo), b""]))
    posts.results(1, [1, 2])
    assert (1, 3) not in posts.ended
    fifo.write_bytes(b"")
    posts.results(1, [3, 4])


def test_results_of_coroutines_do_not_wait_for_a_slow_one(opened: Opener, posts: Posts) -> None:
    gate = asyncio.Event()

    async def wait(payload: bytes) -> asyncio.AbstractEventLoop | bytes:
        if payload:
            loops.append(asyncio.get_running_loop())
            await gate.wait()
        return payload

    loops: list[asyncio.AbstractEventLoop] = []
    pool = opened("thread", default=wait)
    pool.run(run(1, [b"", b"slow", b""]))
    posts.results(1, [1])
    posts.until(lambda: bool(loops) or posts.silent())
    pool.run(run(2, [b""]))  # at the end of this lane the first lane is in its second job
    posts.results(2, [1])
    loops[0].call_soon_threadsafe(gate.set)
    assert posts.results(1, [2, 3]) == [(OK, b"slow"), (OK, b"")]


@pytest.mark.parametrize("kind", KINDS)
def test_reports_are_bounded_and_the_last_one_arrives_before_the_end(
    kind: str, opened: Opener, posts: Posts
) -> None:
    pool = opened(kind, default=tell)
    began = time.monotonic()
    pool.run(run(1, [b"20000"]))
    posts.results(1, [1])
    took = time.monotonic() - began
    reports = [event for event in posts.events if isinstance(event, Reported)]
    assert isinstance(posts.events[-1], Finished)
    assert (reports[0].fraction, reports[0].text) == (0.0, None)
    assert (reports[-1].fraction, reports[-1].text) == (1.0, "the last")
    assert len(reports) <= 3 + took / 0.05
    assert all(0 <= report.fraction <= 1 for report in reports if report.fraction is not None)


def test_a_late_report_is_sent_while_the_handler_goes_on(opened: Opener, posts: Posts) -> None:
    gate = threading.Event()

    def tell_twice(payload: bytes, job: RunningJob) -> None:
        job.report(0.1)
        job.report(0.2)
        job.report(text="x")
        gate.wait(WAIT)
        kept.append(job)

    kept: list[RunningJob] = []
    pool = opened("thread", default=tell_twice)
    pool.run(run(1, [b""]))
    assert posts.report().fraction == 0.1
    second = posts.report()
    assert (second.fraction, second.text) == (0.2, "x")
    gate.set()
    posts.results(1, [1])
    kept[0].report(0.9)  # the job has ended
    assert posts.silent()


def test_inline_runs_on_the_caller_and_has_posted_all_when_it_returns(
    opened: Opener, posts: Posts
) -> None:
    def where(payload: bytes) -> str:
        return threading.current_thread().name

    pool = opened("inline", default=where)
    pool.run(run(1, [b""] * 10))
    assert posts.threads == {threading.current_thread()}
    ids: list[int] = []
    while len(ids) < 10:  # the progress comes in more than one event if the jobs took long
        ids += posts.next(timeout=0).ids
    assert ids == list(range(1, 11))
    assert posts.ended[1, 1] == (OK, threading.current_thread().name.encode())


# -- the end --------------------------------------------------------------------------------


def test_close_does_not_hang_on_a_stuck_handler_and_posts_nothing_after(
    opened: Opener, posts: Posts
) -> None:
    gate, left = threading.Event(), threading.Event()

    def stuck(payload: bytes, job: RunningJob) -> None:
        job.report(text="here")
        gate.wait()
        job.report(0.5)
        left.set()

    async def stuck_async(payload: bytes, job: RunningJob) -> None:
        job.report(text="here")
        gate.wait()  # a bug: this blocks the event loop

    pool = opened("thread", 1, default=stuck, other=stuck_async)
    pool.run(run(1, [b"", b""]))
    pool.run(run(2, [b"", b""], "other"))
    posts.report()
    posts.report()
    pool.close(0.1)
    pool.close(0.1)
    gate.set()
    assert left.wait(WAIT)
    pool.run(run(3, [b""]))
    pool.recall(Recall(1, [2]))
    pool.interrupt(Interrupt(1, [2]))
    for thread in threading.enumerate():
        if thread.name.startswith(("wmp-handlers", "wmp-coroutines")):
            thread.join(30)
    assert posts.silent()


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_close_flags_running_jobs_and_waits_for_them(
    kind: str, opened: Opener, posts: Posts
) -> None:
    async def wait_for_cancel(payload: bytes, job: RunningJob) -> bytes:
        job.report(text="here")
        await asyncio.get_running_loop().create_future()
        return b""

    pool = opened(kind, default=until_cancelled, other=wait_for_cancel)
    pool.run(run(1, [b"", b""]))
    pool.run(run(2, [b"", b""], "other"))
    posts.report()
    posts.report()
    pool.close(30)
    assert posts.results(1, [1]) == [(CANCELLED, b"")]
    assert posts.results(2, [1]) == [(CANCELLED, b"")]
    assert posts.silent()  # a job that had not begun has no result


# -- opening --------------------------------------------------------------------------------


def test_opening_a_pool_reports_wrong_arguments(posts: Posts) -> None:
    with pytest.raises(ConfigError, match="'fork'; expected one of thread, process, inline"):
        open_pool("fork", {"default": upper}, 1, posts)
    with pytest.raises(ConfigError, match="slots is 0"):
        open_pool("thread", {"default": upper}, 0, posts)
    with pytest.raises(ConfigError, match="handlers is empty"):
        open_pool("thread", {}, 1, posts)
    with pytest.raises(ConfigError, match=r"expected f\(payload\)"):
        open_pool("thread", {"default": lambda: None}, 1, posts)


@pytest.mark.rule("WMP-9.22")
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_lane_hands_back_what_it_has_not_begun_when_its_worker_was_stopped(
    kind: str, opened: Opener, posts: Posts, tmp_path: Path
) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    pool = opened(kind, default=until_open)
    pool.begins_until.value = math.inf
    pool.run(run(1, [os.fsencode(fifo), b"", b""]))
    assert posts.report().id == 1
    pool.begins_until.value = time.monotonic()  # the driver has sent nothing for too long
    fifo.write_bytes(b"go")
    assert posts.results(1, [1]) == [(OK, b"go")]
    posts.until(lambda: bool(posts.recalled))
    assert posts.recalled == [(1, [2, 3])]
    pool.begins_until.value = math.inf
    pool.run(run(2, [b"", b""]))
    assert [outcome for outcome, _ in posts.results(2, [1, 2])] == [OK, OK]
    assert set(posts.ended) == {(1, 1), (2, 1), (2, 2)}


@pytest.mark.rule("WMP-9.22")
@pytest.mark.parametrize("handler", [upper, upper_async])
def test_no_job_of_a_lane_begins_when_its_worker_was_stopped_before(
    handler: Any, opened: Opener, posts: Posts
) -> None:
    pool = opened("thread", default=handler)
    pool.begins_until.value = time.monotonic()
    pool.run(run(1, [b"a", b"b"]))
    posts.until(lambda: bool(posts.recalled))
    assert posts.recalled == [(1, [1, 2])]
    assert not posts.ended
