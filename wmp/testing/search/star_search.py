"""A search through all behaviours of a Binary Star within bounds (specs/binary-star.md).

Time passes in whole seconds. The nodes are real machines with a heartbeat of 1 s and an expiry of
2 s. Between two seconds anything may happen in any order: a state arrives, a client sends a
request, a node ends or starts. The faults of the search decide what else may happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum

from attrs import define, evolve, field, frozen

from wmp.actions import Halt
from wmp.events import Ticked
from wmp.foreign import Arrived, Emit, Voted
from wmp.gateways.binary_star.election import StarState
from wmp.gateways.binary_star.machine import StarMachine, StarRole

_ROLES = (StarRole.PRIMARY, StarRole.BACKUP)
_MAX_SILENCE = 2
_MAX_ON_THE_WAY = 2


class StarFault(Enum):
    """The kinds of faults of a search."""

    END = "end"
    """A node's process ends, and may be started again."""
    LOSS = "loss"
    """A state is lost or late, by the end of a connection for example."""
    PARTITION = "partition"
    """The link between the nodes is cut, and mended later."""
    PAUSE = "pause"
    """A node's process is stopped, and goes on later."""


@frozen
class _NodeState:
    state: StarState | None
    """None for a process that does not run."""
    silent_in: int = 0
    """Seconds until the peer may count as silent; -1 if the peer is silent."""
    paused: bool = False
    late: int = 0
    """Seconds since the state was published, for a stopped process; at most ``max_silence``."""


@frozen
class PairState:
    """The state of both nodes, and of the messages between them."""

    nodes: tuple[_NodeState, _NodeState]
    ways: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """The states on their way from each node to its peer."""
    ends: int = 0
    """Number of ends of processes so far."""
    pauses: int = 0
    """Number of times that a process was stopped, if the search bounds this number."""
    cut: bool = False
    """Whether no state passes between the nodes."""

    @property
    def both_active(self) -> bool:
        """Whether both nodes accept requests."""
        return all(node.state is StarState.ACTIVE and not node.paused for node in self.nodes)


_START = PairState((_NodeState(None), _NodeState(None)))


@define
class StarSearch:
    """A breadth-first search.

    Args:
        faults: The faults that may happen.
        ends: Maximum number of ends of processes.
        pauses: Maximum number of times that a process is stopped; None for any number.

    Attributes:
        came_from: The first step into each known state, and the state before.
    """

    faults: frozenset[StarFault]
    ends: int = 2
    pauses: int | None = None
    came_from: dict[PairState, tuple[PairState, str] | None] = field(factory=dict, init=False)

    def run(self) -> None:
        """Search all states."""
        self.came_from = {_START: None}
        todo = deque([_START])
        while todo:
            state = todo.popleft()
            for step, after in self._steps(state):
                if after not in self.came_from:
                    self.came_from[after] = (state, step)
                    todo.append(after)

    def trace(self, state: PairState) -> list[str]:
        """Return the steps that lead to a state."""
        steps = []
        before = self.came_from[state]
        while before is not None:
            state, step = before
            steps.append(step)
            before = self.came_from[state]
        return steps[::-1]

    @property
    def shortest(self) -> list[str]:
        """The steps of the shortest way to two nodes that both accept requests; empty for none."""
        both_active = next((state for state in self.came_from if state.both_active), None)
        return [] if both_active is None else self.trace(both_active)

    def _steps(self, state: PairState) -> Iterator[tuple[str, PairState]]:
        if StarFault.PARTITION in self.faults:
            verb = "mended" if state.cut else "cut"
            yield f"the link is {verb}", evolve(state, ways=((), ()), cut=not state.cut)
        for number, node in enumerate(state.nodes):
            name = _ROLES[number].value
            if node.state is None:
                yield f"{name} starts", _start(state, number)
                continue
            if node.paused:
                yield f"{name} goes on", _resume(state, number)
            elif StarFault.PAUSE in self.faults and state.pauses != self.pauses:
                stopped = _with(state, number, evolve(node, paused=True))
                pauses = 0 if self.pauses is None else state.pauses + 1
                yield f"{name} is stopped", evolve(stopped, pauses=pauses)
            if StarFault.END in self.faults and state.ends < self.ends:
                yield f"{name} ends", _end(state, number)
            if node.paused:
                continue
            if node.state is not StarState.HALTED:
                yield f"a request at {name}", _act(state, number, Voted())
            if state.ways[1 - number]:
                yield f"a state reaches {name}", _deliver(state, number)
        for number in (0, 1):
            # What an ended process has sent may be lost or not.
            lossy = StarFault.LOSS in self.faults or state.nodes[number].state is None
            if state.ways[number] and lossy:
                yield f"a state of {_ROLES[number].value} is lost", _lose(state, number)
        # Without loss no state is late: it arrives within its second, unless its receiver is
        # stopped or does not run.
        if StarFault.LOSS in self.faults or not any(
            way and receiver.state not in (None, StarState.HALTED) and not receiver.paused
            for way, receiver in zip(state.ways, reversed(state.nodes), strict=True)
        ):
            yield "a second passes", _pass(state)


