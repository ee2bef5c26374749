"""A back door as a machine: foreign workers do jobs of a WMP worker.

The workers of one door are one group: they do the same jobs. The door holds no queue: jobs arrive
as ``Run`` of a lane when a worker is free. A lane has one job, or some quick jobs that its worker
gets one after the other (:mod:`wmp.gateways.queue_doors.bundle`). The door reports how many workers
it has by ``Staff``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, Halt, Interrupt, Recall, Run
from wmp.codec import pack_error
from wmp.core.protocol.timers import Timers
from wmp.events import Begun, Closed, Drained, Recalled, Ticked
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
from wmp.gateways.common.body import FRAMES_CODEC, explain_invalid, read_payload, to_payload
from wmp.gateways.common.next_worker import WorkerTurns
from wmp.gateways.queue_doors.bundle import LANE_JOBS, LANE_TIME, REPORT_INTERVAL, Bundle
from wmp.gateways.queue_doors.settings import BackDoorSettings
from wmp.gateways.queue_doors.worker_door_wire import DoorWire, FromWorker, HeartbeatStyle, Notice
from wmp.message import Frame, Outcome

BackDoorEvent = Arrived | Unsent | Left | Dismissed | Of[GroupOrder] | Ticked | Drained | Closed
BackDoorAction = Emit | Staff | Of[GroupReport] | Drop | Halt

_State = Attendance
_Input = AttendanceInput


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


class _BusyTimer(NamedTuple):
    """A request may have taken too long."""

    lane: int
    what: Literal["busy"] = "busy"


class _ReportTimer(NamedTuple):
    """Ends of a lane must wait no longer for other ends."""

    lane: int
    what: Literal["report"] = "report"


_DoorTimer: TypeAlias = _LifeTimer | _BusyTimer | _ReportTimer


@define(eq=False)
class _Attendant:
    port: int
    peer: bytes
    state: Attendance = _State.UNKNOWN
    bundle: Bundle | None = None
    token: bytes = b""
    last_at: float = 0.0
    sent_at: float = 0.0
    given_at: float = 0.0
    """When the worker got its last request."""
    signed_at: float | None = None
    """When the first sign of life after that request came; None if none came."""
    answered: bool = True
    """Whether a message arrived since the last sign of life that the door sent."""
    words: bool = False
    """Whether the worker sends words where the specification has one byte."""
    tried: bool = False
    """Whether the worker got its request before it was proven, and has not ended it."""
    proven: bool = False
    """Whether the last request of the worker ended with a reply."""
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
    _workers: dict[bytes, _Attendant] = field(factory=dict, init=False)
    _idle: WorkerTurns[_Attendant] = field(factory=WorkerTurns, init=False)
    _lanes: dict[int, _Attendant] = field(factory=dict, init=False)
    _timers: Timers[_DoorTimer] = field(factory=Timers, init=False)
    _places: int = field(default=0, init=False)
    _reported: int = field(default=0, init=False)
    _tokens: int = field(default=0, init=False)
    _halted: bool = field(default=False, init=False)
    _draining: bool = field(default=False, init=False)
    _requests: int = field(default=0, init=False)
    _replies: int = field(default=0, init=False)
    _lost: int = field(default=0, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)
    _tolerated: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        chosen = self.settings.style or self.wire.style
        self._style = HeartbeatStyle.NONE if self.wire.sign is None else chosen

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
        if self._places != self._reported:
            self._reported = self._places
            group, roles = self.settings.group, self.settings.roles
            actions.append(Staff(group, roles, self._places, LANE_JOBS, LANE_TIME))
        if self._draining and not self._lanes:
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
            self._requests,
            self._replies,
            self._lost,
            dict(self._dropped),
            dict(self._tolerated),
        )

    # -- the lifecycle

    def _step(self, worker: _Attendant, what: AttendanceInput) -> bool:
        """Change the state of a worker by the table; return whether the table has this change."""
        before = worker.state
        target = TRANSITIONS.get((before, what))
        if target is None:
            return False
        worker.state = target
        if target is not before:
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

    def _lose(
        self, worker: _Attendant, cause: str, now: float, actions: list[BackDoorAction]
    ) -> None:
        """End the request of a worker as lost."""
        if worker.bundle is not None:
            self._lost += 1
            self._release(worker, Outcome.LOST, cause.encode(), now, actions)

    def _release(
        self,
        worker: _Attendant,
        outcome: Outcome,
        payload: bytes,
        now: float,
        actions: list[BackDoorAction],
    ) -> None:
        """End the request that a worker has, and hand back the jobs that wait for the worker."""
        bundle = worker.bundle
        assert bundle is not None
        if (earlier := bundle.end(outcome, payload, now)) is not None:
            actions.append(Of(self.settings.group, earlier))
        bundle.hand_back(now)
        self._close(worker, bundle, actions)

    def _close(self, worker: _Attendant, bundle: Bundle, actions: list[BackDoorAction]) -> None:
        """Report the end of a lane."""
        lane = bundle.run.lane
        worker.bundle = None
        del self._lanes[lane]
        if self._timers:  # with Simple Pirates mostly none is set
            self._timers.clear_all((_BusyTimer(lane), _ReportTimer(lane)))
        self._report(bundle, actions)

    def _report(self, bundle: Bundle, actions: list[BackDoorAction]) -> None:
        if (event := bundle.report()) is not None:
            actions.append(Of(self.settings.group, event))

    def _leave(
        self, worker: _Attendant, cause: str, now: float, actions: list[BackDoorAction]
    ) -> None:
        self._lose(worker, cause, now, actions)
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
            case Notice.READY:
                self._lose(worker, "the worker sent READY in place of a reply", now, actions)
                self._step(worker, _Input.READY)
            case Notice.SIGN:
                if self._has_dropped_request(worker, now):
                    self._free(worker, now, actions)
                elif not self._step(worker, _Input.SIGN) and self.wire.sign_is_ready:
                    self._step(worker, _Input.READY)
            case Notice.REPLY:
                self._reply(worker, message, now, actions)
            case Notice.LEAVE:
                self._leave(worker, "the worker left", now, actions)
                return
            case Notice.INVALID:
                actions.append(self._drop(*explain_invalid(frames, peer)))
            case _:
                assert_never(message.meaning)
        if self._workers.get(peer) is not worker:
            return  # the worker was dismissed, and this was its last reply
        if (
            self._style is HeartbeatStyle.PING_PONG
            and self.wire.sign is not None
            and message.meaning is not Notice.REPLY
        ):
            self._emit(worker, self.wire.sign, now, actions)
        self._watch(worker, now)

    def _has_dropped_request(self, worker: _Attendant, now: float) -> bool:
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

    def _free(self, worker: _Attendant, now: float, actions: list[BackDoorAction]) -> None:
        """Let a worker that has not answered its request get requests again."""
        text = (
            f"a worker of {self.settings.group!r} has not answered its request after "
            f"{now - worker.given_at:.1f} s, and goes on with signs of life; it gets requests again"
        )
        actions.append(self._drop("unanswered request", text))
        self._lose(worker, "the worker did not answer, and goes on", now, actions)
        self._step(worker, _Input.READY)

    def _admit(
        self,
        port: int,
        peer: bytes,
        message: FromWorker,
        frames: Frames,
        now: float,
        actions: list[BackDoorAction],
    ) -> _Attendant | None:
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
        worker = self._workers[peer] = _Attendant(port, peer)
        return worker

    def _reply(
        self,
        worker: _Attendant,
        message: FromWorker,
        now: float,
        actions: list[BackDoorAction],
    ) -> None:
        bundle = worker.bundle
        if bundle is not None and message.token in (None, worker.token):
            self._replies += 1
            self._result(bundle, message.body, now, actions)
            if not worker.dismissed and self._begin(worker, bundle, now, actions):
                if now - bundle.since >= REPORT_INTERVAL:
                    self._report(bundle, actions)
                    self._timers.clear(_ReportTimer(bundle.run.lane))
                else:
                    self._timers.arm(_ReportTimer(bundle.run.lane), bundle.since + REPORT_INTERVAL)
                return
            self._step(worker, _Input.REPLY)
            bundle.hand_back(now)
            self._close(worker, bundle, actions)
            if worker.dismissed:
                self._leave(worker, "the worker was dismissed", now, actions)
            return
        actions.append(self._drop("late reply" if worker.state is _State.LATE else "other reply"))
        self._step(worker, _Input.OTHER)
        if worker.state is _State.UNKNOWN:
            self._step(worker, _Input.READY)  # PIRATE-8.2

    def _result(
        self, bundle: Bundle, body: Frames, now: float, actions: list[BackDoorAction]
    ) -> None:
        """End a job with a reply."""
        run = bundle.run
        requested = run.kind.codec
        if len(body) > 1 and requested != FRAMES_CODEC and run.manager != self.settings.home:
            text = f"the reply has {len(body)} frames; submit the job with the codec 'frames'"
            earlier = bundle.end(Outcome.ERROR, pack_error("SeveralFrames", text), now)
        else:
            codec, payload = to_payload(body, as_list=requested == FRAMES_CODEC)
            other = None if codec == requested or not codec else codec
            earlier = bundle.end(Outcome.OK, payload, now, other)
        if earlier is not None:
            actions.append(Of(self.settings.group, earlier))

    def _emit(
        self, worker: _Attendant, frames: Frames, now: float, actions: list[BackDoorAction]
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
        match what:
            case Run():
                self._run(what, now, actions)
            case Interrupt(lane, ids):
                self._interrupt(lane, ids, now, actions)
            case Recall(lane, ids):
                # A worker that has a request has begun it, as far as the door can know.
                worker = self._lanes.get(lane)
                bundle = None if worker is None else worker.bundle
                taken = () if bundle is None else tuple(bundle.recall(ids))
                actions.append(Of(self.settings.group, Recalled(lane, taken)))
            case _:
                assert_never(what)

    def _run(self, run: Run, now: float, actions: list[BackDoorAction]) -> None:
        bundle = Bundle(run)
        worker = self._idle.next()
        if worker is None:
            # The last worker left a moment ago. The jobs go back to their manager unbegun.
            bundle.hand_back(now)
        elif self._begin(worker, bundle, now, actions):
            worker.bundle = bundle
            self._lanes[run.lane] = worker
            self._step(worker, _Input.RUN)
        self._report(bundle, actions)

    def _begin(
        self, worker: _Attendant, bundle: Bundle, now: float, actions: list[BackDoorAction]
    ) -> bool:
        """Give a worker the next job of its lane; return whether there is one."""
        run, settings = bundle.run, self.settings
        while (job := bundle.begin(now)) is not None:
            id, payload = job
            self._tokens += 1
            token = make_token(settings.epoch, self._tokens)
            frames = self._request(run, payload, token)
            if frames is None:
                text = "the foreign protocol cannot carry this payload: a worker would not take it"
                error = pack_error("UnfitPayload", text)
                if (earlier := bundle.end(Outcome.ERROR, error, now)) is not None:
                    actions.append(Of(settings.group, earlier))
                continue
            self._requests += 1
            worker.token, worker.given_at, worker.signed_at = token, now, None
            if run.limits is not None:
                actions.append(Of(settings.group, Begun(run.lane, id)))
            if settings.busy_timeout is not None:
                self._timers.set(_BusyTimer(run.lane), now + settings.busy_timeout)
            self._emit(worker, frames, now, actions)
            return True
        return False

    def _request(self, run: Run, payload: Frame, token: bytes) -> Frames | None:
        """Return the request of a job; None if the payload fits no request."""
        body = read_payload(run.kind.codec, payload)
        return None if body is None else self.wire.request(token, body)

    def _interrupt(
        self, lane: int, ids: Sequence[int], now: float, actions: list[BackDoorAction]
    ) -> None:
        """End requests whose results are not wanted.

        A worker that has one of them gets no request before it answers.
        """
        worker = self._lanes.get(lane)
        bundle = None if worker is None else worker.bundle
        if worker is None or bundle is None:
            return
        for id in bundle.recall(ids):
            bundle.hold(id, Outcome.CANCELLED, b"", now)
        if bundle.current in ids:
            self._release(worker, Outcome.CANCELLED, b"", now, actions)
            self._step(worker, _Input.INTERRUPT)
        else:
            self._report(bundle, actions)

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
        if worker.bundle is None:
            self._leave(worker, "the worker was dismissed", now, actions)
        else:
            worker.dismissed = True
            worker.bundle.hand_back(now)
            self._report(worker.bundle, actions)

    @property
    def workers(self) -> Mapping[bytes, Attendance]:
        """Return the states of the workers by routing id."""
        return {peer: worker.state for peer, worker in self._workers.items()}

    # -- time

    def _watch(self, worker: _Attendant, now: float) -> None:
        """Look at the worker again when it may have been silent for too long."""
        one_way = self._style is HeartbeatStyle.ONE_WAY
        times = [now + self.settings.heartbeat] if one_way else []
        if self.settings.max_silence is not None:
            times.append(now + self.settings.max_silence)
        if times:
            self._timers.arm(_LifeTimer(worker.peer), min(times))

    def _ring(self, timer: _DoorTimer, now: float, actions: list[BackDoorAction]) -> None:
        if isinstance(timer, _BusyTimer):
            worker = self._lanes[timer.lane]
            self._lose(worker, "the worker did not answer in time", now, actions)
            self._step(worker, _Input.INTERRUPT)
            return
        if isinstance(timer, _ReportTimer):
            lane = self._lanes.get(timer.lane)
            if lane is not None and lane.bundle is not None:
                self._report(lane.bundle, actions)
            return
        known = self._workers[timer.peer]
        due: list[float] = []
        if self.settings.max_silence is not None and known.state is _State.IDLE:
            silent_at = known.last_at + self.settings.max_silence
            if silent_at <= now:
                self._step(known, _Input.SILENT)
                del self._workers[known.peer]
                return
            due.append(silent_at)
        if self._style is HeartbeatStyle.ONE_WAY and self.wire.sign is not None:
            sign_at = known.sent_at + self.settings.heartbeat
            if sign_at <= now:
                # A worker that does not read would find all heartbeats later.
                if known.answered:
                    known.answered = False
                    sign = self.wire.word_sign if known.words else None
                    self._emit(known, sign or self.wire.sign, now, actions)
                sign_at = now + self.settings.heartbeat
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


_PLACES = frozenset((_State.IDLE, _State.BUSY))
_HOLDING = (_State.BUSY, _State.LATE)
"""The states of workers that count as places."""
