"""A neighbor of a device that the kit plays."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from attrs import define

from wmp import codec
from wmp.conformance.peers.conversation import ReceivedMessage
from wmp.conformance.peers.mailbox import Mailbox
from wmp.conformance.script.case import Broken
from wmp.conformance.wire.wire import EPOCH, Connection
from wmp.message import Columns, Command, Field, Frame, Message, Path


@define(eq=False)
class Neighbor(Mailbox):
    """A neighbor of a device: one connection, which may carry any message."""

    connection: Connection | None
    endpoint: int = 0
    side: str = "dialled"
    identity: bytes = b"peer"
    epoch: int = EPOCH

    @property
    def path(self) -> Path:
        """The ``from`` of this neighbor's messages."""
        return self.identity, self.epoch

    def is_for(self, connection: Connection, message: Message) -> bool:
        if self.side == "taken":
            return connection.side == "taken" and connection.endpoint == self.endpoint
        return connection == self.connection

    def was_for(self, message: Message) -> bool:
        return False

    def receive(self, connection: Connection, frames: Sequence[Frame], message: Message) -> None:
        self.connection = connection
        others = [neighbor.path for neighbor in self.talk.players if isinstance(neighbor, Neighbor)]
        if not message.hops and message.source[:2] in others:
            raise Broken("WMP-8.3", "'from' has no hop of the device; expected this hop at its end")
        line = len(self.talk.lines) - 1
        self.inbox.append(ReceivedMessage(self.talk.now, connection, message, frames, line=line))

    def due(self) -> float:
        return inf

    def wait(self) -> None:
        pass

    def raw(self, *frames: Frame) -> None:
        """Send frames unchanged."""
        assert self.connection is not None
        self.talk.send(self.name, self.connection, frames)

    def send(
        self,
        command: Command,
        columns: Columns | None = None,
        *,
        to: Path = (),
        source: Path | None = None,
        **fields: Any,
    ) -> Message:
        """Send a message."""
        keys = {getattr(Field, name.upper()): value for name, value in fields.items()}
        message = Message(command, to, source or self.path, keys, columns)
        self.raw(*codec.encode(message))
        return message

    def error(self, code: str, rule: str = "") -> ReceivedMessage:
        """Wait for ERROR with this code.

        Raises:
            Broken: No ERROR arrived, or an ERROR with another code.
        """
        received = self.expect(Command.ERROR, rule=rule)
        self.talk.check(
            received["code"] == code, f"ERROR {received['code']!r}; expected {code!r}", rule
        )
        return received
