"""A running ``map`` pulls inputs lazily, in bounds and in order, and leaves no job behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waiting import wait_until
from wmp.actions import End, Resolve
from wmp.errors import (
    ClosedError,
    ConfigError,
    JobCancelled,
    JobFailed,
    JobTimeout,
    QueueFull,
    WorkerLost,
)
from wmp.events import Cancelled, Submitted
from wmp.message import Kind
from wmp.runtime.driver.inbox import JobTerms, OpenSubmission
from wmp.runtime.submission.joined_inputs import joined
from wmp.runtime.submission.map_pipeline import MapPipeline, MapWait
from wmp.runtime.submission.map_progress import open_progress, total_of
from wmp.runtime.submission.submissions import Submissions
from wmp.runtime.submission.unordered_map import UnorderedMap


class World:
    """Submissions whose jobs end when the test ends them."""

    def __init__(self, limit: int = 10_000) -> None:
        self.posted: list[Any] = []
        self.submissions = Submissions(self.posted.append, limit)
        self.wakes = self.clears = 0

    def pipeline(
        self, payloads: Iterable[Any], in_flight: int = 100, codec: str = "bytes", **bounds: Any
    ) -> MapPipeline:
        terms = JobTerms(Kind(codec="" if codec == "bytes" else codec), 0, None, 3)
        return MapPipeline(
            self.submissions,
            payloads,
            terms,
            codec=codec,
            in_flight=in_flight,
            signal=self,
            **bounds,
        )

    def set(self) -> None:
        self.wakes += 1

    def clear(self) -> None:
        self.clears += 1

    def jobs(self) -> dict[int, bytes]:
        results: dict[int, bytes] = {}
        for entry in self.posted:
            event = entry.seal() if isinstance(entry, OpenSubmission) else entry
            if isinstance(event, Submitted):
                results.update(zip(event.ids, event.payloads, strict=True))
        self.posted.clear()
        return results

    def end(self, ids: Iterable[int], end: End = End.OK, payload: bytes | None = None) -> None:
        ids = list(ids)
        payloads = [str(id).encode() if payload is None else payload for id in ids]
        self.submissions.resolve(Resolve(ids, [end] * len(ids), payloads, [1] * len(ids)))


def counted(count: int, pulled: list[int]) -> Iterator[bytes]:
    for number in range(count):
        pulled.append(number)
        yield str(number).encode()


def fill(pipeline: MapPipeline) -> None:
    while pipeline.fill():
        pass


def test_inputs_are_pulled_up_to_the_bound_and_no_further() -> None:
    world, pulled = World(), []
    pipeline = world.pipeline(counted(1000, pulled), in_flight=10)
    assert pulled == []

    fill(pipeline)

    assert len(pulled) == 10
    assert len(world.jobs()) == 10


def test_results_come_in_the_order_of_inputs_for_any_order_of_ends() -> None:
    world = World()
    pipeline = world.pipeline([b"a", b"b", b"c"])
    fill(pipeline)
    ids = list(world.jobs())

    world.end([ids[2], ids[1]])
    assert pipeline.waits
    assert world.wakes == 0
    world.end([ids[0]])
    assert world.wakes == 1

    assert pipeline.take() == [str(id).encode() for id in ids]
    assert pipeline.finished


def test_taking_makes_room_in_good_parts() -> None:
    world, pulled = World(), []
    pipeline = world.pipeline(counted(1000, pulled), in_flight=8)
    fill(pipeline)
    ids = list(world.jobs())
    world.end(ids)

    fill(pipeline)
    assert len(pulled) == 8
    assert len(pipeline.take()) == 2
    fill(pipeline)
    assert len(pulled) == 10


def test_one_end_too_few_stops_the_taking() -> None:
    world = World()
    pipeline = world.pipeline([b"a", b"b", b"c"])
    fill(pipeline)
    ids = list(world.jobs())
    assert pipeline.take() == []
    world.end([ids[0], ids[2]])

    assert pipeline.take() == [str(ids[0]).encode()]
    assert pipeline.take() == []
    assert pipeline.waits


def test_the_consumer_is_woken_once_for_all_that_ended_together() -> None:
    world = World()
    pipeline = world.pipeline([b"a", b"b", b"c"])
    fill(pipeline)

    world.end(world.jobs())

    assert world.wakes == 1


def test_a_failure_is_raised_in_its_place() -> None:
    world = World()
    pipeline = world.pipeline([b"a", b"b"])
    fill(pipeline)
    ids = list(world.jobs())
    world.end([ids[1]], End.LOST, b"w1\ngone")
    world.end([ids[0]])

    assert pipeline.take() == [str(ids[0]).encode()]
    with pytest.raises(WorkerLost, match="gone"):
        pipeline.take()


def test_an_error_of_the_inputs_is_raised_at_its_place() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ZeroDivisionError("in the inputs")

    world = World()
    pipeline = world.pipeline(broken())
    fill(pipeline)
    world.end(world.jobs())

    assert not pipeline.finished
    pipeline.take()
    with pytest.raises(ZeroDivisionError, match="in the inputs"):
        pipeline.finished  # noqa: B018


def test_an_input_that_is_no_payload_is_raised_in_its_place() -> None:
    world = World()
    pipeline = world.pipeline([b"a", 5])  # type: ignore[list-item]
    fill(pipeline)
    world.end(world.jobs())

    pipeline.take()
    with pytest.raises(TypeError, match="of type int"):
        pipeline.finished  # noqa: B018


def taken(world: World, pipeline: MapPipeline) -> list[Any]:
    """Return all results of a pipeline in a world that ends each job at once with a result."""
    values: list[Any] = []
    while (step := pipeline.step()) is not None:
        if not isinstance(step, MapWait):
            values += step
        elif jobs := world.jobs():
            world.end(jobs)
    return values


def test_a_lenient_map_yields_the_errors_of_jobs_at_their_places() -> None:
    world = World()
    pipeline = world.pipeline([b"a", b"b", b"c"], lenient=True)
    fill(pipeline)
    first, second, third = world.jobs()
    world.end([second], End.LOST, b"w1\ngone")
    world.end([first, third])

    first_result, error, three = taken(world, pipeline)

    assert (first_result, three) == (b"1", b"3")
    assert isinstance(error, WorkerLost)


@pytest.mark.parametrize("kind", [list, iter])
def test_a_lenient_map_goes_on_behind_an_input_that_is_no_payload(kind: Any) -> None:
    world = World()
    pipeline = world.pipeline(kind([5, b"a", 6, 7, b"b", 8]), lenient=True)

    values = taken(world, pipeline)

    assert [value for value in values if isinstance(value, bytes)] == [b"1", b"2"]
    assert [type(value) for value in values] == [
        TypeError,
        bytes,
        TypeError,
        TypeError,
        bytes,
        TypeError,
    ]


def test_a_lenient_map_raises_the_error_of_the_inputs_and_of_a_closed_manager() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ZeroDivisionError("in the inputs")

    world = World()
    with pytest.raises(ZeroDivisionError, match="in the inputs"):
        taken(world, world.pipeline(broken(), lenient=True))
    closed = world.pipeline([b"a"], lenient=True)
    fill(closed)
    world.submissions.fail(ClosedError("the manager is closed"))

    with pytest.raises(ClosedError, match="before the end of job"):
        closed.take()


def test_abandoning_a_map_cancels_its_open_jobs_and_keeps_nothing() -> None:
    world = World()
    pipeline = world.pipeline([b"a", b"b", b"c"])
    fill(pipeline)
    ids = list(world.jobs())
    world.end(ids[:1])

    pipeline.abandon()
    (event,) = world.posted
    world.end(ids[1:], End.CANCELLED, b"")

    assert event == Cancelled(ids[1:])
    assert len(world.submissions) == 0
    assert pipeline.finished


def test_no_room_in_the_manager_starves_the_window_until_there_is() -> None:
    world = World(limit=1)
    world.pipeline([b"other"]).fill()
    (other,) = world.jobs()
    pipeline = world.pipeline([b"a"])

    assert not pipeline.fill()
    assert pipeline.starved
    world.end([other])
    fill(pipeline)
    assert not pipeline.starved
    assert list(world.jobs().values()) == [b"a"]


def test_a_broken_cbor_result_fails_its_own_job() -> None:
    world = World()
    pipeline = world.pipeline([1], in_flight=1, codec="cbor")
    fill(pipeline)
    world.end(world.jobs(), payload=b"\xff\xff")

    with pytest.raises(JobFailed, match="cannot be decoded"):
        pipeline.take()


def test_inputs_that_fit_are_submitted_and_the_others_later() -> None:
    world = World(limit=4)
    pipeline = world.pipeline([b"a", b"b", b"c", b"d"])
    other = world.pipeline([b"x", b"y", b"z"])
    # The inputs were pulled while the manager had no jobs. Then the other pipeline filled most of
    # the manager.
    add, world.submissions.add = (
        world.submissions.add,
        lambda *_: (_ for _ in ()).throw(QueueFull(4)),
    )  # type: ignore[assignment, method-assign]
    assert not pipeline.fill()
    world.submissions.add = add  # type: ignore[method-assign]
    fill(other)
    assert pipeline.starved

    assert pipeline.fill()
    assert not pipeline.starved
    assert list(world.jobs().values()) == [b"x", b"y", b"z", b"a"]
    assert not pipeline.fill()


def test_a_full_manager_that_drains_ends_the_map_instead_of_having_it_ask_for_ever() -> None:
    world = World(limit=1)
    world.pipeline([b"other"]).fill()
    pipeline = world.pipeline([b"a"])
    world.submissions.refuse(ClosedError("the manager is draining"))
    pipeline._chunk = [b"a"]

    assert not pipeline.fill()
    assert not pipeline.starved
    with pytest.raises(ClosedError, match="draining"):
        pipeline.finished  # noqa: B018


def test_bytes_are_bounded_as_well_as_jobs() -> None:
    world, pulled = World(), []

    def large() -> Iterator[bytes]:
        for number in range(1000):
            pulled.append(number)
            yield bytes(100)

    pipeline = world.pipeline(large(), in_flight=1000, max_bytes=1600)
    fill(pipeline)
    assert len(pulled) == 16
    ids = list(world.jobs())
    world.end(ids)
    assert len(pipeline.take()) == 16
    fill(pipeline)
    assert len(pulled) == 32
    first = world.pipeline([bytes(5000), b""], in_flight=1000, max_bytes=1600)
    fill(first)
    assert [len(data) for data in world.jobs().values()][-1] == 5000


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_inputs_that_are_there_and_inputs_that_come_are_handed_in_alike(kind: Any) -> None:
    world = World()
    inputs = [b"a", "ä", bytearray(b"c"), b"d" * 30, b"e"]
    pipeline = world.pipeline(kind(inputs), max_bytes=16)
    fill(pipeline)
    jobs = world.jobs()
    assert list(jobs.values())[:2] == [b"a", "ä".encode()]
    # Not all inputs are submitted, because they have more bytes together than ``max_bytes``.
    assert len(jobs) < len(inputs)
    values = []
    while not pipeline.finished:
        jobs |= world.jobs()
        world.end(id for id in jobs if id not in values and not values.append(id))
        while pipeline.take():
            pass
        fill(pipeline)
    assert list(jobs.values()) == [b"a", "ä".encode(), b"c", b"d" * 30, b"e"]


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_a_payload_above_the_limit_is_an_error_at_its_place(kind: Any) -> None:
    world = World()
    pipeline = world.pipeline(kind([b"a", b"bbbbb", b"c"]), limit=4)
    fill(pipeline)
    assert list(world.jobs().values()) == [b"a"]
    world.end([1])
    assert pipeline.take() == [b"1"]
    with pytest.raises(ConfigError, match="5 bytes is too large"):
        pipeline.finished  # noqa: B018


def test_an_empty_list_is_finished_at_once() -> None:
    world = World()
    pipeline = world.pipeline([])
    fill(pipeline)
    assert pipeline.finished
    assert world.jobs() == {}


def test_results_and_errors_come_at_their_places() -> None:
    world = World()
    pipeline = world.pipeline([b"a", b"b", b"c"])
    fill(pipeline)
    ids = list(world.jobs())
    statuses = [End.OK, End.CANCELLED, End.OK]
    world.submissions.resolve(Resolve(ids, statuses, [b"x", b"no", memoryview(b"z")], [1, 0, 1]))

    assert pipeline.take() == [b"x"]
    with pytest.raises(JobCancelled, match="no"):
        pipeline.take()
    assert pipeline.take() == [b"z"]
    assert pipeline.finished


def test_large_results_are_copied_when_their_turn_comes_and_not_before() -> None:
    world = World()
    pipeline = world.pipeline([b"%d" % n for n in range(300)], in_flight=300)
    fill(pipeline)
    jobs = list(world.jobs())
    small, large = memoryview(b"s" * 1000), memoryview(b"l" * 1_000_000)
    world.submissions.resolve(
        Resolve(jobs, [End.OK] * 300, [large] * 3 + [small] * 297, [1] * 300)  # type: ignore[list-item]
    )
    assert [len(pipeline.take()) for _ in range(3)] == [1, 1, 1]
    assert pipeline.take() == [bytes(small)] * 75, "in_flight // 4, as one look takes at most"


def test_a_step_returns_results_or_the_thing_to_wait_for() -> None:
    world = World(limit=2)
    pipeline = world.pipeline([b"a", b"b", b"c"], in_flight=2)

    assert pipeline.step() is MapWait.DRIVER
    world.end([1])
    assert pipeline.step() == [b"1"], "a result that is there comes before more inputs"
    assert pipeline.step() is MapWait.DRIVER
    assert pipeline.step() is MapWait.RESULTS
    world.end([2, 3])
    assert [pipeline.step() for _ in range(3)] == [[b"2"], [b"3"], None]


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("kind", [list, iter])
def test_a_step_without_room_waits_for_it(kind: Any, threaded: bool) -> None:
    world = World(limit=1)
    other = world.pipeline([b"other"])
    pipeline = world.pipeline(kind([b"a"]), threaded=threaded)

    assert other.step() is MapWait.DRIVER
    assert pipeline.step() is MapWait.FREE, "no input was requested, so none will come"
    world.end([1])
    wait_until(lambda: pipeline.step() is MapWait.DRIVER)
    pipeline.abandon()


def test_the_signal_is_cleared_before_the_last_look_at_the_results() -> None:
    world = World()
    pipeline = world.pipeline([b"a"])
    assert pipeline.step() is MapWait.DRIVER
    # The result arrives between `take` and the wait. The step must find the result, because no
    # signal follows.
    world.clear = lambda: world.end([1])  # type: ignore[method-assign]

    assert pipeline.step() == [b"1"]


def unordered(world: World, payloads: Iterable[Any], **options: Any) -> UnorderedMap:
    terms = JobTerms(Kind(), 0, None, 3)
    options = {"codec": "bytes", "in_flight": 100, **options}
    return UnorderedMap(world.submissions, payloads, terms, signal=world, **options)


def test_unordered_results_come_in_the_order_of_the_ends() -> None:
    world = World()
    pipeline = unordered(world, [b"a", b"b", b"c"])
    fill(pipeline)
    first, second, third = world.jobs()

    world.end([third])
    world.end([first])
    assert pipeline.take() == [b"3", b"1"]
    assert pipeline.waits
    world.end([second])
    assert pipeline.take() == [b"2"]
    assert pipeline.finished


def test_an_unordered_error_is_raised_behind_the_results_that_came_before() -> None:
    world = World()
    pipeline = unordered(world, [b"a", b"b", b"c"])
    fill(pipeline)
    first, second, third = world.jobs()

    world.end([second])
    world.end([third], End.TIMEOUT, b"late")
    world.end([first])
    assert pipeline.take() == [b"2"]
    with pytest.raises(JobTimeout, match="late"):
        pipeline.take()
    assert pipeline.take() == [b"1"]
    assert pipeline.finished


def test_an_unordered_map_keeps_its_bounds() -> None:
    world, pulled = World(), []
    pipeline = unordered(world, counted(1000, pulled), in_flight=8)
    fill(pipeline)
    ids = list(world.jobs())
    world.end(ids[4:])
    assert len(pulled) == 8

    while pipeline.ready():
        pipeline.take()
    fill(pipeline)
    assert len(pulled) == 12

    large = unordered(world, [bytes(1000)] * 10, max_bytes=3000)
    fill(large)
    assert len(world.jobs()) == 4 + 3
    world.end([13])
    assert large.take() == [b"13"]
    fill(large)
    assert len(world.jobs()) == 1


def test_an_unordered_map_that_is_left_cancels_its_jobs() -> None:
    world = World()
    pipeline = unordered(world, [b"a", b"b", b"c"])
    fill(pipeline)
    first, second, third = world.jobs()
    world.end([second])

    pipeline.abandon()

    assert world.posted == [Cancelled([first, third])]
    world.end([first])
    assert not pipeline.ready()


def test_unordered_invalid_inputs_are_results_too() -> None:
    world = World()
    pipeline = unordered(world, [b"a", 7, b"c"], lenient=True)
    fill(pipeline)
    world.end(world.jobs())

    results = pipeline.take()
    assert {type(result) for result in results} == {bytes, TypeError}
    assert len(results) == 3


def test_several_iterables_are_joined_until_the_shortest_ends() -> None:
    assert list(joined(([1, 2, 3], "ab"), "cbor")) == [(1, "a"), (2, "b")]
    assert joined(([b"a"],), "bytes") == [b"a"]
    with pytest.raises(TypeError, match=r"2 iterables, .* codec='bytes' cannot encode"):
        joined(([b"a"], [b"b"]), "bytes")
    with pytest.raises(TypeError, match="argument 2 of map\\(\\) is of type int"):
        joined(([1], 2), "cbor")  # type: ignore[arg-type]


def test_async_iterables_are_joined_too_and_closed() -> None:
    closed: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(100):
                yield number
        finally:
            closed.append("numbers")

    async def main() -> list[Any]:
        inputs = joined(("ab", numbers()), "cbor")
        assert isinstance(inputs, AsyncIterable)
        return [pair async for pair in inputs]

    assert asyncio.run(main()) == [("a", 0), ("b", 1)]
    assert closed == ["numbers"]


def test_the_number_of_jobs_is_known_if_all_inputs_have_a_length() -> None:
    assert total_of(([1, 2, 3], "ab")) == 2
    assert total_of(([1, 2, 3], iter("ab"))) is None


def test_a_bar_is_drawn_by_the_package_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    class Bar:
        def __init__(self, **options: Any) -> None:
            assert options["total"] == 3

        update = steps.append

        def close(self) -> None:
            steps.append(-1)

    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ConfigError, match="neither is installed"):
        open_progress(3)
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar))
    bar = open_progress(3)
    bar.advance(2)
    bar.close()

    assert steps == [2, -1]


def test_the_bar_of_rich_counts_results(capsys: pytest.CaptureFixture[str]) -> None:
    bar = open_progress(3)
    bar.advance(2)
    bar.close()

    assert "2/3" in capsys.readouterr().err
