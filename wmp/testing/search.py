"""A search over the canonical states of a small world: every interleaving, once each.

Theory of operation. From each state that was not seen before every possible move is made on a
copy; the snapshot of what comes out says whether it is new. Where nothing is left to happen, the
world runs on without faults, and everything must end. Two states with equal snapshots have the
same future, so that one of them is enough.

Visited states are remembered by a hash of 64 bits. That two of a million states share one, and
the second is overlooked, has a chance of 1 in 40 million.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from enum import Enum
from math import inf
from random import Random
from time import perf_counter
from typing import Final

from attrs import define, field, frozen

from wmp.testing.counterexample import shortened
from wmp.testing.invariants import Violation
from wmp.testing.model import Model
from wmp.testing.plan import ModelPlan

__all__ = ["Exploration", "Explored", "SearchOrder", "explore"]

_JUMP: Final = 1 / 32
"""How often the order ``MIXED`` goes elsewhere: about once a way."""

_Way = tuple[int, "_Way"] | tuple[()]
"""How a state was reached: the last move, and the way before it."""


class SearchOrder(Enum):
    """Which of the states that were seen is gone on from next."""

    BREADTH = "breadth"
    """The nearest: the way to a violation is the shortest."""
    DEPTH = "depth"
    """The newest: needs least memory."""
    MIXED = "mixed"
    """Mostly the newest, now and then one drawn by chance: of a world too large to empty it
    sees ends everywhere."""


@frozen(kw_only=True)
class Exploration:
    """Bounds of one search."""

    states: int | None = None
    """Stop after so many; None for all."""
    seconds: float = inf
    """Stop after so long, wherever that is."""
    order: SearchOrder = SearchOrder.BREADTH
    seed: int = 0
    """Of the order ``MIXED``."""


@frozen(kw_only=True)
class Explored:
    """What a search saw."""

    states: int
    transitions: int
    depth: int
    """Moves on the longest way that was gone (breadth first: of the shortest ways)."""
    leaves: int
    """States in which nothing was left to happen; each was run on to its end."""
    emptied: bool
    """Whether every state within the plan's bounds was seen."""
    seconds: float
    violation: Violation | None = None
    moves: tuple[int, ...] = ()
    """The way to the violation: at each state, which of its moves."""


@define(eq=False)
class _SearchNode:
    """A state to go on from."""

    model: Model
    depth: int
    way: _Way


@define(eq=False)
class _Search:
    plan: ModelPlan
    how: Exploration
    seen: set[int] = field(factory=set)
    closed: set[int] = field(factory=set)
    transitions: int = 0
    leaves: int = 0
    depth: int = 0
    random: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.random = Random(self.how.seed)

    def run(self) -> Explored:
        """Search; the collector of cycles looks at the many states kept less often meanwhile."""
        before = gc.get_threshold()
        gc.set_threshold(50_000, 50, 1000)
        try:
            return self._search()
        finally:
            gc.set_threshold(*before)

    def _search(self) -> Explored:
        begin = perf_counter()
        first = Model(plan=self.plan)
        self.seen.add(hash(first.snapshot()))
        frontier = deque([_SearchNode(first, 0, ())])
        violation: Violation | None = None
        way: _Way = ()
        most = inf if self.how.states is None else self.how.states
        until = begin + self.how.seconds
        while frontier and violation is None and len(self.seen) < most and perf_counter() < until:
            node = self._next(frontier)
            violation, way = next(self._successors(node, frontier), (None, ()))
        moves = _indices(way)
        if violation is not None and self.how.order is not SearchOrder.BREADTH:
            moves = shortened(self.plan, moves, violation.name)
        return Explored(
            states=len(self.seen),
            transitions=self.transitions,
            depth=self.depth,
            leaves=self.leaves,
            emptied=not frontier and violation is None,
            seconds=perf_counter() - begin,
            violation=violation,
            moves=moves,
        )

    def _next(self, frontier: deque[_SearchNode]) -> _SearchNode:
        order = self.how.order
        if order is SearchOrder.BREADTH:
            return frontier.popleft()
        if order is SearchOrder.MIXED and self.random.random() < _JUMP:
            place = self.random.randrange(len(frontier))
            frontier[place], frontier[-1] = frontier[-1], frontier[place]
        return frontier.pop()

    def _successors(
        self, node: _SearchNode, frontier: deque[_SearchNode]
    ) -> Iterator[tuple[Violation, _Way]]:
        """Add the new states one move away to the frontier; yields what is violated."""
        model, seen, depth = node.model, self.seen, node.depth + 1
        moves = model.moves()
        last = len(moves) - 1
        if not moves:
            self.leaves += 1
            try:
                model.close(self.closed)
            except Violation as violation:
                yield violation, node.way
        numbered = list(enumerate(moves))
        if self.how.order is SearchOrder.MIXED:
            self.random.shuffle(numbered)
        for place, (index, move) in enumerate(numbered):
            # The state itself is needed no more when its last move is made.
            after = model if place == last else model.copy()
            self.transitions += 1
            try:
                after.make(move)
            except Violation as violation:
                yield violation, (index, node.way)
            state = hash(after.snapshot())
            if state not in seen:
                seen.add(state)
                self.depth = max(self.depth, depth)
                frontier.append(_SearchNode(after, depth, (index, node.way)))


def explore(plan: ModelPlan, how: Exploration | None = None) -> Explored:
    """Visit the states of ``plan``."""
    return _Search(plan, how or Exploration()).run()


def _indices(way: _Way) -> tuple[int, ...]:
    found: list[int] = []
    while way:
        index, way = way
        found.append(index)
    return tuple(reversed(found))
