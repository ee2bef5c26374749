"""Handlers that remember their replies."""

from __future__ import annotations

import asyncio
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waiting import WAIT
from wmp.errors import ConfigError
from wmp.gateways import remember
from wmp.runtime.executors.handlers import serve


def first_two(frames):
    return frames[:2]


def counting(frames):
    return b"done " + frames[2]


def test_a_repeated_request_gets_the_first_reply_without_a_run():
    runs = []

    @remember(key=first_two)
    def book(frames):
        runs.append(frames)
        return b"seat %d" % len(runs)

    assert book([b"ada", b"1", b"x"]) == b"seat 1"
    assert book([b"ada", b"1", b"x"]) == b"seat 1"
    assert book([b"ada", b"2", b"x"]) == b"seat 2"
    assert book([b"bob", b"1", b"x"]) == b"seat 3"
    assert len(runs) == 3


def test_a_repeat_waits_while_the_first_runs():
    begun, go, runs = threading.Event(), threading.Event(), []

    def slow(body):
        runs.append(body)
        begun.set()
        assert go.wait(WAIT)
        return b"reply"

    handler = remember(slow, key=lambda body: body)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(handler, b"k")
        assert begun.wait(WAIT)
        others = [pool.submit(handler, b"k") for _ in range(2)]
        assert not any(call.done() for call in others)
        go.set()
        assert {call.result(WAIT) for call in (first, *others)} == {b"reply"}
    assert runs == [b"k"]


def test_after_an_error_the_next_request_runs():
    runs = []

    def fail_once(body):
        runs.append(body)
        if len(runs) == 1:
            raise ValueError("no")
        return b"reply"

    handler = remember(fail_once, key=lambda body: body)
    with pytest.raises(ValueError, match="no"):
        handler(b"k")
    assert handler(b"k") == handler(b"k") == b"reply"
    assert len(runs) == 2


def test_async_handlers_remember_and_wait_too():
    async def play():
        runs = []
        go = asyncio.Event()

        @remember(key=lambda body: body or None)
        async def slow(body):
            runs.append(body)
            await go.wait()
            if len(runs) == 1:
                raise ValueError("no")
            return b"reply %d" % len(runs)

        calls = [asyncio.create_task(slow(b"k")) for _ in range(3)]
        await asyncio.sleep(0)
        assert runs == [b"k"]
        go.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(results[0], ValueError)
        assert results[1:] == [b"reply 2", b"reply 2"]
        assert [await slow(b""), await slow(b"")] == [b"reply 3", b"reply 4"]  # no key

    asyncio.run(play())


def test_a_first_request_that_is_cancelled_lets_the_next_one_run():
    async def play():
        runs = []
        go = asyncio.Event()

        @remember(key=lambda body: body)
        async def slow(body):
            runs.append(body)
            await go.wait()
            return b"reply"

        first, second, third = (asyncio.create_task(slow(b"k")) for _ in range(3))
        await asyncio.sleep(0)
        second.cancel()  # a repeat that waits, too
        first.cancel()
        await asyncio.wait([first, second])
        go.set()
        assert await third == b"reply"
        assert len(runs) == 2
        assert slow._running == {}

    asyncio.run(play())


def test_the_cache_is_bounded_by_number_and_size():
    few = remember(lambda body: body, key=lambda body: body, results=2)
    for body in (b"a", b"b", b"a", b"c"):
        few(body)
    assert list(few.replies._replies) == [b"a", b"c"]
    small = remember(lambda n: [b"x" * n, "y"], key=lambda n: n, size=74)
    for n in (3, 4, 5, 20):
        small(n)
    assert list(small.replies._replies) == [5]
    assert (len(small.replies), small.replies.size) == (1, 70)  # a number counts as 64 bytes


def test_a_remembering_handler_is_a_handler_of_its_kind():
    def with_job(body, job):
        return job

    async def later(body):
        return body

    plain = serve("role", remember(with_job, key=lambda body: body))
    assert (plain.takes_job, plain.is_async) == (True, False)
    assert serve("role", remember(later, key=lambda body: body)).is_async
    copy = pickle.loads(pickle.dumps(remember(counting, key=first_two, results=3)))
    assert copy([b"a", b"b", b"c"]) == b"done c"


def test_wrong_arguments_are_named():
    with pytest.raises(ConfigError, match="key is None"):
        remember(counting, key=None)
    with pytest.raises(ConfigError, match="handler is 7"):
        remember(7, key=first_two)
    with pytest.raises(ConfigError, match="results"):
        remember(counting, key=first_two, results=0)
    with pytest.raises(TypeError, match="of type dict"):
        remember(counting, key=lambda body: {})([b"a"])
