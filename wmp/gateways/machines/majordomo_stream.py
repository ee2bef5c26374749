"""The asynchronous client of Majordomo as a machine: many requests on one socket, no second try.

A reply has no number. So the machine cannot know which requests a silent broker lost: after a
silence it counts all of them as lost, and replaces the socket.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final, assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, Halt, Reconnect
from wmp.events import Begun, Closed, Connected, Drained, Finished, Recalled, Reported, Ticked
from wmp.foreign import (
    Answer,
    Arrived,
    Dismissed,
    Emit,
    ForeignAction,
    ForeignEvent,
    Left,
    Of,
    Requested,
    Settled,
    Unsent,
    Withdrawn,
)
from wmp.gateways.machines.majordomo_wire import read_reply, write_request

__all__ = ["MajordomoStreamMachine", "MajordomoStreamStatistics"]

_LOST: Final = 0
"""Number of the answer that stands for requests without replies."""


@frozen
class MajordomoStreamStatistics:
    """Counts of an asynchronous client; a snapshot."""

    requests: int
    replies: int
    lost: int
    """Number of requests that were sent and got no reply within the time."""
    waiting: int
    """Number of requests that were not sent yet."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


@define(eq=False)
class MajordomoStreamMachine:
    """Sans-I/O asynchronous client, on the DEALER number 0.

    The frames of a request are the name of the service and the body. Each reply is an ``Answer``
    with the number 1 and the same frames. An ``Answer`` with the number 0 has no frames: its
    ``tries`` is the number of requests that count as lost.

    Args:
        timeout: Seconds without a reply after which the requests that were sent count as lost.
        window: Largest number of requests that were sent and have no reply.
    """

    timeout: float = 7.5
    window: int = 500
    settings: None = field(default=None, init=False)
    _queue: deque[Requested] = field(factory=deque, init=False)
    """The requests that were not sent yet."""
    _sent: int = field(default=0, init=False)
    """Number of requests that were sent and have no reply."""
    _up: bool = field(default=False, init=False)
    _silent_at: float = field(default=0.0, init=False)
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _requests: int = field(default=0, init=False)
    _replies: int = field(default=0, init=False)
    _lost: int = field(default=0, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        return self._silent_at if self._sent and not self._halted else None

    def handle(self, event: ForeignEvent, now: float) -> list[ForeignAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[ForeignAction] = []
        match event:
            case Requested():
                self._requests += 1
                self._queue.append(event)
            case Arrived(_, _, frames):
                reply = read_reply(frames)
                if reply is None or not self._sent:
                    actions.append(self._drop("invalid" if reply is None else "no request"))
                else:
                    self._sent -= 1
                    self._replies += 1
                    self._silent_at = now + self.timeout
                    actions.append(Answer(1, (reply[0], *reply[1]), 1))
            case Connected():
                self._up = True
            case Unsent():
                self._up = False
                self._lose(1, actions)
                actions.append(self._drop("not sent"))
            case Ticked():
                if self._sent and now >= self._silent_at:
                    self._lose(self._sent, actions)
                    self._up = False
                    actions.append(Reconnect(0))
            case Drained():
                self._draining = True
            case Closed():
                self._halt(actions)
                return actions
            case Withdrawn() | Begun() | Finished() | Recalled() | Reported():
                pass  # The application withdraws no request, and a client has no handlers.
            case Left() | Dismissed() | Of() | Settled():
                pass  # A client has no ROUTER and no workers.
            case _:
                assert_never(event)
        while self._up and self._queue and self._sent < self.window:
            request = self._queue.popleft()
            if not self._sent:
                self._silent_at = now + self.timeout
            self._sent += 1
            frames = write_request(bytes(request.frames[0]), request.frames[1:])
            actions.append(Emit(0, b"", frames))
        if self._draining and not self._queue and not self._sent:
            self._halt(actions)
        return actions

    def statistics(self) -> MajordomoStreamStatistics:
        """Return a snapshot for people and programs."""
        return MajordomoStreamStatistics(
            self._requests, self._replies, self._lost, len(self._queue), dict(self._dropped)
        )

    def _lose(self, count: int, actions: list[ForeignAction]) -> None:
        """Count requests as lost."""
        count = min(count, self._sent)
        if count:
            self._sent -= count
            self._lost += count
            actions.append(Answer(_LOST, None, count))

    def _halt(self, actions: list[ForeignAction]) -> None:
        self._halted = True
        actions.append(Halt(None))

    def _drop(self, reason: str) -> Drop:
        self._dropped[reason] += 1
        return Drop(reason)
