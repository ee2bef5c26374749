"""The queue, the counts and the end that all clients share which send a request again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, Halt
from wmp.events import Closed, Connected, Drained, Ticked
from wmp.foreign import (
    Arrived,
    ForeignAction,
    ForeignClientEvent,
    Frames,
    Left,
    Requested,
    Unsent,
    Withdrawn,
)


@frozen
class LazyClientStatistics:
    """Counts of a Lazy Pirate client; a snapshot."""

    requests: int
    replies: int
    resent: int
    """Number of times that a request was sent again."""
    abandoned: int
    """Number of requests that ended without a reply."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


@define(eq=False)
class RequestClient(ABC):
    """Sans-I/O client whose requests wait in one queue, and end with a reply or without."""

    settings: None = field(default=None, init=False)
    _queue: deque[Requested] = field(factory=deque, init=False)
    """The requests that have not begun, oldest first. Where requests go out one after the other,
    the request in progress is the first of them."""
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _requests: int = field(default=0, init=False)
    _replies: int = field(default=0, init=False)
    _resent: int = field(default=0, init=False)
    _abandoned: int = field(default=0, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def handle(self, event: ForeignClientEvent, now: float) -> list[ForeignAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[ForeignAction] = []
        match event:
            case Requested():
                self._requests += 1
                self._queue.append(event)
            case Arrived(port, _, frames):
                self._arrived(port, frames, actions)
            case Connected(link):
                assert isinstance(link, int)  # a client has DEALERs
                self._connected(link, actions)
            case Unsent(port):
                self._unsent(port)
                actions.append(self._drop("not sent"))
            case Left(port):
                self._lost(port, now, actions)
            case Ticked():
                self._ticked(now, actions)
            case Withdrawn(ids):
                self._withdraw(frozenset(ids), actions)
            case Drained():
                self._draining = True
            case Closed():
                self._halt(actions)
                return actions
            case _:
                assert_never(event)
        self._begin(now, actions)
        if self._draining and not self._queue and not self._busy:
            self._halt(actions)
        return actions

    def statistics(self) -> LazyClientStatistics:
        """Return a snapshot for people and programs."""
        return LazyClientStatistics(
            self._requests, self._replies, self._resent, self._abandoned, dict(self._dropped)
        )

    @property
    def _busy(self) -> bool:
        """Whether a request that has left the queue is in progress."""
        return False

    # -- what a subclass defines

    @abstractmethod
    def _begin(self, now: float, actions: list[ForeignAction]) -> None:
        """Begin the first try of the requests whose turn it is."""

    @abstractmethod
    def _arrived(self, port: int, frames: Frames, actions: list[ForeignAction]) -> None:
        """Take a message of a socket."""

    @abstractmethod
    def _connected(self, port: int, actions: list[ForeignAction]) -> None:
        """Send the request that waited for a socket."""

    @abstractmethod
    def _unsent(self, port: int) -> None:
        """Record that a socket could not send a request."""

    def _lost(self, port: int, now: float, actions: list[ForeignAction]) -> None:
        """Note that the connection of a socket ended. By default the time of a try decides."""
        return

    @abstractmethod
    def _ticked(self, now: float, actions: list[ForeignAction]) -> None:
        """End the tries whose time is over."""

    @abstractmethod
    def _withdraw(self, ids: Collection[int], actions: list[ForeignAction]) -> None:
        """Forget requests whose replies are not wanted."""

    # -- what a subclass uses

    def _halt(self, actions: list[ForeignAction]) -> None:
        self._halted = True
        actions.append(Halt(None))

    def _drop(self, reason: str) -> Drop:
        self._dropped[reason] += 1
        return Drop(reason)
