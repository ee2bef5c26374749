"""The server of round robin as a machine: clients and workers at one address.

A message of a client is a job of the gateway's manager, which has the processing queue. The workers
are one group. Their table is here. A job arrives as ``Run`` of a lane, with one job, when a worker
has a free slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, End, Halt, Interrupt, Notify, Recall, Resolve, Run
from wmp.codec import pack_error, pack_frames
from wmp.core.protocol.timers import Timers
from wmp.events import Cancelled, Closed, Drained, Finished, Recalled, Submitted, Ticked
from wmp.foreign import Arrived, Dismissed, Emit, Frames, Left, Of, Settled, Staff, Unsent
from wmp.gateways.machines.body import FRAMES_CODEC, from_payload, to_payload
from wmp.gateways.machines.lmq_wire import (
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
from wmp.gateways.machines.slot_table import GivenMessage, SlotTable, SlotWorker
from wmp.message import Frame, Kind, Outcome, Peer

__all__ = [
    "RoundRobinDoorAction",
    "RoundRobinDoorEvent",
    "RoundRobinDoorMachine",
    "RoundRobinDoorSettings",
    "RoundRobinDoorStatistics",
]

RoundRobinDoorEvent = (
    Arrived
    | Unsent
    | Left
    | Settled
    | Dismissed
    | Of
    | Resolve
    | Notify
    | Ticked
    | Drained
    | Closed
)
RoundRobinDoorAction = Emit | Submitted | Cancelled | Staff | Of | Drop | Halt

_OWN = (REGISTER, DEREGISTER, INCREMENT)


@frozen(kw_only=True)
class RoundRobinDoorSettings:
    """Settings of the server. Times are seconds."""

    epoch: int
    """Time of the start. With a counter it makes tokens that no earlier start has used."""
    group: str = "round-robin"
    """Name of the workers together."""
    role: str = "round-robin"
    """Role of the jobs of commands without a role of their own."""
    roles: Mapping[bytes, str] = field(factory=dict)
    """Roles by command."""
    served: tuple[str, ...] = ("round-robin",)
    """Roles of the jobs that the workers do."""
    priority: int = 0
    retries: int = 3
    expiry: float | None = None
    """Seconds within which a message must be done; None for no limit."""
    heartbeat: float = 30.0
    """A registered worker that was silent for this time gets PING."""
    liveness: int = 3
    """Number of such times after which the worker has left."""
    leave: float = 15.0
    """Time that a worker has after DEREGISTER for the messages that it has."""
    busy_timeout: float | None = None
    """Time after which a message at a worker counts as lost; None for no limit."""
    max_queue: int | None = None
    """Largest number of messages that wait for a worker."""
    limit_bytes: int = 256 << 20
    """Largest number of bytes of all messages in progress."""
    max_workers: int = 10_000
    max_slots: int = 1_000_000
    """Largest number of slots of one worker."""
    home: Peer | None = None
    """The gateway's own manager."""


