"""The worker of Majordomo as a machine: READY once a connection, one request at a time.

The states are those of :mod:`wmp.gateways.common.worker_lifecycle`. A broker that sends
DISCONNECT gets nothing more on that connection: the socket is replaced.
"""

from __future__ import annotations

from typing import assert_never

from attrs import define, field, frozen

from wmp.actions import Interrupt, Reconnect
from wmp.events import Finished
from wmp.foreign import Emit, ForeignAction, Frames
from wmp.gateways.common.body import result_body
from wmp.gateways.common.serial_worker import NO_READY, SerialWorkerMachine
from wmp.gateways.common.worker_lifecycle import ForeignWorkerInput, ForeignWorkerState
from wmp.gateways.majordomo.wire import (
    DISCONNECT,
    HEARTBEAT,
    MAX_BODY,
    BrokerCommand,
    read_request,
    write_ready,
    write_worker_reply,
)
from wmp.message import Outcome

_State = ForeignWorkerState
_Input = ForeignWorkerInput


@frozen
class MajordomoTimes:
    """Times of a worker, in seconds."""

    heartbeat: float = 2.5
    """A worker that has sent nothing for this time sends HEARTBEAT."""
    silence: float = 7.5
    """A broker that has sent nothing for this time counts as dead."""
    reconnect: float = 2.5
    """Wait before the socket is replaced. It doubles each time."""
    reconnect_max: float = 32.0
    """Longest wait."""
    while_busy: bool = False
    """Whether the worker sends HEARTBEAT while its handler runs, too."""


@define(eq=False)
class MajordomoWorkerMachine(SerialWorkerMachine):
    """Sans-I/O worker, on the DEALER number 0.

    An envelope is the address of a client. It is empty once nobody wants the reply.

    Args:
        service: Name of the service.
        times: Times of the signs of life and of new connections.
    """

    service: bytes
    times: MajordomoTimes = field(factory=MajordomoTimes)
    _up: bool = field(default=False, init=False)
    """Whether this socket was connected."""
    _ready: bool = field(default=False, init=False)
    """Whether READY was sent on this connection."""
    _refused: int = field(default=0, init=False)
    """Number of times in a row that a new connection failed or was refused."""
    _met: bool = field(default=False, init=False)
    """Whether the broker sent anything but DISCONNECT on this connection."""

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        if self._halted:
            return None
        if self.state is _State.IDLE:
            return min(self._sign_at, self._silent_at)
        if self.state is _State.BUSY:
            return self._sign_at if self.times.while_busy and self._ready else None
        return self._due_at if self.state is _State.WAITING else None

    def _connected(self, now: float, actions: list[ForeignAction]) -> None:
        if self._up:
            # ZeroMQ connected the socket again, which may still hold messages of the connection
            # that ended. READY must be the first message (MDP-5.1).
            self._reopen(actions)
            return
        self._up, self._met = True, False
        if self._step(_Input.CONNECTED) and self.state is not _State.BUSY:
            self._send_ready(now, actions)

    def _send_ready(self, now: float, actions: list[ForeignAction]) -> None:
        self._ready = True
        self._emit(write_ready(self.service), now, actions)
        self._silent_at = now + self.times.silence

    def _emit(self, frames: Frames, now: float, actions: list[ForeignAction]) -> None:
        actions.append(Emit(0, b"", frames))
        self._sign_at = now + self.times.heartbeat

    def _drop_requests(self, actions: list[ForeignAction]) -> None:
        """Forget the requests of a connection that ended: nobody wants their replies (MDP-5.9)."""
        self._ready = False
        for _ in range(len(self._backlog)):
            actions.append(self._drop("connection ended"))
        self._backlog.clear()
        if self._running and self._envelope:
            self._envelope = ()
            actions.append(Interrupt(self._job, (self._job,)))

    def _arrived(self, frames: Frames, now: float, actions: list[ForeignAction]) -> None:
        notice = read_request(frames)
        if not self._ready:
            actions.append(self._drop(NO_READY))
            return
        is_request = notice.command is BrokerCommand.REQUEST
        if not self._step(_Input.REQUEST if is_request else _Input.SIGN):
            actions.append(self._drop(NO_READY))
            return
        self._silent_at = now + self.times.silence
        self._sign_at = max(self._sign_at, now)  # none was sent during a wait
        match notice.command:
            case BrokerCommand.REQUEST:
                self._note_met()
                self._take((notice.address,), notice.body, actions)
            case BrokerCommand.HEARTBEAT:
                self._note_met()
            case BrokerCommand.DISCONNECT:
                if self._met:
                    self._reopen(actions)
                else:
                    self._ready = False
                    self._replace_later(now)
            case BrokerCommand.UNEXPECTED | BrokerCommand.INVALID:
                actions.append(self._drop("invalid"))
            case _:
                assert_never(notice.command)

    def _note_met(self) -> None:
        self._met, self._refused = True, 0

    def _replace_later(self, now: float) -> None:
        """Replace the socket after a wait that doubles (MDP-5.7)."""
        times = self.times
        wait = min(times.reconnect * 2.0 ** min(self._refused, 30), times.reconnect_max)
        self._refused += 1
        self._due_at = now + wait
        self._step(_Input.SILENT)

    def _reopen(self, actions: list[ForeignAction]) -> None:
        """Replace the socket. A new connection gets READY as soon as no handler runs."""
        self._drop_requests(actions)
        self._close()
        self._reopened += 1
        actions.append(Reconnect(0))

    def _close(self) -> None:
        """Wait for a connection; a handler that runs goes on."""
        self._up = False
        self._step(_Input.SILENT)
        self._step(_Input.DUE)

    def _ticked(self, now: float, actions: list[ForeignAction]) -> None:
        if self.state is _State.IDLE and now >= self._silent_at:
            self._replace_later(now)
        if self.state is _State.WAITING and now >= self._due_at:
            self._reopen(actions)
        elif now >= self._sign_at and (
            self.state is _State.IDLE
            or (self.state is _State.BUSY and self.times.while_busy and self._ready)
        ):
            self._emit(HEARTBEAT, now, actions)

    # -- requests

    def _reply(self, event: Finished, now: float, actions: list[ForeignAction]) -> None:
        if not self._ready:
            # The connection of the request has ended, and its broker took the request back.
            actions.append(self._drop("late reply"))
            if self._up:
                self._send_ready(now, actions)
            else:
                self._close()
        elif self._envelope and (body := self._body_of(event)) is not None:
            self._replies += 1
            self._emit(write_worker_reply(bytes(self._envelope[0]), body), now, actions)
            self._silent_at = now + self.times.silence
        else:
            # Only a new connection reports to the broker that the request gets no reply (MDP-5.8).
            self._failed += 1
            self._emit(DISCONNECT, now, actions)
            self._reopen(actions)

    def _body_of(self, event: Finished) -> Frames | None:
        """Return the body of a reply; None if the handler failed, or returned too many frames."""
        if event.outcomes[0] is not Outcome.OK:
            return None
        body = result_body(event, self._codec)
        if len(body) <= MAX_BODY:
            return body
        self._dropped["too many frames"] += 1
        return None

    def _goodbye(self) -> Frames | None:
        return DISCONNECT if self._ready else None
