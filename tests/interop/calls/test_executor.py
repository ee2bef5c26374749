"""``wmp.Executor`` behaves as the executors of ``concurrent.futures`` do, with worker processes."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import os
import textwrap
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import pytest

import wmp
from tests.interop.calls import call_functions as functions
from tests.interop.calls.busy_workers import busy
from tests.waiting import WAIT, children, gone, wait_until
from wmp.calls.local import LocalManager
from wmp.runtime.node import portal

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def executor() -> Iterator[wmp.Executor]:
    """An executor that all tests share, because each start of a process takes long."""
    with wmp.Executor(workers=2) as executor:
        yield executor


# -- submit ------------------------------------------------------------------------------------


def test_submit_calls_with_all_arguments(executor: wmp.Executor) -> None:
    future = executor.submit(functions.capture, 1, self=2, fn=3)

    assert future.result(WAIT) == [[1], {"self": 2, "fn": 3}]
    assert isinstance(future, concurrent.futures.Future)
    assert isinstance(future, wmp.Job)
    with pytest.raises(TypeError):
        executor.submit(fn=functions.capture, arg=1)  # type: ignore[call-arg]


def test_calls_have_the_types_of_their_functions(executor: wmp.Executor) -> None:
    # mypy checks these types, and that the ignored line is an error.
    typed: concurrent.futures.Future[str] = executor.submit(textwrap.dedent, " a")
    job: wmp.Job = executor.submit(functions.where)

    assert typed.result(WAIT) == "a"
    assert assert_type(executor.submit(functions.fail_at, 1, bad=5).result(WAIT), int) == 10
    assert assert_type(executor.submit(lambda: "b").result(WAIT), str) == "b"
    assert job.result(WAIT)
    with pytest.raises(TypeError):
        executor.submit(functions.fail_at).result(WAIT)  # type: ignore[call-arg]


def test_lambdas_closures_and_classes_of_a_function_are_called(executor: wmp.Executor) -> None:
    class Mine:
        def __init__(self, value: int) -> None:
            self.value = value

    offset = 5

    assert executor.submit(lambda value: value + offset, 1).result(WAIT) == 6
    assert executor.submit(lambda mine: Mine(mine.value + 1), Mine(1)).result(WAIT).value == 2
    assert isinstance(executor.submit(Mine, 3).result(WAIT), Mine)


def test_a_call_has_the_state_of_its_function_at_the_call(executor: wmp.Executor) -> None:
    class Counter:
        count = 0

        def next(self) -> int:
            self.count += 1
            return self.count

    counter = Counter()

    assert [executor.submit(counter.next).result(WAIT) for _ in range(2)] == [1, 1]
    counter.count = 5
    assert executor.submit(counter.next).result(WAIT) == 6


@pytest.mark.rule("CALL-3.3")
def test_exceptions_are_the_original_ones_with_the_remote_traceback(executor: wmp.Executor) -> None:
    future = executor.submit(functions.fail, "left")

    with pytest.raises(functions.StrangeError, match="left 7") as caught:
        future.result(WAIT)

    assert (caught.value.left, caught.value.right) == ("left", 7)
    assert isinstance(caught.value.__cause__, wmp.JobFailed)
    shown = "".join(traceback.format_exception(caught.value))
    assert "call_functions.py" in shown
    assert "raise StrangeError(text, number)" in shown
    assert "pickled" not in shown
    assert "pickled" not in caught.value.__cause__.remote_traceback


def test_exceptions_of_a_class_of_this_program_are_caught_by_it(executor: wmp.Executor) -> None:
    class Mine(Exception):
        pass

    def fail() -> None:
        raise Mine("local")

    with pytest.raises(Mine, match="local"):
        executor.submit(fail).result(WAIT)


@pytest.mark.rule("CALL-3.3")
def test_an_exception_that_cannot_travel_arrives_as_text(executor: wmp.Executor) -> None:
    with pytest.raises(wmp.JobFailed, match="BadError: one") as caught:
        executor.submit(functions.fail_badly).result(WAIT)

    assert "fail_badly" in caught.value.remote_traceback
    assert "pickled exception" not in str(caught.value.__notes__)


def test_the_end_of_a_function_does_not_end_its_process(executor: wmp.Executor) -> None:
    with pytest.raises(SystemExit, match="no"):
        executor.submit(functions.leave).result(WAIT)


def test_arguments_and_results_that_cannot_be_pickled_are_errors(executor: wmp.Executor) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        executor.submit(functions.capture, threading.Lock())
    with pytest.raises(TypeError, match="cannot be pickled"):
        executor.submit(functions.make_object).result(WAIT)


@pytest.mark.rule("CALL-3.6")
def test_a_call_that_cannot_be_unpickled_ends_with_an_error(executor: wmp.Executor) -> None:
    class Broken:
        def __reduce__(self) -> tuple[object, ...]:
            return getattr, (os, "no_such_name")

    with pytest.raises(wmp.JobFailed, match="no_such_name"):
        executor.submit(functions.capture, Broken()).result(WAIT)
    with pytest.raises(wmp.JobFailed, match="no_such_name"):
        executor.submit(Broken()).result(WAIT)  # type: ignore[arg-type]
    assert executor.submit(functions.add, 1).result(WAIT) == 2


# -- map ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 100])
def test_map_yields_results_in_order(executor: wmp.Executor, size: int) -> None:
    numbers = range(10)

    assert list(executor.map(pow, numbers, numbers, chunksize=size)) == list(
        map(pow, numbers, numbers)
    )
    assert list(executor.map(abs, iter([-1, -2, -3, -4]), chunksize=size)) == [1, 2, 3, 4]
    assert list(executor.map(functions.add, [1, 2], [1, 2, 3], chunksize=size)) == [2, 4]
    assert list(executor.map(abs, [], chunksize=size)) == []


def test_map_raises_at_the_place_of_the_error(executor: wmp.Executor) -> None:
    results = executor.map(functions.fail_at, range(6))

    assert [next(results) for _ in range(3)] == [0, 10, 20]
    with pytest.raises(ValueError, match="bad 3"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


@pytest.mark.rule("CALL-2.2")
@pytest.mark.parametrize("size", [1, 4])
def test_a_function_that_raises_stop_iteration_loses_no_result(
    executor: wmp.Executor, size: int
) -> None:
    results = executor.map(functions.first_even, [[2], [3], [4], [6]], chunksize=size)

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(results)


def test_a_chunk_with_a_wrong_number_of_results_is_an_error() -> None:
    def short(call: list[object]) -> list[int]:
        return [1, 2, 3]

    with (
        wmp.Manager(codec="cbor") as manager,
        wmp.Worker(*manager.endpoints, handlers={f"call:{functions.__name__}": short}),
        wmp.Executor(manager) as executor,
    ):
        with pytest.raises(wmp.JobFailed, match="3 results for a chunk of 4 calls"):
            list(executor.map(functions.add, range(4), chunksize=4))
        assert list(executor.map(functions.add, range(3), chunksize=3)) == [1, 2, 3]


def test_map_submits_at_once_unless_a_buffer_is_given(executor: wmp.Executor) -> None:
    pulled = []

    def inputs() -> Iterator[int]:
        for number in range(10):
            pulled.append(number)
            yield -number

    every = executor.map(abs, inputs())
    assert len(pulled) == 10
    assert list(every) == list(range(10))

    pulled.clear()
    some = executor.map(abs, inputs(), buffersize=2)
    wait_until(lambda: pulled == [0, 1])
    assert next(some) == 0
    wait_until(lambda: pulled == [0, 1, 2])
    assert list(some) == list(range(1, 10))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"chunksize": 0}, ValueError),
        ({"buffersize": 0}, ValueError),
        ({"buffersize": "2"}, TypeError),
    ],
)
def test_map_refuses_sizes_that_are_none(
    executor: wmp.Executor, wrong: dict[str, int], error: type[Exception]
) -> None:
    with pytest.raises(error):
        executor.map(abs, [1], **wrong)


# -- futures -----------------------------------------------------------------------------------


@pytest.mark.rule("CALL-5.2")
def test_a_waiting_call_can_be_cancelled_and_a_running_one_cannot(
    executor: wmp.Executor, tmp_path: Path
) -> None:
    ended = threading.Event()
    with busy(executor, tmp_path / "go") as running:
        waiting = executor.submit(functions.add, 1)
        waiting.add_done_callback(lambda future: ended.set())

        assert [call.cancel() for call in running] == [False, False]
        assert all(call.running() for call in running)
        # A worker of quick calls has some calls in advance, and hands them back when one is slow.
        wait_until(waiting.cancel)
        assert waiting.cancelled()
        assert ended.wait(WAIT)
        with pytest.raises(concurrent.futures.CancelledError):
            waiting.result(WAIT)
    assert all(isinstance(call.result(WAIT), int) for call in running)


def test_callbacks_get_the_future_early_and_late(executor: wmp.Executor) -> None:
    seen: list[object] = []
    both = threading.Event()
    future = executor.submit(functions.add, 1)

    def callback(future: concurrent.futures.Future[int]) -> None:
        seen.append(future.result())
        if len(seen) == 2:
            both.set()

    future.add_done_callback(callback)
    assert future.result(WAIT) == 2
    future.add_done_callback(callback)

    assert both.wait(WAIT)
    assert seen == [2, 2]


def test_as_completed_and_wait_take_the_futures(executor: wmp.Executor, tmp_path: Path) -> None:
    with busy(executor, tmp_path / "go", 1) as (slow,):
        quick = executor.submit(functions.add, 1)
        bad = executor.submit(functions.fail_at, 3)
        done, left = concurrent.futures.wait([slow, quick, bad], WAIT, "FIRST_EXCEPTION")
        assert bad in done
        assert slow in left
        order = concurrent.futures.as_completed([slow, quick, bad], WAIT)
        assert {next(order), next(order)} == {quick, bad}
    assert next(order) is slow
    assert concurrent.futures.wait([slow, quick], WAIT).not_done == set()


def test_asyncio_runs_calls_in_the_executor(executor: wmp.Executor) -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(executor, functions.add, 1, 2)

    assert asyncio.run(main()) == 3


def test_a_running_call_can_be_stopped(executor: wmp.Executor, tmp_path: Path) -> None:
    with busy(executor, tmp_path / "go", 1) as (call,):
        assert call.stop()
        with pytest.raises(concurrent.futures.CancelledError):
            call.result(WAIT)
    assert executor.submit(functions.add, 1).result(WAIT) == 2


# -- worker processes --------------------------------------------------------------------------


@pytest.mark.rule("CALL-5.3")
def test_the_death_of_a_process_breaks_its_call_and_no_other(executor: wmp.Executor) -> None:
    with pytest.raises(concurrent.futures.BrokenExecutor, match="exit code 3") as caught:
        executor.submit(functions.die).result(WAIT)

    assert isinstance(caught.value, wmp.WorkerLost)
    assert list(executor.map(functions.add, range(5))) == [1, 2, 3, 4, 5]


@pytest.mark.rule("CALL-5.1")
def test_no_other_process_can_reach_the_workers(executor: wmp.Executor) -> None:
    assert executor._own is not None
    assert [endpoint.partition("://")[0] for endpoint in executor._own.endpoints] == ["inproc"]
    assert executor.submit(functions.where).result(WAIT) in children(os.getpid())


@pytest.mark.deep
@pytest.mark.rule("CALL-5.4")
def test_the_initializer_runs_in_each_process_before_its_calls(tmp_path: Path) -> None:
    with wmp.Executor(workers=2, initializer=functions.set_state, initargs=("ready",)) as executor:
        with busy(executor, tmp_path / "go"):
            pass
        assert set(executor.map(lambda _: functions.get_state(), range(20))) == {"ready"}
    with pytest.raises(TypeError, match="initializer must be a callable"):
        wmp.Executor(workers=1, initializer=3)  # type: ignore[arg-type]


@pytest.mark.rule("CALL-5.4")
def test_an_initializer_that_fails_breaks_the_executor() -> None:
    with wmp.Executor(workers=1, initializer=functions.break_down) as executor:
        calls = [executor.submit(functions.add, 1) for _ in range(3)]
        for call in calls:
            with pytest.raises(concurrent.futures.BrokenExecutor, match="no such thing"):
                call.result(WAIT)
        with pytest.raises(wmp.InitializerFailed, match="LookupError: no such thing"):
            executor.submit(functions.add, 1)


@pytest.mark.rule("CALL-5.4")
def test_an_initializer_that_ends_its_process_breaks_the_executor(tmp_path: Path) -> None:
    with wmp.Executor(workers=1, initializer=functions.die) as executor:
        calls = [executor.submit(functions.add, 1) for _ in range(50)]
        for call in calls:
            with pytest.raises(wmp.InitializerFailed, match="exit code 3 in its initializer"):
                call.result(WAIT)
        with pytest.raises(concurrent.futures.BrokenExecutor, match="exit code 3"):
            executor.submit(functions.add, 1)


@pytest.mark.parametrize("before", [False, True])
def test_shutdown_may_be_called_by_a_callback(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portal, "_PATIENCE", 1000.0)  # no thread gives up waiting for another
    ended = threading.Event()
    executor = wmp.Executor(workers=1)

    def callback(call: concurrent.futures.Future[int]) -> None:
        executor.shutdown()
        ended.set()

    call = executor.submit(functions.add, 1)
    if before:
        executor.shutdown(wait=False)
    call.add_done_callback(callback)
    assert ended.wait(WAIT)
    executor.shutdown()


@pytest.mark.deep
def test_every_call_ends_while_threads_submit_and_cancel_and_processes_die(
    executor: wmp.Executor,
) -> None:
    ends: collections.Counter[str] = collections.Counter()

    def work(number: int) -> int:
        if number % 97 == 3:
            os._exit(1)
        return number + 1

    def submit(step: int) -> None:
        calls = [executor.submit(work, number) for number in range(300)]
        for call in calls[::step]:
            call.cancel()
        for number, call in enumerate(calls):
            try:
                assert call.result(WAIT) == number + 1
                ends["result"] += 1
            except concurrent.futures.BrokenExecutor:
                assert number % 97 == 3
                ends["lost"] += 1
            except concurrent.futures.CancelledError:
                assert number % step == 0
                ends["cancelled"] += 1

    threads = [threading.Thread(target=submit, args=(step,)) for step in (7, 11, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)

    assert ends.total() == 900
    assert ends["lost"]


# -- the workers of a manager ------------------------------------------------------------------

MODULE = functions.__name__


@pytest.fixture(scope="module")
def fleet() -> Iterator[wmp.Manager]:
    """A manager with a worker of the module, without pickle."""
    with (
        wmp.Manager(codec="cbor") as manager,
        wmp.Worker(*manager.endpoints, handlers=wmp.handlers_of(MODULE, functions=True), slots=2),
    ):
        manager.wait_for_workers(timeout=WAIT)
        yield manager


def test_a_task_does_not_use_the_manager_of_an_executor(
    executor: wmp.Executor, fleet: wmp.Manager
) -> None:
    assert executor.submit(functions.add, 1).result(WAIT) == 2
    assert functions.double.submit(21).result(WAIT) == 42


@pytest.mark.rule("CALL-1.1", "CALL-2.1", "CALL-2.2")
def test_functions_of_a_module_are_called_without_pickle(fleet: wmp.Manager) -> None:
    with wmp.Executor(fleet) as executor:
        assert executor.submit(functions.capture, 1, two=b"2").result(WAIT) == [[1], {"two": b"2"}]
        assert list(executor.map(functions.add, range(5), range(5), chunksize=2)) == [0, 2, 4, 6, 8]
        assert list(executor.map(functions.add, range(5))) == [1, 2, 3, 4, 5]


@pytest.mark.rule("CALL-2.2", "CALL-2.5", "CALL-3.4")
def test_without_pickle_an_exception_arrives_as_text(fleet: wmp.Manager) -> None:
    with wmp.Executor(fleet) as executor:
        with pytest.raises(wmp.JobFailed, match="StrangeError: left 7") as caught:
            executor.submit(functions.fail, "left").result(WAIT)
        assert "raise StrangeError" in caught.value.remote_traceback
        with pytest.raises(wmp.JobFailed, match="ValueError: bad 3"):
            list(executor.map(functions.fail_at, range(5), chunksize=5))


@pytest.mark.rule("CALL-2.4")
def test_without_pickle_only_functions_of_modules_are_called(fleet: wmp.Manager) -> None:
    with wmp.Executor(fleet) as executor:
        for function in (lambda: 1, functions._private, functions.capture.__get__(1)):
            with pytest.raises(TypeError, match="cannot be called by import path"):
                executor.submit(function)
        with pytest.raises(TypeError, match="object"):
            executor.submit(functions.capture, object())


@pytest.mark.deep
@pytest.mark.rule("CALL-1.1")
def test_a_call_waits_for_a_worker_of_its_module(fleet: wmp.Manager) -> None:
    with wmp.Executor(fleet) as executor:
        call = executor.submit(textwrap.dedent, "  x")
        wait_until(lambda: "call:textwrap" in (((s := call.status()) and s.unserved) or ""))
        assert call.cancel()


@pytest.mark.rule("CALL-1.2", "CALL-1.3", "CALL-3.1", "CALL-3.2")
def test_pickled_calls_are_asked_for_at_both_ends(fleet: wmp.Manager) -> None:
    with (
        wmp.Executor(fleet, pickle=True) as executor,
        wmp.Worker(*fleet.endpoints, handlers=wmp.handlers_of(pickle=True)),
    ):
        assert executor.submit(lambda value: value + 1, 1).result(WAIT) == 2
        with pytest.raises(functions.StrangeError):
            executor.submit(functions.fail, "left").result(WAIT)
        assert list(executor.map(abs, (-1, -2, -3), chunksize=2)) == [1, 2, 3]


@pytest.mark.rule("CALL-3.5")
def test_pickled_calls_need_keys_off_this_host() -> None:
    worker = wmp.Worker("tcp://192.0.2.1:5570", handlers=wmp.handlers_of(pickle=True))

    with pytest.raises(wmp.ConfigError, match=r"refuses tcp://192.0.2.1:5570 without keys"):
        worker.start()


def test_wrong_arguments_of_an_executor_are_refused(fleet: wmp.Manager) -> None:
    with pytest.raises(wmp.ConfigError, match=r"expected a wmp.Manager, or workers=N"):
        wmp.Executor(4)  # type: ignore[arg-type]
    with pytest.raises(wmp.ConfigError, match="workers= is for an executor with"):
        wmp.Executor(fleet, workers=2)
    with pytest.raises(wmp.ConfigError, match="workers is 0"):
        wmp.Executor(workers=0)
    with wmp.Manager() as plain, pytest.raises(wmp.ConfigError, match="codec='cbor'"):
        wmp.Executor(plain)


def test_a_local_manager_has_worker_processes_and_handlers() -> None:
    with wmp.local(1, MODULE) as manager:
        assert isinstance(manager, LocalManager)
        assert manager.submit([[3], {}], role="scale").result(WAIT) == 30
        assert functions.double.using(manager).submit(21).result(WAIT) == 42
        with wmp.Executor(manager) as executor:
            assert executor.submit(lambda: 7).result(WAIT) == 7
        pid = manager.submit(["where", [], {}], role=f"call:{MODULE}").result(WAIT)
    wait_until(lambda: gone(pid))
