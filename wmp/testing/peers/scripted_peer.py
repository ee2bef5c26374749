"""A peer with scripted messages: the common part of the workers and managers of tests.

The peers of the unit tests (:mod:`wmp.testing.peers.scripted_worker` and
:mod:`wmp.testing.peers.scripted_manager`) drive a machine. The peers of the conformance kit
(:mod:`wmp.conformance.peers.played_worker` and :mod:`wmp.conformance.peers.played_manager`) drive a
process. All of them compose their messages by :mod:`wmp.testing.peers.worker_messages` and
:mod:`wmp.testing.peers.manager_messages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, fields_dict

from wmp.actions import Send
from wmp.message import (
    NUMBERED_BY_MANAGERS,
    NUMBERED_BY_WORKERS,
    Columns,
    Command,
    Field,
    Message,
    Path,
    Peer,
)

NUMBERED: Final = NUMBERED_BY_MANAGERS | NUMBERED_BY_WORKERS
"""The commands in the numbered streams of either side."""

_COLUMNS: Final = frozenset(fields_dict(Columns))


def sent(actions: Sequence[object], *commands: Command) -> list[Message]:
    """Select the messages among ``actions``, of these commands when any are named."""
    return [
        action.message
        for action in actions
        if isinstance(action, Send) and (not commands or action.message.command in commands)
    ]


@define(eq=False, kw_only=True)
class ScriptedPeer:
    """A path, a session and two numberings: correct messages from short calls.

    The peer decides nothing. A wrong message is composed with explicit fields.
    """

    identity: bytes
    epoch: int
    hops: Path = ()
    """The hops that devices between the peer and the other side would append to ``from``."""
    session: int = 0
    number: int = 0
    """The number of the last message sent in the numbered stream."""
    received: int = 0
    """The number of the last message received in order: the ack of every message."""

    @property
    def peer(self) -> Peer:
        """(identity, epoch) of the peer."""
        return self.identity, self.epoch

    @property
    def path(self) -> Path:
        """The ``from`` of the peer's messages, as the other side receives it."""
        return (self.identity, self.epoch, *self.hops)

    @property
    def to(self) -> Path:
        """The ``to`` of messages to the other side."""
        raise NotImplementedError

    @property
    def ack(self) -> int:
        """The ack of messages."""
        return self.received

    def milliseconds(self, seconds: float) -> int:
        """Return the value of a field for a time."""
        return int(seconds * 1000)

    def columns(
        self, jobs: Iterable[tuple[int, int]], fields: dict[str, Any], **columns: Any
    ) -> Columns:
        """Make the columns of jobs, which are pairs (id, attempt).

        Fields with the name of a column are moved from ``fields`` into the columns.
        """
        ids, attempts = zip(*jobs, strict=True)
        columns |= {name: fields.pop(name) for name in _COLUMNS & fields.keys()}
        return Columns(list(ids), list(attempts), **columns)

    def compose_error(self, code: str, *, to: Path | None = None, **fields: Any) -> Message:
        """Compose ERROR."""
        return self.compose(Command.ERROR, to=to, code=code, **fields)

    def compose_bye(self, **fields: Any) -> Message:
        """Compose BYE."""
        return self.compose(Command.BYE, **fields)

    def message(
        self,
        command: Command,
        fields: Mapping[int | str, Any],
        columns: Columns | None = None,
        *,
        to: Path | None = None,
        source: Path | None = None,
    ) -> Message:
        """Compose a message with exactly these fields, by their keys."""
        to = self.to if to is None else to
        return Message(command, to, self.path if source is None else source, dict(fields), columns)

    def compose(
        self,
        command: Command,
        columns: Columns | None = None,
        *,
        to: Path | None = None,
        source: Path | None = None,
        **fields: Any,
    ) -> Message:
        """Compose a message with these fields, by their names in the specification.

        Number, ack and session are added where the rules require them; a None leaves one out.
        """
        to = self.to if to is None else to
        stamped: dict[str, Any] = {}
        if to and self.session and command is not Command.ERROR:
            stamped = {"session": self.session, "ack": self.ack}
        if command in NUMBERED:
            stamped["number"] = self.number + 1
        stamped |= fields
        keys: dict[int | str, Any] = {
            getattr(Field, name.upper()): value
            for name, value in stamped.items()
            if value is not None
        }
        return self.message(command, keys, columns, to=to, source=source)
