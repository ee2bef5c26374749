"""The agent of Freelance (10/FLP) as a machine: requests go to the first server that is alive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, Halt, Reconnect
from wmp.events import (
    Closed,
    Connected,
    Drained,
    Ticked,
)
from wmp.foreign import (
    Arrived,
    Emit,
    EndRequest,
    ForeignAction,
    ForeignClientEvent,
    Frames,
    Left,
    Requested,
    Unsent,
    Withdrawn,
)
from wmp.gateways.common.body import MAX_FRAMES
from wmp.gateways.freelance.wire import PING, PONG

_NEVER: Final = float("inf")


@frozen
class AgentClientStatistics:
    """Counts of an agent; a snapshot."""

    requests: int
    replies: int
    waiting: int
    """Number of requests in progress."""
    resent: int
    """Number of times that a request was sent again."""
    abandoned: int
    """Number of requests that ended without a reply."""
    alive: tuple[int, ...]
    """Numbers of the servers that are alive, in their order."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


@define(eq=False)
class _AgentServer:
    alive: bool = False
    connected: bool = False
    ping_at: float = _NEVER
    silent_at: float = _NEVER
    """When the silence of the connection is too long."""


@define(eq=False)
class _AgentRequest:
    id: int
    frames: Frames
    ends_at: float
    tried: set[int] = field(factory=set)
    """Servers to which the request went on their present connections."""
    server: int | None = None
    """The server whose reply is expected; None while the request waits for a server."""
    sent: int = 0


