"""A map in flight: lazy, bounded, in order, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from wmp.actions import End, Resolve
from wmp.errors import (
    ClosedError,
    ConfigError,
    JobCancelled,
    JobFailed,
    QueueFull,
    WorkerLost,
)
from wmp.events import Cancelled, Submitted
from wmp.message import Kind
from wmp.runtime.submission.map_pipeline import MapPipeline
from wmp.runtime.submission.submissions import JobTerms, Submissions


class World:
    """A ledger whose jobs are done when the test says so."""

    def __init__(self, limit: int = 10_000) -> None:
        self.posted: list[Any] = []
        self.ledger = Submissions(self.posted.append, limit)
        self.wakes = 0

    def window(
        self, payloads: Iterable[Any], in_flight: int = 100, codec: str = "bytes", **bounds: int
    ) -> MapPipeline:
        order = JobTerms(Kind(codec="" if codec == "bytes" else codec), 0, None, 3)
        return MapPipeline(
            self.ledger,
            payloads,
            order,
            codec=codec,
            in_flight=in_flight,
            wake=self.wake,
            **bounds,
        )

    def wake(self) -> None:
        self.wakes += 1

    def jobs(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for entry in self.posted:
            event = entry() if callable(entry) else entry
            if isinstance(event, Submitted):
                found.update(zip(event.ids, event.payloads, strict=True))
        self.posted.clear()
        return found

    def end(self, ids: Iterable[int], end: End = End.OK, payload: bytes | None = None) -> None:
        ids = list(ids)
        payloads = [str(id).encode() if payload is None else payload for id in ids]
        self.ledger.resolve(Resolve(ids, [end] * len(ids), payloads, [1] * len(ids)))


def counted(count: int, pulled: list[int]) -> Iterator[bytes]:
    for number in range(count):
        pulled.append(number)
        yield str(number).encode()


def fill(window: MapPipeline) -> None:
    while window.fill():
        pass


def test_inputs_are_pulled_up_to_the_bound_and_no_further() -> None:
    world, pulled = World(), []
    window = world.window(counted(1000, pulled), in_flight=10)
    assert pulled == []

    fill(window)

    assert len(pulled) == 10
    assert len(world.jobs()) == 10


def test_results_come_in_order_whatever_order_they_end_in() -> None:
    world = World()
    window = world.window([b"a", b"b", b"c"])
    fill(window)
    ids = list(world.jobs())

    world.end([ids[2], ids[1]])
    assert window.waits
    assert world.wakes == 0
    world.end([ids[0]])
    assert world.wakes == 1

    assert window.take() == [str(id).encode() for id in ids]
    assert window.finished


def test_taking_makes_room_in_good_parts() -> None:
    world, pulled = World(), []
    window = world.window(counted(1000, pulled), in_flight=8)
    fill(window)
    ids = list(world.jobs())
    world.end(ids)

    fill(window)
    assert len(pulled) == 8
    assert len(window.take()) == 2
    fill(window)
    assert len(pulled) == 10


def test_one_end_too_few_stops_the_taking() -> None:
    world = World()
    window = world.window([b"a", b"b", b"c"])
    fill(window)
    ids = list(world.jobs())
    assert window.take() == []
    world.end([ids[0], ids[2]])

    assert window.take() == [str(ids[0]).encode()]
    assert window.take() == []
    assert window.waits


def test_the_consumer_is_woken_once_for_all_that_ended_together() -> None:
    world = World()
    window = world.window([b"a", b"b", b"c"])
    fill(window)

    world.end(world.jobs())

    assert world.wakes == 1


def test_a_failure_is_raised_in_its_place() -> None:
    world = World()
    window = world.window([b"a", b"b"])
    fill(window)
    ids = list(world.jobs())
    world.end([ids[1]], End.LOST, b"w1\ngone")
    world.end([ids[0]])

    assert window.take() == [str(ids[0]).encode()]
    with pytest.raises(WorkerLost, match="gone"):
        window.take()


def test_what_the_inputs_raise_is_raised_in_its_place() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ZeroDivisionError("in the inputs")

    world = World()
    window = world.window(broken())
    fill(window)
    world.end(world.jobs())

    assert not window.finished
    window.take()
    with pytest.raises(ZeroDivisionError, match="in the inputs"):
        window.finished  # noqa: B018


def test_an_input_that_is_no_payload_is_raised_in_its_place() -> None:
    world = World()
    window = world.window([b"a", 5])  # type: ignore[list-item]
    fill(window)
    world.end(world.jobs())

    window.take()
    with pytest.raises(TypeError, match="got int"):
        window.finished  # noqa: B018


def test_abandoning_cancels_what_has_not_ended_and_keeps_nothing() -> None:
    world = World()
    window = world.window([b"a", b"b", b"c"])
    fill(window)
    ids = list(world.jobs())
    world.end(ids[:1])

    window.abandon()
    (event,) = world.posted
    world.end(ids[1:], End.CANCELLED, b"")

    assert event == Cancelled(ids[1:])
    assert len(world.ledger) == 0
    assert window.finished


def test_no_room_in_the_manager_starves_the_window_until_there_is() -> None:
    world = World(limit=1)
    world.window([b"other"]).fill()
    (other,) = world.jobs()
    window = world.window([b"a"])

    assert not window.fill()
    assert window.starved
    world.end([other])
    fill(window)
    assert not window.starved
    assert list(world.jobs().values()) == [b"a"]


def test_a_broken_cbor_result_fails_its_own_job() -> None:
    world = World()
    window = world.window([1], in_flight=1, codec="cbor")
    fill(window)
    world.end(world.jobs(), payload=b"\xff\xff")

    with pytest.raises(JobFailed, match="broken"):
        window.take()


def test_what_fits_is_handed_in_and_the_rest_when_there_is_room() -> None:
    world = World(limit=4)
    window = world.window([b"a", b"b", b"c", b"d"])
    other = world.window([b"x", b"y", b"z"])
    # Pulled while there was room for all, handed in when others had taken most of it.
    add, world.ledger.add = world.ledger.add, lambda *_: (_ for _ in ()).throw(QueueFull(4))  # type: ignore[assignment, method-assign]
    assert not window.fill()
    world.ledger.add = add  # type: ignore[method-assign]
    fill(other)
    assert window.starved

    assert window.fill()
    assert not window.starved
    assert list(world.jobs().values()) == [b"x", b"y", b"z", b"a"]
    assert not window.fill()


def test_a_full_manager_that_drains_ends_the_map_instead_of_having_it_ask_for_ever() -> None:
    world = World(limit=1)
    world.window([b"other"]).fill()
    window = world.window([b"a"])
    world.ledger.refuse(ClosedError("the manager is draining"))
    window._chunk = [b"a"]

    assert not window.fill()
    assert not window.starved
    with pytest.raises(ClosedError, match="draining"):
        window.finished  # noqa: B018


def test_bytes_are_bounded_as_well_as_jobs() -> None:
    world, pulled = World(), []

    def large() -> Iterator[bytes]:
        for number in range(1000):
            pulled.append(number)
            yield bytes(100)

    window = world.window(large(), in_flight=1000, max_bytes=1600)
    fill(window)
    assert len(pulled) == 16
    ids = list(world.jobs())
    world.end(ids)
    assert len(window.take()) == 16
    fill(window)
    assert len(pulled) == 32
    one = world.window([bytes(5000), b""], in_flight=1000, max_bytes=1600)
    fill(one)
    assert [len(data) for data in world.jobs().values()][-1] == 5000


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_inputs_that_are_there_and_inputs_that_come_are_handed_in_alike(kind: Any) -> None:
    world = World()
    inputs = [b"a", "ä", bytearray(b"c"), b"d" * 30, b"e"]
    window = world.window(kind(inputs), max_bytes=16)
    fill(window)
    jobs = world.jobs()
    assert list(jobs.values())[:2] == [b"a", "ä".encode()]
    assert len(jobs) < len(inputs)  # two bytes at once, and 16 in all
    values = []
    while not window.finished:
        jobs |= world.jobs()
        world.end(id for id in jobs if id not in values and not values.append(id))
        while window.take():
            pass
        fill(window)
    assert list(jobs.values()) == [b"a", "ä".encode(), b"c", b"d" * 30, b"e"]


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_a_payload_above_the_limit_is_told_in_its_place(kind: Any) -> None:
    world = World()
    window = world.window(kind([b"a", b"bbbbb", b"c"]), limit=4)
    fill(window)
    assert list(world.jobs().values()) == [b"a"]
    world.end([1])
    assert window.take() == [b"1"]
    with pytest.raises(ConfigError, match="5 bytes is too large"):
        window.finished  # noqa: B018


def test_an_empty_list_is_finished_at_once() -> None:
    world = World()
    window = world.window([])
    fill(window)
    assert window.finished
    assert world.jobs() == {}


def test_results_that_ended_well_and_others_are_told_apart() -> None:
    world = World()
    window = world.window([b"a", b"b", b"c"])
    fill(window)
    ids = list(world.jobs())
    statuses = [End.OK, End.CANCELLED, End.OK]
    world.ledger.resolve(Resolve(ids, statuses, [b"x", b"no", memoryview(b"z")], [1, 0, 1]))

    assert window.take() == [b"x"]
    with pytest.raises(JobCancelled, match="no"):
        window.take()
    assert window.take() == [b"z"]
    assert window.finished


def test_large_results_are_copied_when_their_turn_comes_and_not_before() -> None:
    world = World()
    window = world.window([b"%d" % n for n in range(300)], in_flight=300)
    fill(window)
    jobs = list(world.jobs())
    small, large = memoryview(b"s" * 1000), memoryview(b"l" * 1_000_000)
    world.ledger.resolve(
        Resolve(jobs, [End.OK] * 300, [large] * 3 + [small] * 297, [1] * 300)  # type: ignore[list-item]
    )
    assert [len(window.take()) for _ in range(3)] == [1, 1, 1]
    assert window.take() == [bytes(small)] * 75, "in_flight // 4, as one look takes at most"
