"""The common part of the kit's workers and managers: a path, a mailbox, two numberings."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, ClassVar

from attrs import define, field

from wmp import codec
from wmp.conformance.peers.conversation import ReceivedMessage
from wmp.conformance.peers.mailbox import Mailbox
from wmp.conformance.script.case import Broken
from wmp.conformance.wire.wire import Connection
from wmp.message import Columns, Command, ErrorCode, Field, Frame, Message, Path, Peer
from wmp.testing.peers.scripted_peer import NUMBERED, ScriptedPeer


@define(eq=False)
class PlayedPeer(Mailbox, ScriptedPeer):
    """A peer that the kit plays; it keeps the rules unless a script breaks them."""

    _RULE_OF_ROUTES: ClassVar[str] = "WMP-1.8"
    """The rule that a testee breaks if it sends over an old route of the peer."""

    connection: Connection | None = None
    lively: bool = True
    """Whether the peer follows the rules of liveness by itself."""
    testee: Peer | None = None
    """(identity, epoch) of the testee; None before its first message."""
    received_all: list[ReceivedMessage] = field(factory=list)
    """All messages received."""
    ack_override: int | None = None
    """The ack of messages; None for ``received``."""
    sent: dict[int, tuple[Command, list[Frame]]] = field(factory=dict)
    """The messages sent in the stream of this session, by number."""
    last_sent: float = -inf
    _seen: dict[tuple[int, int], Any] = field(factory=dict)
    _open: set[tuple[int, int]] = field(factory=set)
    """The (session, number) of each message in whose place another message may be sent."""
    _paths: set[Path] = field(factory=set)
    _past: set[Path] = field(factory=set)
    _left: set[tuple[int, Path]] = field(factory=set)
    """Routes that the peer has left: endpoint and path."""

    def __attrs_post_init__(self) -> None:
        self._paths.add(self.path)

    # -- identities

    @property
    def to(self) -> Path:
        """The ``to`` of messages to the testee."""
        if self.testee is None:
            raise Broken(
                self.talk.first_rule,
                f"{self.name} knows no receiver: it has received no message of the testee",
            )
        return self.testee[::-1]

    @property
    def ack(self) -> int:
        """The ack of messages."""
        return self.received if self.ack_override is None else self.ack_override

    def milliseconds(self, seconds: float) -> int:
        """Return the value of a field for a time; scripts give times in units."""
        return self.talk.ms(seconds)

    def move(self, connection: Connection | None = None, *, hops: Path | None = None) -> None:
        """Use another connection, or a path through other devices, from now on.

        Raises:
            Broken: The testee does not follow to the new route.
        """
        before = self.connection
        if before is not None:
            self._left.add((before.endpoint, self.path))
        if connection is not None:
            self.connection = connection
        if hops is not None:
            self.hops = hops
        self._paths.add(self.path)
        if self.connection is not None:
            self._left.discard((self.connection.endpoint, self.path))
        if before is not None and self.connection != before and not self._shared(before):
            self.talk.wire.hang_up(before)
        if self.testee is not None:
            self.settle()
            self.arrive()

    def arrive(self) -> None:
        """Let the testee receive a message over the new route, and wait for its next message over
        this route.

        Raises:
            Broken: No message arrives over this route.
        """

    def followed(self, start: int) -> None:
        """Wait until the testee sends to the current path.

        Args:
            start: Number of messages received before.

        Raises:
            Broken: No message arrives at this path.
        """
        within = 2.0 + 2 * self.talk.wire.grace

        def there() -> bool:
            return any(
                received.message.to == self.path[::-1] for received in self.received_all[start:]
            )

        text = f"{self.name} moved to another route; expected a message over that route"
        try:
            self.talk.until(there, within, "WMP-15.6", text)
        except Broken:
            # The message with 'again' must go over the new route, which the testee has admitted.
            if any(received["again"] for received in self.received_all[start:]):
                text = f"{text}, but the message with 'again' arrived over the old route"
                raise Broken(self._RULE_OF_ROUTES, text) from None
            raise

    def _shared(self, connection: Connection) -> bool:
        others = (player for player in self.talk.players if player is not self)
        return any(getattr(other, "connection", None) == connection for other in others)

    def receives_at(self, path: Path) -> None:
        """Accept messages to another path too."""
        self._paths.add(path)

    def restart(self) -> None:
        """Restart: the identity stays, the epoch is newer, the memory is empty."""
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
        """Return whether a message on its way was meant for an older epoch of this peer."""
        return message.to[::-1] in self._past

    def settle(self) -> None:
        """Let messages on their way arrive, and send nothing meanwhile."""
        lively, self.lively = self.lively, False
        self.talk.settle()
        self.lively = lively

    def is_for(self, connection: Connection, message: Message) -> bool:
        if (connection.endpoint, message.to[::-1]) in self._left:
            return True
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

        Number, ack and session are added where the rules require them; a None leaves one out.
        """
        message = self.compose(command, columns, to=to, source=source, **fields)
        self.transmit(message)
        return message

    def transmit(self, message: Message) -> None:
        """Send a message; keep the message for a repeat if it has the next number of the stream."""
        frames = codec.encode(message)
        fields = message.fields
        following = fields.get(Field.NUMBER) == self.number + 1
        if message.command in NUMBERED and following and fields.get(Field.SESSION) == self.session:
            self.number += 1
            self.sent[self.number] = (message.command, frames)
        self.raw(*frames)

    def error(self, code: str, **fields: Any) -> None:
        """Send ERROR."""
        self.transmit(self.compose_error(code, **fields))

    def refuse(self, received: ReceivedMessage, code: str = ErrorCode.LIMIT) -> None:
        """Send ERROR about a numbered message. Another message may then have its number."""
        number = received["number"]
        self._seen.pop((self.session, number), None)
        self.error(
            code,
            session=self.session,
            about=int(received.command),
            about_number=number,
            text="the kit refuses this message",
        )

    def differs(self, number: int) -> None:
        """Accept another message under this number (WMP-7.12)."""
        self._seen.pop((self.session, number), None)
        self._open.add((self.session, number))

    def provoke_by_errors(self, about: Command) -> None:
        """Send right and wrong ERRORs; check that none is answered by ERROR (WMP-10.3).

        Raises:
            Broken: An ERROR was answered.
        """
        self.error(ErrorCode.MALFORMED, to=(1, b"somebody"))
        self.error(ErrorCode.UNKNOWN, about=int(about), about_number=7)
        self.error(ErrorCode.MISROUTED, to=())
        self.send(Command.ERROR, text="without a code")
        self.send(Command.ERROR, code=7)
        self.raw(b"\x85\x01\x0c\x80\x80\xa0")
        self.never(Command.ERROR, during=1.0, what="no ERROR may be answered by ERROR")

    def raw(self, *frames: Frame) -> None:
        """Send frames unchanged."""
        assert self.connection is not None, f"{self.name} has no connection yet"
        self.last_sent = self.talk.now
        self.talk.send(self.name, self.connection, frames)

    def repeat(self, number: int | None = None) -> None:
        """Send a numbered message again, byte for byte; the last one by default."""
        self.raw(*self.sent[self.number if number is None else number][1])

    # -- receiving

    def receive(self, connection: Connection, frames: Sequence[Frame], message: Message) -> None:
        if message.hops:
            raise Broken(
                "WMP-2.5", "'from' names devices; expected none, because the connection is direct"
            )
        self._check_sender(message.sender)
        if (connection.endpoint, message.to[::-1]) in self._left and (
            Field.CHALLENGE in message.fields
        ):
            self._not_there(connection, message)
            return
        line = len(self.talk.lines) - 1
        received = ReceivedMessage(self.talk.now, connection, message, frames, line=line)
        self._check_stream(received)
        self.inbox.append(received)
        self.received_all.append(received)
        self.understand(received)

    def _not_there(self, connection: Connection, message: Message) -> None:
        """Answer in place of a node on a route that this peer has left: the peer is unreachable."""
        fields: dict[int | str, Any] = {
            Field.CODE: ErrorCode.UNREACHABLE,
            Field.ABOUT: int(message.command),
            Field.ABOUT_PEER: (self.identity, self.epoch),
        }
        error = Message(Command.ERROR, self.to, (b"between", 7), fields)
        self.talk.send(self.name, connection, codec.encode(error))

    def understand(self, received: ReceivedMessage) -> None:
        """Update the peer's state from a received message."""

    def due(self) -> float:
        return inf

    def wait(self) -> None:
        pass

    def _check_sender(self, sender: Peer) -> None:
        if self.testee is not None and sender != self.testee:
            if sender[0] != self.testee[0]:
                raise Broken(
                    "WMP-1.1",
                    f"the testee calls itself {sender!r}; expected the earlier {self.testee!r}",
                )
            if sender[1] < self.testee[1]:
                raise Broken(
                    "WMP-1.1",
                    f"the testee has epoch {sender[1]}; expected {self.testee[1]} or more",
                )
        self.testee = sender

    def _check_stream(self, received: ReceivedMessage) -> None:
        """Check numbers and acks against section 7."""
        session, number, ack = received["session"], received["number"], received["ack"]
        if ack is not None and session == self.session and ack > self.number:
            text = f"ack is {ack}; expected at most {self.number}, the last number sent"
            raise Broken("WMP-7.2", text, "must")
        if received.command not in NUMBERED or session != self.session:
            return
        message = received.message
        content = {k: v for k, v in message.fields.items() if k != Field.ACK}
        current = message.command, content, message.columns
        before = self._seen.setdefault((session, number), current)
        if number <= self.received:
            received.again = True
            if before != current and (session, number) not in self._open:
                raise Broken(
                    "WMP-7.1", f"two messages of number {number} differ; expected the same content"
                )
        elif number == self.received + 1:
            self.received = number
        else:
            raise Broken("WMP-7.1", f"a message has number {number}; expected {self.received + 1}")
