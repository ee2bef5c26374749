"""A back door as a machine: foreign workers do jobs of a WMP worker.

The workers of one door are one group: they do the same jobs. The door holds no queue: jobs arrive
as ``Run`` of a lane when a worker is free (:mod:`wmp.gateways.common.lane_requests`). The door
reports how many workers it has by ``Staff``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, Halt, Interrupt, Recall, Run
from wmp.core.protocol.timers import Timers
from wmp.events import Closed, Drained, Ticked
from wmp.foreign import (
    Arrived,
    Dismissed,
    Emit,
    Frames,
    GroupOrder,
    GroupReport,
    Left,
    Of,
    Staff,
    Unsent,
)
from wmp.gateways.common.attendance import TRANSITIONS, Attendance, AttendanceInput, make_token
from wmp.gateways.common.body import explain_invalid, read_payload
from wmp.gateways.common.job_lanes import LANE_JOBS, LANE_TIME, LaneReportTimer
from wmp.gateways.common.lane_requests import Attendant, LaneBusyTimer, LaneRequests
from wmp.gateways.common.next_worker import WorkerTurns
from wmp.gateways.queue_doors.settings import BackDoorSettings
from wmp.gateways.queue_doors.worker_door_wire import DoorWire, FromWorker, HeartbeatStyle, Notice
from wmp.message import Frame

BackDoorEvent = Arrived | Unsent | Left | Dismissed | Of[GroupOrder] | Ticked | Drained | Closed
BackDoorAction = Emit | Staff | Of[GroupReport] | Drop | Halt

_State = Attendance
_Input = AttendanceInput
_PLACES: Final = frozenset((_State.IDLE, _State.BUSY))
"""The states of workers that count as places."""
_HOLDING: Final = (_State.BUSY, _State.LATE)


@frozen
class BackDoorStatistics:
    """Counts of a back door; a snapshot."""

    workers: Mapping[str, int]
    """Number of workers by state."""
    requests: int
    replies: int
    lost: int
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""
    tolerated: Mapping[str, int]
    """Number of workers that differ from the specification and are served, by habit."""


class _LifeTimer(NamedTuple):
    """Look whether a worker was silent for too long, or needs a sign of life."""

    peer: bytes
    what: Literal["life"] = "life"


_DoorTimer: TypeAlias = _LifeTimer | LaneBusyTimer | LaneReportTimer


@define(eq=False)
class _QueueAttendant(Attendant):
    signed_at: float | None = None
    """When the first sign of life after its newest request came; None if none came."""
    words: bool = False
    """Whether the worker sends words where the specification has one byte."""
    dismissed: bool = False
    """Whether the worker got EXIT, and gets no request any more."""


@define(eq=False)
class BackDoorMachine:
    """Sans-I/O back door.

    Args:
        wire: Messages of the protocol.
        settings: Times and limits.
    """

    wire: DoorWire
    settings: BackDoorSettings
    _style: HeartbeatStyle = field(init=False)
    _workers: dict[bytes, _QueueAttendant] = field(factory=dict, init=False)
    _idle: WorkerTurns[_QueueAttendant] = field(factory=WorkerTurns, init=False)
    _requests: LaneRequests[_QueueAttendant] = field(init=False)
    _timers: Timers[_DoorTimer] = field(factory=Timers, init=False)
    _places: int = field(default=0, init=False)
    _reported: int = field(default=0, init=False)
    _stirred: bool = field(default=False, init=False)
    """Whether jobs arrived, or the state of a worker changed, in this step."""
    _tokens: int = field(default=0, init=False)
    _halted: bool = field(default=False, init=False)
    _draining: bool = field(default=False, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)
    _tolerated: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        chosen = settings.style or self.wire.style
        self._style = HeartbeatStyle.NONE if self.wire.sign is None else chosen
        self._requests = LaneRequests(
            self._timers, settings.home, settings.busy_timeout, self._write
        )

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        return None if self._halted else self._timers.next()

    def handle(self, event: BackDoorEvent, now: float) -> list[BackDoorAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[BackDoorAction] = []
        match event:
            case Arrived(port, peer, frames):
                self._arrived(port, peer, frames, now, actions)
            case Of(_, what):
                self._order(what, now, actions)
            case Left(_, peer):
                if (worker := self._workers.get(peer)) is not None:
                    self._leave(worker, "its connection ended", now, actions)
            case Unsent(_, peer):
                self._unsent(peer, now, actions)
            case Dismissed(_, peer):
                self._dismiss(peer, now, actions)
            case Ticked():
                for timer in self._timers.due(now):
                    self._ring(timer, now, actions)
            case Drained():
                self._draining = True
                if self.settings.exit_on_drain:
                    for peer in tuple(self._workers):
                        self._dismiss(peer, now, actions)
            case Closed():
                self._halt(actions)
                return actions
            case _:
                assert_never(event)
        if self._stirred:
            self._give(now, actions)
        if self._places != self._reported:
            self._reported = self._places
            group, roles = self.settings.group, self.settings.roles
            actions.append(Staff(group, roles, self._places, LANE_JOBS, LANE_TIME))
        if self._draining and not self._requests:
            self._halt(actions)
        return actions

    @property
    def dismisses(self) -> bool:
        """Whether the protocol has a message that ends a worker."""
        return self.wire.exit is not None

    def attendances(self) -> dict[str, dict[bytes, Attendance]]:
        """Return the states of the workers by routing id, by group."""
        return {self.settings.group: dict(self.workers)}

    def open_requests(self) -> int:
        """Return 0: the door has no clients."""
        return 0

    def statistics(self) -> BackDoorStatistics:
        """Return a snapshot for people and programs."""
        states = Counter(worker.state.name.lower() for worker in self._workers.values())
        return BackDoorStatistics(
            dict(states),
            self._requests.given,
            self._requests.replies,
            self._requests.lost,
            dict(self._dropped),
            dict(self._tolerated),
        )

    # -- the lifecycle

    def _step(self, worker: _QueueAttendant, what: AttendanceInput) -> bool:
        """Change the state of a worker by the table; return whether the table has this change."""
        before = worker.state
        target = TRANSITIONS.get((before, what))
        if target is None:
            return False
        worker.state = target
        if target is not before:
            self._stirred = True
            if before is _State.IDLE:
                self._idle.remove(worker.peer)
            if target is _State.IDLE:
                worker.proven = what is _Input.REPLY
                self._idle.add(worker.peer, worker, proven=worker.proven)
            if target is _State.BUSY and not worker.proven:
                worker.tried = True
                self._idle.tried += 1
            elif worker.tried and target not in _HOLDING:
                worker.tried = False
                self._idle.tried -= 1
            self._places += (target in _PLACES) - (before in _PLACES)
        return True

    def _leave(
        self, worker: _QueueAttendant, cause: str, now: float, actions: list[BackDoorAction]
    ) -> None:
        self._requests.lose(worker, cause, now, actions)
        self._step(worker, _Input.LEAVE)
        self._timers.clear(_LifeTimer(worker.peer))
        del self._workers[worker.peer]

    # -- messages

    def _arrived(
        self, port: int, peer: bytes, frames: Frames, now: float, actions: list[BackDoorAction]
    ) -> None:
        message = self.wire.read(frames)
        worker = self._workers.get(peer)
        if worker is None:
            worker = self._admit(port, peer, message, frames, now, actions)
            if worker is None:
                return
        worker.last_at, worker.answered = now, True
        if message.words and not worker.words:
            worker.words = True
            self._tolerated["words instead of bytes"] += 1
        match message.meaning:
            case Notice.REPLY:
                self._reply(worker, message, now, actions)
                return
            case Notice.READY:
                why = "the worker sent READY in place of a reply"
                self._requests.lose(worker, why, now, actions)
                self._step(worker, _Input.READY)
            case Notice.SIGN:
                if self._has_dropped_request(worker, now):
                    self._free(worker, now, actions)
                elif not self._step(worker, _Input.SIGN) and self.wire.sign_is_ready:
                    self._step(worker, _Input.READY)
            case Notice.LEAVE:
                self._leave(worker, "the worker left", now, actions)
                return
            case Notice.INVALID:
                actions.append(self._drop(*explain_invalid(frames, peer)))
            case _:
                assert_never(message.meaning)
        if self._style is HeartbeatStyle.PING_PONG and self.wire.sign is not None:
            self._emit(worker, self.wire.sign, now, actions)

    def _has_dropped_request(self, worker: _QueueAttendant, now: float) -> bool:
        """Return whether a sign of life shows that the worker does not do its request any more."""
        if worker.state not in (_State.BUSY, _State.LATE):
            return False
        settings = self.settings
        if self.wire.sign_is_idle:
            # The first PING may have been sent before the request arrived (PING-4.3).
            if worker.signed_at is None:
                worker.signed_at = now
            return now - worker.signed_at >= settings.heartbeat / 2
        limit = settings.busy_timeout
        return limit is not None and now - worker.given_at >= limit  # PIRATE-7.4

    def _free(self, worker: _QueueAttendant, now: float, actions: list[BackDoorAction]) -> None:
        """Let a worker that has not answered its request get requests again."""
        text = (
            f"a worker of {self.settings.group!r} has not answered its request after "
            f"{now - worker.given_at:.1f} s, and goes on with signs of life; it gets requests again"
        )
        actions.append(self._drop("unanswered request", text))
        self._requests.lose(worker, "the worker did not answer, and goes on", now, actions)
        self._step(worker, _Input.READY)

    def _admit(
        self,
        port: int,
        peer: bytes,
        message: FromWorker,
        frames: Frames,
        now: float,
        actions: list[BackDoorAction],
    ) -> _QueueAttendant | None:
        """Return a new worker, or None for a message that makes no worker known."""
        wire = self.wire
        known = (
            message.meaning is Notice.READY
            or (message.meaning is Notice.SIGN and wire.sign_is_ready)
            or (message.meaning is Notice.REPLY and wire.reply_is_ready)
        )
        if not known or self._draining:
            reason, text = explain_invalid(frames, peer)
            if message.meaning is not Notice.INVALID:
                reason = "unknown worker"
            actions.append(self._drop(reason, text))
            return None
        other = self._idle.least_proven()
        if len(self._workers) >= self.settings.max_workers and other is not None:
            # PIRATE-7.12: one that never replied makes way, the one that is idle for longest.
            actions.append(self._drop("limit"))
            self._leave(other, "another worker needs its place", now, actions)
        if len(self._workers) >= self.settings.max_workers:
            actions.append(self._drop("limit"))
            return None
        worker = self._workers[peer] = _QueueAttendant(port, peer)
        self._watch(worker, now)
        return worker

    def _reply(
        self,
        worker: _QueueAttendant,
        message: FromWorker,
        now: float,
        actions: list[BackDoorAction],
    ) -> None:
        if worker.lane is not None and message.token in (None, worker.token):
            last = worker.dismissed
            if self._requests.take_reply(worker, message.body, now, actions, last=last):
                return
            self._step(worker, _Input.REPLY)
            if last:
                self._leave(worker, "the worker was dismissed", now, actions)
            return
        actions.append(self._drop("late reply" if worker.state is _State.LATE else "other reply"))
        self._step(worker, _Input.OTHER)
        if worker.state is _State.UNKNOWN:
            self._step(worker, _Input.READY)  # PIRATE-8.2

    def _emit(
        self, worker: _QueueAttendant, frames: Frames, now: float, actions: list[BackDoorAction]
    ) -> None:
        worker.sent_at = now
        actions.append(Emit(worker.port, worker.peer, frames))

    # -- requests

    def _order(
        self,
        what: GroupOrder,
        now: float,
        actions: list[BackDoorAction],
    ) -> None:
        group = self.settings.group
        match what:
            case Run():
                self._requests.add(group, what)
                self._stirred = True
            case Interrupt(lane, ids):
                # A worker whose request is ended gets no request before it answers.
                for worker in self._requests.interrupt(group, lane, ids, now, actions):
                    self._step(worker, _Input.INTERRUPT)
            case Recall(lane, ids):
                self._requests.recall(group, lane, ids, actions)
            case _:
                assert_never(what)

    def _give(self, now: float, actions: list[BackDoorAction]) -> None:
        """Give idle workers jobs that wait. Without workers the jobs go back to their manager."""
        group, requests = self.settings.group, self._requests
        while requests.waiting(group) and (worker := self._idle.next()) is not None:
            if requests.begin(group, worker, now, actions):
                self._step(worker, _Input.RUN)
        if not self._places:
            requests.hand_back(group, now, actions)
        self._stirred = False

    def _write(self, worker: _QueueAttendant, run: Run, id: int, payload: Frame) -> Frames | str:
        """Return the request for a job, or why the payload fits no request."""
        codec = run.kind.codec
        body = read_payload(codec, payload) if codec else (payload,)
        self._tokens += 1
        token = make_token(self.settings.epoch, self._tokens)
        frames = None if body is None else self.wire.request(token, body)
        if frames is None:
            return "the foreign protocol cannot carry this payload: a worker would not take it"
        worker.token, worker.signed_at = token, None
        return frames

    def _unsent(self, peer: bytes, now: float, actions: list[BackDoorAction]) -> None:
        self._dropped["not sent"] += 1
        worker = self._workers.get(peer)
        if worker is not None:
            self._leave(worker, "the worker cannot be reached", now, actions)

    def _dismiss(self, peer: bytes, now: float, actions: list[BackDoorAction]) -> None:
        """Send EXIT to a worker. An idle worker is forgotten, a busy one may answer first."""
        worker = self._workers.get(peer)
        if worker is None or self.wire.exit is None:
            actions.append(self._drop("unknown worker" if worker is None else "no EXIT"))
            return
        self._emit(worker, self.wire.exit, now, actions)
        if worker.lane is None:
            self._leave(worker, "the worker was dismissed", now, actions)
        else:
            worker.dismissed = True
            self._requests.hand_back(self.settings.group, now, actions)

    @property
    def workers(self) -> Mapping[bytes, Attendance]:
        """Return the states of the workers by routing id."""
        return {peer: worker.state for peer, worker in self._workers.items()}

    # -- time

    def _watch(self, worker: _QueueAttendant, now: float) -> None:
        """Look at a new worker again when it may have been silent for too long."""
        settings = self.settings
        one_way = self._style is HeartbeatStyle.ONE_WAY
        times = [settings.heartbeat] if one_way else []
        if settings.max_silence is not None:
            times.append(settings.max_silence)
        if times:
            self._timers.arm(_LifeTimer(worker.peer), now + min(times))

    def _ring(self, timer: _DoorTimer, now: float, actions: list[BackDoorAction]) -> None:
        requests = self._requests
        if isinstance(timer, LaneBusyTimer):
            for worker in requests.overdue(now):
                requests.lose(worker, "the worker did not answer in time", now, actions)
                self._step(worker, _Input.INTERRUPT)
        elif isinstance(timer, LaneReportTimer):
            requests.report(timer, actions)
        elif isinstance(timer, _LifeTimer):
            self._look_after(self._workers[timer.peer], timer, now, actions)
        else:
            assert_never(timer)

    def _look_after(
        self, worker: _QueueAttendant, timer: _LifeTimer, now: float, actions: list[BackDoorAction]
    ) -> None:
        """Forget a worker that was silent for too long, or send a sign of life."""
        settings = self.settings
        due: list[float] = []
        if settings.max_silence is not None:
            # A worker that is not idle may be silent.
            idle = worker.state is _State.IDLE
            silent_at = (worker.last_at if idle else now) + settings.max_silence
            if silent_at <= now:
                self._step(worker, _Input.SILENT)
                del self._workers[worker.peer]
                return
            due.append(silent_at)
        if self._style is HeartbeatStyle.ONE_WAY and self.wire.sign is not None:
            sign_at = worker.sent_at + settings.heartbeat
            if sign_at <= now:
                # A worker that does not read would find all heartbeats later.
                if worker.answered:
                    worker.answered = False
                    sign = self.wire.word_sign if worker.words else None
                    self._emit(worker, sign or self.wire.sign, now, actions)
                sign_at = now + settings.heartbeat
            due.append(sign_at)
        if due:
            self._timers.set(timer, min(due))

    # -- the end

    def _halt(self, actions: list[BackDoorAction]) -> None:
        self._halted = True
        actions.append(Halt(None))

    def _drop(self, reason: str, detail: str = "") -> Drop:
        self._dropped[reason] += 1
        return Drop(reason, detail=detail)
