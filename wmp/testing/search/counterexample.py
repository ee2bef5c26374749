"""A counterexample of a search: replayed, in words, and shortened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from wmp.checks.job_history import Violation
from wmp.message import counted
from wmp.testing.search.model import Model, Move
from wmp.testing.search.plan import ModelPlan
from wmp.testing.simulator.network import Action
from wmp.testing.simulator.trace import words

_LAST = 40
"""Number of steps that are shown if a job does not end in a run without faults."""


class NoSuchMove(LookupError):
    """The moves do not fit this world: they are of another world."""


def replay(plan: ModelPlan, moves: Sequence[int]) -> tuple[list[str], Violation | None]:
    """Make these moves again; return the events in words, and the violation if there is one.

    Args:
        plan: The world.
        moves: The index of the move at each state.

    Raises:
        NoSuchMove: A state has too few moves.
    """
    model, lines = _RecordedModel(plan=plan), list[str]()
    try:
        for number, index in enumerate(moves, 1):
            there = model.moves()
            if not 0 <= index < len(there):
                raise NoSuchMove(
                    f"after {counted(number - 1, 'move')} there is no move {index}; the state has "
                    f"{counted(len(there), 'move')}, counted from 0; give the moves of this world"
                )
            move = there[index]
            lines.append(f"{number:3}. {model.now:8.3f} s  {_in_words(model, move)}")
            model.steps.clear()
            model.make(move)
            lines += model.steps
        lines.append(f"     {model.now:8.3f} s  no further faults")
        model.steps.clear()
        model.close(set())
    except Violation as violation:
        return [*lines, *model.steps[-_LAST:]], violation
    return lines, None


@define(eq=False, kw_only=True)
class _RecordedModel(Model):
    """A world that records the events of its nodes."""

    steps: list[str] = field(factory=list)

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Report the event to the model, and record it."""
        self.steps.append(f"{'':18}{name}: {words(event)}")
        self.steps += [f"{'':18}   → {words(action)}" for action in actions]
        Model.handled(self, name, event, actions)


def _in_words(model: Model, move: Move) -> str:
    kind: Any
    kind, *rest = move
    where: Any = tuple(rest)
    match kind:
        case "deliver" | "drop" | "duplicate" | "refuse":
            command = model.first(where).command.name
            far = model.far(where)
            return f"{kind} {command} from {where[0]} to {far[0] if far else 'no node'}"
        case "finish":
            return f"the handler of a job at {where[0]} returns"
        case "heed":
            return f"the handler of a job at {where[0]} reacts to its cancellation"
        case "bereave":
            return f"the process of a job at {where[0]} dies"
        case "step":
            return f"{model.plan.script[model.done]}"
        case "tick":
            return (
                f"time passes until {model.nodes[where[0]].deadline():.3f} s, the deadline of "
                f"{where[0]}"
            )
    return " ".join(map(str, move))


def shortened(plan: ModelPlan, moves: Sequence[int], name: str) -> tuple[int, ...]:
    """Leave out each move that is not needed to break the invariant ``name``."""
    wanted = _moves_of(plan, moves)
    position = 0
    while position < len(wanted):
        fewer = _moves_until(plan, [*wanted[:position], *wanted[position + 1 :]], name)
        if fewer is None:
            position += 1
        else:
            wanted = fewer
    return _numbered(plan, wanted)


def _moves_of(plan: ModelPlan, choices: Sequence[int]) -> list[Move]:
    model, moves = Model(plan=plan), list[Move]()
    for index in choices:
        moves.append(model.moves()[index])
        try:
            model.make(moves[-1])
        except Violation:
            break
    return moves


def _moves_until(plan: ModelPlan, moves: Sequence[Move], name: str) -> list[Move] | None:
    """Return the moves up to a violation of that name; None without such a violation."""
    model = Model(plan=plan)
    for count, move in enumerate(moves, 1):
        if move not in model.moves():
            return None
        try:
            model.make(move)
        except Violation as violation:
            return list(moves[:count]) if violation.name == name else None
    try:
        model.close(set())
    except Violation as violation:
        return list(moves) if violation.name == name else None
    return None


def _numbered(plan: ModelPlan, moves: Sequence[Move]) -> tuple[int, ...]:
    model, numbers = Model(plan=plan), list[int]()
    for move in moves:
        numbers.append(model.moves().index(move))
        try:
            model.make(move)
        except Violation:
            break
    return tuple(numbers)
