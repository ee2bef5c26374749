"""The worker of another protocol as a machine: one request at a time, and signs of life.

The protocols differ in their messages (:mod:`wmp.gateways.common.worker_wire`) and in their
times. The states are those of :mod:`wmp.gateways.common.worker_lifecycle`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import assert_never

from attrs import define, evolve, field, frozen

from wmp.actions import Drop, Halt, Reconnect, Run
from wmp.events import (
    Closed,
    Connected,
    Drained,
    Finished,
    Ticked,
)
from wmp.foreign import (
    Arrived,
    Emit,
    ForeignAction,
    ForeignWorkerEvent,
    Frames,
    Unsent,
)
from wmp.gateways.common.body import from_payload, to_payload
from wmp.gateways.common.worker_lifecycle import (
    TRANSITIONS,
    ForeignWorkerInput,
    ForeignWorkerState,
)
from wmp.gateways.common.worker_wire import Incoming, Meaning, WorkerWire
from wmp.message import Kind, Outcome, Peer

PEER_OF_FOREIGN_JOBS: Peer = (b"", 0)
"""The owner of a job that no manager of WMP submitted."""

_State = ForeignWorkerState
_Input = ForeignWorkerInput


@frozen
class SignTimes:
    """Times of the signs of life, in seconds."""

    interval: float
    """An idle worker that has sent nothing for this time sends a sign of life."""
    silence: float
    """A peer that has sent nothing for this time counts as dead."""
    wait: float = 0.0
    """Wait before the socket is replaced. It doubles each time."""
    longest_wait: float = 0.0


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
class ForeignWorkerMachine:
    """Sans-I/O worker of another protocol, on the DEALER number 0.

    Args:
        wire: Messages of the protocol.
        times: Times of the signs of life; None for a protocol without them.
        kind: Kind of the jobs. The codec is ``frames`` for a body of several frames.
        as_list: Whether the handler gets a list also for a body of one frame.
        limit: Maximum number of requests that wait for the handler.
    """

    wire: WorkerWire
    times: SignTimes | None = None
    kind: Kind = field(factory=Kind)
    as_list: bool = False
    limit: int = 1000
    settings: None = field(default=None, init=False)
    state: ForeignWorkerState = field(default=_State.CLOSED, init=False)
    _backlog: deque[Incoming] = field(factory=deque, init=False)
    _envelope: Frames = field(default=(), init=False)
    _codec: str = field(default="", init=False)
    _running: bool = field(default=False, init=False)
    _job: int = field(default=0, init=False)
    """Number of the newest job, and of its lane."""
    _unready: bool = field(default=False, init=False)
    """Whether the connection was made anew while the handler ran."""
    _sign_at: float = field(default=0.0, init=False)
    _silent_at: float = field(default=0.0, init=False)
    _due_at: float = field(default=0.0, init=False)
    _wait: float = field(default=0.0, init=False)
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _replies: int = field(default=0, init=False)
    _failed: int = field(default=0, init=False)
    _reopened: int = field(default=0, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        self._wait = 0.0 if self.times is None else self.times.wait

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        if self.times is None or self._halted:
            return None
        if self.state is _State.IDLE:
            return min(self._sign_at, self._silent_at)
        return self._due_at if self.state is _State.WAITING else None

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
                self._draining = True
                self._end_if_drained(actions)
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

    # -- the lifecycle

    def _step(self, what: ForeignWorkerInput) -> bool:
        """Change the state by the table; return whether the table has this change."""
        target = TRANSITIONS.get((self.state, what))
        if target is None:
            return False
        self.state = target
        return True

    def _connected(self, now: float, actions: list[ForeignAction]) -> None:
        if not self._step(_Input.CONNECTED):
            return
        if self.state is _State.BUSY:
            self._unready = True
            return
        self._send_ready(now, actions)

    def _send_ready(self, now: float, actions: list[ForeignAction]) -> None:
        self._unready = False
        self._emit(self.wire.ready, now, actions)
        self._listen_from(now)

    def _listen_from(self, now: float) -> None:
        """Let the silence of the peer count from now on."""
        if self.times is not None:
            self._silent_at = now + self.times.silence

    def _emit(self, frames: Frames, now: float, actions: list[ForeignAction]) -> None:
        actions.append(Emit(0, b"", frames))
        if self.times is not None:
            self._sign_at = now + self.times.interval

    def _arrived(self, frames: Frames, now: float, actions: list[ForeignAction]) -> None:
        incoming = self.wire.read(frames)
        is_request = incoming.meaning is Meaning.REQUEST
        waited = self.state is _State.WAITING
        if not self._step(_Input.REQUEST if is_request else _Input.SIGN):
            actions.append(self._drop("no READY on this connection"))
            return
        self._listen_from(now)
        if self.times is not None:
            self._wait = self.times.wait
        if is_request:
            self._take(incoming, actions)
            return
        if waited:
            self._send_ready(now, actions)
        if incoming.meaning is Meaning.EXIT:
            self._draining = True
            self._end_if_drained(actions)
        elif incoming.meaning is Meaning.INVALID:
            actions.append(self._drop("invalid"))

    def _ticked(self, now: float, actions: list[ForeignAction]) -> None:
        times = self.times
        if times is None:
            return
        if self.state is _State.IDLE and now >= self._silent_at:
            self._step(_Input.SILENT)
            self._due_at = now + self._wait
            self._wait = min(2 * self._wait, times.longest_wait)
        if self.state is _State.WAITING and now >= self._due_at:
            self._step(_Input.DUE)
            self._reopened += 1
            actions.append(Reconnect(0))
        elif self.state is _State.IDLE and now >= self._sign_at and self.wire.sign is not None:
            self._emit(self.wire.sign, now, actions)

    # -- requests

    def _take(self, request: Incoming, actions: list[ForeignAction]) -> None:
        """Begin a request; a request that arrives while the handler runs waits."""
        if not self._running:
            self._begin(request, actions)
        elif len(self._backlog) < self.limit:
            self._backlog.append(request)
        else:
            actions.append(self._drop("limit"))

    def _begin(self, request: Incoming, actions: list[ForeignAction]) -> None:
        self._job += 1
        self._running = True
        self._envelope = request.envelope
        self._codec, payload = to_payload(request.body, as_list=self.as_list)
        kind = evolve(self.kind, codec=self._codec)
        run = Run(self._job, kind, PEER_OF_FOREIGN_JOBS, (self._job,), (1,), None, (payload,))
        actions.append(run)

    def _finished(self, event: Finished, now: float, actions: list[ForeignAction]) -> None:
        if event.lane != self._job or not self._running:
            actions.append(self._drop("no such request"))
            return
        self._running = False
        self._step(_Input.FINISHED)
        reply = None
        if event.outcomes[0] is Outcome.OK:
            body = from_payload(self._codec, event.payloads[0])
            reply = self.wire.reply(self._envelope, body)
            if reply is None:
                actions.append(self._drop("control word"))
        if reply is None:
            # A peer that knows this worker learns that the worker takes requests again.
            self._failed += 1
            self._send_ready(now, actions)
        else:
            self._replies += 1
            self._emit(reply, now, actions)
            self._listen_from(now)
            if self._unready and self.wire.ready_after_reply:
                self._send_ready(now, actions)
            self._unready = False
        if self._backlog:
            self._step(_Input.REQUEST)
            self._begin(self._backlog.popleft(), actions)
        else:
            self._end_if_drained(actions)

    # -- the end

    def _end_if_drained(self, actions: list[ForeignAction]) -> None:
        if self._draining and not self._running:
            self._halt(actions)

    def _halt(self, actions: list[ForeignAction]) -> None:
        self._halted = True
        if self.wire.goodbye is not None and self.state is not _State.CLOSED:
            actions.append(Emit(0, b"", self.wire.goodbye))
        actions.append(Halt(None))

    def _drop(self, reason: str) -> Drop:
        self._dropped[reason] += 1
        return Drop(reason)
