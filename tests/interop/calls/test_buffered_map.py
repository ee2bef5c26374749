"""``Executor.map`` with ``buffersize``: a thread pulls the inputs, which may come slowly."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import wmp
from tests.interop.calls import call_functions as functions
from tests.waiting import WAIT, wait_until

pytestmark = pytest.mark.interop

THREAD = "wmp-map-inputs"


@pytest.fixture(scope="module", params=["pickled", "by path"])
def executor(request: pytest.FixtureRequest) -> Iterator[wmp.Executor]:
    """An executor with processes of its own, and one that uses the worker of a manager."""
    if request.param == "pickled":
        with wmp.Executor(workers=1) as own:
            yield own
        return
    handlers = wmp.handlers_of(functions.__name__, functions=True)
    with (
        wmp.Manager(codec="cbor") as manager,
        wmp.Worker(*manager.endpoints, handlers=handlers, slots=1),
        wmp.Executor(manager) as borrowed,
    ):
        yield borrowed


def no_thread_is_left() -> bool:
    return all(thread.name != THREAD for thread in threading.enumerate())


@pytest.mark.parametrize(("size", "chunk"), [(1, 1), (4, 1), (1, 4), (2, 3), (5, 2)])
def test_results_come_before_a_slow_iterable_has_its_next_item(
    executor: wmp.Executor, size: int, chunk: int
) -> None:
    go = threading.Event()

    def inputs() -> Iterator[int]:
        yield 10
        yield 20
        yield 30
        assert go.wait(WAIT)
        yield 40

    results = executor.map(functions.add, inputs(), count(), buffersize=size, chunksize=chunk)
    assert [next(results) for _ in range(3)] == [10, 21, 32]
    go.set()
    assert list(results) == [43]


def test_a_map_returns_before_the_first_item_has_come(executor: wmp.Executor) -> None:
    go = threading.Event()

    def inputs() -> Iterator[int]:
        assert go.wait(WAIT)
        yield 1

    results = executor.map(functions.add, inputs(), buffersize=2)
    go.set()
    assert list(results) == [2]


@pytest.mark.parametrize(("size", "chunk"), [(1, 1), (3, 1), (2, 4)])
def test_no_more_items_are_pulled_than_the_buffer_takes(
    executor: wmp.Executor, size: int, chunk: int
) -> None:
    pulled = []

    def inputs() -> Iterator[int]:
        for number in count():
            pulled.append(number)
            yield number

    results = executor.map(functions.add, inputs(), buffersize=size, chunksize=chunk)
    for taken in range(20):
        assert next(results) == taken + 1
        assert len(pulled) <= taken + 1 + size * chunk
    results.close()  # type: ignore[attr-defined]
    wait_until(no_thread_is_left)


def test_long_maps_keep_their_order(executor: wmp.Executor) -> None:
    for size, chunk in ((1, 1), (50, 1), (3, 100)):
        results = executor.map(functions.add, range(700), buffersize=size, chunksize=chunk)
        assert list(results) == list(range(1, 701))


def test_an_iterator_that_nobody_takes_from_ends_its_thread(executor: wmp.Executor) -> None:
    results = executor.map(functions.add, count(), buffersize=2)
    del results
    gc.collect()
    wait_until(no_thread_is_left)


def test_a_map_that_is_left_while_its_input_is_awaited_ends_at_once(executor: wmp.Executor) -> None:
    go = threading.Event()

    def inputs() -> Iterator[int]:
        yield 1
        assert go.wait(WAIT)
        yield 2

    results = executor.map(functions.add, inputs(), buffersize=2)
    assert next(results) == 2
    results.close()  # type: ignore[attr-defined]
    assert not no_thread_is_left()
    go.set()
    wait_until(no_thread_is_left)


def test_a_slow_input_is_not_waited_for_longer_than_the_timeout(executor: wmp.Executor) -> None:
    go = threading.Event()

    def inputs() -> Iterator[int]:
        assert go.wait(WAIT)
        yield 1

    with pytest.raises(TimeoutError, match="arguments"):
        next(executor.map(functions.add, inputs(), buffersize=2, timeout=0.1))
    go.set()


class MyEnd(BaseException):
    """An exception that is no ``Exception``."""


@pytest.mark.parametrize("error", [LookupError, MyEnd])
@pytest.mark.parametrize("chunk", [1, 4])
def test_an_error_of_the_input_comes_behind_the_results(
    executor: wmp.Executor, error: type[BaseException], chunk: int
) -> None:
    def inputs() -> Iterator[int]:
        yield 1
        yield 2
        raise error("of the input")

    results = executor.map(functions.add, inputs(), buffersize=5, chunksize=chunk)
    assert [next(results), next(results)] == [2, 3]
    with pytest.raises(error, match="of the input"):
        next(results)


@pytest.mark.parametrize("chunk", [1, 2])
def test_arguments_that_cannot_be_sent_come_behind_the_results(
    executor: wmp.Executor, chunk: int
) -> None:
    unfit: list[Any] = [1, 2, threading.Lock(), 4]
    results = executor.map(functions.add, unfit, buffersize=3, chunksize=chunk)
    assert [next(results), next(results)] == [2, 3]
    with pytest.raises(TypeError, match="lock"):
        next(results)


def test_a_call_that_fails_cancels_the_calls_behind(executor: wmp.Executor) -> None:
    results = executor.map(functions.fail_at, count(), buffersize=4)
    assert [next(results) for _ in range(3)] == [0, 10, 20]
    with pytest.raises((ValueError, wmp.JobFailed), match="bad 3"):
        next(results)
    wait_until(no_thread_is_left)
    assert executor.submit(functions.add, 1).result(WAIT) == 2


def test_what_is_wrong_with_a_map_is_raised_by_the_call(executor: wmp.Executor) -> None:
    with pytest.raises(TypeError, match="iterable"):
        executor.map(functions.add, 5, buffersize=2)  # type: ignore[arg-type]
    with wmp.Executor(workers=1) as other:
        pass
    with pytest.raises(RuntimeError, match="after shutdown"):
        other.map(functions.add, [1], buffersize=2)


def test_without_a_thread_the_consumer_pulls_the_items(
    executor: wmp.Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wmp.runtime.submission import input_thread

    monkeypatch.setattr(input_thread, "start_thread", lambda *_, **__: None)
    results = executor.map(functions.add, range(10), buffersize=2, chunksize=3)
    assert list(results) == list(range(1, 11))
