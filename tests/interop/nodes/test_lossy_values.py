"""Values between real nodes: each arrives as it was sent, or its type is named in an error."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import wmp
from tests.waiting import WAIT

pytestmark = pytest.mark.interop


class Size(enum.IntEnum):
    SMALL = 1


def total(values: Any) -> float:
    return float(values.sum())


def masked(values: Any) -> Any:
    return numpy.ma.masked_array(values, mask=[0, 1, 0])


def counted(values: Any) -> Any:
    return collections.Counter(values)


HANDLERS: dict[str, Callable[[Any], Any]] = {"total": total, "masked": masked, "counted": counted}


@pytest.mark.rule("VALUE-1.5")
def test_a_mask_is_not_lost_on_the_way() -> None:
    values = numpy.array([1.0, -9999.0, 3.0])
    with (
        wmp.Manager(codec="cbor-tags") as manager,
        wmp.Worker(*manager.endpoints, handlers=HANDLERS),
    ):
        for lossy in (masked(values), values.view(numpy.matrix), [Size.SMALL, masked(values)]):
            with pytest.raises(TypeError, match=r"MaskedArray|matrix"):
                manager.submit(lossy, role="total")
        assert manager.submit(masked(values).filled(0), role="total").result(WAIT) == 4.0
        with pytest.raises(wmp.JobFailed, match="a MaskedArray, a subclass of ndarray"):
            manager.submit(values, role="masked").result(WAIT)


@pytest.mark.rule("VALUE-1.5")
@pytest.mark.parametrize("codec", ["json", "cbor"])
def test_a_result_of_another_type_is_an_error_of_its_job(codec: str) -> None:
    with wmp.Manager(codec=codec) as manager, wmp.Worker(*manager.endpoints, handlers=HANDLERS):
        with pytest.raises(TypeError, match="a Size, a subclass of int"):
            manager.submit([Size.SMALL], role="counted")
        with pytest.raises(wmp.JobFailed, match="a Counter, a subclass of dict"):
            manager.submit(["a", "a"], role="counted").result(WAIT)


def test_pickled_calls_keep_every_type() -> None:
    values = (masked(numpy.arange(3.0)), collections.Counter("aab"), Size.SMALL, {True: 1})
    with wmp.Executor(workers=1) as executor:
        result = executor.submit(tuple, values).result(WAIT)
    assert result[0].mask.tolist() == values[0].mask.tolist()
    assert result[1:] == values[1:]
    assert list(map(type, result)) == list(map(type, values))
