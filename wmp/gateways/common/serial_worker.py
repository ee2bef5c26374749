"""The worker that does one request at a time, as a machine: the part that no protocol changes.

The workers of the Pirate patterns and of ping-pong share it with the worker of Majordomo. Each
adds its connections and signs of life. The states are those of
:mod:`wmp.gateways.common.worker_lifecycle`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final, assert_never

from attrs import define, evolve, field, frozen

from wmp.actions import Drop, Halt, Run
from wmp.events import Closed, Connected, Drained, Finished, Ticked
from wmp.foreign import (
    Arrived,
    Emit,
    ForeignAction,
    ForeignWorkerEvent,
    Frames,
    Unsent,
)
from wmp.gateways.common.body import to_payload
from wmp.gateways.common.worker_lifecycle import (
    TRANSITIONS,
    ForeignWorkerInput,
    ForeignWorkerState,
)
from wmp.message import Kind, Peer

PEER_OF_FOREIGN_JOBS: Final[Peer] = (b"", 0)
"""The owner of a job that no WMP manager submitted."""

NO_READY: Final = "no READY on this connection"
"""The reason to drop what a peer sends before the worker's READY."""


@frozen
class ForeignWorkerStatistics:
    """Counts of a worker of another protocol; a snapshot."""

    requests: int
    replies: int
    failed: int
    """Number of requests without a reply, because the handler failed."""
    reopened: int
    """Number of times that the socket was replaced."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


@define(eq=False)
class SerialWorkerMachine(ABC):
    """Sans-I/O worker, on the DEALER number 0.

    Args:
        kind: Kind of the jobs. The codec is ``frames`` for a body of several frames.
        as_list: Whether the handler gets a list also for a body of one frame.
        limit: Maximum number of requests that wait for the handler.
    """

    kind: Kind = field(factory=Kind, kw_only=True)
    as_list: bool = field(default=False, kw_only=True)
    limit: int = field(default=1000, kw_only=True)
    settings: None = field(default=None, init=False)
    state: ForeignWorkerState = field(default=ForeignWorkerState.CLOSED, init=False)
    _backlog: deque[tuple[Frames, Frames]] = field(factory=deque, init=False)
    """Envelope and body of each request that waits."""
    _envelope: Frames = field(default=(), init=False)
    """The frames by which the peer knows whose request the reply answers."""
    _codec: str = field(default="", init=False)
    _running: bool = field(default=False, init=False)
    _job: int = field(default=0, init=False)
    """Number of the newest job, and of its lane."""
    _sign_at: float = field(default=0.0, init=False)
    """When the worker's next sign of life is due."""
    _silent_at: float = field(default=0.0, init=False)
    """When a peer that sends nothing counts as dead."""
    _due_at: float = field(default=0.0, init=False)
    """When the wait before a new connection ends."""
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _replies: int = field(default=0, init=False)
    _failed: int = field(default=0, init=False)
    _reopened: int = field(default=0, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    @abstractmethod
    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""

    def handle(self, event: ForeignWorkerEvent, now: float) -> list[ForeignAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[ForeignAction] = []
        match event:
            case Arrived(_, _, frames):
                self._arrived(frames, now, actions)
            case Connected():
                self._connected(now, actions)
            case Finished():
                self._finished(event, now, actions)
            case Ticked():
                self._ticked(now, actions)
            case Unsent():
                actions.append(self._drop("not sent"))
            case Drained():
                self._drain(actions)
            case Closed():
                self._halt(actions)
            case _:
                assert_never(event)
        return actions

    def statistics(self) -> ForeignWorkerStatistics:
        """Return a snapshot for people and programs."""
        return ForeignWorkerStatistics(
            self._job, self._replies, self._failed, self._reopened, dict(self._dropped)
        )

    # -- what each protocol adds

    @abstractmethod
    def _arrived(self, frames: Frames, now: float, actions: list[ForeignAction]) -> None:
        """Read a message of the peer."""

    @abstractmethod
    def _connected(self, now: float, actions: list[ForeignAction]) -> None:
        """Begin a connection."""

    @abstractmethod
    def _ticked(self, now: float, actions: list[ForeignAction]) -> None:
        """Send the signs that are due, and give a silent peer up."""

    @abstractmethod
    def _reply(self, event: Finished, now: float, actions: list[ForeignAction]) -> None:
        """Send what follows the end of the handler: a reply, or what stands for no reply."""

    @abstractmethod
    def _goodbye(self) -> Frames | None:
        """Return the last message to the peer; None for no message."""

    # -- one request at a time

    def _step(self, what: ForeignWorkerInput) -> bool:
        """Change the state by the table; return whether the table has this change."""
        target = TRANSITIONS.get((self.state, what))
        if target is None:
            return False
        self.state = target
        return True

    def _take(self, envelope: Frames, body: Frames, actions: list[ForeignAction]) -> None:
        """Begin a request; a request that arrives while the handler runs waits."""
        if not self._running:
            self._begin(envelope, body, actions)
        elif len(self._backlog) < self.limit:
            self._backlog.append((envelope, body))
        else:
            actions.append(self._drop("limit"))

    def _begin(self, envelope: Frames, body: Frames, actions: list[ForeignAction]) -> None:
        self._job += 1
        self._running = True
        self._envelope = envelope
        self._codec, payload = to_payload(body, as_list=self.as_list)
        kind = evolve(self.kind, codec=self._codec)
        run = Run(self._job, kind, PEER_OF_FOREIGN_JOBS, (self._job,), (1,), None, (payload,))
        actions.append(run)

    def _finished(self, event: Finished, now: float, actions: list[ForeignAction]) -> None:
        if event.lane != self._job or not self._running:
            actions.append(self._drop("no such request"))
            return
        self._running = False
        self._step(ForeignWorkerInput.FINISHED)
        self._reply(event, now, actions)
        if self._backlog:
            self._step(ForeignWorkerInput.REQUEST)
            self._begin(*self._backlog.popleft(), actions)
        else:
            self._end_if_drained(actions)

    # -- the end

    def _drain(self, actions: list[ForeignAction]) -> None:
        self._draining = True
        self._end_if_drained(actions)

    def _end_if_drained(self, actions: list[ForeignAction]) -> None:
        if self._draining and not self._running:
            self._halt(actions)

    def _halt(self, actions: list[ForeignAction]) -> None:
        self._halted = True
        goodbye = self._goodbye()
        if goodbye is not None:
            actions.append(Emit(0, b"", goodbye))
        actions.append(Halt(None))

    def _drop(self, reason: str) -> Drop:
        self._dropped[reason] += 1
        return Drop(reason)
