"""``python -m wmp.testing.search.explore NAME``: every interleaving of a small world.

The program visits all states that a :class:`~wmp.testing.search.plan.ModelPlan` can reach within
its bounds. Any next message may be delivered, lost, repeated or refused; any job may finish, any
timer fire and any process be killed, in every order. Each state is checked against the invariants
of :mod:`wmp.checks.job_history`.

Exit status: 0 all invariants held, 1 an invariant was broken, 2 wrong usage, 130 Ctrl-C before the
end.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from wmp.checks.job_history import Violation
from wmp.cli.common.entry_point import INTERRUPTED
from wmp.message import counted
from wmp.testing.search.counterexample import NoSuchMove, replay
from wmp.testing.search.plan import PLANS, ModelPlan
from wmp.testing.search.search import SearchBounds, SearchOrder, SearchResult, explore


def describe(name: str, plan: ModelPlan, explored: SearchResult) -> str:
    """Return a report in words."""
    rate = explored.states / max(explored.seconds, 1e-9)
    seen = "all states were visited" if explored.emptied else "more states exist"
    head = (
        f"{name}: {explored.states} states, {explored.transitions} transitions, "
        f"depth {explored.depth}, {counted(explored.leaves, 'state')} without moves; "
        f"{explored.seconds:.1f} s, {rate:.0f} states a second; {seen}"
    )
    lines = [head]
    if explored.violation is not None:
        lines.append(f"broken after {counted(len(explored.moves), 'move')}: {explored.violation}")
        lines += replay(plan, explored.moves)[0]
        moves = ",".join(map(str, explored.moves))
        lines.append(f"replay with: python -m wmp.testing.search.explore {name} --replay {moves}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    plan = PLANS[options.name]
    if options.replay is not None:
        try:
            lines, violation = replay(plan, options.replay)
        except NoSuchMove as error:
            parser.error(f"argument --replay: {error}")
        _print(*lines, str(violation or "no invariant was broken"))
        return 1 if violation else 0
    order = SearchOrder(options.order)
    how = SearchBounds(states=options.states, order=order, seed=options.seed)
    try:
        explored = explore(plan, how)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; add --states N for a shorter search\n")
        return INTERRUPTED
    if options.json:
        _print(json.dumps(_plain(options.name, explored)))
    else:
        _print(describe(options.name, plan, explored))
    return 1 if explored.violation else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m wmp.testing.search.explore",
        description="Visit every state of a small world, and check named invariants in each.",
        epilog=(
            "exit status: 0 all invariants held, 1 an invariant was broken, 2 wrong usage, 130 "
            "Ctrl-C"
        ),
    )
    add = parser.add_argument
    add("name", choices=sorted(PLANS), help="name of the world")
    add("--states", type=_states, metavar="N", help="stop after N new states")
    orders = [order.value for order in SearchOrder]
    add(
        "--order",
        choices=orders,
        default="breadth",
        help="order in which the states are visited (default: breadth)",
    )
    add("--seed", type=int, default=0, metavar="N", help="seed of the order `mixed` (default: 0)")
    add("--json", action="store_true", help="print the result as one JSON object")
    add(
        "--replay", type=_moves, metavar="MOVES", help="make only these moves, and print the events"
    )
    return parser


def _states(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of states; expected 1 or more")
    return int(text)


def _moves(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of moves; write numbers, such as 3,0,7"
        ) from None


def _plain(name: str, explored: SearchResult) -> dict[str, object]:
    violation: Violation | None = explored.violation
    return {
        "world": name,
        "states": explored.states,
        "transitions": explored.transitions,
        "depth": explored.depth,
        "ends": explored.leaves,
        "emptied": explored.emptied,
        "seconds": round(explored.seconds, 3),
        "violation": None if violation is None else str(violation),
        "moves": list(explored.moves),
    }


def _print(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
