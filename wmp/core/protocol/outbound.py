"""Outbound messages of a manager or a worker: addressed, stamped, and kept if numbered.

Numbered messages (spec §7) are kept in the stream of their receiver until they are acknowledged,
and sent again from there. Received messages are accepted strictly in order. The machine decides
when to resend, and over which route.
A message that may not be acted on is dropped, counted, and answered with ERROR (spec §10).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar

from attrs import define, evolve, field

from wmp.actions import Drop, Send
from wmp.core.protocol import error_replies
from wmp.core.protocol.timers import ResendTimer, Timers
from wmp.errors import DecodeError
from wmp.message import Columns, Command, ErrorCode, Field, Link, Message, Path, Peer

MAX_RESENDS: Final = 10
"""Number of times that an unacknowledged message is sent again (WMP-7.12)."""
REFUSALS: Final = frozenset({ErrorCode.MALFORMED, ErrorCode.LIMIT})
"""Codes of the ERRORs about a numbered message that its receiver will never accept (WMP-7.11)."""


class Arrival(Enum):
    """Meaning of a received number (WMP-7.1)."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    GAP = "gap"
    """Higher than the next number. The gap is new, so ``again`` is sent."""
    AHEAD = "ahead"
    """Higher than the next number. The gap is known: ``again`` was sent for it."""


@define(eq=False)
class Kept:
    """One numbered message, without its parts that change at another sending (route, ack)."""

    number: int
    command: Command
    fields: dict[int | str, Any]
    columns: Columns | None
    sent_at: float
    size: int
    """Number of payload bytes."""
    sends: int = 0
    """Number of times that the message was sent: 0, 1, or 2 for two and more.

    A first sending that was not delivered counts as 0.
    """
    replaced: bool = False
    """Whether the message was sent in place of a message that was refused (WMP-7.11)."""


@define(eq=False)
class Stream:
    """The two streams of a session.

    Invariant: ``kept`` holds exactly the numbers from ``acked`` + 1 to ``sent``.
    """

    session: int
    sent: int = 0
    acked: int = 0
    received: int = 0
    """Highest number received in order: the ack to send."""
    size: int = 0
    """Number of payload bytes in ``kept``."""
    unacked_bytes: int = 0
    """Number of payload bytes received since an ack was last sent."""
    kept: deque[Kept] = field(factory=deque)
    written: int | None = None
    """At a manager: number up to which the received results are stored; None if all are
    (WMP-14.3)."""
    fruitless: int = 0
    """Number of times that messages were sent again since the last ack."""
    _requested: int = 0
    """Value of ``received`` plus one at the last gap for which ``again`` was sent; 0 if none was
    sent.
    """

    def left(self, number: int) -> bool:
        """Return whether a numbered message may have left this node (WMP-6.17)."""
        return number <= self.acked or self.kept[number - self.acked - 1].sends > 0

    def returned(self, number: int) -> None:
        """Record that the socket could not send a message."""
        if self.acked < number <= self.sent:
            kept = self.kept[number - self.acked - 1]
            if kept.sends == 1:
                kept.sends = 0

    def acknowledge(self, number: int) -> bool:
        """Drop the kept messages up to ``number``; return whether there were any (WMP-7.2, 7.4)."""
        if not self.acked < number <= self.sent:
            return False
        kept = self.kept
        while kept and kept[0].number <= number:
            self.size -= kept.popleft().size
        self.acked = number
        self.fruitless = 0
        return True

    def arrive(self, number: int) -> Arrival:
        """Return the meaning of a received number; NEXT counts the number as received (WMP-7.1)."""
        if number == self.received + 1:
            self.received = number
            return Arrival.NEXT
        if number <= self.received:
            return Arrival.DUPLICATE
        if self._requested == self.received + 1:
            return Arrival.AHEAD
        self._requested = self.received + 1
        return Arrival.GAP

    def overdue(self, resend: float) -> float | None:
        """Return when the oldest unacknowledged message must be sent again.

        None when there is none.
        """
        return self.kept[0].sent_at + resend if self.kept else None

    def replay(self, now: float) -> list[Kept]:
        """Return all unacknowledged messages in order, to be sent again (WMP-7.3)."""
        # The request for a gap in the other direction may be lost too, so ``again`` may be sent
        # once more.
        self._requested = 0
        self.fruitless += bool(self.kept)
        for kept in self.kept:
            kept.sent_at = now
        return list(self.kept)

    @property
    def used(self) -> bool:
        """Whether either side has numbered a message."""
        return bool(self.sent or self.received)


