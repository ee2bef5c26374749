"""The worker of the Pirate patterns and of ping-pong as a machine.

The protocols differ in their messages (:mod:`wmp.gateways.common.worker_wire`) and in their
times. The states are those of :mod:`wmp.gateways.common.worker_lifecycle`.
"""

from __future__ import annotations

from attrs import define, field, frozen

from wmp.actions import Reconnect
from wmp.events import Finished
from wmp.foreign import Emit, ForeignAction, Frames
from wmp.gateways.common.body import result_body
from wmp.gateways.common.serial_worker import NO_READY, SerialWorkerMachine
from wmp.gateways.common.worker_lifecycle import ForeignWorkerInput, ForeignWorkerState
from wmp.gateways.common.worker_wire import Meaning, WorkerWire
from wmp.message import Outcome

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


@define(eq=False)
class ForeignWorkerMachine(SerialWorkerMachine):
    """Sans-I/O worker of another protocol, on the DEALER number 0.

    Args:
        wire: Messages of the protocol.
        times: Times of the signs of life; None for a protocol without them.
    """

    wire: WorkerWire
    times: SignTimes | None = None
    _unready: bool = field(default=False, init=False)
    """Whether the connection was made anew while the handler ran."""
    _wait: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._wait = 0.0 if self.times is None else self.times.wait

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        if self.times is None or self._halted:
            return None
        if self.state is _State.IDLE:
            return min(self._sign_at, self._silent_at)
        return self._due_at if self.state is _State.WAITING else None

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
            actions.append(self._drop(NO_READY))
            return
        self._listen_from(now)
        if self.times is not None:
            self._wait = self.times.wait
        if is_request:
            self._take(incoming.envelope, incoming.body, actions)
            return
        if waited:
            self._send_ready(now, actions)
        if incoming.meaning is Meaning.EXIT:
            self._drain(actions)
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

    def _reply(self, event: Finished, now: float, actions: list[ForeignAction]) -> None:
        reply = None
        if event.outcomes[0] is Outcome.OK:
            body = result_body(event, self._codec)
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

    def _goodbye(self) -> Frames | None:
        return None if self.state is _State.CLOSED else self.wire.goodbye
