"""The shotgun client of Freelance as a machine: a request goes to all servers at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, Halt
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
    Requested,
    Unsent,
    Withdrawn,
)
from wmp.gateways.common.body import MAX_FRAMES


@frozen
class ShotgunClientStatistics:
    """Counts of a shotgun client; a snapshot."""

    requests: int
    replies: int
    waiting: int
    """Number of requests in progress."""
    abandoned: int
    """Number of requests that ended without a reply."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


@define(eq=False)
class _Shot:
    id: int
    frames: Frames
    ends_at: float
    sent: int = 0
    """Number of times that the request was sent."""


@define(eq=False)
class ShotgunClientMachine:
    """Sans-I/O client, with a DEALER for each server (specs/freelance.md, 3).

    Args:
        timeout: Seconds within which a reply must come.
    """

    timeout: float = 2.5
    settings: None = field(default=None, init=False)
    _shots: dict[bytes, _Shot] = field(factory=dict, init=False)
    """The requests in progress by their sequences, oldest first."""
    _up: set[int] = field(factory=set, init=False)
    """The sockets that were connected once."""
    _sequence: int = field(default=0, init=False)
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _replies: int = field(default=0, init=False)
    _abandoned: int = field(default=0, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        oldest = next(iter(self._shots.values()), None)
        return None if self._halted or oldest is None else oldest.ends_at

    def handle(self, event: ForeignClientEvent, now: float) -> list[ForeignAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[ForeignAction] = []
        match event:
            case Requested(id, frames):
                self._sequence += 1
                sequence = b"%d" % self._sequence
                shot = self._shots[sequence] = _Shot(
                    id, (b"", sequence, *frames), now + self.timeout
                )
                for port in sorted(self._up):
                    self._send(port, shot, actions)
            case Arrived(_, _, frames):
                self._arrived(frames, actions)
            case Connected(link):
                assert isinstance(link, int)  # a client has DEALERs
                self._up.add(link)
                for shot in self._shots.values():
                    self._send(link, shot, actions)  # FREE-3.4
            case Unsent():
                actions.append(self._drop("not sent"))
            case Ticked():
                while (due := self.deadline()) is not None and due <= now:
                    self._abandon(actions)
            case Withdrawn(ids):
                unwanted = frozenset(ids)
                for sequence in [key for key, shot in self._shots.items() if shot.id in unwanted]:
                    del self._shots[sequence]
            case Drained():
                self._draining = True
            case Closed():
                self._halted = True
                actions.append(Halt(None))
                return actions
            case _:
                assert_never(event)
        if self._draining and not self._shots:
            self._halted = True
            actions.append(Halt(None))
        return actions

    def statistics(self) -> ShotgunClientStatistics:
        """Return a snapshot for people and programs."""
        return ShotgunClientStatistics(
            self._sequence, self._replies, len(self._shots), self._abandoned, dict(self._dropped)
        )

    def _send(self, port: int, shot: _Shot, actions: list[ForeignAction]) -> None:
        shot.sent += 1
        actions.append(Emit(port, b"", shot.frames))  # FREE-3.1

    def _arrived(self, frames: Frames, actions: list[ForeignAction]) -> None:
        if not 3 <= len(frames) <= MAX_FRAMES or frames[0]:
            actions.append(self._drop("invalid"))
            return
        shot = self._shots.pop(bytes(frames[1]), None)
        if shot is None:
            actions.append(self._drop("no request"))  # FREE-3.2
            return
        self._replies += 1
        actions.append(EndRequest(shot.id, frames[2:], shot.sent))

    def _abandon(self, actions: list[ForeignAction]) -> None:
        """End the oldest request without a reply."""
        shot = self._shots.pop(next(iter(self._shots)))
        self._abandoned += 1
        actions.append(EndRequest(shot.id, None, shot.sent))

    def _drop(self, reason: str) -> Drop:
        self._dropped[reason] += 1
        return Drop(reason)
