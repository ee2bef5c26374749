"""Mutants that are generated from the tables of section 2: each leaves out one required field."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, evolve

from tests.conformance.broken_peers import Bend, BentPeer, Link
from wmp.codec.message_tables import REQUIRED
from wmp.message import (
    FIELD_NAMES,
    SENT_BY_MANAGERS,
    SENT_BY_WORKERS,
    Command,
    Message,
)

_RULE = "WMP-2.4"
_SENT = {
    "manager": SENT_BY_MANAGERS - {Command.BYE},
    "worker": SENT_BY_WORKERS - {Command.BYE},
}


def _without(command: Command, key: int) -> type[Bend]:
    class LeavesAFieldOut(Bend):
        def says(self, link: Link, message: Message) -> Message:
            if message.command is not command or key not in message.fields:
                return message
            fields = {field: value for field, value in message.fields.items() if field != key}
            return evolve(message, fields=fields)

    return define(eq=False, slots=False)(LeavesAFieldOut)


def generated() -> Iterator[BentPeer]:
    """Yield a mutant for each required field of each command that a manager or worker sends."""
    for testee, commands in _SENT.items():
        for command in sorted(commands):
            for key in sorted(REQUIRED[command]):
                name = f"sends {command.name} without {FIELD_NAMES[key]}"
                yield BentPeer(name, _RULE, testee, _without(command, key))
