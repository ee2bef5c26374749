"""A cheap copy of a machine: objects with an identity are copied, values are shared.

``attrs.define(eq=False)`` marks objects with an identity. Everything else in a machine is a
container of the standard library or a value (numbers, bytes, tuples of values, ``attrs.frozen``).
So payloads, messages and settings are never copied. References inside a machine, including cycles
and bound methods, lead to the copy's own parts. A class that is added later needs no change here.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from types import MethodType
from typing import Any, Final, TypeVar, cast

import attrs

_Thing = TypeVar("_Thing")

_Memo = dict[int, Any]
_Copier = Callable[[Any, _Memo], Any]

_FLAT: Final = frozenset(
    {
        "Leases.ended",
        "Requeue.counts",
        "Grant.ids",
        "Kept.fields",
        "RunningLane.ids",
        "Outbound.dropped",
        "Queue.needs",
        "Resources.free",
        "Resources.total",
        "WorkerOutbound.dropped",
        "HeldJobs.attempts",
        "HeldJobs.states",
        "Timers._at",
        "Timers._heap",
    }
)
"""Containers of values only. Copying their items would be correct too, but slower."""


def clone(thing: _Thing) -> _Thing:
    """Copy ``thing`` and all objects that belong to it.

    The copy and the original behave the same, and a change of one leaves the other unchanged.
    Functions are shared: a policy that keeps a state of its own serves both.
    """
    return cast(_Thing, _copy(thing, {}))


def _copy(value: Any, memo: _Memo) -> Any:
    kind = type(value)
    copier = _COPIERS[kind] if kind in _COPIERS else _learn(kind)
    return value if copier is None else copier(value, memo)


def _copy_dict(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    return {key: _copy(item, memo) for key, item in value.items()} if value else {}


def _copy_ordered(value: OrderedDict[Any, Any], memo: _Memo) -> OrderedDict[Any, Any]:
    return OrderedDict((key, _copy(item, memo)) for key, item in value.items())


def _copy_counter(value: Counter[Any], memo: _Memo) -> Counter[Any]:
    return value.copy()  # all counts are numbers


def _copy_list(value: list[Any], memo: _Memo) -> list[Any]:
    return [_copy(item, memo) for item in value] if value else []


def _copy_deque(value: deque[Any], memo: _Memo) -> deque[Any]:
    return deque([_copy(item, memo) for item in value], value.maxlen)


def _copy_set(value: set[Any], memo: _Memo) -> set[Any]:
    return set(value)  # items of a set are hashed by value: nothing to copy


def _copy_array(value: array[Any], memo: _Memo) -> array[Any]:
    return value[:]


def _copy_tuple(value: tuple[Any, ...], memo: _Memo) -> tuple[Any, ...]:
    for item in value:
        kind = type(item)
        if (_COPIERS[kind] if kind in _COPIERS else _learn(kind)) is not None:
            return tuple([_copy(item, memo) for item in value])
    return value


def _copy_method(value: MethodType, memo: _Memo) -> MethodType:
    return MethodType(value.__func__, _copy(value.__self__, memo))


_COPIERS: dict[type, _Copier | None] = {
    dict: _copy_dict,
    OrderedDict: _copy_ordered,
    Counter: _copy_counter,
    list: _copy_list,
    deque: _copy_deque,
    set: _copy_set,
    tuple: _copy_tuple,
    array: _copy_array,
    MethodType: _copy_method,
}
"""The way to copy each type; None for a shared type. New types are added at their first use."""


def _learn(kind: type) -> _Copier | None:
    """Choose the copier of a type, once."""
    copier: _Copier | None = None
    if attrs.has(kind) and kind.__eq__ is object.__eq__:
        copier = _entity(kind)
    _COPIERS[kind] = copier
    return copier


def _entity(kind: type) -> _Copier:
    """Make a copier of a class with identity, as source code with a line for each field.

    attrs writes ``__init__`` in the same way. Loops over names would take half of an explorer's
    time.
    """
    lines = [
        "def copy(value, memo):",
        "    key = id(value)",
        "    if key in memo:",
        "        return memo[key]",
        "    memo[key] = new = make(kind)",
    ]
    for attribute in attrs.fields(kind):
        name = attribute.name
        flat = f"{kind.__name__}.{name}" in _FLAT
        lines += [
            f"    item = value.{name}",
            "    what = type(item)",
            "    copier = copiers[what] if what in copiers else learn(what)",
            f"    new.{name} = item if copier is None else "
            + ("item.copy()" if flat else "copier(item, memo)"),
        ]
    lines.append("    return new")
    names = {"make": object.__new__, "kind": kind, "copiers": _COPIERS, "learn": _learn}
    exec("\n".join(lines), names)  # the source contains only names of fields
    return cast(_Copier, names["copy"])
