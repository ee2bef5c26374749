"""The server of round robin as a machine: clients and workers at one address.

A message of a client is a job of the gateway's manager, which has the processing queue. The workers
are one group. Their table is here. A job arrives as ``Run`` of a lane, with one job, when a worker
has a free slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple, assert_never

from attrs import define, field

from wmp.actions import Drop, End, Halt, Interrupt, Recall, Resolve, Run
from wmp.codec import pack_error
from wmp.core.protocol.timers import Timers
from wmp.events import Cancelled, Closed, Drained, Submitted, Ticked
from wmp.foreign import (
    Arrived,
    Emit,
    ForeignDoorEvent,
    Frames,
    GroupOrder,
    GroupReport,
    Left,
    Of,
    Settled,
    Staff,
    Unsent,
)
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.common.body import FRAMES_CODEC, explain_invalid, read_payload
from wmp.gateways.common.job_end import UNREADABLE, explain_end, no_reply
from wmp.gateways.common.job_lanes import LANE_JOBS, LANE_TIME, JobLane, JobLanes, LaneReportTimer
from wmp.gateways.round_robin.given_messages import GivenMessages, has_form_of_token
from wmp.gateways.round_robin.pending_messages import ClientMessage, ClientMessages, size_of
from wmp.gateways.round_robin.slot_table import SlotTable, SlotWorker
from wmp.gateways.round_robin.terms import (
    RoundRobinDoorSettings,
    RoundRobinDoorStatistics,
)
from wmp.gateways.round_robin.wire import (
    DEREGISTER,
    INCREMENT,
    REGISTER,
    LmqMessage,
    LmqType,
    pass_on,
    read_lmq,
    slots_of,
    write_lmq,
)
from wmp.message import Frame, Outcome

RoundRobinDoorAction = Emit | Submitted | Cancelled | Staff | Of[GroupReport] | Drop | Halt

_OWN = (REGISTER, DEREGISTER, INCREMENT)


class _SilenceTimer(NamedTuple):
    """Look whether a worker was silent for too long."""

    peer: bytes
    what: Literal["life"] = "life"


class _LeaveTimer(NamedTuple):
    """The time after DEREGISTER ends."""

    peer: bytes
    what: Literal["leave"] = "leave"


class _PendingTimer(NamedTuple):
    """INCREMENT for a slot that was expected at once has not come."""

    what: Literal["pending"] = "pending"


class _OverdueTimer(NamedTuple):
    """The oldest message at a worker may have taken too long."""

    what: Literal["busy"] = "busy"


_OVERDUE = _OverdueTimer()
_PENDING = _PendingTimer()

_Timer = _SilenceTimer | _LeaveTimer | _OverdueTimer | _PendingTimer | LaneReportTimer

_PATIENCE = 0.5
"""Seconds for which a door whose jobs wait expects INCREMENT behind a RESPONSE."""


@define(eq=False)
class RoundRobinDoorMachine:
    """Sans-I/O server of round robin.

    Args:
        terms: Times, roles and limits.
        numbers: Gives the numbers of the jobs; doors of one manager share it.
    """

    terms: RoundRobinDoorSettings
    numbers: Iterator[int]
    table: SlotTable = field(factory=SlotTable, init=False)
    _workers: dict[bytes, SlotWorker] = field(factory=dict, init=False)
    """The registered workers, and those that have messages after DEREGISTER."""
    _given: GivenMessages = field(init=False)
    _open_messages: ClientMessages = field(init=False)
    _lanes: JobLanes = field(init=False)
    """The jobs that wait for a slot here, and those of workers.

    Between RESPONSE and INCREMENT a slot is still taken. The door reports the place all the same,
    so that no job goes back to the manager for this moment.
    """
    _given_at: float = field(default=0.0, init=False)
    """When a worker got a message last."""
    _timers: Timers[_Timer] = field(factory=Timers, init=False)
    _reported: int = field(default=0, init=False)
    _draining: bool = field(default=False, init=False)
    _leaving: bool = field(default=False, init=False)
    """Whether the door ends with the last job of its workers."""
    _halted: bool = field(default=False, init=False)
    _requests: int = field(default=0, init=False)
    _replies: int = field(default=0, init=False)
    _unanswered: Counter[str] = field(factory=Counter, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        self._open_messages = ClientMessages(self.terms, self.numbers)
        self._lanes = JobLanes(self._timers)
        self._given = GivenMessages(self.terms, self.table, self._lanes)

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        return None if self._halted else self._timers.next()

    def handle(self, event: ForeignDoorEvent, now: float) -> list[RoundRobinDoorAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[RoundRobinDoorAction] = []
        self._given.now = now
        match event:
            case Arrived(port, peer, frames):
                self._take(port, peer, frames, now, actions)
            case Settled():
                actions.extend(self._open_messages.hand_over())
            case Of(_, what):
                self._order(what, now, actions)
            case Resolve(ids, ends, payloads):
                codecs = event.codecs or {}
                for id, end, payload in zip(ids, ends, payloads, strict=True):
                    self._end_request(id, end, payload, codecs.get(id), actions)
            case Left(_, peer):
                self._left(peer, "its connection ended", actions)
            case Unsent(_, peer, frames):
                self._unsent(peer, frames)
            case Ticked():
                for timer in self._timers.due(now):
                    self._ring(timer, now, actions)
            case Drained():
                # The first one of two is for the clients alone.
                self._leaving, self._draining = self._draining, True
            case Closed():
                self._halt(actions)
                return actions
            case _:
                assert_never(event)
        if self._lanes.waiting(self.terms.group):
            self._give(now, actions)
        if self._given.ends:
            actions += self._given.take_ends()
        places = len(self._given) + self.table.free + self.table.owed
        if places != self._reported:
            self._reported = places
            group, roles = self.terms.group, self.terms.served
            actions.append(Staff(group, roles, places, LANE_JOBS, LANE_TIME))
        if self._leaving and not (self._open_messages or self._lanes):
            self._halt(actions)
        return actions

    @property
    def dismisses(self) -> bool:
        """False: round robin has no message that ends a worker."""
        return False

    def attendances(self) -> dict[str, dict[bytes, Attendance]]:
        """Return the states of the workers by routing id, by group."""
        return {
            self.terms.group: {
                row.peer: Attendance.BUSY if row.debt else Attendance.IDLE
                for row in self.table.rows()
            }
        }

    def open_requests(self) -> int:
        """Return the number of messages of clients in progress."""
        return len(self._open_messages)

    def statistics(self) -> RoundRobinDoorStatistics:
        """Return a snapshot for people and programs."""
        return RoundRobinDoorStatistics(
            len(self.table),
            self.table.free,
            self._requests,
            self._replies,
            len(self._open_messages),
            len(self._open_messages) - self._given.at_home,
            self._given.lost,
            dict(self._unanswered),
            dict(self._dropped),
        )

    # -- messages

    def _take(
        self,
        port: int,
        peer: bytes,
        frames: Frames,
        now: float,
        actions: list[RoundRobinDoorAction],
    ) -> None:
        if has_form_of_token(peer):
            # A worker would answer this peer as it answers a message (RR-3.3).
            actions.append(self._drop("reserved address"))
            return
        message = read_lmq(frames)
        worker = self._workers.get(peer)
        if worker is not None:
            worker.last_at = now
            if worker.away:
                self.table.put_back(worker)  # RR-4.10
                self._timers.arm(_SilenceTimer(peer), now + self.terms.heartbeat)
        if message is None:
            actions.append(self._drop(*explain_invalid(frames, peer)))
        elif message.addresses:
            self._to_address(port, peer, message, frames, actions)
        elif message.type is LmqType.PING:
            self._answer(port, peer, message, LmqType.PONG, actions)
        elif message.type in (LmqType.RESPONSE, LmqType.TRACKADDRESS):
            actions.append(self._drop("other reply"))
        elif message.type is not LmqType.PONG:
            if message.command in _OWN:
                self._control(port, peer, message, worker, now, actions)
            else:
                self._request(port, peer, message, size_of(frames), actions)

    def _answer(
        self,
        port: int,
        peer: bytes,
        message: LmqMessage,
        type: LmqType,
        actions: list[RoundRobinDoorAction],
    ) -> None:
        frames = write_lmq(type, message.id, to=message.hops[::-1])
        actions.append(Emit(port, peer, frames))

    def _to_address(
        self,
        port: int,
        peer: bytes,
        message: LmqMessage,
        frames: Frames,
        actions: list[RoundRobinDoorAction],
    ) -> None:
        address = bytes(message.addresses[0])
        given = self._given.of_token(address, peer)
        if given is not None:
            if message.type is LmqType.RESPONSE and given.tracked and len(message.addresses) == 1:
                self._given.answer(given, message.arguments)
            elif message.type is LmqType.TRACKADDRESS and given.tracked and given.asker is not None:
                # RR-3.8
                asker, hops = given.asker, (peer,)
                back, arguments = asker.hops[::-1], message.arguments
                passed = write_lmq(message.type, asker.id, arguments, to=back, hops=hops)
                actions.append(Emit(asker.port, asker.peer, passed))
            else:
                reason = "invalid" if given.tracked else "RESPONSE to EXEC"
                actions.append(self._drop(reason))
        elif self._given.is_token(address):
            actions.append(self._drop("late reply"))  # RR-3.3
            worker = self._workers.get(peer)
            if worker is not None and message.type is LmqType.RESPONSE:
                self._given.answer_late(worker, address)
        else:
            actions.append(Emit(port, address, pass_on(frames, peer)))

    def _control(
        self,
        port: int,
        peer: bytes,
        message: LmqMessage,
        worker: SlotWorker | None,
        now: float,
        actions: list[RoundRobinDoorAction],
    ) -> None:
        """Act on REGISTER, DEREGISTER or INCREMENT."""
        match message.command:
            case b"\x08":
                if not self._register(port, peer, message, worker, now, actions):
                    return
            case b"\x09":
                if worker is not None and worker.registered:
                    self._deregister(worker, now)
            case _:
                if worker is None or not self._increment(worker):
                    actions.append(self._drop("INCREMENT without a message"))
        if message.type is LmqType.TRACKEXEC:
            self._answer(port, peer, message, LmqType.RESPONSE, actions)

    def _register(
        self,
        port: int,
        peer: bytes,
        message: LmqMessage,
        worker: SlotWorker | None,
        now: float,
        actions: list[RoundRobinDoorAction],
    ) -> bool:
        terms = self.terms
        if self._leaving or (worker is None and len(self._workers) >= terms.max_workers):
            actions.append(self._drop("draining" if self._leaving else "limit"))
            return False
        if worker is None:
            worker = self._workers[peer] = SlotWorker(port, peer, last_at=now)
        slots = slots_of(message.arguments[1] if len(message.arguments) > 1 else b"")
        self.table.put(worker, min(slots, terms.max_slots))
        if slots > worker.slots:
            cause = (
                "raise max_slots for more"
                if worker.slots == terms.max_slots
                else f"all workers of a server have {self.table.maximum} slots together"
            )
            text = f"a worker registers {slots} slots, and gets {worker.slots}; {cause}"
            actions.append(self._drop("slots above max_slots", text))
        self._timers.clear(_LeaveTimer(peer))
        self._timers.arm(_SilenceTimer(peer), now + terms.heartbeat)
        return True

    def _deregister(self, worker: SlotWorker, now: float) -> None:
        self.table.remove(worker)
        if worker.debt:
            # An INCREMENT that is on its way must not count for a later message.
            self._timers.clear(_SilenceTimer(worker.peer))
            self._timers.arm(_LeaveTimer(worker.peer), now + self.terms.leave)
        else:
            self._forget(worker)

    def _increment(self, worker: SlotWorker) -> bool:
        if not self.table.give_back(worker):
            return False
        self._given.increment(worker)
        if not worker.registered and not worker.debt:
            self._forget(worker)  # after DEREGISTER
        return True

    # -- requests of clients

    def _request(
        self,
        port: int,
        peer: bytes,
        message: LmqMessage,
        size: int,
        actions: list[RoundRobinDoorAction],
    ) -> None:
        terms = self.terms
        if self._draining:
            actions.append(self._drop("draining"))
            return
        # A message that finds a free slot does not wait.
        waiting = len(self._open_messages) - self._given.at_home
        full = terms.max_queue is not None and waiting >= terms.max_queue + self.table.free
        if full or self._open_messages.size + size > terms.limit_bytes:
            actions.append(self._drop("limit"))  # RR-5.3
            return
        self._requests += 1
        self._open_messages.add(port, peer, message, size)

    def _end_request(
        self,
        number: int,
        end: End,
        payload: Frame,
        codec: str | None,
        actions: list[RoundRobinDoorAction],
    ) -> None:
        asker = self._open_messages.forget(number)
        if asker is None:
            return  # The client left, or the job is another door's.
        if end is not End.OK:
            actions.append(self._unanswer(asker, end.value, explain_end(end, payload)))
        elif asker.type is LmqType.TRACKEXEC:
            answer = asker.answer
            hops: Frames = ()
            body: Frames | None
            if answer is not None and answer[0] == payload:
                body, hops = answer[1], (answer[2],)
            else:
                body = read_payload(FRAMES_CODEC if codec is None else codec, payload)
            if body is None:
                actions.append(self._unanswer(asker, "unreadable", UNREADABLE))
                return
            self._replies += 1
            result = () if body == (b"",) else body
            back = asker.hops[::-1]
            frames = write_lmq(LmqType.RESPONSE, asker.id, result, to=back, hops=hops)
            actions.append(Emit(asker.port, asker.peer, frames))

    def _unanswer(self, asker: ClientMessage, reason: str, why: str) -> Drop:
        """Count a message without a result (RR-5.4)."""
        self._unanswered[reason] += 1
        return no_reply(f"{asker.type.name} for the role {asker.role!r}", why)

    # -- jobs at workers

    def _order(self, what: GroupOrder, now: float, actions: list[RoundRobinDoorAction]) -> None:
        match what:
            case Run():
                self._lanes.add(self.terms.group, what)
            case Interrupt(lane, ids):
                for given in self._given.of_jobs(lane, ids):
                    self._given.finish(given, Outcome.CANCELLED, b"")
                self._lanes.cancel_waiting(self.terms.group, lane, ids, now, actions)
            case Recall(lane, ids):
                self._lanes.recall(self.terms.group, lane, ids, actions)
            case _:
                assert_never(what)

    def _give(self, now: float, actions: list[RoundRobinDoorAction]) -> None:
        """Give free slots jobs that wait. Without slots the jobs go back to their manager."""
        group, lanes = self.terms.group, self._lanes
        while self.table.free and (job := lanes.next(group, now, actions)) is not None:
            self._begin(*job, now, actions)
        if not lanes.waiting(group):
            return
        if self.table.owed:
            self._timers.arm(_PENDING, now + _PATIENCE)
        elif not self._given:
            lanes.hand_back(group, now, actions)

    def _begin(
        self, lane: JobLane, row: int, now: float, actions: list[RoundRobinDoorAction]
    ) -> None:
        """Give a job to the first worker with a free slot."""
        terms, run = self.terms, lane.run
        job = run.ids[row]
        home = run.manager == terms.home
        if home and self._open_messages.left(job):  # RR-3.7
            self._lanes.end_job(lane, job, Outcome.CANCELLED, b"", now, actions)
            return
        asker = self._open_messages.get(job) if home else None
        arguments = None if asker is None else asker.arguments
        if arguments is None:
            arguments = read_payload(run.kind.codec, run.payloads[row])
        if arguments is None:  # its submitter named another codec than that of the payload
            error = pack_error("UnfitPayload", "the payload is not a list of frames")
            self._lanes.end_job(lane, job, Outcome.ERROR, error, now, actions)
            return
        worker = self.table.take()
        assert worker is not None
        type = LmqType.TRACKEXEC if asker is None else asker.type
        tracked = type is LmqType.TRACKEXEC
        token = self._given.give(lane, job, worker, asker, tracked=tracked)
        self._given_at = now
        if terms.busy_timeout is not None:
            self._timers.arm(_OVERDUE, now + terms.busy_timeout)
        id = token[1:] if asker is None else asker.id
        frames = write_lmq(type, id, arguments, hops=(token,))
        actions.append(Emit(worker.port, worker.peer, frames))

    def _look_at_pending(self, now: float) -> None:
        """Expect no INCREMENT any more if jobs wait for too long."""
        if not self.table.owed or not self._lanes.waiting(self.terms.group):
            return
        due = self._given_at + _PATIENCE
        if due > now:
            self._timers.set(_PENDING, due)
        else:
            for worker in self.table.rows():
                self.table.expect_nothing(worker)

    # -- ends of workers and clients

    def _left(self, peer: bytes, cause: str, actions: list[RoundRobinDoorAction]) -> None:
        if (worker := self._workers.get(peer)) is not None:
            self._leave(worker, cause)
        count, jobs = self._open_messages.forget_all(peer)
        if count:
            self._dropped["client left"] += count
        if jobs:
            actions.append(Cancelled(jobs, unstarted=True))  # RR-3.7

    def _unsent(self, peer: bytes, frames: Frames) -> None:
        """Take back a message that was not sent. A worker that cannot be reached is away."""
        self._dropped["not sent"] += 1
        if (worker := self._workers.get(peer)) is not None:
            self._given.take_unsent(worker, bytes(frames[-1]) if frames else b"")
            if worker.registered:
                self._set_aside(worker, "the worker cannot be reached")

    def _leave(self, worker: SlotWorker, cause: str) -> None:
        """Forget a worker that left (RR-4.8)."""
        self._given.take_back(worker, cause)
        self._forget(worker)

    def _set_aside(self, worker: SlotWorker, cause: str) -> None:
        """Take a worker out of the table until a message of this connection arrives (RR-4.10)."""
        self._given.take_back(worker, cause)
        worker.away = True
        self._timers.clear(_SilenceTimer(worker.peer))

    def _forget(self, worker: SlotWorker) -> None:
        self._workers.pop(worker.peer, None)
        self._timers.clear(_SilenceTimer(worker.peer))
        self._timers.clear(_LeaveTimer(worker.peer))

    # -- time

    def _ring(
        self,
        timer: _Timer,
        now: float,
        actions: list[RoundRobinDoorAction],
    ) -> None:
        if isinstance(timer, _OverdueTimer):
            if (due := self._given.end_overdue(now)) is not None:
                self._timers.set(timer, due)
            return
        if isinstance(timer, LaneReportTimer):
            self._lanes.report(timer, actions)
            return
        if isinstance(timer, _PendingTimer):
            self._look_at_pending(now)
            return
        if (worker := self._workers.get(timer.peer)) is None:
            return
        if isinstance(timer, _LeaveTimer):
            self._leave(worker, "the worker deregistered")
            return
        beat, silent = self.terms.heartbeat, now - worker.last_at
        if silent >= beat * self.terms.liveness:
            self._set_aside(worker, "the worker was silent for too long")
            return
        if silent >= beat:
            id = self._given.new_token()[1:]
            actions.append(Emit(worker.port, worker.peer, write_lmq(LmqType.PING, id)))
            self._timers.set(timer, now + beat)
        else:
            self._timers.set(timer, worker.last_at + beat)

    # -- the end

    def _halt(self, actions: list[RoundRobinDoorAction]) -> None:
        self._halted = True
        actions.append(Halt(None))

    def _drop(self, reason: str, detail: str = "") -> Drop:
        self._dropped[reason] += 1
        return Drop(reason, detail=detail)