@frozen
class RoundRobinDoorStatistics:
    """Counts of a server of round robin; a snapshot."""

    workers: int
    """Number of registered workers."""
    free: int
    """Number of their free slots."""
    requests: int
    replies: int
    waiting: int
    """Number of messages of clients in progress."""
    queued: int
    """Number of those that no worker of round robin has."""
    lost: int
    """Number of attempts that ended with their workers."""
    unanswered: Mapping[str, int]
    """Number of messages without a reply, by the end of their jobs."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


@frozen
class _ClientMessage:
    port: int
    peer: bytes
    hops: Frames
    type: LmqType
    id: bytes
    size: int


class _SilenceTimer(NamedTuple):
    """Look whether a worker was silent for too long."""

    peer: bytes
    what: Literal["life"] = "life"


class _LeaveTimer(NamedTuple):
    """The time after DEREGISTER ends."""

    peer: bytes
    what: Literal["leave"] = "leave"


class _OverdueTimer(NamedTuple):
    """A message may have taken too long."""

    token: bytes
    what: Literal["busy"] = "busy"


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
    _lanes: dict[int, GivenMessage] = field(factory=dict, init=False)
    _tokens: dict[bytes, GivenMessage] = field(factory=dict, init=False)
    _askers: dict[int, _ClientMessage] = field(factory=dict, init=False)
    _of_peer: dict[bytes, set[int]] = field(factory=dict, init=False)
    _arrived: dict[str, tuple[list[int], list[Frame]]] = field(factory=dict, init=False)
    """Numbers and payloads that ``Settled`` hands over, by role."""
    _timers: Timers[_SilenceTimer | _LeaveTimer | _OverdueTimer] = field(factory=Timers, init=False)
    _size: int = field(default=0, init=False)
    _at_home: int = field(default=0, init=False)
    """Number of messages of clients that workers of this door have."""
    _token: int = field(init=False)
    _first_token: int = field(init=False)
    _reported: int = field(default=0, init=False)
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _requests: int = field(default=0, init=False)
    _replies: int = field(default=0, init=False)
    _lost: int = field(default=0, init=False)
    _unanswered: Counter[str] = field(factory=Counter, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        self._token = self._first_token = (self.terms.epoch << 20) & (2**64 - 1)

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        return None if self._halted else self._timers.next()

    def handle(self, event: RoundRobinDoorEvent, now: float) -> list[RoundRobinDoorAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[RoundRobinDoorAction] = []
        match event:
            case Arrived(port, peer, frames):
                self._take(port, peer, frames, now, actions)
            case Settled():
                self._hand_over(actions)
            case Of(_, what):
                self._order(what, now, actions)
            case Resolve(ids, ends, payloads):
                codecs = event.codecs or {}
                for id, end, payload in zip(ids, ends, payloads, strict=True):
                    self._end_request(id, end, payload, codecs.get(id), actions)
            case Left(_, peer):
                self._left(peer, "its connection ended", actions)
            case Unsent(_, peer):
                self._dropped["not sent"] += 1
                if (worker := self._workers.get(peer)) is not None:
                    # A full pipe refuses all messages from one on, so the newest ones.
                    if worker.sent and worker.sent.pop() and worker.debt:
                        self.table.forgive(worker)
                    if worker.registered:
                        self._set_aside(worker, "the worker cannot be reached", actions)
            case Ticked():
                for timer in self._timers.due(now):
                    self._ring(timer, now, actions)
            case Drained():
                self._draining = True
            case Closed():
                self._halt(actions)
                return actions
            case Notify() | Dismissed():
                pass  # The protocol has no progress and no message that ends a worker.
            case _:
                assert_never(event)
        idle = self._draining and not self._askers
        places = len(self._lanes) + (0 if idle else self.table.free)
        if places != self._reported:
            self._reported = places
            actions.append(Staff(self.terms.group, self.terms.served, places))
        if idle and not self._lanes:
            self._halt(actions)
        return actions

    def statistics(self) -> RoundRobinDoorStatistics:
        """Return a snapshot for people and programs."""
        return RoundRobinDoorStatistics(
            len(self.table),
            self.table.free,
            self._requests,
            self._replies,
            len(self._askers),
            len(self._askers) - self._at_home,
            self._lost,
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
        message = read_lmq(frames)
        worker = self._workers.get(peer)
        if worker is not None:
            worker.last_at = now
            if worker.away:
                self.table.put_back(worker)  # RR-4.10
                self._timers.arm(_SilenceTimer(peer), now + self.terms.heartbeat)
        if message is None:
            actions.append(self._drop("invalid"))
        elif message.addresses:
            self._to_address(port, peer, message, frames, actions)
        elif message.type is LmqType.PING:
            self._answer(port, peer, message, LmqType.PONG, actions)
        elif message.type is LmqType.RESPONSE:
            actions.append(self._drop("other reply"))
        elif message.type is not LmqType.PONG:
            if message.command in _OWN:
                self._control(port, peer, message, worker, now, actions)
            else:
                self._request(port, peer, message, actions)

    def _answer(
        self,
        port: int,
        peer: bytes,
        message: LmqMessage,
        type: LmqType,
        actions: list[RoundRobinDoorAction],
    ) -> None:
        back = message.hops[::-1]
        self._emit(port, peer, write_lmq(type, message.id, to=back), actions)

    def _emit(
        self, port: int, peer: bytes, frames: Frames, actions: list[RoundRobinDoorAction]
    ) -> None:
        """Send a message that takes no slot."""
        worker = self._workers.get(peer)
        if worker is not None and worker.registered:
            worker.sent.append(False)
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
        assignment = self._tokens.get(address)
        if assignment is not None and assignment.worker.peer == peer:
            if message.type is LmqType.RESPONSE and len(message.addresses) == 1:
                self._reply(assignment, message.arguments, actions)
            else:
                actions.append(self._drop("invalid"))
        elif self._is_token(address):
            actions.append(self._drop("late reply"))  # RR-3.3
            worker = self._workers.get(peer)
            if worker is not None and address in worker.late:
                worker.late.remove(address)
                worker.answered += 1
        else:
            self._emit(port, address, pass_on(frames, peer), actions)

    def _is_token(self, address: bytes) -> bool:
        return (
            len(address) == 8 and self._first_token < int.from_bytes(address, "big") <= self._token
        )

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
                if not self._register(port, peer, message, worker, now):
                    actions.append(self._drop("draining" if self._draining else "limit"))
                    return
            case b"\x09":
                if worker is not None and worker.registered:
                    self._deregister(worker, now)
            case _:
                if worker is None or not self._increment(worker, actions):
                    actions.append(self._drop("INCREMENT without a message"))
        if message.type is LmqType.TRACKEXEC:
            self._answer(port, peer, message, LmqType.RESPONSE, actions)

    def _register(
        self, port: int, peer: bytes, message: LmqMessage, worker: SlotWorker | None, now: float
    ) -> bool:
        if self._draining or (worker is None and len(self._workers) >= self.terms.max_workers):
            return False
        if worker is None:
            worker = self._workers[peer] = SlotWorker(port, peer, last_at=now)
        argument = message.arguments[1] if len(message.arguments) > 1 else b""
        self.table.put(worker, slots_of(argument, self.terms.max_slots))
        self._timers.clear(_LeaveTimer(peer))
        self._timers.arm(_SilenceTimer(peer), now + self.terms.heartbeat)
        return True

    def _deregister(self, worker: SlotWorker, now: float) -> None:
        self.table.remove(worker)
        if worker.assignments:
            self._timers.clear(_SilenceTimer(worker.peer))
            self._timers.arm(_LeaveTimer(worker.peer), now + self.terms.leave)
        else:
            self._forget(worker)

    def _increment(self, worker: SlotWorker, actions: list[RoundRobinDoorAction]) -> bool:
        if not self.table.give_back(worker):
            return False
        if worker.answered:
            worker.answered -= 1
        elif worker.untracked:
            self._finish(worker.untracked[0], Outcome.OK, b"", actions)
        if not worker.debt:
            # RR-4.6: no answer can come any more.
            text = "the worker did the message and sent no RESPONSE"
            for assignment in tuple(worker.assignments.values()):
                self._finish(assignment, Outcome.ERROR, pack_error("NoResponse", text), actions)
        if not worker.registered and not worker.assignments:
            self._forget(worker)  # after DEREGISTER
        return True

    # -- requests of clients

    def _request(
        self, port: int, peer: bytes, message: LmqMessage, actions: list[RoundRobinDoorAction]
    ) -> None:
        terms = self.terms
        size = sum(map(len, message.arguments))
        waiting = len(self._askers) - self._at_home
        if self._draining:
            actions.append(self._drop("draining"))
            return
        # A message that finds a free slot does not wait.
        full = terms.max_queue is not None and waiting >= terms.max_queue + self.table.free
        if full or self._size + size > terms.limit_bytes:
            actions.append(self._drop("limit"))  # RR-5.3
            return
        self._requests += 1
        number = next(self.numbers)
        asker = _ClientMessage(port, peer, message.hops, message.type, message.id, size)
        self._askers[number] = asker
        self._size += size
        self._of_peer.setdefault(peer, set()).add(number)
        role = terms.roles.get(message.command, terms.role)
        ids, payloads = self._arrived.setdefault(role, ([], []))
        ids.append(number)
        payloads.append(pack_frames(message.arguments))

    def _hand_over(self, actions: list[RoundRobinDoorAction]) -> None:
        """Hand over the requests that arrived since the last call."""
        terms, arrived = self.terms, self._arrived
        if not arrived:
            return
        self._arrived = {}
        actions.extend(
            Submitted(
                ids=ids,
                payloads=payloads,
                kind=Kind(role, codec=FRAMES_CODEC),
                priority=terms.priority,
                timeout=terms.expiry,
                retries=terms.retries,
            )
            for role, (ids, payloads) in arrived.items()
        )

    def _end_request(
        self,
        number: int,
        end: End,
        payload: Frame,
        codec: str | None,
        actions: list[RoundRobinDoorAction],
    ) -> None:
        asker = self._forget_request(number)
        if asker is None:
            return  # The client left, or the job is another door's.
        if end is not End.OK:
            self._unanswered[end.value] += 1
        elif asker.type is LmqType.TRACKEXEC:
            self._replies += 1
            body = from_payload(FRAMES_CODEC if codec is None else codec, payload)
            result = () if body == (b"",) else body
            back = asker.hops[::-1]
            frames = write_lmq(LmqType.RESPONSE, asker.id, result, to=back)
            actions.append(Emit(asker.port, asker.peer, frames))

    def _forget_request(self, number: int) -> _ClientMessage | None:
        asker = self._askers.pop(number, None)
        if asker is not None:
            self._size -= asker.size
            numbers = self._of_peer[asker.peer]
            numbers.discard(number)
            if not numbers:
                del self._of_peer[asker.peer]
        return asker

    # -- jobs at workers

    def _order(self, what: object, now: float, actions: list[RoundRobinDoorAction]) -> None:
        match what:
            case Run():
                self._run(what, now, actions)
            case Interrupt(lane, _):
                assignment = self._lanes.get(lane)
                if assignment is not None:
                    self._finish(assignment, Outcome.CANCELLED, b"", actions)
            case Recall(lane, _):
                actions.append(Of(self.terms.group, Recalled(lane, ())))
            case _:
                pass  # The others are events of the door itself.

    def _run(self, run: Run, now: float, actions: list[RoundRobinDoorAction]) -> None:
        terms = self.terms
        home = run.manager == terms.home
        asker = self._askers.get(run.ids[0]) if home else None
        arguments = from_payload(run.kind.codec, run.payloads[0])
        # At the end only jobs of this gateway are still done.
        unwanted = asker is None and (home or self._draining)
        worker = None if unwanted else self.table.take()
        if worker is None:
            actions.append(self._of_end(run, Outcome.CANCELLED, b""))
            return
        self._token += 1
        token = (self._token & 2**64 - 1).to_bytes(8, "big")
        type = LmqType.TRACKEXEC if asker is None else asker.type
        assignment = GivenMessage(run, token, type is LmqType.TRACKEXEC, worker)
        self._lanes[run.lane] = self._tokens[token] = worker.assignments[token] = assignment
        self._at_home += home
        if not assignment.tracked:
            worker.untracked.append(assignment)
        if terms.busy_timeout is not None:
            self._timers.set(_OverdueTimer(token), now + terms.busy_timeout)
        id = token if asker is None else asker.id
        worker.sent.append(True)
        frames = write_lmq(type, id, arguments, hops=(token,))
        actions.append(Emit(worker.port, worker.peer, frames))

    def _reply(
        self, assignment: GivenMessage, body: Frames, actions: list[RoundRobinDoorAction]
    ) -> None:
        if not assignment.tracked:
            actions.append(self._drop("RESPONSE to EXEC"))
            return
        run = assignment.run
        assignment.worker.answered += 1
        asked = run.kind.codec
        if len(body) > 1 and asked != FRAMES_CODEC and run.manager != self.terms.home:
            text = f"the reply has {len(body)} frames; submit the job with the codec 'frames'"
            self._finish(
                assignment, Outcome.ERROR, pack_error("SeveralFrames", text), actions, answered=True
            )
            return
        codec, payload = to_payload(body or (b"",), as_list=asked == FRAMES_CODEC)
        other = None if codec == asked or not codec else codec
        self._finish(assignment, Outcome.OK, payload, actions, codec=other, answered=True)

    def _finish(
        self,
        assignment: GivenMessage,
        outcome: Outcome,
        payload: bytes | Frame,
        actions: list[RoundRobinDoorAction],
        *,
        codec: str | None = None,
        answered: bool = False,
    ) -> None:
        """End the job of an assignment."""
        run, worker, token = assignment.run, assignment.worker, assignment.token
        del self._lanes[run.lane], self._tokens[token], worker.assignments[token]
        self._at_home -= run.manager == self.terms.home
        if not assignment.tracked:
            worker.untracked.remove(assignment)
            if outcome is Outcome.OK:
                payload = pack_frames((b"",)) if run.kind.codec == FRAMES_CODEC else b""
        if self.terms.busy_timeout is not None:
            self._timers.clear(_OverdueTimer(token))
        if not answered:
            self._lost += outcome is Outcome.LOST
            if assignment.tracked and worker.debt:
                worker.late.add(token)
        actions.append(self._of_end(run, outcome, payload, codec))

    def _of_end(
        self, run: Run, outcome: Outcome, payload: bytes | Frame, codec: str | None = None
    ) -> Of:
        end = Finished(run.lane, run.ids, [outcome], [payload], codec=codec)
        return Of(self.terms.group, end)

    # -- ends of workers and clients

    def _left(self, peer: bytes, cause: str, actions: list[RoundRobinDoorAction]) -> None:
        if (worker := self._workers.get(peer)) is not None:
            self._leave(worker, cause, actions)
        numbers = sorted(self._of_peer.get(peer, ()))
        if not numbers:
            return
        for number in numbers:
            self._forget_request(number)
        self._dropped["client left"] += len(numbers)
        gone, fresh = set(numbers), set[int]()
        for role, (ids, payloads) in list(self._arrived.items()):
            kept = [(id, one) for id, one in zip(ids, payloads, strict=True) if id not in gone]
            fresh.update(gone.intersection(ids))
            self._arrived[role] = ([id for id, _ in kept], [one for _, one in kept])
            if not kept:
                del self._arrived[role]
        if rest := [number for number in numbers if number not in fresh]:
            actions.append(Cancelled(rest, unstarted=True))  # RR-3.7

    def _leave(self, worker: SlotWorker, cause: str, actions: list[RoundRobinDoorAction]) -> None:
        """Forget a worker that left (RR-4.8)."""
        self._take_back(worker, cause, actions)
        self._forget(worker)

    def _set_aside(
        self, worker: SlotWorker, cause: str, actions: list[RoundRobinDoorAction]
    ) -> None:
        """Take a worker out of the table until a message of this connection arrives (RR-4.10)."""
        self._take_back(worker, cause, actions)
        worker.away = True
        self._timers.clear(_SilenceTimer(worker.peer))

    def _take_back(
        self, worker: SlotWorker, cause: str, actions: list[RoundRobinDoorAction]
    ) -> None:
        """Take back the slots and the messages of a worker."""
        self.table.remove(worker)
        for assignment in tuple(worker.assignments.values()):
            if assignment.tracked:
                self._finish(assignment, Outcome.LOST, cause.encode(), actions)
            else:
                # An EXEC may have been done.
                text = pack_error("WorkerLeft", cause)
                self._finish(assignment, Outcome.ERROR, text, actions)

    def _forget(self, worker: SlotWorker) -> None:
        self._workers.pop(worker.peer, None)
        self._timers.clear(_SilenceTimer(worker.peer))
        self._timers.clear(_LeaveTimer(worker.peer))

    # -- time

    def _ring(
        self,
        timer: _SilenceTimer | _LeaveTimer | _OverdueTimer,
        now: float,
        actions: list[RoundRobinDoorAction],
    ) -> None:
        if isinstance(timer, _OverdueTimer):  # another timer may have removed the message
            if (assignment := self._tokens.get(timer.token)) is not None:
                self._finish(assignment, Outcome.LOST, b"the worker took too long", actions)
            return
        if (worker := self._workers.get(timer.peer)) is None:
            return
        if isinstance(timer, _LeaveTimer):
            self._leave(worker, "the worker deregistered", actions)
            return
        beat, silent = self.terms.heartbeat, now - worker.last_at
        if silent >= beat * self.terms.liveness:
            self._set_aside(worker, "the worker was silent for too long", actions)
            return
        if silent >= beat:
            self._token += 1
            id = (self._token & 2**64 - 1).to_bytes(8, "big")
            self._emit(worker.port, worker.peer, write_lmq(LmqType.PING, id), actions)
            self._timers.set(timer, now + beat)
        else:
            self._timers.set(timer, worker.last_at + beat)

    # -- the end

    def _halt(self, actions: list[RoundRobinDoorAction]) -> None:
        self._halted = True
        actions.append(Halt(None))

    def _drop(self, reason: str) -> Drop:
        self._dropped[reason] += 1
        return Drop(reason)
