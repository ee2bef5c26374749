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
from wmp.events import Closed, Connected, Drained, Ticked
from wmp.foreign import (
    Arrived,
    Emit,
    EndRequest,
    ForeignAction,
    Frames,
    Requested,
    Unsent,
)
from wmp.gateways.majordomo.wire import read_reply, write_request

_LOST: Final = 0
"""Number of the answer that stands for requests without replies."""


@frozen
class MajordomoPipelinedStatistics:
    """Counts of an asynchronous client; a snapshot."""

    requests: int
    replies: int
    lost: int
    """Number of requests that were sent and got no reply within the time."""
    waiting: int
    """Number of requests that were not sent yet."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


PipelinedEvent = Arrived | Unsent | Connected | Requested | Ticked | Drained | Closed
"""The application withdraws no request."""


@define(eq=False)
class MajordomoPipelinedMachine:
    """Sans-I/O asynchronous client, on the DEALER number 0.

    The frames of a request are the name of the service and the body. Each reply is an
    ``EndRequest`` with the number 1 and the same frames. An ``EndRequest`` with the number 0 has no
    frames: its ``tries`` is the number of requests that count as lost.

    Args:
        timeout: Seconds without a reply after which the requests that were sent count as lost.
        window: Maximum number of requests that were sent and have no reply.
    """

    timeout: float = 7.5
    window: int = 500
    settings: None = field(default=None, init=False)
    _queue: deque[Requested] = field(factory=deque, init=False)
    """The requests that were not sent yet."""
    _sent: int = field(default=0, init=False)
    """Number of requests that were sent and have no reply."""
    _sent_to: Counter[bytes] = field(factory=Counter, init=False)
    """The same number for each service."""
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

    def handle(self, event: PipelinedEvent, now: float) -> list[ForeignAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[ForeignAction] = []
        match event:
            case Requested():
                self._requests += 1
                self._queue.append(event)
            case Arrived(_, _, frames):
                self._arrived(read_reply(frames), now, actions)
            case Connected():
                if self._sent:
                    # ZeroMQ connected the socket again, and no reply can come from the connection
                    # that ended (MDP-6.6).
                    self._begin_anew(actions)
                else:
                    self._up = True
            case Unsent():
                actions.append(self._drop("not sent"))
                if self._up:
                    self._begin_anew(actions)
            case Ticked():
                if self._sent and now >= self._silent_at:
                    self._begin_anew(actions)
            case Drained():
                self._draining = True
            case Closed():
                self._halt(actions)
                return actions
            case _:
                assert_never(event)
        while self._up and self._queue and self._sent < self.window:
            request = self._queue.popleft()
            if not self._sent:
                self._silent_at = now + self.timeout
            self._sent += 1
            service = bytes(request.frames[0])
            self._sent_to[service] += 1
            frames = write_request(service, request.frames[1:])
            actions.append(Emit(0, b"", frames))
        if self._draining and not self._queue and not self._sent:
            self._halt(actions)
        return actions

    def statistics(self) -> MajordomoPipelinedStatistics:
        """Return a snapshot for people and programs."""
        return MajordomoPipelinedStatistics(
            self._requests, self._replies, self._lost, len(self._queue), dict(self._dropped)
        )

    def _arrived(
        self, reply: tuple[bytes, Frames] | None, now: float, actions: list[ForeignAction]
    ) -> None:
        if reply is None:
            actions.append(self._drop("invalid"))
            return
        service, body = reply
        count = self._sent_to.get(service, 0)
        if not count:
            # MDP-6.5
            actions.append(self._drop("other service" if self._sent else "no request"))
            return
        if count == 1:
            del self._sent_to[service]
        else:
            self._sent_to[service] = count - 1
        self._sent -= 1
        self._replies += 1
        self._silent_at = now + self.timeout
        actions.append(EndRequest(1, (service, *body), 1))

    def _begin_anew(self, actions: list[ForeignAction]) -> None:
        """Count the requests that were sent as lost, and replace the socket."""
        self._up = False
        if self._sent:
            self._lost += self._sent
            actions.append(EndRequest(_LOST, None, self._sent))
            self._sent = 0
            self._sent_to.clear()
        actions.append(Reconnect(0))

    def _halt(self, actions: list[ForeignAction]) -> None:
        self._halted = True
        actions.append(Halt(None))

    def _drop(self, reason: str) -> Drop:
        self._dropped[reason] += 1
        return Drop(reason)
