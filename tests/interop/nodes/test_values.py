"""Values of codecs between processes and threads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

import pytest

import wmp
from tests.interop.nodes.pair import pair
from tests.waiting import WAIT

pytestmark = pytest.mark.interop


@dataclass
class Booking:
    name: str
    day: date


def shift(booking: Booking) -> Booking:
    return Booking(booking.name, booking.day + timedelta(days=1))


def add(numbers: tuple[int, int]) -> int:
    return sum(numbers)


@pytest.mark.parametrize("codec", ["json", "cbor", "cbor-tags"])
def test_several_iterables_are_the_arguments_of_one_handler(codec: str) -> None:
    with pair(add, codec=codec) as manager:
        assert list(manager.map(range(3), [10, 20, 30])) == [10, 21, 32]
        assert sorted(manager.map(range(3), [10, 20, 30], ordered=False)) == [10, 21, 32]


def test_objects_and_arrays_go_there_and_back() -> None:
    numpy = pytest.importorskip("numpy")

    def double(array: numpy.ndarray) -> numpy.ndarray:  # type: ignore[name-defined]
        return array * 2

    with wmp.Manager(codec="cbor-tags") as manager:
        handlers = {"shift": shift, "double": double}
        with wmp.Worker(*manager.endpoints, handlers=handlers):
            booked = manager.submit(Booking("Ada", date(2024, 2, 29)), role="shift")
            assert booked.result(WAIT) == {"name": "Ada", "day": date(2024, 3, 1)}
            large = numpy.arange(100_000.0).reshape(100, 1000)
            doubled = manager.submit(large, role="double").result(WAIT)
            assert (doubled == large * 2).all()
            failed = manager.submit({"name": "Ada"}, role="shift")
            with pytest.raises(wmp.JobFailed, match="the payload is not a valid Booking"):
                failed.result(WAIT)


def test_text_is_text_at_the_handler() -> None:
    with pair(str.upper, codec="text") as manager:
        assert list(manager.map(["a", "ä"])) == ["A", "Ä"]
        with pytest.raises(TypeError, match="type bytes cannot be encoded by codec 'text'"):
            manager.submit(b"a")