@define(eq=False)
class AgentClientMachine:
    """Sans-I/O client, with a DEALER for each server (specs/freelance.md, 4).

    Args:
        timeout: Seconds within which a reply must come.
        ping: Seconds without a message of a server after which PING is sent.
        ttl: Seconds without a message after which a server is not alive any more.
    """

    timeout: float = 3.0
    ping: float = 2.0
    ttl: float = 6.0
    settings: None = field(default=None, init=False)
    _servers: dict[int, _AgentServer] = field(factory=dict, init=False)
    """The servers by the numbers of their sockets, which is their order."""
    _calls: dict[bytes, _AgentRequest] = field(factory=dict, init=False)
    """The requests in progress by their sequences, oldest first."""
    _sequence: int = field(default=0, init=False)
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _replies: int = field(default=0, init=False)
    _resent: int = field(default=0, init=False)
    _abandoned: int = field(default=0, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        if self._halted:
            return None
        due = min(
            (min(server.ping_at, server.silent_at) for server in self._servers.values()),
            default=_NEVER,
        )
        oldest = next(iter(self._calls.values()), None)
        if oldest is not None:
            due = min(due, oldest.ends_at)
        return None if due == _NEVER else due

    def handle(self, event: ForeignClientEvent | Left, now: float) -> list[ForeignAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[ForeignAction] = []
        match event:
            case Requested(id, frames):
                self._sequence += 1
                sequence = b"%d" % self._sequence
                call = self._calls[sequence] = _AgentRequest(
                    id, (sequence, *frames), now + self.timeout
                )
                self._send(call, actions)
            case Arrived(port, _, frames):
                self._arrived(port, frames, now, actions)
            case Connected(link):
                assert isinstance(link, int)  # a client has DEALERs
                self._connected(link, now, actions)
            case Left(port):
                self._lose(port, connected=False, actions=actions)
            case Unsent(port):
                actions.append(self._drop("not sent"))
                self._unsent(port, actions)
            case Ticked():
                self._ticked(now, actions)
            case Withdrawn(ids):
                unwanted = frozenset(ids)
                for sequence in [key for key, call in self._calls.items() if call.id in unwanted]:
                    del self._calls[sequence]
            case Drained():
                self._draining = True
            case Closed():
                self._halted = True
                actions.append(Halt(None))
                return actions
            case _:
                assert_never(event)
        if self._draining and not self._calls:
            self._halted = True
            actions.append(Halt(None))
        return actions

    def statistics(self) -> AgentClientStatistics:
        """Return a snapshot for people and programs."""
        return AgentClientStatistics(
            self._sequence,
            self._replies,
            len(self._calls),
            self._resent,
            self._abandoned,
            tuple(port for port, server in sorted(self._servers.items()) if server.alive),
            dict(self._dropped),
        )

    # -- servers

    def _connected(self, port: int, now: float, actions: list[ForeignAction]) -> None:
        """Begin with a new connection (FREE-4.1)."""
        server = self._servers.setdefault(port, _AgentServer())
        server.connected, server.silent_at = True, now + self.ttl
        for call in self._calls.values():
            call.tried.discard(port)
        self._ping(port, server, now, actions)

    def _ping(
        self, port: int, server: _AgentServer, now: float, actions: list[ForeignAction]
    ) -> None:
        server.ping_at = now + self.ping
        actions.append(Emit(port, b"", (PING,)))

    def _lose(self, port: int, *, connected: bool, actions: list[ForeignAction]) -> None:
        """Give the requests of a server that is not alive any more to others (FREE-4.4)."""
        server = self._servers.get(port)
        if server is None:
            return
        server.alive, server.connected = False, connected
        server.silent_at = _NEVER
        if not connected:
            server.ping_at = _NEVER
        self._move(port, actions)

    def _unsent(self, port: int, actions: list[ForeignAction]) -> None:
        """Take requests back from a server that did not take them.

        Which request was not sent is not known. The server runs a repeated request once (FREE-5.5).
        """
        server = self._servers.get(port)
        if server is None:
            return
        server.alive = False  # until its next message
        for call in self._calls.values():
            call.tried.discard(port)
        self._move(port, actions)

    def _move(self, port: int, actions: list[ForeignAction]) -> None:
        for call in self._calls.values():
            if call.server == port:
                call.server = None
                self._send(call, actions)

    def _ticked(self, now: float, actions: list[ForeignAction]) -> None:
        for port, server in sorted(self._servers.items()):
            if server.silent_at <= now:
                # FREE-4.8: the connection may be dead although no end has noticed.
                actions.append(Reconnect(port))
                self._lose(port, connected=False, actions=actions)
            elif server.ping_at <= now:
                self._ping(port, server, now, actions)
        while (oldest := next(iter(self._calls), None)) is not None:
            call = self._calls[oldest]
            if call.ends_at > now:
                break
            del self._calls[oldest]
            self._abandoned += 1
            actions.append(EndRequest(call.id, None, call.sent))

    # -- requests

    def _send(self, call: _AgentRequest, actions: list[ForeignAction]) -> None:
        """Send a request to the first server that is alive (FREE-4.3)."""
        for port, server in sorted(self._servers.items()):
            if server.alive and port not in call.tried:
                call.tried.add(port)
                call.server = port
                self._resent += call.sent > 0
                call.sent += 1
                actions.append(Emit(port, b"", call.frames))
                return

    def _arrived(self, port: int, frames: Frames, now: float, actions: list[ForeignAction]) -> None:
        server = self._servers.get(port)
        if server is None or not server.connected:
            actions.append(self._drop("no connection"))
            return
        server.ping_at, server.silent_at = now + self.ping, now + self.ttl
        if 2 <= len(frames) <= MAX_FRAMES:
            self._reply(frames, actions)
        elif len(frames) != 1 or frames[0] != PONG:
            actions.append(self._drop("invalid"))
        if not server.alive:
            server.alive = True
            for call in self._calls.values():
                if call.server is None:
                    self._send(call, actions)

    def _reply(self, frames: Frames, actions: list[ForeignAction]) -> None:
        call = self._calls.pop(bytes(frames[0]), None)
        if call is None:
            actions.append(self._drop("no request"))  # FREE-4.6
            return
        self._replies += 1
        actions.append(EndRequest(call.id, frames[1:], call.sent))

    def _drop(self, reason: str) -> Drop:
        self._dropped[reason] += 1
        return Drop(reason)
