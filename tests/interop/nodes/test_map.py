"""`map` in both APIs: order, laziness, bounds, errors."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import wmp
import wmp.aio
from tests.interop.nodes.pair import async_pair, counted, pair
from tests.waiting import WAIT


def test_map_yields_in_input_order() -> None:
    with pair(lambda data: data * 2, slots=4) as manager:
        expected = [2 * str(number).encode() for number in range(5000)]

        assert list(manager.map(str(number) for number in range(5000))) == expected


def test_map_is_lazy_and_bounded() -> None:
    pulled: list[int] = []
    with pair() as manager:
        results = manager.map(counted(10_000, pulled), in_flight=16)
        assert pulled == []
        for taken in range(100):
            assert next(results) == str(taken).encode()
            assert len(pulled) <= taken + 1 + 16
        results.close()  # type: ignore[attr-defined]


def test_map_of_endless_input_can_be_left_early() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"again"

    with pair() as manager:
        results = manager.map(endless(), in_flight=100)
        for _ in range(10):
            next(results)
        results.close()  # type: ignore[attr-defined]
        manager.drain(WAIT)

        assert manager.statistics().queued == 0
        assert manager.statistics().leased == 0


def test_map_is_lazy_ordered_and_can_be_left_in_asyncio() -> None:
    pulled: list[int] = []

    async def main() -> None:
        async with async_pair(slots=2) as manager:
            async with contextlib.aclosing(
                manager.map(counted(1000, pulled), in_flight=8)  # type: ignore[type-var]
            ) as results:
                taken = 0
                async for result in results:
                    assert result == str(taken).encode()
                    taken += 1
                    assert len(pulled) <= taken + 8
                    if taken == 50:
                        break
            everything = [r async for r in manager.map([b"a"] * 3000)]
            assert everything == [b"A"] * 3000

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_map_takes_an_async_iterable_and_closes_it() -> None:
    closed: list[str] = []

    async def inputs(count: int, error: Exception | None = None) -> AsyncIterator[bytes]:
        try:
            for number in range(count):
                if number % 100 == 0:
                    await asyncio.sleep(0)
                yield str(number).encode()
            if error is not None:
                raise error
        finally:
            closed.append(f"{count}")

    async def main() -> None:
        async with async_pair() as manager:
            results = [result async for result in manager.map(inputs(1500), in_flight=700)]
            assert results == [str(number).encode() for number in range(1500)]
            assert [result async for result in manager.map(inputs(0))] == []

            failing = manager.map(inputs(3, OSError("disk")))
            assert [await anext(failing) for _ in range(3)] == [b"0", b"1", b"2"]
            with pytest.raises(OSError, match="disk"):
                await anext(failing)

            async with contextlib.aclosing(manager.map(inputs(10**9))) as endless:
                assert await anext(endless) == b"0"
            while len(closed) < 4:
                await asyncio.sleep(0)
        assert closed == ["1500", "0", "3", "1000000000"]

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_map_yields_results_before_a_slow_async_iterable_has_its_next_input() -> None:
    async def main() -> None:
        async with async_pair() as manager:
            go = asyncio.Event()

            async def inputs() -> AsyncIterator[bytes]:
                yield b"first"
                await go.wait()
                yield b"second"

            results = manager.map(inputs())
            assert await anext(results) == b"FIRST"
            go.set()
            assert await anext(results) == b"SECOND"
            with pytest.raises(StopAsyncIteration):
                await anext(results)

    asyncio.run(asyncio.wait_for(main(), WAIT))


@pytest.mark.parametrize("options", [{}, {"ordered": False}, {"return_exceptions": True}])
def test_map_yields_results_before_a_slow_iterable_has_its_next_input(options: Any) -> None:
    with pair() as manager:
        go = threading.Event()

        def inputs() -> Iterator[bytes]:
            yield b"first"
            assert go.wait(WAIT)
            yield b"second"

        results = manager.map(inputs(), **options)
        assert next(results) == b"FIRST"
        go.set()
        assert list(results) == [b"SECOND"]


def test_map_of_a_slow_iterable_and_a_list_yields_results_too() -> None:
    with pair(lambda pair: pair, codec="cbor") as manager:
        go = threading.Event()

        def inputs() -> Iterator[int]:
            yield 1
            assert go.wait(WAIT)

        results = manager.map(inputs(), [5, 6])
        assert next(results) == [1, 5]
        go.set()
        assert list(results) == []


def test_a_map_that_is_left_while_its_input_is_awaited_ends_at_once() -> None:
    with pair() as manager:
        go = threading.Event()
        ended = threading.Event()

        def inputs() -> Iterator[bytes]:
            try:
                yield b"first"
                assert go.wait(WAIT)
                yield b"second"
            finally:
                ended.set()

        results = manager.map(inputs())
        assert next(results) == b"FIRST"
        results.close()  # type: ignore[attr-defined]
        assert not ended.is_set()
        go.set()
        assert ended.wait(WAIT)


def test_inputs_are_pulled_in_the_context_of_the_consumer() -> None:
    user = contextvars.ContextVar("user", default=b"nobody")
    user.set(b"alice")
    with pair() as manager:
        assert list(manager.map(user.get() for _ in range(2))) == [b"ALICE", b"ALICE"]


def test_rows_of_sqlite_name_the_remedy() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as base, pair() as manager:
        rows = base.execute("SELECT x'61'")
        with pytest.raises(sqlite3.ProgrammingError) as caught:
            list(manager.map(row[0] for row in rows))
        assert "pass a list of the inputs" in caught.value.__notes__[0]


def test_a_blocking_map_refuses_an_async_iterable() -> None:
    async def inputs() -> AsyncIterator[bytes]:
        yield b""

    with wmp.Manager() as manager, pytest.raises(TypeError, match=r"use wmp\.aio\.Manager"):
        next(manager.map(inputs()))  # type: ignore[arg-type]


def test_map_raises_the_error_of_its_input_after_the_earlier_results() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        yield b"b"
        raise ZeroDivisionError("in the input")

    with pair() as manager:
        results = manager.map(broken())

        assert [next(results), next(results)] == [b"A", b"B"]
        with pytest.raises(ZeroDivisionError, match="in the input"):
            next(results)
        assert manager.submit(b"c").result(WAIT) == b"C"


def test_map_raises_a_failed_job_in_its_place_and_cancels_the_rest() -> None:
    def picky(payload: bytes) -> bytes:
        if payload == b"3":
            raise KeyError("three")
        return payload

    with pair(picky) as manager:
        results = manager.map(str(number) for number in range(1000))

        assert [next(results) for _ in range(3)] == [b"0", b"1", b"2"]
        with pytest.raises(wmp.JobFailed, match="three"):
            next(results)
        with pytest.raises(StopIteration):
            next(results)
        manager.drain(WAIT)


def test_a_full_manager_makes_submit_and_map_wait_in_asyncio() -> None:
    async def main() -> None:
        async with wmp.aio.Manager(max_jobs=3) as manager:
            jobs = [await manager.submit(b"a") for _ in range(3)]
            with pytest.raises(wmp.QueueFull):
                manager.submit_nowait(b"b")
            given_up = asyncio.create_task(manager.submit(b"never"))
            waiting = asyncio.create_task(manager.submit(b"b"))
            await asyncio.sleep(0)
            given_up.cancel()
            async with wmp.aio.Worker(*manager.endpoints, handlers=bytes.upper):
                assert await (await waiting) == b"B"
                assert [r async for r in manager.map([b"c"] * 100)] == [b"C"] * 100
                assert [await job for job in jobs] == [b"A"] * 3

    asyncio.run(asyncio.wait_for(main(), WAIT))
