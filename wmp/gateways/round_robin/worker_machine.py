"""The worker of round robin as a machine: registration, slots, one INCREMENT for each message."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, Halt, Run
from wmp.codec import pack_frames
from wmp.errors import NoReply
from wmp.events import Closed, Connected, Drained, Finished, Ticked
from wmp.foreign import (
    Arrived,
    Emit,
    EndRequest,
    ForeignAction,
    ForeignWorkerEvent,
    Frames,
    Unsent,
)
from wmp.gateways.common.body import FRAMES_CODEC, result_body
from wmp.gateways.common.serial_worker import PEER_OF_FOREIGN_JOBS
from wmp.gateways.round_robin.lmq_link import LinkTimes, LmqLink, LmqLinkState
from wmp.gateways.round_robin.wire import (
    DEREGISTER,
    INCREMENT,
    REGISTER,
    LmqMessage,
    LmqType,
    read_lmq,
    write_lmq,
)
from wmp.message import Kind, Outcome


@frozen
class RoundRobinWorkerStatistics:
    """Counts of a worker of round robin; a snapshot."""

    requests: int
    replies: int
    failed: int
    """Number of messages whose handler failed."""
    by_command: Mapping[bytes, tuple[int, int]]
    """Number of messages, and of those that the handler did without an error, by command."""
    reopened: int
    """Number of times that the socket was replaced."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


