"""The server of Lazy Pirate clients, and of those of Freelance, as a machine for handlers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import assert_never

from attrs import define, evolve, field, frozen

from wmp.actions import Drop, Halt, Interrupt, Run
from wmp.events import (
    Closed,
    Drained,
    Finished,
)
from wmp.foreign import (
    Arrived,
    Emit,
    ForeignAction,
    ForeignServerEvent,
    Frames,
    Left,
    Unsent,
)
from wmp.gateways.common.body import explain_invalid, result_body, to_payload
from wmp.gateways.common.client_wire import ClientWire, ReqWire
from wmp.gateways.common.reply_memory import ReplyMemory
from wmp.gateways.common.serial_worker import PEER_OF_FOREIGN_JOBS
from wmp.message import Kind, Outcome


@frozen
class LazyServerStatistics:
    """Counts of a server; a snapshot."""

    requests: int
    repeats: int
    """Number of requests that came again, and were not run again."""
    replies: int
    failed: int
    """Number of requests without a reply, because the handler failed."""
    waiting: int
    running: int
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


@frozen
class _Request:
    port: int
    peer: bytes
    envelope: Frames
    codec: str
    payload: bytes | memoryview

    @property
    def key(self) -> tuple[int, bytes, Frames]:
        """Return what a repetition of the request has in common with it."""
        return self.port, self.peer, self.envelope


@define(eq=False)
class LazyServerMachine:
    """Sans-I/O server.

    Args:
        slots: Number of handlers that run at the same time.
        kind: Kind of the jobs. The codec is ``frames`` for a body of several frames.
        as_list: Whether the handler gets a list also for a body of one frame.
        limit: Maximum number of requests that wait.
        wire: Messages of the clients.
        remember: Seconds for which a reply is kept for repetitions of its request.
    """

    slots: int = 1
    kind: Kind = field(factory=Kind)
    as_list: bool = False
    limit: int = 1000
    wire: ClientWire = field(factory=ReqWire)
    remember: float = 6.0
    settings: None = field(default=None, init=False)
    _waiting: deque[_Request] = field(factory=deque, init=False)
    _running: dict[int, _Request] = field(factory=dict, init=False)
    """The running requests by their lanes."""
    _gone: set[int] = field(factory=set, init=False)
    """Lanes of clients that left."""
    _memory: ReplyMemory | None = field(init=False)
    _job: int = field(default=0, init=False)
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _requests: int = field(default=0, init=False)
    _repeats: int = field(default=0, init=False)
    _replies: int = field(default=0, init=False)
    _failed: int = field(default=0, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        self._memory = ReplyMemory(self.remember) if self.wire.repeats else None

    def deadline(self) -> float | None:
        """None: the server has no timers."""
        return None

    def handle(self, event: ForeignServerEvent, now: float) -> list[ForeignAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[ForeignAction] = []
        match event:
            case Arrived(port, peer, frames):
                self._arrived(port, peer, frames, now, actions)
            case Finished():
                self._finished(event, now, actions)
            case Left(_, peer):
                self._left(peer, actions)
            case Unsent():
                actions.append(self._drop("not sent"))
            case Drained():
                self._draining = True
            case Closed():
                self._halted = True
                actions.append(Halt(None))
                return actions
            case _:
                assert_never(event)
        while self._waiting and len(self._running) < self.slots:
            self._begin(self._waiting.popleft(), actions)
        if self._draining and not self._running and not self._waiting:
            self._halted = True
            actions.append(Halt(None))
        return actions

    def statistics(self) -> LazyServerStatistics:
        """Return a snapshot for people and programs."""
        return LazyServerStatistics(
            self._requests,
            self._repeats,
            self._replies,
            self._failed,
            len(self._waiting),
            len(self._running),
            dict(self._dropped),
        )

    def _arrived(
        self,
        port: int,
        peer: bytes,
        frames: Frames,
        now: float,
        actions: list[ForeignAction],
    ) -> None:
        parts = self.wire.split(frames)
        if parts is None:
            answer = self.wire.answer(frames)
            if answer is None:
                # PIRATE-3.2
                actions.append(self._drop(*explain_invalid(frames, peer)))
            else:
                actions.append(Emit(port, peer, answer))
            return
        envelope, body = parts
        codec, payload = to_payload(body, as_list=self.as_list)
        request = _Request(port, peer, envelope, codec, payload)
        if self._draining:
            actions.append(self._drop("draining"))
        elif len(self._waiting) >= self.limit:
            actions.append(self._drop("limit"))  # PIRATE-3.4
        elif self._is_new(request, now, actions):
            self._requests += 1
            self._waiting.append(request)

    def _is_new(self, request: _Request, now: float, actions: list[ForeignAction]) -> bool:
        """Return whether a request came for the first time; else send its reply again if known."""
        if self._memory is None:
            return True
        reply = self._memory.known(request.key, now)
        if reply is None:
            self._memory.begin(request.key)
            return True
        self._repeats += 1
        if reply:
            actions.append(Emit(request.port, request.peer, reply))
        return False

    def _begin(self, request: _Request, actions: list[ForeignAction]) -> None:
        self._job += 1
        lane = self._job
        self._running[lane] = request
        kind = evolve(self.kind, codec=request.codec)
        actions.append(
            Run(lane, kind, PEER_OF_FOREIGN_JOBS, (lane,), (1,), None, (request.payload,))
        )

    def _finished(self, event: Finished, now: float, actions: list[ForeignAction]) -> None:
        request = self._running.pop(event.lane, None)
        if request is None:
            actions.append(self._drop("no such request"))
            return
        gone = event.lane in self._gone
        self._gone.discard(event.lane)
        reply: Frames | None = None
        if event.outcomes[0] is not Outcome.OK:
            self._failed += not gone
        elif not gone:
            self._replies += 1
            body = result_body(event, request.codec)
            reply = (*request.envelope, *body)
            actions.append(Emit(request.port, request.peer, reply))
        if self._memory is not None:
            self._memory.end(request.key, reply, now)

    def _left(self, peer: bytes, actions: list[ForeignAction]) -> None:
        """Forget the requests of a connection that ended (PIRATE-3.5)."""
        kept = deque(request for request in self._waiting if request.peer != peer)
        if len(kept) < len(self._waiting):
            self._dropped["client left"] += len(self._waiting) - len(kept)
            if self._memory is not None:
                self._memory.leave(request.key for request in self._waiting if request.peer == peer)
            self._waiting = kept
        for lane, request in self._running.items():
            if request.peer == peer and lane not in self._gone:
                self._gone.add(lane)
                actions.append(Interrupt(lane, (lane,)))

    def _drop(self, reason: str, detail: str = "") -> Drop:
        self._dropped[reason] += 1
        return Drop(reason, detail=detail)
