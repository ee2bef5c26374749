"""Drawn conversations: Hypothesis finds the messages and their order.

A conversation is a list of *moves*. A move is a list of a name and small integers, so it can be
written to a file as JSON, shortened, and played again, in process or with a live peer. A move that
makes no sense in the current state does nothing. Moves send correct and wrong messages: late, twice
or never. In all cases the general rules hold, every job ends, and the testee still works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wmp.conformance.moves.device_moves import DeviceMoves
from wmp.conformance.moves.manager_moves import ManagerMoves
from wmp.conformance.moves.worker_moves import WorkerMoves
from wmp.conformance.script.case import Case

Move = Sequence[Any]
"""A name, then integers from 0 to 9."""

_ACTORS: dict[str, Callable[[Any], Any]] = {
    "manager": ManagerMoves,
    "worker": WorkerMoves,
    "device": DeviceMoves,
}

MOVES: dict[str, tuple[str, ...]] = {
    kind: tuple(
        name.removeprefix("_")
        for name, method in vars(actor).items()
        if callable(method) and name[0] == "_" and name[1] != "_" and name not in _HELPERS
    )
    for kind, actor, _HELPERS in (
        ("manager", ManagerMoves, ("_until_ended", "_held")),
        ("worker", WorkerMoves, ("_open", "_role", "_payload")),
        ("device", DeviceMoves, ("_clear", "_arrives")),
    )
}
"""The moves for each kind of testee."""


def drawn_case(testee: str, moves: Sequence[Move]) -> Case:
    """Make a case that makes these moves and then checks that every job ends."""

    def script(talk: Any) -> None:
        actor = _ACTORS[testee](talk)
        actor.begin()
        for name, *numbers in moves:
            talk.remark(" ".join(map(str, (name, *numbers))))
            actor.move(name, *numbers)
        talk.settle()
        actor.end()

    script.__doc__ = f"{len(moves)} drawn moves."
    links = 2 if testee == "device" else 1
    return Case(f"{testee}/drawn", testee, ("WMP-10.1",), script, slots=2, links=links)