class Receiver(Protocol):
    """The part of a remote peer that :class:`Outbound` uses."""

    @property
    def identity(self) -> bytes:
        """Name of the peer on the wire."""

    @property
    def stream(self) -> Stream | None:
        """The numbered streams of the session with the peer; None while no session is known."""

    @property
    def link(self) -> Link | None:
        """Link of the latest route to the peer; None while no route is known."""

    @property
    def path(self) -> Path | None:
        """The ``to`` that reaches the peer; None while no route is known."""


_Receiver = TypeVar("_Receiver", bound=Receiver)
_Action = TypeVar("_Action")


@define(eq=False)
class Outbound(Generic[_Receiver, _Action]):
    """The actions of one ``handle`` call in order, and the messages kept for resending.

    Invariant: ``kept_bytes`` is the sum of the sizes of all streams, and a ``ResendTimer`` is set
    for each stream that keeps a message.
    """

    me: Peer
    """(identity, epoch) of this node."""
    timers: Timers[Any]
    """The timers of the machine."""
    resend: float
    """Seconds after which an unacknowledged message is sent again."""
    actions: list[_Action | Send | Drop] = field(factory=list)
    dropped: Counter[str] = field(factory=Counter)
    """Number of ignored messages, by reason."""
    kept_bytes: int = 0

    # -- messages that are refused

    def drop(
        self,
        reason: str,
        link: Link | None = None,
        message: Message | None = None,
        detail: str = "",
    ) -> None:
        """Count and report an ignored message."""
        self.dropped[reason] += 1
        self.actions.append(Drop(reason, link, message, detail))

    def refuse(
        self, link: Link, message: Message, code: str, text: str, peer: Peer | None = None
    ) -> None:
        """Drop a message and answer with ERROR (WMP-10.2)."""
        self.drop(code, link, message, text)
        self.actions += error_replies.refusal(self.me, link, message, code, text, peer)

    def refuse_garbled(self, link: Link, error: DecodeError) -> None:
        """Drop frames that are not a message and answer with ERROR (WMP-10.2)."""
        self.drop(error.code, link, None, str(error))
        self.actions += error_replies.garbled(self.me, link, error)

    def refuse_misaddressed(self, link: Link, message: Message, node: str) -> None:
        """Refuse a message to another node, or to another epoch of this one (WMP-2.7).

        Args:
            node: Kind of this node: ``manager`` or ``worker``.
        """
        identity, epoch = self.me
        match message.to:
            case ():
                text = f"'to' is empty, which no {node} accepts in {message.command.name}"
                self.refuse(link, message, ErrorCode.MALFORMED, text)
            case (int(other), bytes(name)) if name == identity and other != epoch:
                text = f"epoch {other} of this {node} was replaced by {epoch}"
                self.refuse(link, message, ErrorCode.SUPERSEDED, text, (identity, other))
            case _:
                text, receiver = f"this {node} is not the receiver", error_replies.whom(message)
                self.refuse(link, message, ErrorCode.MISROUTED, text, receiver)

    # -- messages to a peer

    def link_to(self, peer: _Receiver) -> Link | None:
        """Return the link over which a message to ``peer`` can be sent now, or None."""
        return peer.link

    def send(
        self,
        peer: _Receiver,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns | None,
        now: float,
    ) -> bool:
        """Send to one peer, with session and ack (WMP-7.2); False when no route is known."""
        link = self.link_to(peer)
        if link is None:
            return False
        stream = peer.stream
        if stream is not None:
            fields = {**fields, Field.ACK: stream.received, Field.SESSION: stream.session}
            if stream.written is not None:
                fields[Field.KEPT] = stream.written
            stream.unacked_bytes = 0
        message = Message(command, peer.path or (), self.me, fields, columns)
        self.actions.append(Send(link, message))
        self.note_sent(peer, now)
        return True

    def note_sent(self, peer: _Receiver, now: float) -> None:
        """Note that a message leaves: called for each message; only a worker notes the time."""

    # -- numbered streams

    def push(
        self,
        peer: _Receiver,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns | None,
        now: float,
        size: int = 0,
    ) -> None:
        """Number, keep and send; without a route the message waits until there is one."""
        stream = peer.stream
        assert stream is not None, "a message without a session must have no number"
        stream.sent += 1
        fields |= {Field.NUMBER: stream.sent, Field.SESSION: stream.session}
        kept = Kept(stream.sent, command, fields, columns, now, size)
        stream.kept.append(kept)
        stream.size += size
        self.kept_bytes += size
        self.timers.arm(ResendTimer(peer.identity), now + self.resend)
        if self.send(peer, command, fields, columns, now):
            kept.sends = 1

    def acknowledge(self, peer: _Receiver, fields: Mapping[int | str, Any]) -> None:
        """Drop the messages that a received message's fields acknowledge (WMP-7.2, 7.4)."""
        stream = peer.stream
        if stream is None or fields.get(Field.SESSION) != stream.session:
            return
        before = stream.size
        if stream.acknowledge(fields.get(Field.ACK, 0)):
            self.kept_bytes -= before - stream.size
            if not stream.kept:
                # Without unacknowledged messages no timer runs, so idle peers cause no wake-ups.
                self.timers.clear(ResendTimer(peer.identity))

    def replay(self, peer: _Receiver, now: float) -> None:
        """Send all unacknowledged messages to the peer again (WMP-7.3)."""
        stream = peer.stream
        if stream is None or self.link_to(peer) is None:
            return
        if stream.fruitless >= MAX_RESENDS and stream.kept:
            # The oldest message counts as refused.
            self.timers.set(ResendTimer(peer.identity), now + 0.001)
            return
        for kept in stream.replay(now):
            kept.sends = min(kept.sends + 1, 2)
            self.send(peer, kept.command, kept.fields, kept.columns, now)

    def check_resend(self, peer: _Receiver, now: float) -> Kept | None:
        """Act on the peer's ``ResendTimer``: replay if the oldest message is due (WMP-7.3).

        Returns:
            The oldest message if it was sent again too often. The message counts as refused
            (WMP-7.12).
        """
        stream = peer.stream
        due = None if stream is None else stream.overdue(self.resend)
        if stream is None or due is None:
            return None
        stuck = None
        if stream.fruitless >= MAX_RESENDS and self.link_to(peer) is not None:
            stuck = stream.kept[0]
            due = now + self.resend
        elif due <= now:
            self.replay(peer, now)
            due = now + self.resend
        self.timers.set(ResendTimer(peer.identity), due)
        return stuck

    # -- messages that the other side refused

    def refused(self, peer: _Receiver, error: Message) -> Kept | None:
        """Return the unacknowledged message that an ERROR is about, or None (WMP-7.11)."""
        stream, fields = peer.stream, error.fields
        if stream is None or fields.get(Field.SESSION) != stream.session:
            return None
        number = fields.get(Field.ABOUT_NUMBER, 0)
        if not stream.acked < number <= stream.sent:
            return None
        kept = stream.kept[number - stream.acked - 1]
        return kept if kept.command == fields.get(Field.ABOUT) else None

    def replace(
        self,
        peer: _Receiver,
        kept: Kept,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns | None,
        size: int,
        now: float,
        *,
        last: bool = True,
    ) -> None:
        """Send another message under the number of a refused message (WMP-7.11).

        Args:
            peer: The receiver.
            kept: The refused message.
            command: Command of the other message.
            fields: Fields of the other message.
            columns: Columns of the other message.
            size: Bytes that the other message counts.
            now: Seconds.
            last: Whether the session ends when the other message is refused too.
        """
        stream = peer.stream
        assert stream is not None, "a message outside a session has no number"
        fields |= {Field.NUMBER: kept.number, Field.SESSION: stream.session}
        stream.size += size - kept.size
        self.kept_bytes += size - kept.size
        other = evolve(kept, command=command, fields=fields, columns=columns, size=size)
        other.replaced = last
        stream.kept[kept.number - stream.acked - 1] = other
        stream.fruitless = 0
        self.replay(peer, now)

    def end_session(self, peer: _Receiver) -> None:
        """Drop the kept messages of the session with the peer, because the session ends."""
        if peer.stream is not None:
            self.kept_bytes -= peer.stream.size
            self.timers.clear(ResendTimer(peer.identity))
