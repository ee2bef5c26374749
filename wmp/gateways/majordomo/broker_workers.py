"""The workers' half of a Majordomo broker: the workers of each service do the jobs of one role.

The workers of a service are one group. This half holds no queue: jobs arrive as ``Run`` of a lane
when a worker of the group is free (:mod:`wmp.gateways.common.lane_requests`). It reports the number
of workers of each group by ``Staff``, and the end of an empty group by ``Disband``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

from attrs import define, field

from wmp.actions import Drop, Interrupt, Recall, Run
from wmp.core.protocol.timers import Timers
from wmp.foreign import Disband, Emit, Frames, GroupOrder, GroupReport, Of, Staff
from wmp.gateways.common.attendance import TRANSITIONS, Attendance, AttendanceInput, make_token
from wmp.gateways.common.body import read_payload
from wmp.gateways.common.job_lanes import LANE_JOBS, LANE_TIME, LaneReportTimer
from wmp.gateways.common.lane_requests import LaneBusyTimer, LaneRequests
from wmp.gateways.majordomo.broker_terms import (
    MajordomoAttendant,
    StaffedService,
    WorkersTerms,
)
from wmp.gateways.majordomo.wire import (
    DISCONNECT,
    HEARTBEAT,
    MAX_BODY,
    AttendantCommand,
    WorkerNotice,
    role_of,
    write_run,
)
from wmp.message import Frame, Limits, named

WorkersAction = Emit | Staff | Of[GroupReport] | Disband | Drop

MMI: Final = "mmi."
"""Beginning of the names of services that the broker itself does."""

_LONGEST_GROUP: Final = 64
"""Maximum number of bytes of a service's name in the name of its group."""

_EXPELLED: Final = 1000
"""Number of connections that got DISCONNECT and are remembered, if ``max_workers`` is less."""

_MARK: Final = "~"

_State = Attendance
_Input = AttendanceInput
_PLACES: Final = frozenset((_State.IDLE, _State.BUSY))
_HOLDING: Final = (_State.BUSY, _State.LATE)


class _AttendantTimer(NamedTuple):
    """Look whether a worker was silent for too long, or needs a sign of life."""

    peer: bytes
    what: Literal["life"] = "life"


class _EmptyTimer(NamedTuple):
    """A service may have no workers any more."""

    group: str
    what: Literal["empty"] = "empty"


_WorkersTimer: TypeAlias = _AttendantTimer | _EmptyTimer | LaneBusyTimer | LaneReportTimer


def _nobody(number: int) -> bytes:
    return b""


