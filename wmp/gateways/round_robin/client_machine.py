"""The client of round robin as a machine: many messages in progress, each with an id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final, assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, Halt
from wmp.core.protocol.timers import Timers
from wmp.events import Closed, Connected, Drained, Ticked
from wmp.foreign import (
    Arrived,
    Emit,
    EndRequest,
    ForeignAction,
    ForeignClientEvent,
    Frames,
    Requested,
    Unsent,
    Withdrawn,
)
from wmp.gateways.round_robin.lmq_link import LinkTimes, LmqLink
from wmp.gateways.round_robin.wire import LmqType, read_lmq, write_lmq

_RETRY: Final = 0.02
"""Seconds until messages are sent again that did not fit into the pipe."""

_FEW: Final = 64
"""Number of messages that are then sent at first; the number doubles until all fit."""


@frozen
class RoundRobinClientStatistics:
    """Counts of a client of round robin; a snapshot."""

    requests: int
    replies: int
    abandoned: int
    """Number of messages that ended without a reply."""
    reopened: int
    """Number of times that the socket was replaced."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


@define(eq=False)
class RoundRobinClientMachine:
    """Sans-I/O client, on the DEALER number 0.

    The first frame of a ``Requested`` is the type of the message: EXEC or TRACKEXEC.

    Args:
        timeout: Seconds within which the RESPONSE must come.
        times: Times of the connection.
    """

    timeout: float = 15.0
    times: LinkTimes = field(factory=LinkTimes)
    settings: None = field(default=None, init=False)
    _link: LmqLink = field(init=False)
    _waiting: dict[int, Requested] = field(factory=dict, init=False)
    """Messages that wait for the connection, by number, the oldest first."""
    _again: dict[int, Requested] = field(factory=dict, init=False)
    """Messages that did not fit into the pipe. They are older than those of ``_waiting``."""
    _full_until: float | None = field(default=None, init=False)
    """When the messages that did not fit into the pipe are sent again."""
    _maximum: int | None = field(default=None, init=False)
    """Maximum number of messages that are sent at a time after the pipe was full."""
    _old: Iterator[int] = field(factory=lambda: count(-1, -1), init=False)
    """Numbers of EXECs that ended for the application, and were not sent."""
    _until: dict[int, float] = field(factory=dict, init=False)
    """The ends of the times of these EXECs, by number."""
    _tried: dict[bytes, float] = field(factory=dict, init=False)
    """The ends of the times of those that were sent again last, by id."""
    _sent: dict[bytes, int] = field(factory=dict, init=False)
    """Numbers of the TRACKEXECs without a RESPONSE, by their ids."""
    _ids: dict[int, bytes] = field(factory=dict, init=False)
    """The ids of all messages in progress, by number; empty for a message that waits."""
    _timers: Timers[int] = field(factory=Timers, init=False)
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _requests: int = field(default=0, init=False)
    _replies: int = field(default=0, init=False)
    _abandoned: int = field(default=0, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        self._link = LmqLink(self.times)

    @property
    def up(self) -> bool:
        """Whether the server has answered the greeting."""
        return self._link.up

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        if self._halted:
            return None
        times = (self._link.deadline(), self._timers.next(), self._full_until)
        return min((due for due in times if due is not None), default=None)

    def handle(self, event: ForeignClientEvent, now: float) -> list[ForeignAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[ForeignAction] = []
        match event:
            case Requested(id, _):
                self._requests += 1
                self._ids[id] = b""
                self._timers.set(id, now + self.timeout)
                self._waiting[id] = event
            case Arrived(_, _, frames):
                self._arrived(frames, now, actions)
            case Connected():
                actions += self._link.connected(now)
            case Unsent(_, _, frames):
                self._unsent(frames, now, actions)
            case Ticked():
                actions += self._link.ticked(now)
                if self._full_until is not None and now >= self._full_until:
                    self._full_until = None
                for number in self._timers.due(now):
                    self._forget(number)
                    if number < 0:
                        actions.append(self._drop("not sent"))
                    else:
                        self._abandoned += 1
                        actions.append(EndRequest(number, None, 1))
            case Withdrawn(ids):
                for number in ids:
                    self._forget(number)
            case Drained():
                self._draining = True
            case Closed():
                self._halt(actions)
                return actions
            case _:
                assert_never(event)
        if (self._waiting or self._again) and self._link.up and self._full_until is None:
            self._send(now, actions)
        if self._draining and not self._ids:
            self._halt(actions)
        return actions

    def statistics(self) -> RoundRobinClientStatistics:
        """Return a snapshot for people and programs."""
        return RoundRobinClientStatistics(
            self._requests,
            self._replies,
            self._abandoned,
            self._link.reopened,
            dict(self._dropped),
        )

    def _send(self, now: float, actions: list[ForeignAction]) -> None:
        requests = [*self._again.values(), *self._waiting.values()]
        if self._maximum is not None and len(requests) > self._maximum:
            del requests[self._maximum :]
            self._maximum *= 2
            self._full_until = now + _RETRY
        else:
            self._maximum = None
        self._tried.clear()
        for request in requests:
            self._again.pop(request.id, None)
            self._waiting.pop(request.id, None)
            type = LmqType(request.frames[0][0])
            id = self._link.new_id()
            actions.append(Emit(0, b"", write_lmq(type, id, request.frames[1:])))
            if type is LmqType.EXEC:
                if request.id < 0:
                    self._tried[id] = self._until[request.id]
                self._forget(request.id)
                if request.id > 0:
                    actions.append(EndRequest(request.id, (), 1))  # RR-7.3
            else:
                self._ids[request.id] = id
                self._sent[id] = request.id

    def _arrived(self, frames: Frames, now: float, actions: list[ForeignAction]) -> None:
        message = read_lmq(frames)
        if message is None or message.addresses:
            actions.append(self._drop("invalid"))
            return
        _, answer = self._link.arrived(message, now)
        actions += answer
        if message.type is LmqType.RESPONSE:
            number = self._sent.get(message.id)
            if number is None:
                actions.append(self._drop("other reply"))  # RR-7.2
            else:
                self._replies += 1
                self._forget(number)
                actions.append(EndRequest(number, message.arguments, 1))
        elif message.type in (LmqType.EXEC, LmqType.TRACKEXEC):
            actions.append(self._drop("a client does no messages"))

    def _unsent(self, frames: Frames, now: float, actions: list[ForeignAction]) -> None:
        """Keep a message that did not fit into the pipe, and send it again (RR-7.4)."""
        message = read_lmq(frames)
        if message is None or message.type not in (LmqType.EXEC, LmqType.TRACKEXEC):
            actions.append(self._drop("not sent"))
            return
        if message.type is LmqType.EXEC:
            number = next(self._old)
            until = self._until[number] = self._tried.pop(message.id, now + self.timeout)
            self._timers.set(number, until)
        elif (number := self._sent.pop(message.id, 0)) == 0:
            return  # the message has ended
        self._ids[number] = b""
        kind = bytes((message.type,))
        self._again[number] = Requested(number, (kind, *message.arguments))
        self._full_until, self._maximum = now + _RETRY, _FEW

    def _forget(self, number: int) -> None:
        id = self._ids.pop(number, None)
        self._timers.clear(number)
        if id:
            del self._sent[id]
        self._waiting.pop(number, None)
        self._again.pop(number, None)
        self._until.pop(number, None)

    def _halt(self, actions: list[ForeignAction]) -> None:
        self._halted = True
        actions.append(Halt(None))

    def _drop(self, reason: str) -> Drop:
        self._dropped[reason] += 1
        return Drop(reason)
