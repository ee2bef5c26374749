"""A search over the canonical states of a small world: every interleaving, visited once.

Theory of operation. From each new state every possible move is made on a copy. The snapshot of the
copy shows whether its state is new. In a state without moves the world runs on without faults, and
everything must end. Two states with equal snapshots have the same future, so one of them is enough.

Visited states are remembered by a hash of 64 bits. The chance that two of a million states share a
hash, so that the second state is overlooked, is 1 in 40 million.
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

from wmp.checks.job_history import Violation
from wmp.testing.search.counterexample import shortened
from wmp.testing.search.model import Model
from wmp.testing.search.plan import ModelPlan

_JUMP: Final = 1 / 32
"""Probability with which the order ``MIXED`` jumps to another state: about once on the way to an
end.
"""

_Way = tuple[int, "_Way"] | tuple[()]
"""The way to a state: the last move, and the way before it."""


class SearchOrder(Enum):
    """The choice of the next state among those seen."""

    BREADTH = "breadth"
    """The state with the shortest way, so that the way to a violation is the shortest."""
    DEPTH = "depth"
    """The newest state, which needs the least memory."""
    MIXED = "mixed"
    """Mostly the newest state, and sometimes a random state.

    In a world that is too large for a whole search this order reaches ends in many parts.
    """


@frozen(kw_only=True)
class SearchBounds:
    """Bounds of one search."""

    states: int | None = None
    """Number of states after which the search stops; None for all."""
    seconds: float = inf
    """Seconds after which the search stops."""
    order: SearchOrder = SearchOrder.BREADTH
    seed: int = 0
    """The seed of the order ``MIXED``."""


@frozen(kw_only=True)
class SearchResult:
    """The result of a search."""

    states: int
    transitions: int
    depth: int
    """Number of moves on the longest way to a state (``BREADTH`` finds the shortest way to each).
    """
    leaves: int
    """Number of states without moves; from each the world was run to its end."""
    emptied: bool
    """Whether every state within the plan's bounds was seen."""
    seconds: float
    violation: Violation | None = None
    moves: tuple[int, ...] = ()
    """The way to the violation: the index of the move at each state."""


@define(eq=False)
class _SearchNode:
    """A state from which the search continues."""

    model: Model
    depth: int
    way: _Way


@define(eq=False)
class _Search:
    plan: ModelPlan
    how: SearchBounds
    seen: set[int] = field(factory=set)
    closed: set[int] = field(factory=set)
    transitions: int = 0
    leaves: int = 0
    depth: int = 0
    random: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.random = Random(self.how.seed)

    def run(self) -> SearchResult:
        """Search. The garbage collector, which slows the search, runs less often."""
        before = gc.get_threshold()
        gc.set_threshold(50_000, 50, 1000)
        try:
            return self._search()
        finally:
            gc.set_threshold(*before)

    def _search(self) -> SearchResult:
        begin = perf_counter()
        first = Model(plan=self.plan)
        self.seen.add(hash(first.snapshot()))
        frontier = deque([_SearchNode(first, 0, ())])
        violation: Violation | None = None
        way: _Way = ()
        maximum = inf if self.how.states is None else self.how.states
        until = begin + self.how.seconds
        while (
            frontier and violation is None and len(self.seen) < maximum and perf_counter() < until
        ):
            node = self._next(frontier)
            violation, way = next(self._successors(node, frontier), (None, ()))
        moves = _indices(way)
        if violation is not None and self.how.order is not SearchOrder.BREADTH:
            moves = shortened(self.plan, moves, violation.name)
        return SearchResult(
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
            index = self.random.randrange(len(frontier))
            frontier[index], frontier[-1] = frontier[-1], frontier[index]
        return frontier.pop()

    def _successors(
        self, node: _SearchNode, frontier: deque[_SearchNode]
    ) -> Iterator[tuple[Violation, _Way]]:
        """Add the new states one move away to the frontier; yield violations with their ways."""
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
        for position, (index, move) in enumerate(numbered):
            # The last move may change the state itself, because the state is no longer needed.
            after = model if position == last else model.copy()
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


def explore(plan: ModelPlan, how: SearchBounds | None = None) -> SearchResult:
    """Visit the states of ``plan``."""
    return _Search(plan, how or SearchBounds()).run()


def _indices(way: _Way) -> tuple[int, ...]:
    indices: list[int] = []
    while way:
        index, way = way
        indices.append(index)
    return tuple(reversed(indices))