@define(eq=False)
class MajordomoWorkers:
    """The workers of one door.

    Args:
        terms: Times and limits.
        client_of: Returns the connection of the client of a job of the own manager; empty for none.
    """

    terms: WorkersTerms
    client_of: Callable[[int], bytes] = _nobody
    timers: Timers[_WorkersTimer] = field(factory=Timers, init=False)
    lanes: LaneRequests[MajordomoAttendant] = field(init=False)
    """The requests of the workers."""
    disconnected: int = field(default=0, init=False)
    """Number of workers that got DISCONNECT."""
    dropped: Counter[str] = field(factory=Counter, init=False)
    tolerated: Counter[str] = field(factory=Counter, init=False)
    _workers: dict[bytes, MajordomoAttendant] = field(factory=dict, init=False)
    _services: dict[str, StaffedService] = field(factory=dict, init=False)
    """The services by role."""
    _groups: dict[str, StaffedService] = field(factory=dict, init=False)
    _changed: dict[str, StaffedService] = field(factory=dict, init=False)
    """Services whose numbers of workers may have to be reported, by group."""
    _expelled: OrderedDict[bytes, None] = field(factory=OrderedDict, init=False)
    """Connections that got DISCONNECT, and get nothing more."""
    _token: int = field(default=0, init=False)
    _newcomers: OrderedDict[bytes, MajordomoAttendant] = field(factory=OrderedDict, init=False)
    """The idle workers that have not replied to their last request."""

    def __attrs_post_init__(self) -> None:
        terms = self.terms
        self.lanes = LaneRequests(self.timers, terms.home, terms.busy_timeout, self._write)

    # -- for the door

    @property
    def busy(self) -> bool:
        """Whether a worker has a request."""
        return bool(self.lanes)

    def knows(self, peer: bytes) -> bool:
        """Return whether a connection is that of a known worker."""
        return peer in self._workers

    def serves(self, role: str) -> bool:
        """Return whether a service has a worker."""
        service = self._services.get(role)
        return service is not None and service.members > 0

    def attendances(self) -> dict[str, dict[bytes, Attendance]]:
        """Return the states of the workers by routing id, by group."""
        attendances: dict[str, dict[bytes, Attendance]] = {group: {} for group in self._groups}
        for peer, worker in self._workers.items():
            attendances[worker.service.group][peer] = worker.state
        return attendances

    def states(self) -> dict[str, int]:
        """Return the numbers of workers by state."""
        return dict(Counter(worker.state.name.lower() for worker in self._workers.values()))

    def services(self) -> dict[str, int]:
        """Return the numbers of workers by service."""
        return {service.role: service.members for service in self._services.values()}

    def report(self, now: float, actions: list[WorkersAction]) -> None:
        """Give idle workers jobs that wait, and report the changed numbers of workers."""
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        for service in changed.values():
            self._give(service, now, actions)
            if service.places != service.reported:
                service.reported = service.places
                actions.append(
                    Staff(service.group, (service.role,), service.places, LANE_JOBS, LANE_TIME)
                )
            if not service.members:
                self.timers.arm(_EmptyTimer(service.group), now + self.terms.linger)
        self._changed.clear()  # workers that became busy

    def dismiss(self, actions: list[WorkersAction]) -> None:
        """Send DISCONNECT to all workers, because the broker ends."""
        actions.extend(
            Emit(worker.port, peer, DISCONNECT) for peer, worker in self._workers.items()
        )

    # -- the lifecycle

    def _step(self, worker: MajordomoAttendant, what: AttendanceInput) -> bool:
        """Change the state of a worker by the table; return whether the table has this change."""
        before = worker.state
        target = TRANSITIONS.get((before, what))
        if target is None:
            return False
        worker.state = target
        if target is not before:
            service = worker.service
            if before is _State.IDLE:
                service.idle.remove(worker.peer)
                self._newcomers.pop(worker.peer, None)
            if target is _State.IDLE:
                worker.proven = what is _Input.REPLY
                service.idle.add(worker.peer, worker, proven=worker.proven)
                if not worker.proven:
                    self._newcomers[worker.peer] = worker
            if target is _State.BUSY and not worker.proven:
                worker.tried = True
                service.idle.tried += 1
            elif worker.tried and target not in _HOLDING:
                worker.tried = False
                service.idle.tried -= 1
            service.places += (target in _PLACES) - (before in _PLACES)
            self._changed[service.group] = service
        return True

    def _leave(
        self, worker: MajordomoAttendant, cause: str, now: float, actions: list[WorkersAction]
    ) -> None:
        self.lanes.lose(worker, cause, now, actions)
        self._step(worker, _Input.LEAVE)
        self.timers.clear(_AttendantTimer(worker.peer))
        del self._workers[worker.peer]
        worker.service.members -= 1
        self._changed[worker.service.group] = worker.service

    def _expel(
        self,
        port: int,
        peer: bytes,
        why: str,
        now: float,
        actions: list[WorkersAction],
        detail: str = "",
    ) -> None:
        """Send DISCONNECT, and nothing more (MDP-4.8)."""
        worker = self._workers.get(peer)
        if worker is not None:
            self._leave(worker, why, now, actions)
        self.disconnected += 1
        self._end_with(peer)
        actions += (self._drop(why, detail), Emit(port, peer, DISCONNECT))

    def _end_with(self, peer: bytes) -> None:
        """Send nothing more to a connection, and take nothing more."""
        self._expelled[peer] = None
        if len(self._expelled) > max(_EXPELLED, self.terms.max_workers):
            self._expelled.popitem(last=False)

    # -- messages

    def arrived(
        self, port: int, peer: bytes, notice: WorkerNotice, now: float, actions: list[WorkersAction]
    ) -> None:
        """Act on a message of a worker."""
        if peer in self._expelled:
            actions.append(self._drop("disconnected"))
            return
        worker = self._workers.get(peer)
        if worker is not None:
            worker.last_at, worker.answered = now, True
        match notice.command:
            case AttendantCommand.REPLY:
                self._reply(port, peer, worker, notice, now, actions)
            case AttendantCommand.HEARTBEAT:
                if worker is None:
                    self._expel(port, peer, "unknown worker", now, actions)
                elif self._has_dropped_request(worker, now):
                    self._free(worker, now, actions)
            case AttendantCommand.READY:
                if worker is None:
                    self._ready(port, peer, notice.service, now, actions)
                else:
                    self._expel(port, peer, "second READY", now, actions)
            case AttendantCommand.DISCONNECT:
                if worker is not None:
                    self._leave(worker, "the worker left", now, actions)
                self._end_with(peer)
            case AttendantCommand.UNEXPECTED:
                self._expel(port, peer, "unexpected command", now, actions)
            case AttendantCommand.INVALID:
                if worker is None:
                    actions.append(self._drop("invalid"))
                else:
                    self._expel(port, peer, "invalid", now, actions)
            case _:
                assert_never(notice.command)

    def _has_dropped_request(self, worker: MajordomoAttendant, now: float) -> bool:
        """Return whether HEARTBEAT shows that the worker does not do its request (MDP-4.12)."""
        limit = self.terms.busy_timeout
        waits = worker.state in (_State.BUSY, _State.LATE)
        return waits and limit is not None and now - worker.given_at >= limit

    def _free(self, worker: MajordomoAttendant, now: float, actions: list[WorkersAction]) -> None:
        """Let a worker that has not answered its request get requests again."""
        text = (
            f"a worker of the service {worker.service.role!r} has not answered its request after "
            f"{now - worker.given_at:.1f} s, and goes on with heartbeats; it gets requests again"
        )
        actions.append(self._drop("unanswered request", text))
        worker.late_token = worker.token
        self.lanes.lose(worker, "the worker did not answer, and goes on", now, actions)
        self._step(worker, _Input.READY)

    def _ready(
        self, port: int, peer: bytes, name: bytes, now: float, actions: list[WorkersAction]
    ) -> None:
        role = role_of(name)
        if role is None or role.startswith(MMI):
            text = (
                f"refused a worker, {named(peer)}, of the service {name[: Limits.TEXT]!r} "
                f"of {len(name)} bytes; expected a name whose role has 1 to {Limits.TEXT} bytes "
                f"and does not begin with {MMI}"
            )
            self._expel(port, peer, "unusable service", now, actions, text)
            return
        service = self._services.get(role)
        maximum = self.terms.max_workers
        if len(self._workers) >= maximum and self._newcomers:
            # MDP-4.15: one that never replied makes way, the one that is idle for longest.
            other = next(iter(self._newcomers.values()))
            text = f"an idle worker of the service {other.service.role!r} makes way for another one"
            self._expel(other.port, other.peer, "limit", now, actions, text)
        if (
            len(self._workers) >= maximum
            or (service is None and len(self._groups) >= maximum)
            or (service is not None and service.members >= Limits.JOBS)
        ):
            actions.append(self._drop("limit", f"a worker of the service {role!r} is one too many"))
            return
        if service is None:
            group = f"{self.terms.group}/{_shorten(role)}"
            service = self._services[role] = self._groups[group] = StaffedService(group, role)
        service.members += 1
        worker = self._workers[peer] = MajordomoAttendant(
            port, peer, service=service, last_at=now, sent_at=now
        )
        self._step(worker, _Input.READY)
        self.timers.set(_AttendantTimer(peer), now + self.terms.heartbeat)

    def _reply(
        self,
        port: int,
        peer: bytes,
        worker: MajordomoAttendant | None,
        notice: WorkerNotice,
        now: float,
        actions: list[WorkersAction],
    ) -> None:
        if worker is None:
            self._expel(port, peer, "unknown worker", now, actions)
        elif worker.lane is not None and notice.address == worker.token:
            if notice.tolerated:
                self.tolerated["REPLY without empty frame"] += 1
            if not self.lanes.take_reply(worker, notice.body, now, actions):
                self._step(worker, _Input.REPLY)
        elif worker.state is _State.LATE:
            actions.append(self._drop("late reply"))
            self._step(worker, _Input.OTHER)
        elif worker.late_token and notice.address == worker.late_token:
            worker.late_token = b""
            actions.append(self._drop("late reply"))
        else:
            self._expel(port, peer, "other reply", now, actions)

    def left(self, peer: bytes, cause: str, now: float, actions: list[WorkersAction]) -> None:
        """Forget a connection that ended or cannot be reached."""
        self._expelled.pop(peer, None)
        worker = self._workers.get(peer)
        if worker is not None:
            self._leave(worker, cause, now, actions)

    # -- requests

    def order(
        self,
        group: str,
        what: GroupOrder,
        now: float,
        actions: list[WorkersAction],
    ) -> None:
        """Act on an order of the worker machine of a group."""
        match what:
            case Run():
                self.lanes.add(group, what)
                if (service := self._groups.get(group)) is not None:
                    self._changed[group] = service
                else:
                    # The last worker left a moment ago.
                    self.lanes.hand_back(group, now, actions)
            case Interrupt(lane, ids):
                # A worker whose request is ended gets no request before it answers.
                for worker in self.lanes.interrupt(group, lane, ids, now, actions):
                    self._step(worker, _Input.INTERRUPT)
            case Recall(lane, ids):
                self.lanes.recall(group, lane, ids, actions)
            case _:
                assert_never(what)

    def _give(self, service: StaffedService, now: float, actions: list[WorkersAction]) -> None:
        """Give idle workers jobs that wait. Without workers the jobs go back to their manager."""
        group = service.group
        while self.lanes.waiting(group) and (worker := service.idle.next()) is not None:
            if self.lanes.begin(group, worker, now, actions):
                self._step(worker, _Input.RUN)
        if not service.places:
            self.lanes.hand_back(group, now, actions)

    def _write(self, worker: MajordomoAttendant, run: Run, id: int, payload: Frame) -> Frames | str:
        """Return the request for a job, or why the payload fits no request."""
        codec = run.kind.codec
        body = read_payload(codec, payload) if codec else (payload,)
        if body is None:  # its submitter named another codec than that of the payload
            return "the payload is not a list of frames"
        if len(body) > MAX_BODY:
            return f"the payload has {len(body)} frames; expected {MAX_BODY} at most"
        self._token += 1
        token = make_token(self.terms.epoch, self._token)
        if run.manager == self.terms.home and (client := self.client_of(id)):
            token += _name_of(self.terms.epoch, client)
        worker.token = token
        return write_run(token, body or (b"",))

    # -- time

    def ring(self, timer: _WorkersTimer, now: float, actions: list[WorkersAction]) -> None:
        """Act on a timer."""
        if isinstance(timer, _EmptyTimer):
            self._forget_if_empty(timer, actions)
        elif isinstance(timer, LaneBusyTimer):
            for late in self.lanes.overdue(now):
                self.lanes.lose(late, "the worker did not answer in time", now, actions)
                self._step(late, _Input.INTERRUPT)
        elif isinstance(timer, LaneReportTimer):
            self.lanes.report(timer, actions)
        elif isinstance(timer, _AttendantTimer):
            if (worker := self._workers.get(timer.peer)) is not None:
                self._look_after(worker, now, actions)
        else:
            assert_never(timer)

    def _forget_if_empty(self, timer: _EmptyTimer, actions: list[WorkersAction]) -> None:
        """Forget a service without workers (MDP-4.10)."""
        service = self._groups.get(timer.group)
        if service is not None and not service.members:
            del self._groups[service.group], self._services[service.role]
            actions.append(Disband(service.group))

    def _look_after(
        self, worker: MajordomoAttendant, now: float, actions: list[WorkersAction]
    ) -> None:
        terms = self.terms
        silent_at = worker.last_at + terms.max_silence
        counts = worker.state is _State.IDLE or terms.strict
        if counts and silent_at <= now:
            cause = "the worker was silent for too long"
            actions.append(self._drop("silent worker"))
            self._leave(worker, cause, now, actions)
            return
        sign_at = worker.sent_at + terms.heartbeat
        if sign_at <= now:
            # A worker that does not read would find all heartbeats later.
            if worker.answered:
                worker.answered, worker.sent_at = False, now
                actions.append(Emit(worker.port, worker.peer, HEARTBEAT))
            sign_at = now + terms.heartbeat
        self.timers.set(
            _AttendantTimer(worker.peer), min(sign_at, silent_at) if counts else sign_at
        )

    def _drop(self, reason: str, detail: str = "") -> Drop:
        self.dropped[reason] += 1
        return Drop(reason, detail=detail)


@lru_cache(4096)
def _name_of(epoch: int, client: bytes) -> bytes:
    """Return the end of a token, which is the same for all requests of a connection."""
    # Not the routing id itself, which is for nobody but the broker.
    return b"-" + sha256(b"%d " % epoch + client).hexdigest()[:16].encode()


def _shorten(role: str) -> str:
    """Return a service's name as a part of an identity, which has 255 bytes at most.

    No name is the short form of another one: only short forms have the mark between their parts.
    """
    name = role.encode()
    if len(name) <= _LONGEST_GROUP and _MARK not in role:
        return role
    return f"{name[:24].decode(errors='ignore')}{_MARK}{sha256(name).hexdigest()[:32]}"
