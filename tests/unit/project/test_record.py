"""The base of frozen classes that worker processes make."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from wmp.record import FrozenRecord


class Point(FrozenRecord):
    x: int
    y: int
    label: str | None = None


def test_fields_come_by_position_by_name_and_by_default() -> None:
    for point in (Point(1, 2), Point(1, y=2), Point(x=1, y=2, label=None)):
        assert (point.x, point.y, point.label) == (1, 2, None)
        assert repr(point) == "Point(x=1, y=2, label=None)"
        match point:
            case Point(x, y):
                assert (x, y) == (1, 2)


@pytest.mark.parametrize(
    ("values", "named"),
    [((1,), {}), ((), {"y": 1}), ((1, 2, "a", 4), {}), ((1, 2), {"x": 1}), ((1, 2), {"z": 1})],
)
def test_wrong_fields_are_refused(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="__init__"):
        Point(*values, **named)


def test_records_are_values() -> None:
    point = Point(1, 2, "a")
    assert point == Point(1, 2, "a") != Point(1, 2)
    assert point != (1, 2, "a")
    assert len({point, Point(1, 2, "a")}) == 1
    assert pickle.loads(pickle.dumps(point)) == point
    assert point.with_(y=3) == Point(1, 3, "a")
    with pytest.raises(AttributeError, match="frozen"):
        point.x = 5  # type: ignore[misc]
    with pytest.raises(AttributeError, match="frozen"):
        del point.x
