"""What the kit's workers and managers have in common: a path, an inbox, two numberings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from attrs import define, field

from wmp import codec
from wmp.conformance.case import Broken
from wmp.conformance.talk import ReceivedMessage, Talk
from wmp.conformance.wire import Connection
from wmp.message import Columns, Command, Field, Frame, Message, Path, Peer
from wmp.testing.scripted_peer import NUMBERED, ScriptedPeer

__all__ = ["PlayedPeer"]


@define(eq=False)
class PlayedPeer(ScriptedPeer):
    """A peer that the kit plays; correct unless a script has it say something else."""

    talk: Talk
    name: str
    connection: Connection | None = None
    lively: bool = True
    """Whether it does by itself what liveness asks of it."""
    testee: Peer | None = None
    """(identity, epoch) of the testee, once a message of it has come."""
    inbox: list[ReceivedMessage] = field(factory=list)
    """What was received and not yet expected by the script."""
    ack_override: int | None = None
    """What it acknowledges instead of ``received``."""
    sent: dict[int, tuple[Command, list[Frame]]] = field(factory=dict)
    """What was sent in this session's stream, by number."""
    last_sent: float = -inf
    _seen: dict[tuple[int, int], Any] = field(factory=dict)
    _paths: set[Path] = field(factory=set)
    _past: set[Path] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self._paths.add(self.path)

    # -- who is who

    @property
    def to(self) -> Path:
        """The ``to`` of what it sends to the testee."""
        if self.testee is None:
            raise Broken(self.talk.first_rule, f"{self.name} has not heard the testee yet")
        return self.testee[::-1]

    @property
    def ack(self) -> int:
        """What it acknowledges."""
        return self.received if self.ack_override is None else self.ack_override

    def move(self, connection: Connection | None = None, *, hops: Path | None = None) -> None:
        """Speak over another connection, or through other devices, from now on."""
        if connection is not None:
            self.connection = connection
        if hops is not None:
            self.hops = hops
        self._paths.add(self.path)

    def receives_at(self, path: Path) -> None:
        """Take what is sent to another path for its own, too."""
        self._paths.add(path)

    def restart(self) -> None:
        """Start again: the same identity, a newer epoch, nothing remembered."""
        self._past |= self._paths
        self.epoch += 1
        self._paths = {self.path}
        self.forget_session()
        self.talk.remark(f"{self.name} starts again with epoch {self.epoch}")

    def forget_session(self) -> None:
        """Forget the session and all numbers."""
        self.session = self.number = self.received = 0
        self.sent.clear()
        self._seen.clear()

    def was_for(self, message: Message) -> bool:
        """Whether a message is for an older epoch of this peer: it was on its way."""
        return message.to[::-1] in self._past

    def settle(self) -> None:
        """Let what is on its way arrive, and send nothing meanwhile."""
        lively, self.lively = self.lively, False
        self.talk.settle()
        self.lively = lively

    def is_for(self, connection: Connection, message: Message) -> bool:
        if self.connection is None or connection.endpoint != self.connection.endpoint:
            return False
        return not message.to or message.to[::-1] in self._paths

    # -- sending

    def send(
        self,
        command: Command,
        columns: Columns | None = None,
        *,
        to: Path | None = None,
        source: Path | None = None,
        **fields: Any,
    ) -> Message:
        """Send a message with these fields, by their names in the specification.

        Number, ack and session are added where they belong; given as None they are left out.
        """
        message = self.compose(command, columns, to=to, source=source, **fields)
        frames = codec.encode(message)
        following = message.fields.get(Field.NUMBER) == self.number + 1
        if command in NUMBERED and following and message.fields.get(Field.SESSION) == self.session:
            self.number += 1
            self.sent[self.number] = (command, frames)
        self.raw(*frames)
        return message

    def raw(self, *frames: Frame) -> None:
        """Send frames as they are."""
        assert self.connection is not None, f"{self.name} has no connection yet"
        self.last_sent = self.talk.now
        self.talk.send(self.name, self.connection, frames)

    def repeat(self, number: int | None = None) -> None:
        """Send a numbered message again, the last one unless told, byte by byte."""
        self.raw(*self.sent[self.number if number is None else number][1])

    # -- receiving

    def receive(self, connection: Connection, frames: Sequence[Frame], message: Message) -> None:
        if message.hops:
            raise Broken("WMP-2.5", "its 'from' names devices, and there are none")
        self._check_sender(message.sender)
        received = ReceivedMessage(self.talk.now, connection, message, frames)
        self._check_stream(received)
        self.inbox.append(received)
        self.understand(received)

    def understand(self, received: ReceivedMessage) -> None:
        """Learn from what was received."""

    def due(self) -> float:
        return inf

    def wait(self) -> None:
        pass

    def _check_sender(self, sender: Peer) -> None:
        if self.testee is not None and sender != self.testee:
            if sender[0] != self.testee[0]:
                raise Broken("WMP-1.1", f"it calls itself {sender!r}, before {self.testee!r}")
            if sender[1] < self.testee[1]:
                raise Broken("WMP-1.1", f"its epoch {sender[1]} is below {self.testee[1]}")
        self.testee = sender

    def _check_stream(self, received: ReceivedMessage) -> None:
        """Hold numbers and acks against section 7."""
        session, number, ack = received["session"], received["number"], received["ack"]
        if ack is not None and session == self.session and ack > self.number:
            text = f"ack {ack}, but only {self.number} was ever sent"
            raise Broken("WMP-7.2", text, "must")
        if received.command not in NUMBERED or session != self.session:
            return
        message = received.message
        content = {k: v for k, v in message.fields.items() if k != Field.ACK}
        said = message.command, content, message.columns
        before = self._seen.setdefault((session, number), said)
        if number <= self.received:
            received.again = True
            if before != said:
                raise Broken("WMP-7.1", f"number {number} was something else the first time")
        elif number == self.received + 1:
            self.received = number
        else:
            raise Broken(
                "WMP-7.1", f"number {number}, expected {self.received + 1}: numbers grow by 1"
            )

    # -- expecting

    def expect(
        self,
        *commands: Command,
        within: float | None = None,
        where: Callable[[ReceivedMessage], bool] | None = None,
        again: bool = False,
        rule: str = "",
        what: str = "",
        **fields: Any,
    ) -> ReceivedMessage:
        """Wait for a message and take it out of the inbox.

        Args:
            commands: Any of these.
            within: Units from now; None for "at once".
            where: What else must be so.
            again: Whether a numbered message that was received before counts.
            rule: What is broken if it does not come; the case's first.
            what: Why it must come, for people.
            fields: Fields that it must have, by their names.

        Raises:
            Broken: It did not come.
        """
        found = self.wait_for(*commands, within=within, where=where, again=again, **fields)
        if found is None:
            names = " or ".join(command.name for command in commands)
            shown = "".join(f" {name}={value!r}" for name, value in fields.items())
            others = ", ".join(received.command.name for received in self.inbox[-6:]) or "nothing"
            when = self.talk.wire.grace if within is None else within
            text = f"no {names}{shown} to {self.name} within {when:g} units"
            text += f", {what}; heard: {others}" if what else f"; heard: {others}"
            raise Broken(rule or self.talk.first_rule, text)
        return found

    def wait_for(
        self,
        *commands: Command,
        within: float | None = None,
        where: Callable[[ReceivedMessage], bool] | None = None,
        again: bool = False,
        **fields: Any,
    ) -> ReceivedMessage | None:
        """Wait for a message and take it out of the inbox; None when it does not come."""
        talk = self.talk
        until = talk.now + (talk.wire.grace if within is None else within)
        start = 0
        while True:
            for received in self.inbox[start:]:
                if (
                    received.command in commands
                    and received.again <= again
                    and all(received[name] == value for name, value in fields.items())
                    and (where is None or where(received))
                ):
                    self.inbox.remove(received)
                    return received
            start = len(self.inbox)
            if not talk.pump(until):
                return None

    def never(
        self,
        *commands: Command,
        during: float | None = None,
        where: Callable[[ReceivedMessage], bool] | None = None,
        again: bool = True,
        rule: str = "",
        what: str = "",
        **fields: Any,
    ) -> None:
        """Hold that no such message comes, nor waits in the inbox.

        Raises:
            Broken: It came.
        """
        if found := self.wait_for(*commands, within=during, where=where, again=again, **fields):
            text = f"{found.command.name} to {self.name}"
            raise Broken(rule or self.talk.first_rule, f"{text}: {what or 'none was expected'}")

    def clear(self) -> None:
        """Forget what was received so far."""
        self.talk.settle()
        self.inbox.clear()
