"""The connection of a client or worker to its server on the LMQ layer: greeting and heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import count

from attrs import define, field, frozen

from wmp.actions import Reconnect
from wmp.foreign import Emit
from wmp.gateways.round_robin.wire import LmqMessage, LmqType, write_lmq


class LmqLinkState(Enum):
    """The state of a connection."""

    CLOSED = "closed"
    """The socket is not connected yet."""
    GREETING = "greeting"
    """PING was sent, and PONG has not come."""
    OPEN = "open"
    PROBING = "probing"
    """The server was silent for ``heartbeat``, and got PING."""


_State = LmqLinkState


@frozen
class LinkTimes:
    """Times of a connection, in seconds."""

    handshake: float = 10.0
    heartbeat: float = 120.0


@define(eq=False)
class LmqLink:
    """The connection of the DEALER number 0."""

    times: LinkTimes
    state: LmqLinkState = field(default=_State.CLOSED, init=False)
    reopened: int = field(default=0, init=False)
    """Number of times that the socket was replaced."""
    _ids: Iterator[int] = field(factory=lambda: count(1), init=False)
    _ping: bytes = field(default=b"", init=False)
    """Id of the PING of the greeting."""
    _due_at: float = field(default=0.0, init=False)

    @property
    def up(self) -> bool:
        """Whether messages may be sent."""
        return self.state in (_State.OPEN, _State.PROBING)

    def deadline(self) -> float | None:
        """Return when ``ticked`` is due, None for never."""
        return None if self.state is _State.CLOSED else self._due_at

    def new_id(self) -> bytes:
        """Return an id that was not used yet."""
        return next(self._ids).to_bytes(8, "little")

    def connected(self, now: float) -> list[Emit | Reconnect]:
        """Greet the server; or replace a socket that was connected before (RR-2.1, RR-2.5)."""
        if self.state is not _State.CLOSED:
            return self.replace()
        self.state = _State.GREETING
        self._due_at = now + self.times.handshake
        self._ping = self.new_id()
        return [Emit(0, b"", write_lmq(LmqType.PING, self._ping))]

    def replace(self) -> list[Emit | Reconnect]:
        """Replace the socket."""
        self.state = _State.CLOSED
        self.reopened += 1
        return [Reconnect(0)]

    def arrived(self, message: LmqMessage, now: float) -> tuple[bool, list[Emit]]:
        """Take a message.

        Returns:
            Whether the server has just answered the greeting, and the actions.
        """
        if message.type is LmqType.PING and self.state is not _State.CLOSED:
            back = message.hops[::-1]
            answer = [Emit(0, b"", write_lmq(LmqType.PONG, message.id, to=back))]
        else:
            answer = []
        opened = (
            self.state is _State.GREETING
            and message.type is LmqType.PONG
            and message.id == self._ping
        )
        if opened or self.up:
            self.state = _State.OPEN
            self._due_at = now + self.times.heartbeat
        return opened, answer

    def ticked(self, now: float) -> list[Emit | Reconnect]:
        """Do what is due."""
        if self.state is _State.CLOSED or now < self._due_at:
            return []
        if self.state is _State.OPEN:
            self.state = _State.PROBING
            self._due_at = now + self.times.handshake
            return [Emit(0, b"", write_lmq(LmqType.PING, self.new_id()))]
        return self.replace()
