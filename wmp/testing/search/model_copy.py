"""The way in which each part of a model is copied: shared, copied at once, emptied or cloned."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs

from wmp.message import Frame
from wmp.testing.simulator.network import Network, Pipe
from wmp.testing.state.clone import clone

_NetworkT = TypeVar("_NetworkT", bound=Network)


def _same(value: Any) -> Any:
    return value


def _queues(pipes: dict[Pipe, deque[list[Frame]]]) -> dict[Pipe, deque[list[Frame]]]:
    return {pipe: queue.copy() for pipe, queue in pipes.items()}


_SHARED: Final = {"now", "uplinks", "plan", "done", "ticks_left", "faults_left", "_messages"}
_OWN: Final = {
    "nodes",
    "lanes",
    "results",
    "halted",
    "down",
    "_far",
    "_last_id",
    "_epochs",
    "_drawn",
}
_FRESH: Final[dict[str, Callable[[Any], Any]]] = {
    "_own": lambda _: set(),
    "_inbox": lambda _: deque(),
    "drops": lambda _: [],
    "reports": lambda _: [],
    "twice": list,
    "pipes": _queues,
    "ticks": _same,  # statistics of all copies together
    "sent": _same,
    "history": _same,  # cloned by the model
    "observer": _same,
}


def _how(name: str) -> Callable[[Any], Any]:
    if name in _SHARED:
        return _same
    if name in _OWN:
        return lambda value: value.copy()
    return _FRESH.get(name, clone)


_HOW_TO_COPY: Final[dict[type[Any], tuple[tuple[str, Callable[[Any], Any]], ...]]] = {}
"""For each class of worlds, the name of each part and the way in which it is copied."""


def copy_parts(world: _NetworkT) -> _NetworkT:
    """Return a world with the parts of another. History and observer stay the same objects."""
    kind: type[Any] = type(world)
    if kind not in _HOW_TO_COPY:
        _HOW_TO_COPY[kind] = tuple((part.name, _how(part.name)) for part in attrs.fields(kind))
    new: _NetworkT = object.__new__(kind)
    for name, how in _HOW_TO_COPY[kind]:
        setattr(new, name, how(getattr(world, name)))
    return new