@define(eq=False)
class RoundRobinWorkerMachine:
    """Sans-I/O worker, on the DEALER number 0. The registration ends by ``EndRequest`` number 0.

    Args:
        roles: Roles of the handlers, by command.
        slots: Number of messages at the same time.
        times: Times of the connection.
        timeout: Seconds until REGISTER is sent again.
        tries: Sends of the first registration in all.
        limit: Maximum number of messages that wait for a handler.
    """

    roles: Mapping[bytes, str]
    slots: int = 10
    times: LinkTimes = field(factory=LinkTimes)
    timeout: float = 5.0
    tries: int = 3
    limit: int = 1000
    settings: None = field(default=None, init=False)
    registered: bool = field(default=False, init=False)
    _link: LmqLink = field(init=False)
    _ever: bool = field(default=False, init=False)
    """Whether the worker was registered once."""
    _register: bytes = field(default=b"", init=False)
    """Id of the newest REGISTER; empty while there is none on this connection."""
    _try: int = field(default=0, init=False)
    _due_at: float = field(default=0.0, init=False)
    _pending: deque[LmqMessage] = field(factory=deque, init=False)
    _running: dict[int, LmqMessage] = field(factory=dict, init=False)
    """The running messages by their lanes."""
    _stale: set[int] = field(factory=set, init=False)
    """Lanes of messages of earlier connections."""
    _job: int = field(default=0, init=False)
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _replies: int = field(default=0, init=False)
    _counts: Counter[bytes] = field(factory=Counter, init=False)
    _done: Counter[bytes] = field(factory=Counter, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        self._link = LmqLink(self.times)

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        if self._halted:
            return None
        due = self._link.deadline()
        if due is not None and self._register and not self.registered:
            return min(due, self._due_at)
        return due

    def handle(self, event: ForeignWorkerEvent, now: float) -> list[ForeignAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[ForeignAction] = []
        match event:
            case Arrived(_, _, frames):
                self._arrived(frames, now, actions)
            case Connected():
                self._lose_connection()
                actions += self._link.connected(now)
            case Finished():
                self._finished(event, actions)
            case Ticked():
                self._ticked(now, actions)
            case Unsent():
                self._unsent(actions)
            case Drained():
                if not self._draining:
                    self._draining = True
                    self._send_deregister(actions)
            case Closed():
                if not self._draining:
                    self._send_deregister(actions)
                self._halt(None, actions)
                return actions
            case _:
                assert_never(event)
        if self._draining and not self._running and not self._pending:
            self._halt(None, actions)
        return actions

    def statistics(self) -> RoundRobinWorkerStatistics:
        """Return a snapshot for people and programs."""
        by_command = {command: (n, self._done[command]) for command, n in self._counts.items()}
        failed = self._job - len(self._running) - self._done.total()
        return RoundRobinWorkerStatistics(
            self._job,
            self._replies,
            failed,
            by_command,
            self._link.reopened,
            dict(self._dropped),
        )

    # -- the connection

    def _unsent(self, actions: list[ForeignAction]) -> None:
        """Begin anew: the server would wait for a lost INCREMENT for ever (RR-6.8)."""
        actions.append(self._drop("not sent"))
        if self._link.state is not LmqLinkState.CLOSED:
            self._lose_connection()
            actions += self._link.replace()

    def _lose_connection(self) -> None:
        """Forget what belongs to the last connection: the server gives its messages to others."""
        self.registered = False
        self._register = b""
        self._try = 0
        self._pending.clear()
        self._stale.update(self._running)

    def _arrived(self, frames: Frames, now: float, actions: list[ForeignAction]) -> None:
        message = read_lmq(frames)
        if message is None or message.addresses:
            actions.append(self._drop("invalid"))
            return
        opened, answer = self._link.arrived(message, now)
        actions += answer
        if opened and not self._draining:
            self._send_register(now, actions)
        elif message.type is LmqType.RESPONSE:
            self._response(message, actions)
        elif message.type in (LmqType.EXEC, LmqType.TRACKEXEC):
            self._take(message, actions)

    def _send_register(self, now: float, actions: list[ForeignAction]) -> None:
        """Send REGISTER; as the original workers do with an id of 4 bytes."""
        self._try += 1
        self._register = self._link.new_id()[:4]
        self._due_at = now + self.timeout
        arguments = (REGISTER, b"%d" % self.slots)
        actions.append(Emit(0, b"", write_lmq(LmqType.TRACKEXEC, self._register, arguments)))

    def _response(self, message: LmqMessage, actions: list[ForeignAction]) -> None:
        if self.registered or message.id != self._register:
            actions.append(self._drop("other reply"))
            return
        self.registered = self._ever = True
        actions.append(EndRequest(0, (), self._try))

    def _ticked(self, now: float, actions: list[ForeignAction]) -> None:
        if self._register and not self.registered and now >= self._due_at:
            if self._try < self.tries:
                self._send_register(now, actions)
            elif self._ever:
                self._lose_connection()
                actions += self._link.replace()
            else:
                error = NoReply(
                    f"the server did not answer REGISTER in {self.tries} tries of "
                    f"{self.timeout:g} s; check that a server of round robin is at this address, "
                    "and takes further workers"
                )
                self._halt(error, actions)
            return
        link_actions = self._link.ticked(now)
        if not self._link.up:
            self._lose_connection()
        actions += link_actions

    def _send_deregister(self, actions: list[ForeignAction]) -> None:
        if self._register:
            actions.append(
                Emit(0, b"", write_lmq(LmqType.EXEC, b"WORKER", (DEREGISTER,)))
            )  # RR-6.6

    # -- messages

    def _take(self, message: LmqMessage, actions: list[ForeignAction]) -> None:
        if not self._register:
            actions.append(self._drop("no REGISTER on this connection"))
        elif message.command not in self.roles:
            self._increment(actions)  # RR-6.3
            actions.append(self._drop("unknown command"))
        elif len(self._running) < self.slots:
            self._begin(message, actions)
        elif len(self._pending) < self.limit:
            self._pending.append(message)
        else:
            self._increment(actions)
            actions.append(self._drop("limit"))

    def _begin(self, message: LmqMessage, actions: list[ForeignAction]) -> None:
        self._job += 1
        lane = self._job
        self._running[lane] = message
        self._counts[message.command] += 1
        kind = Kind(self.roles[message.command], codec=FRAMES_CODEC)
        payload = pack_frames(message.arguments)
        actions.append(Run(lane, kind, PEER_OF_FOREIGN_JOBS, (lane,), (1,), None, (payload,)))

    def _finished(self, event: Finished, actions: list[ForeignAction]) -> None:
        message = self._running.pop(event.lane, None)
        if message is None:
            actions.append(self._drop("no such message"))
            return
        stale = event.lane in self._stale
        self._stale.discard(event.lane)
        if event.outcomes[0] is Outcome.OK:
            self._done[message.command] += 1
            if message.type is LmqType.TRACKEXEC and not stale:
                self._replies += 1
                body = result_body(event, FRAMES_CODEC)
                result = () if body == (b"",) else body
                back = message.hops[::-1]
                frames = write_lmq(LmqType.RESPONSE, message.id, result, to=back)
                actions.append(Emit(0, b"", frames))
        if not stale:
            self._increment(actions)
        while self._pending and len(self._running) < self.slots:
            self._begin(self._pending.popleft(), actions)

    def _increment(self, actions: list[ForeignAction]) -> None:
        id = self._link.new_id()[:4]
        actions.append(Emit(0, b"", write_lmq(LmqType.EXEC, id, (INCREMENT,))))

    # -- the end

    def _halt(self, error: Exception | None, actions: list[ForeignAction]) -> None:
        self._halted = True
        actions.append(Halt(error))

    def _drop(self, reason: str) -> Drop:
        self._dropped[reason] += 1
        return Drop(reason)
