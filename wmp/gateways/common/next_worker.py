"""The idle workers of a door, and whose turn is next.

A worker is proven while its last request ended with a reply. Usually the worker that was used least
recently is next. While several workers that are not proven keep their requests, workers that are
not proven together get one turn of four: those that take requests and never answer get no more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from attrs import define, field

_W = TypeVar("_W")

_TURNS: Final = 4

_DOUBT: Final = 4
"""Number of workers that are not proven and have requests, from which on proven ones come first."""


@define(eq=False)
class WorkerTurns(Generic[_W]):
    """The idle workers, those that were used least recently first."""

    tried: int = 0
    """Number of workers that are not proven and have a request."""
    _proven: OrderedDict[bytes, tuple[int, _W]] = field(factory=OrderedDict, init=False)
    _others: OrderedDict[bytes, tuple[int, _W]] = field(factory=OrderedDict, init=False)
    _added: int = field(default=0, init=False)
    _turn: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the routing ids."""
        yield from self._proven
        yield from self._others

    def __bool__(self) -> bool:
        return bool(self._proven or self._others)

    def add(self, peer: bytes, worker: _W, *, proven: bool) -> None:
        """Add a worker behind the others."""
        self._added += 1
        (self._proven if proven else self._others)[peer] = (self._added, worker)

    def remove(self, peer: bytes) -> None:
        """Remove a worker."""
        if self._proven.pop(peer, None) is None:
            del self._others[peer]

    def next(self) -> _W | None:
        """Return the worker whose turn is next; None without an idle worker."""
        first = next(iter(self._proven.values()), None)
        other = next(iter(self._others.values()), None)
        if first is None or other is None:
            either = first or other
            return None if either is None else either[1]
        if self.tried >= _DOUBT:
            self._turn = (self._turn + 1) % _TURNS
            return first[1] if self._turn else other[1]
        return first[1] if first[0] < other[0] else other[1]

    def least_proven(self) -> _W | None:
        """Return the worker that is not proven and is idle for the longest time; None for none."""
        other = next(iter(self._others.values()), None)
        return None if other is None else other[1]