def _resume(state: PairState, number: int) -> PairState:
    """Let a stopped process go on; its timer is first, before all states on their way."""
    node = evolve(state.nodes[number], paused=False)
    if node.state is StarState.HALTED:
        return _with(state, number, evolve(node, late=0))
    return _act(_with(state, number, node), number, Ticked())


def _with(state: PairState, number: int, node: _NodeState) -> PairState:
    nodes = list(state.nodes)
    nodes[number] = node
    return evolve(state, nodes=(nodes[0], nodes[1]))


def _add(state: PairState, number: int, sent: list[int]) -> PairState:
    if state.cut:
        return state
    ways = list(state.ways)
    ways[number] = (*ways[number], *sent)[-_MAX_ON_THE_WAY:]
    return evolve(state, ways=(ways[0], ways[1]))


def _lose(state: PairState, number: int) -> PairState:
    ways = list(state.ways)
    ways[number] = ways[number][1:]
    return evolve(state, ways=(ways[0], ways[1]))


def _start(state: PairState, number: int) -> PairState:
    own = StarState.PRIMARY if number == 0 else StarState.BACKUP
    # What was on its way to the process before is lost with the connection.
    ways = list(state.ways)
    ways[1 - number] = ()
    fresh = evolve(state, ways=(ways[0], ways[1]))
    return _add(_with(fresh, number, _NodeState(own, _MAX_SILENCE)), number, [own])


def _end(state: PairState, number: int) -> PairState:
    ended = _with(state, number, _NodeState(None))
    return evolve(ended, ends=state.ends + 1)


def _machine(node: _NodeState, number: int) -> StarMachine:
    """Return a machine in the state of a node, at the time 0."""
    machine = StarMachine(_ROLES[number])
    machine.handle(Ticked(), -1.0)
    assert node.state is not None
    machine.state = node.state
    machine._silent_at = float(node.silent_in)
    machine._publish_at = 1.0 - node.late
    return machine


def _act(state: PairState, number: int, event: Arrived | Voted | Ticked) -> PairState:
    """Let a node take an event; its peer's way gets what the node publishes."""
    machine = _machine(state.nodes[number], number)
    sent = []
    for action in machine.handle(event, 0.0):
        if isinstance(action, Emit):
            sent.append(int(bytes(action.frames[0])))
        assert isinstance(action, Emit | Halt)
    silent = max(-1, int(machine._silent_at))
    return _add(_with(state, number, _NodeState(machine.state, silent)), number, sent)


def _deliver(state: PairState, number: int) -> PairState:
    first = state.ways[1 - number][0]
    rest = _lose(state, 1 - number)
    if rest.nodes[number].state is StarState.HALTED:
        return rest
    return _act(rest, number, Arrived(0, b"", (b"%d" % first,)))


def _pass(state: PairState) -> PairState:
    """Let a second pass: times of silence go on, and every node that runs publishes."""
    for number, node in enumerate(state.nodes):
        if node.state in (None, StarState.HALTED):
            continue
        left, late = max(-1, node.silent_in - 1), min(_MAX_SILENCE, node.late + 1)
        state = _with(state, number, evolve(node, silent_in=left, late=late))
        if not node.paused:
            state = _act(state, number, Ticked())
    return state


def served_again(state: PairState, seconds: int = 12) -> bool:
    """Return whether a pair serves clients again, by one node, when no further fault happens.

    Processes that do not run are started, as units do it. A client asks both nodes in turn.
    """
    state = evolve(state, cut=False)
    for number, node in enumerate(state.nodes):
        if node.paused:
            state = _resume(state, number)
    for second in range(seconds):
        for number, node in enumerate(state.nodes):
            if node.state in (None, StarState.HALTED):
                state = _start(state, number)
        for number in (0, 1):
            while state.ways[1 - number] and state.nodes[number].state is not StarState.HALTED:
                state = _deliver(state, number)
        if second % 3 == 2:
            number = second // 3 % 2
            if state.nodes[number].state is not StarState.HALTED:
                state = _act(state, number, Voted())
        state = _pass(state)
    return [node.state is StarState.ACTIVE for node in state.nodes].count(True) == 1
