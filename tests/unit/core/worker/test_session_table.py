"""The table of a worker's session with a manager (section 7), pair by pair, against the machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import build_rules
import pytest

from tests.unit.core.worker import workers
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected
from wmp.message import Command, ErrorCode
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_peer import sent

SESSION = 5
"""The session that the worker is in, in OPEN and DOUBTED."""


def _lose_route(manager: ScriptedManager) -> None:
    about = {"about": int(Command.PING), "about_peer": (manager.identity, manager.epoch)}
    manager.send(manager.compose_error(ErrorCode.UNREACHABLE, **about))
    manager.link = 1
    manager.wake()


def _end(manager: ScriptedManager) -> None:
    machine = manager.worker
    machine._sessions.leave(machine._links.managers[manager.identity], 0.0)


INPUTS: dict[str, Callable[[ScriptedManager], object]] = {
    "number 1 without `ack` above 0, of a session above the forgotten one": lambda manager: (
        manager.take(99, b"job", number=1, ack=0)
    ),
    "PONG of a session above the forgotten one": lambda manager: manager.pong(),
    "any other message": lambda manager: manager.wake(session=None, ack=None),
    "PONG of the current session": lambda manager: manager.pong(),
    "PONG of a newer session": lambda manager: manager.pong(session=SESSION + 1, ack=0),
    "PONG of an older session": lambda manager: manager.pong(session=SESSION - 1, ack=0),
    "another message of a newer session": lambda manager: manager.wake(session=SESSION + 1),
    "another message": lambda manager: manager.wake(),
    "the route changes": _lose_route,
    "WMP-7.15 ends the session": _end,
}


def _pairs() -> Iterator[tuple[str, str, str]]:
    """Yield input, state and next state of each place of the table that is not empty."""
    text = build_rules.SPEC.read_text(encoding="utf-8")
    (table,) = re.findall(r"^(\| input \| FRESH \|.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    head, _, *rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.split("\n")]
    for what, *cells in rows:
        for state, cell in zip(head[1:], cells, strict=True):
            if cell:
                yield what, state, cell


PAIRS = list(_pairs())


def _in(state: str) -> ScriptedManager:
    manager = ScriptedManager(workers.make(links=2), session=SESSION)
    for link in range(2):
        manager.note(manager.worker.handle(Connected(link), 0.0))
    if state == "ASKED":
        manager.wake(session=None, ack=None)
    elif state != "FRESH":
        manager.pong()
        manager.pong()
        manager.no(99, number=1)
        if state == "DOUBTED":
            _lose_route(manager)
    assert _state(manager.worker) == state
    return manager


def _state(machine: WorkerMachine) -> str:
    remote = machine._links.managers.get(b"m1")
    if remote is None or remote.stream is None:
        return "ASKED" if remote is not None and remote.session_requested else "FRESH"
    return "DOUBTED" if remote.doubted else "OPEN"


def test_the_table_has_the_inputs_that_are_tested() -> None:
    assert {what for what, _, _ in PAIRS} == INPUTS.keys()


@pytest.mark.rule("WMP-7.6", "WMP-7.8", "WMP-7.10", "WMP-15.11")
@pytest.mark.parametrize(("what", "state", "expected"), PAIRS)
def test_the_machine_follows_the_table(what: str, state: str, expected: str) -> None:
    manager = _in(state)

    INPUTS[what](manager)

    assert _state(manager.worker) == expected


@pytest.mark.rule("WMP-7.10")
@pytest.mark.parametrize("state", ["FRESH", "ASKED"])
def test_a_pong_of_the_forgotten_session_leads_into_no_session(state: str) -> None:
    manager = _in("OPEN")
    machine = manager.worker
    machine._sessions.forget(machine._links.managers[b"m1"], 0.0)
    if state == "ASKED":
        manager.wake(session=None, ack=None)

    actions = manager.pong()

    assert _state(machine) == "ASKED"
    if state == "FRESH":
        assert [m.command for m in sent(actions) if m.to] == [Command.PING]
