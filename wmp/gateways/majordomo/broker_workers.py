"""The workers' half of a Majordomo broker: the workers of each service do the jobs of one role.

The workers of a service are one group. This half holds no queue: a job arrives as ``Run`` of a
lane, with one job, when a worker of the group is free. It reports the number of workers of each
group by ``Staff``, and the end of an empty group by ``Disband``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Final, Literal, NamedTuple, assert_never

from attrs import define, field

from wmp.actions import Drop, Interrupt, Recall, Run
from wmp.codec import pack_error
from wmp.core.protocol.timers import Timers
from wmp.errors import DecodeError
from wmp.events import Begun, Finished, Recalled
from wmp.foreign import Disband, Emit, Frames, GroupOrder, GroupReport, Of, Staff
from wmp.gateways.common.attendance import TRANSITIONS, Attendance, AttendanceInput, make_token
from wmp.gateways.common.body import FRAMES_CODEC, from_payload, to_payload
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
from wmp.message import Limits, Outcome, named

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


class _LateTimer(NamedTuple):
    """A request may have taken too long."""

    token: bytes
    what: Literal["busy"] = "busy"


class _EmptyTimer(NamedTuple):
    """A service may have no workers any more."""

    group: str
    what: Literal["empty"] = "empty"


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
    timers: Timers[_AttendantTimer | _LateTimer | _EmptyTimer] = field(factory=Timers, init=False)
    requests: int = field(default=0, init=False)
    replies: int = field(default=0, init=False)
    lost: int = field(default=0, init=False)
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
    _lanes: dict[tuple[str, int], MajordomoAttendant] = field(factory=dict, init=False)
    _tokens: dict[bytes, MajordomoAttendant] = field(factory=dict, init=False)
    """The workers with a request, by token."""
    _expelled: OrderedDict[bytes, None] = field(factory=OrderedDict, init=False)
    """Connections that got DISCONNECT, and get nothing more."""
    _token: int = field(default=0, init=False)
    _newcomers: OrderedDict[bytes, MajordomoAttendant] = field(factory=OrderedDict, init=False)
    """The idle workers that have not replied to their last request."""

    # -- for the door

    @property
    def busy(self) -> bool:
        """Whether a worker has a request."""
        return bool(self._tokens)

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
        """Report the changed numbers of workers."""
        for service in self._changed.values():
            if service.places != service.reported:
                service.reported = service.places
                actions.append(Staff(service.group, (service.role,), service.places))
            if not service.members:
                self.timers.arm(_EmptyTimer(service.group), now + self.terms.linger)
        self._changed.clear()

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
            change = (target in _PLACES) - (before in _PLACES)
            if change:
                service.places += change
                self._changed[service.group] = service
        return True

    def _release(self, worker: MajordomoAttendant) -> Run | None:
        """Take the request from a worker."""
        run, worker.run = worker.run, None
        if run is not None:
            del self._lanes[worker.service.group, run.lane], self._tokens[worker.token]
            if self.terms.busy_timeout is not None:
                self.timers.clear(_LateTimer(worker.token))
        return run

    def _lose(self, worker: MajordomoAttendant, cause: str, actions: list[WorkersAction]) -> None:
        """End the request of a worker as lost."""
        run = self._release(worker)
        if run is not None:
            self.lost += 1
            actions.append(_end(worker.service.group, run, Outcome.LOST, cause.encode()))

    def _leave(self, worker: MajordomoAttendant, cause: str, actions: list[WorkersAction]) -> None:
        self._lose(worker, cause, actions)
        self._step(worker, _Input.LEAVE)
        self.timers.clear(_AttendantTimer(worker.peer))
        del self._workers[worker.peer]
        worker.service.members -= 1
        self._changed[worker.service.group] = worker.service

    def _expel(
        self, port: int, peer: bytes, why: str, actions: list[WorkersAction], detail: str = ""
    ) -> None:
        """Send DISCONNECT, and nothing more (MDP-4.8)."""
        worker = self._workers.get(peer)
        if worker is not None:
            self._leave(worker, why, actions)
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
                self._reply(port, peer, worker, notice, actions)
            case AttendantCommand.HEARTBEAT:
                if worker is None:
                    self._expel(port, peer, "unknown worker", actions)
                elif self._has_dropped_request(worker, now):
                    self._free(worker, now, actions)
            case AttendantCommand.READY:
                if worker is None:
                    self._ready(port, peer, notice.service, now, actions)
                else:
                    self._expel(port, peer, "second READY", actions)
            case AttendantCommand.DISCONNECT:
                if worker is not None:
                    self._leave(worker, "the worker left", actions)
                self._end_with(peer)
            case AttendantCommand.UNEXPECTED:
                self._expel(port, peer, "unexpected command", actions)
            case AttendantCommand.INVALID:
                if worker is None:
                    actions.append(self._drop("invalid"))
                else:
                    self._expel(port, peer, "invalid", actions)
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
        self._lose(worker, "the worker did not answer, and goes on", actions)
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
            self._expel(port, peer, "unusable service", actions, text)
            return
        service = self._services.get(role)
        maximum = self.terms.max_workers
        if len(self._workers) >= maximum and self._newcomers:
            # MDP-4.15: one that never replied makes way, the one that is idle for longest.
            other = next(iter(self._newcomers.values()))
            text = f"an idle worker of the service {other.service.role!r} makes way for another one"
            self._expel(other.port, other.peer, "limit", actions, text)
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
            port, peer, service, last_at=now, sent_at=now
        )
        self._step(worker, _Input.READY)
        self.timers.set(_AttendantTimer(peer), now + self.terms.heartbeat)

    def _reply(
        self,
        port: int,
        peer: bytes,
        worker: MajordomoAttendant | None,
        notice: WorkerNotice,
        actions: list[WorkersAction],
    ) -> None:
        if worker is None:
            self._expel(port, peer, "unknown worker", actions)
        elif worker.run is not None and notice.address == worker.token:
            run = self._release(worker)
            assert run is not None
            self._step(worker, _Input.REPLY)
            self.replies += 1
            if notice.tolerated:
                self.tolerated["REPLY without empty frame"] += 1
            actions.append(self._result(worker.service.group, run, notice.body))
        elif worker.state is _State.LATE:
            actions.append(self._drop("late reply"))
            self._step(worker, _Input.OTHER)
        elif worker.late_token and notice.address == worker.late_token:
            worker.late_token = b""
            actions.append(self._drop("late reply"))
        else:
            self._expel(port, peer, "other reply", actions)

    def _result(self, group: str, run: Run, body: Frames) -> Of[GroupReport]:
        """Return the end of a job with a reply."""
        requested = run.kind.codec
        if len(body) > 1 and requested != FRAMES_CODEC and run.manager != self.terms.home:
            text = f"the reply has {len(body)} frames; submit the job with the codec 'frames'"
            return _end(group, run, Outcome.ERROR, pack_error("SeveralFrames", text))
        codec, payload = to_payload(body, as_list=requested == FRAMES_CODEC)
        other = None if codec == requested or not codec else codec
        return Of(group, Finished(run.lane, run.ids, [Outcome.OK], [payload], codec=other))

    def left(self, peer: bytes, cause: str, actions: list[WorkersAction]) -> None:
        """Forget a connection that ended or cannot be reached."""
        self._expelled.pop(peer, None)
        worker = self._workers.get(peer)
        if worker is not None:
            self._leave(worker, cause, actions)

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
                self._run(group, what, now, actions)
            case Interrupt(lane, _):
                worker = self._lanes.get((group, lane))
                if worker is not None:
                    run = self._release(worker)
                    assert run is not None
                    self._step(worker, _Input.INTERRUPT)
                    actions.append(_end(group, run, Outcome.CANCELLED, b""))
            case Recall(lane, _):
                # A worker that has a request has begun it, as far as the door can know.
                actions.append(Of(group, Recalled(lane, ())))
            case _:
                assert_never(what)

    def _run(self, group: str, run: Run, now: float, actions: list[WorkersAction]) -> None:
        service = self._groups.get(group)
        if service is None or not service.idle:
            # The last worker left a moment ago. The job goes back to its manager unbegun.
            actions.append(_end(group, run, Outcome.CANCELLED, b""))
            return
        try:
            body = from_payload(run.kind.codec, run.payloads[0])
        except DecodeError:  # its submitter named another codec than that of the payload
            error = pack_error("UnfitPayload", "the payload is not a list of frames")
            actions.append(_end(group, run, Outcome.ERROR, error))
            return
        if len(body) > MAX_BODY:
            text = f"the payload has {len(body)} frames; expected {MAX_BODY} at most"
            actions.append(_end(group, run, Outcome.ERROR, pack_error("UnfitPayload", text)))
            return
        worker = service.idle.next()
        assert worker is not None
        self._step(worker, _Input.RUN)
        self.requests += 1
        self._token += 1
        token = make_token(self.terms.epoch, self._token)
        if run.manager == self.terms.home:
            token += self._name_client(run.ids[0])
        worker.run, worker.token, worker.sent_at, worker.given_at = run, token, now, now
        self._lanes[group, run.lane] = self._tokens[token] = worker
        if self.terms.busy_timeout is not None:
            self.timers.set(_LateTimer(token), now + self.terms.busy_timeout)
        if run.limits is not None:
            actions.append(Of(group, Begun(run.lane, run.ids[0])))
        actions.append(Emit(worker.port, worker.peer, write_run(token, body or (b"",))))

    def _name_client(self, number: int) -> bytes:
        """Return the end of a token, which is the same for all requests of a connection."""
        peer = self.client_of(number)
        if not peer:
            return b""
        # Not the routing id itself, which is for nobody but the broker.
        return b"-" + sha256(b"%d " % self.terms.epoch + peer).hexdigest()[:16].encode()

    # -- time

    def ring(
        self,
        timer: _AttendantTimer | _LateTimer | _EmptyTimer,
        now: float,
        actions: list[WorkersAction],
    ) -> None:
        """Act on a timer."""
        if isinstance(timer, _EmptyTimer):
            self._forget_if_empty(timer, actions)
        elif isinstance(timer, _LateTimer):
            late = self._tokens.get(timer.token)
            if late is not None:
                self._lose(late, "the worker did not answer in time", actions)
                self._step(late, _Input.INTERRUPT)
        elif (worker := self._workers.get(timer.peer)) is not None:
            self._look_after(worker, now, actions)

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
            self._leave(worker, cause, actions)
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


def _end(group: str, run: Run, outcome: Outcome, payload: bytes) -> Of[GroupReport]:
    return Of(group, Finished(run.lane, run.ids, [outcome], [payload]))


def _shorten(role: str) -> str:
    """Return a service's name as a part of an identity, which has 255 bytes at most.

    No name is the short form of another one: only short forms have the mark between their parts.
    """
    name = role.encode()
    if len(name) <= _LONGEST_GROUP and _MARK not in role:
        return role
    return f"{name[:24].decode(errors='ignore')}{_MARK}{sha256(name).hexdigest()[:32]}"
